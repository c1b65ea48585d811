// Prefetching of KV that is attended to next.
#pragma once
#include "cpu/attention_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Prefetches rows of K or of V into the second-level cache, in memory order and a few lines with
/// each call: lines in a burst wait for each other while nothing is computed.
template <class Kv>
class KvAhead {
 public:
  /// Prefetches nothing.
  KvAhead() = default;
  /// Rows of positions [begin, end), from kv.k_offset or v_offset on, `row_bytes` each, over some
  /// calls of fetch().
  KvAhead(const KvView& kv, size_t offset, uint32_t begin, uint32_t end, size_t row_bytes,
          uint32_t calls)
      : kv_(&kv),
        offset_(offset),
        position_(begin),
        end_(end),
        lines_(static_cast<uint32_t>(row_bytes + 63) / 64),
        lines_per_call_(begin < end ? ceil_div(lines_ * (end - begin), calls) : 0) {}

  __attribute__((always_inline)) void fetch() {
    for (uint32_t wanted = lines_per_call_; wanted != 0;) {
      if (left_ == 0 && !begin_row()) return;
      const uint32_t run = min_u32(wanted, left_);
      for (uint32_t i = 0; i < run; ++i) __builtin_prefetch(at_ + size_t{i} * 64, 0, 2);
      at_ += size_t{run} * 64;
      left_ -= run;
      wanted -= run;
    }
  }

 private:
  /// Inlined though it is rare: a call would make compilers keep the sums of the loops around it in
  /// memory.
  __attribute__((always_inline)) bool begin_row() {
    if (position_ == end_) {
      lines_per_call_ = 0;
      return false;
    }
    at_ = reinterpret_cast<const char*>(kv_row<Kv>(*kv_, offset_, position_));
    left_ = lines_;
    ++position_;
    return true;
  }

  const KvView* kv_ = nullptr;
  size_t offset_ = 0;
  const char* at_ = nullptr;
  uint32_t position_ = 0;
  uint32_t end_ = 0;
  uint32_t lines_ = 0;  // of a row
  uint32_t left_ = 0;   // of the row that is being prefetched
  uint32_t lines_per_call_ = 0;
};

}  // namespace SAC_ISA
}  // namespace saccade
