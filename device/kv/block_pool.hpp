// Places for KV blocks in one tier: the owner of each, and when it may be reused. Fixed memory;
// first in, first out, so that a place rests as long as possible before it is reused.
//
// A released block goes through two fences: the copies that touch it, and the last step that does.
// Until its copies are done the block is in transit: neither owned nor free. It joins the free ring
// when the last copy is counted, and is handed out once its step is done.
#pragma once
#include "kv/copies.hpp"

namespace saccade {

inline constexpr uint32_t kNoBlock = UINT32_MAX;
inline constexpr uint32_t kNoOwner = UINT32_MAX;
/// Owner of a released place that a copy still touches.
inline constexpr uint32_t kInTransit = UINT32_MAX - 1;

/// allocate() prefetches the state of the place this far ahead in the free ring: a tier's states do
/// not fit in the caches near the core, and free places are scattered over them.
inline constexpr uint32_t kBlocksAhead = 8;

/// What a block's next use waits for. In one struct, because code that touches one field needs the
/// others.
struct BlockState {
  uint64_t fence;       // last step that touched it; reusable once that step is done
  uint64_t down_fence;  // last copy down that touches it; 0 = none ever did
  uint64_t up_fence;    // last copy up
  uint32_t owner;       // KV block, kNoOwner or kInTransit
  uint32_t _pad0;
};

struct BlockPool {
  uint32_t num_blocks;
  uint32_t num_free;
  uint32_t num_in_transit;
  uint32_t head;        // index in free_ring of the block to hand out next
  uint32_t* free_ring;  // [num_blocks]
  BlockState* states;   // [num_blocks]

  SAC_HD void reset(uint32_t blocks) {
    num_blocks = num_free = blocks;
    num_in_transit = head = 0;
    for (uint32_t b = 0; b < blocks; ++b) {
      free_ring[b] = b;
      states[b] = BlockState{0, 0, 0, kNoOwner, 0};
    }
  }
  /// Not free: owned or in transit.
  SAC_HD uint32_t used() const { return num_blocks - num_free; }

  /// No copy in flight touches the block.
  SAC_HD bool is_still(uint32_t block, const Copies& copies) const {
    const BlockState& b = states[block];
    return b.down_fence <= copies.down.done && b.up_fence <= copies.up.done;
  }

  /// A place for `owner`; kNoBlock if none is free, or a step may still touch the one that has been
  /// free for longest. Another may be ready: then the owner waits for one more step.
  SAC_HD uint32_t allocate(uint32_t owner, uint64_t completed_step) {
    if (num_free == 0) return kNoBlock;
    const uint32_t block = free_ring[head];
    if (states[block].fence > completed_step) return kNoBlock;
    head = next(head, 1);
    --num_free;
    if (num_free > kBlocksAhead) fetch_line(states + free_ring[next(head, kBlocksAhead)]);
    states[block].owner = owner;
    return block;
  }
  /// Gives a block back; `last_step` is the number of the last launch that may touch it.
  SAC_HD void release(uint32_t block, uint64_t last_step, const Copies& copies) {
    states[block].fence = last_step;
    if (is_still(block, copies)) {
      add_free(block);
    } else {
      states[block].owner = kInTransit;
      ++num_in_transit;
    }
  }
  /// One of the block's copies was counted: frees the block if it waits for no other.
  SAC_HD void settle(uint32_t block, const Copies& copies) {
    if (num_in_transit == 0 || states[block].owner != kInTransit || !is_still(block, copies))
      return;
    --num_in_transit;
    add_free(block);
  }

 private:
  /// The ring place `count` after `place`; count <= num_blocks.
  SAC_HD uint32_t next(uint32_t place, uint32_t count) const {
    return place + count >= num_blocks ? place + count - num_blocks : place + count;
  }
  SAC_HD void add_free(uint32_t block) {
    free_ring[next(head, num_free)] = block;
    ++num_free;
    states[block].owner = kNoOwner;
  }
};

}  // namespace saccade
