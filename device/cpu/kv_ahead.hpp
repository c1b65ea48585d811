// Prefetching of KV that is attended to next.
#pragma once
#include "cpu/attention_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Prefetches rows of K and V into the second-level cache, in memory order and a few lines with
/// each call: lines in a burst wait for each other while nothing is computed.
template <class Kv>
class KvAhead {
 public:
  /// Prefetches nothing.
  KvAhead() = default;
  /// Rows of positions [begin, end), `row_bytes` each of K and V, over some calls of fetch().
  KvAhead(const KvView& kv, uint32_t begin, uint32_t end, size_t row_bytes, uint32_t calls)
      : kv_(&kv),
        position_(begin),
        end_(end),
        lines_(static_cast<uint32_t>(row_bytes + 63) / 64),
        lines_per_call_(begin < end ? ceil_div(2 * lines_ * (end - begin), calls) : 0) {}

  /// As many lines as `calls` calls.
  __attribute__((always_inline)) void fetch(uint32_t calls) {
    for (uint32_t wanted = calls * lines_per_call_; wanted != 0;) {
      if (left_ == 0 && !begin_row()) return;
      const uint32_t run = min_u32(wanted, left_);
      for (uint32_t i = 0; i < run; ++i) __builtin_prefetch(at_ + size_t{i} * 64, 0, 2);
      at_ += size_t{run} * 64;
      left_ -= run;
      wanted -= run;
    }
  }

 private:
  /// K of a position, then its V. Rarely called, and kept out of the loops that call fetch().
  __attribute__((noinline)) bool begin_row() {
    if (position_ == end_) {
      lines_per_call_ = 0;
      return false;
    }
    const size_t offset = is_value_ ? kv_->v_offset : kv_->k_offset;
    at_ = reinterpret_cast<const char*>(kv_row<Kv>(*kv_, offset, position_));
    left_ = lines_;
    position_ += is_value_ ? 1 : 0;
    is_value_ = !is_value_;
    return true;
  }

  const KvView* kv_ = nullptr;
  const char* at_ = nullptr;
  uint32_t position_ = 0;
  uint32_t end_ = 0;
  uint32_t lines_ = 0;  // of a row
  uint32_t left_ = 0;   // of the row that is being prefetched
  uint32_t lines_per_call_ = 0;
  bool is_value_ = false;  // the next row is of V
};

}  // namespace SAC_ISA
}  // namespace saccade
