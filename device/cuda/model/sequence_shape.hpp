// How the work of a step is cut by its number of rows: what the layout of memory and the sequence
// of kernels must agree on.
#pragma once
#include "cuda/model/words.hpp"

namespace saccade::gpu {

struct Grid {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

/// Largest head_dim that the attention kernels are built for.
inline constexpr uint32_t kDimLimit = 128;
/// Most rows for which each slice of a product has its own block.
inline constexpr uint32_t kMaxSplitRows = 256;
/// Most rows of a block that computes one slice; higher tiles run all slices.
inline constexpr uint32_t kMaxSplitTile = 64;
/// Rows of logits that stand in memory at once.
inline constexpr uint32_t kMaxLogitRows = 512;
/// Blocks of chunk attention: two for each multiprocessor of the largest GPUs.
inline constexpr uint32_t kChunkBlocks = 264;
/// Blocks of the sampler, each with its own memory.
inline constexpr uint32_t kSampleBlocks = 128;

/// Rows of a product's block, by the rows of the shape.
inline uint32_t dense_tile_rows(uint32_t rows) {
  if (rows > kMaxSplitRows) return 128;
  return rows <= 8 ? 8 : rows <= 32 ? 32 : kMaxSplitTile;
}

/// The same of the products by warpgroups: tiles as high as registers allow. Where a block runs all
/// slices it holds the running slice beside the sum of those before.
inline uint32_t warpgroup_tile_rows(uint32_t rows, uint32_t slices) {
  return rows > kMaxSplitRows && slices == 1 ? 256 : dense_tile_rows(rows);
}

/// Slots of a tile: few where experts have few rows each, so that no matrix unit works for rows
/// that are not there.
inline uint32_t expert_tile_slots(uint32_t picks, uint32_t num_experts) {
  const uint32_t mean = picks / num_experts;
  return mean <= 4 ? 8 : mean <= 32 ? 32 : 128;
}

}  // namespace saccade::gpu
