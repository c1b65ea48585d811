// How the work of a step is cut by its number of rows: what the layout of memory and the sequence
// of kernels must agree on.
#pragma once
#include "cuda/model/view.hpp"

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
/// Rows of logits that are in memory at once.
inline constexpr uint32_t kMaxLogitRows = 512;
/// Blocks of chunk attention: four for each multiprocessor of the largest GPUs.
inline constexpr uint32_t kChunkBlocks = 528;
/// Blocks that take each part of rows of logits.
inline constexpr uint32_t kLogitRowBlocks = 32;
/// Blocks of the sampler, each with its own memory.
inline constexpr uint32_t kSampleBlocks = 128;

/// Rows of a product's block, by the rows of the shape.
inline uint32_t dense_tile_rows(uint32_t rows) {
  if (rows > kMaxSplitRows) return 128;
  return rows <= 8 ? 8 : rows <= 32 ? 32 : kMaxSplitTile;
}

/// A block of the products by wgmma, or of the narrow products (narrow_product.hpp): those of 32
/// outputs, and of 64 outputs and up to 32 rows.
struct WarpgroupTile {
  uint32_t rows;
  uint32_t outputs;
  bool whole;  // one block has the whole sum
};
/// Of the GPUs that have wgmma.
inline constexpr uint32_t kMultiprocessors = 132;

/// Rows of a block that has all of up to 64.
inline uint32_t tile_of_few_rows(uint32_t rows) {
  return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
}
/// Outputs of such a block: as few as leave no more blocks than multiprocessors, so that all read.
inline uint32_t outputs_of_few_rows(uint32_t tiles) {
  return 4 * tiles <= kMultiprocessors ? 32 : 2 * tiles <= kMultiprocessors ? 64 : 128;
}

/// A block of more than 64 rows. Where tiles of half the outputs, or half the rows, still leave no
/// more blocks than multiprocessors, each takes in less: the second cache delivers no faster to few
/// of them. Tiles of 256 rows leave at least half of the multiprocessors work.
inline WarpgroupTile tile_of_many_rows(uint32_t rows, uint32_t tiles) {
  const auto fit = [&](uint32_t tile_rows, uint32_t outputs) {
    return ceil_div(rows, tile_rows) * tiles * (kTileOutputs / outputs) <= kMultiprocessors;
  };
  if (rows <= 128 && fit(64, 64)) return {64, 64, true};
  if (fit(128, 64)) return {128, 64, true};
  return {rows <= 128 || fit(256, 64) ? 128u : 256u, 128, true};
}

/// By the rows of the shape, and the tiles and slices of the matrix. Many rows: tiles as large as
/// registers allow, so that weights and activations are rarely read; where a block runs several
/// slices it holds the running one alongside the sum of the earlier ones.
inline WarpgroupTile warpgroup_tile(uint32_t rows, uint32_t tiles, uint32_t slices) {
  const uint32_t few = tile_of_few_rows(rows);
  if (slices > 1) {
    if (rows <= 32) return {few, 32, false};
    return rows <= kMaxSplitRows ? WarpgroupTile{few, 64, false} : WarpgroupTile{128, 128, true};
  }
  if (rows > 64) return tile_of_many_rows(rows, tiles);
  const uint32_t outputs = outputs_of_few_rows(tiles);
  return {outputs == 128 && few == 16 ? 32 : few, outputs, true};
}

/// The same for matrices in e4m3 (fp8_product.hpp).
inline WarpgroupTile fp8_tile(uint32_t rows, uint32_t tiles) {
  if (rows <= 64) return {tile_of_few_rows(rows), outputs_of_few_rows(tiles), true};
  WarpgroupTile tile = tile_of_many_rows(rows, tiles);
  tile.rows = min_u32(tile.rows, 128);
  return tile;
}

/// Slots of a tile: few where experts have few rows each, so that no matrix unit works for rows
/// that are not there.
inline uint32_t expert_tile_slots(uint32_t picks, uint32_t num_experts) {
  const uint32_t mean = picks / num_experts;
  return mean <= 4 ? 8 : mean <= 32 ? 32 : 128;
}
/// The same for products by wgmma, where an expert's slots begin at a multiple of kSlotUnit. Up to
/// kSharedRows rows of the shape, an expert's tile has all.
inline constexpr uint32_t kSlotUnit = 8, kSharedRows = 8;
/// fp8: weights in e4m3 leave registers for 64 rows.
inline uint32_t warpgroup_tile_slots(uint32_t picks, uint32_t num_experts, bool fp8) {
  const uint32_t mean = picks / num_experts;
  return mean <= 4 ? 8 : mean <= 20 ? 32 : mean <= 48 || fp8 ? 64 : 128;
}
/// Most slots that `rows` rows take by wgmma.
inline size_t most_slots(size_t rows, uint32_t per_token, uint32_t num_experts) {
  static_assert(kSharedRows <= kSlotUnit);
  const size_t picks = rows * per_token;
  return picks + (kSlotUnit - 1) * (picks < num_experts ? picks : num_experts);
}

}  // namespace saccade::gpu
