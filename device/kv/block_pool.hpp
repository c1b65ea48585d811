// KV blocks: who owns which, and when one may be used again. Fixed memory; first in, first out, so
// that a block rests as long as possible before it is reused.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

inline constexpr uint32_t kNoBlock = UINT32_MAX;
inline constexpr uint32_t kNoOwner = UINT32_MAX;

struct BlockPool {
  uint32_t num_blocks;
  uint32_t num_free;
  uint32_t head;        // index in free_ring of the block to hand out next
  uint32_t* free_ring;  // [num_blocks]
  uint32_t* owner;      // [num_blocks]: seat, or kNoOwner
  uint64_t* fence;      // [num_blocks]: last step that touched it; reusable once that step is done

  SAC_HD void reset(uint32_t blocks) {
    num_blocks = num_free = blocks;
    head = 0;
    for (uint32_t b = 0; b < blocks; ++b) {
      free_ring[b] = b;
      owner[b] = kNoOwner;
      fence[b] = 0;
    }
  }
  SAC_HD uint32_t used() const { return num_blocks - num_free; }

  /// A block for `seat`, or kNoBlock if none is free whose last step is done. Freed blocks stand in
  /// order of their fences, so looking at the head is enough.
  SAC_HD uint32_t allocate(uint32_t seat, uint64_t completed_step) {
    if (num_free == 0) return kNoBlock;
    const uint32_t block = free_ring[head];
    if (fence[block] > completed_step) return kNoBlock;
    head = head + 1 == num_blocks ? 0 : head + 1;
    --num_free;
    owner[block] = seat;
    return block;
  }
  /// Gives a block back; `last_step` is the number of the last launch that may touch it.
  SAC_HD void release(uint32_t block, uint64_t last_step) {
    const uint32_t tail = head + num_free;
    free_ring[tail >= num_blocks ? tail - num_blocks : tail] = block;
    ++num_free;
    owner[block] = kNoOwner;
    fence[block] = last_step;
  }
};

}  // namespace saccade
