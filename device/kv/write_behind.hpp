// Chunks that were computed and wait to be stored: the last block of each, by the key that it had.
// What is evicted meanwhile is not stored. Fixed memory; the oldest go first, and when the line is
// full, new ones are dropped.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

/// Chunks that may wait.
inline constexpr uint32_t kWriteBehindChunks = 1024;

struct ComputedChunk {
  uint64_t key;
  uint32_t last_block;
  uint32_t _pad0;
};

struct WriteBehind {
  ComputedChunk* ring;        // [kWriteBehindChunks]; null: nothing is ever stored
  uint32_t blocks_per_chunk;  // 0: nothing is stored
  uint32_t first;
  uint32_t count;
  uint64_t num_dropped;

  SAC_HD void reset(uint32_t chunk_blocks) {
    blocks_per_chunk = chunk_blocks;
    first = count = 0;
    num_dropped = 0;
  }
  /// The block at `depth` of a chain was computed; it is findable under `key`.
  SAC_HD void note(uint32_t block, uint32_t depth, uint64_t key) {
    if (blocks_per_chunk == 0 || (depth + 1) % blocks_per_chunk != 0) return;
    if (count == kWriteBehindChunks) {
      ++num_dropped;
      return;
    }
    ring[(first + count++) % kWriteBehindChunks] = {key, block, 0};
  }
  /// There is one.
  SAC_HD ComputedChunk take() {
    const ComputedChunk chunk = ring[first];
    first = (first + 1) % kWriteBehindChunks;
    --count;
    return chunk;
  }
};

}  // namespace saccade
