// How one thread moves a share of a block through shared memory by bulk copies: loads run a few
// stages ahead of stores, and a stage is loaded again only when its store has read it. The order is
// here; the instructions are the Bulk's (rotation.cu), or a twin's that checks the order.
//
// Bulk: load(stage, from, bytes) (begins), await_load(stage, parity), store(stage, to, bytes)
// (begins a group of its own), await_read(pending) (all stores but the last `pending` have read
// their stage), await_stores() (all stores are complete).
#pragma once
#include "platform/hd.hpp"

namespace saccade {

inline constexpr uint32_t kBulkStages = 6;
inline constexpr uint32_t kBulkStageBytes = 16 * 1024;
/// Loads ahead of the store; the other stages are being read by stores.
inline constexpr uint32_t kBulkAhead = 3;
static_assert(kBulkAhead < kBulkStages);

class BulkPipeline {
 public:
  template <class Bulk>
  SAC_HD void copy(Bulk& bulk, unsigned char* to, const unsigned char* from, uint64_t bytes) {
    const uint64_t parts = (bytes + kBulkStageBytes - 1) / kBulkStageBytes;
    for (uint64_t i = 0; i < parts + kBulkAhead; ++i) {
      if (i < parts) {
        if (i >= kBulkStages) bulk.await_read(kBulkStages - 1 - kBulkAhead);
        bulk.load(stage(first_ + i), from + i * kBulkStageBytes, part_bytes(bytes, i));
      }
      if (i < kBulkAhead) continue;
      const uint64_t j = i - kBulkAhead;
      if (j >= parts) continue;
      bulk.await_load(stage(first_ + j), parity(first_ + j));
      bulk.store(stage(first_ + j), to + j * kBulkStageBytes, part_bytes(bytes, j));
    }
    bulk.await_stores();
    first_ += parts;
  }

 private:
  SAC_HD static uint32_t stage(uint64_t part) { return static_cast<uint32_t>(part % kBulkStages); }
  SAC_HD static uint32_t parity(uint64_t part) {
    return static_cast<uint32_t>(part / kBulkStages % 2);
  }
  SAC_HD static uint32_t part_bytes(uint64_t bytes, uint64_t part) {
    const uint64_t left = bytes - part * kBulkStageBytes;
    return left < kBulkStageBytes ? static_cast<uint32_t>(left) : kBulkStageBytes;
  }

  uint64_t first_ = 0;  // number of the next part, over all copies: says stage and parity
};

}  // namespace saccade
