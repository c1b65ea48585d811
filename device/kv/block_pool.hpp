// KV blocks of one tier: who owns which, and when one may be used again. Fixed memory; first in,
// first out, so that a block rests as long as possible before it is reused.
//
// A block that is given back goes through two fences: the copies that touch it, and the last step
// that does. While a copy is not done the block is in transit: neither owned nor free. It joins the
// free ring when the last of them is counted, and is handed out once its step is done.
#pragma once
#include "kv/copies.hpp"

namespace saccade {

inline constexpr uint32_t kNoBlock = UINT32_MAX;
inline constexpr uint32_t kNoOwner = UINT32_MAX;
/// Owner of a block that was given back while a copy still touches it.
inline constexpr uint32_t kInTransit = UINT32_MAX - 1;

struct BlockPool {
  uint32_t num_blocks;
  uint32_t num_free;
  uint32_t num_in_transit;
  uint32_t head;         // index in free_ring of the block to hand out next
  uint32_t* free_ring;   // [num_blocks]
  uint32_t* owner;       // [num_blocks]: seat, kNoOwner or kInTransit
  uint64_t* fence;       // [num_blocks]: last step that touched it; reusable once that step is done
  uint64_t* down_fence;  // [num_blocks]: last copy down that touches it; 0 = none ever did
  uint64_t* up_fence;    // [num_blocks]: last copy up

  SAC_HD void reset(uint32_t blocks) {
    num_blocks = num_free = blocks;
    num_in_transit = head = 0;
    for (uint32_t b = 0; b < blocks; ++b) {
      free_ring[b] = b;
      owner[b] = kNoOwner;
      fence[b] = down_fence[b] = up_fence[b] = 0;
    }
  }
  /// Not free: owned or in transit.
  SAC_HD uint32_t used() const { return num_blocks - num_free; }
  /// Free now, or as soon as copies are done that were asked for already.
  SAC_HD uint32_t num_coming() const { return num_free + num_in_transit; }

  /// No copy that was asked for touches the block any more.
  SAC_HD bool is_still(uint32_t block, const Copies& copies) const {
    return down_fence[block] <= copies.down.done && up_fence[block] <= copies.up.done;
  }

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
  SAC_HD void release(uint32_t block, uint64_t last_step, const Copies& copies) {
    fence[block] = last_step;
    if (is_still(block, copies)) {
      add_free(block);
    } else {
      owner[block] = kInTransit;
      ++num_in_transit;
    }
  }
  /// One of the block's copies was counted: frees the block if it waits for no other.
  SAC_HD void settle(uint32_t block, const Copies& copies) {
    if (owner[block] != kInTransit || !is_still(block, copies)) return;
    --num_in_transit;
    add_free(block);
  }

 private:
  SAC_HD void add_free(uint32_t block) {
    const uint32_t tail = head + num_free;
    free_ring[tail >= num_blocks ? tail - num_blocks : tail] = block;
    ++num_free;
    owner[block] = kNoOwner;
  }
};

}  // namespace saccade
