// What products fed by bulk copies have in common: a ring of stages, what fills it, and what
// becomes of the sums. stage_ring.hpp has the order.
#pragma once
#include "cuda/model/product.hpp"
#include "cuda/model/stage_ring.hpp"

namespace saccade::gpu {

/// Where a block's work is. Of a dense matrix the outputs follow from the grid, the rows from the
/// step. Grid: row tiles, output tiles, slices (1 when serial).
struct RowTiles {
  static constexpr bool kRouted = false;
  template <class Block>
  SAC_DEVICE static uint32_t outputs(const Block& b) {
    return b.y();
  }
  template <class Block>
  SAC_DEVICE static bool find_matrix(const Block&, const ProductArgs&, ProductTile&) {
    return true;
  }
  template <class Block>
  SAC_DEVICE static bool find_rows(const Block& b, const ProductArgs& a, uint32_t max_rows,
                                   ProductTile& tile) {
    b.await_previous();
    return find_row_tile(b, a, max_rows, tile);
  }
};
/// Of experts, routing says whose matrix it is: weights cannot be requested before. Blocks that
/// begin one after another have the same rows, and then the same expert, so that the second cache
/// has both. Grid: output tiles, experts' tiles.
struct ExpertTiles {
  static constexpr bool kRouted = true;
  template <class Block>
  SAC_DEVICE static uint32_t outputs(const Block& b) {
    return b.x();
  }
  template <class Block>
  SAC_DEVICE static bool find_matrix(const Block& b, const ProductArgs& a, ProductTile& tile) {
    b.await_previous();
    return find_expert_tile(a, b.y(), tile);
  }
  template <class Block>
  SAC_DEVICE static bool find_rows(const Block&, const ProductArgs&, uint32_t, ProductTile&) {
    return true;
  }
};

/// Weights in bf16 as a ring's stages take them: of each step the part of a tile that holds the
/// block's outputs, one piece of memory.
template <uint32_t kOutputs>
struct TilePieces {
  static constexpr uint32_t kSteps = 1;                                // of a piece
  static constexpr uint32_t kBytes = kOutputs * kStep * sizeof(Half);  // of a piece
  static constexpr uint32_t kStride = kTileHalves * sizeof(Half);      // between pieces

  /// The first piece of the tile's outputs.
  SAC_DEVICE static const unsigned char* first(const ProductArgs& a, const ProductTile& tile) {
    return reinterpret_cast<const unsigned char*>(a.weights + tile.expert * a.expert_stride +
                                                  size_t{tile.first_output / kTileOutputs} *
                                                      a.steps * kTileHalves +
                                                  tile.first_output % kTileOutputs * kStep);
  }
};

/// Stages of kDepth steps: kOutputs weights by 64 k, and the same 64 k of kRows rows, each by bulk
/// copies, because both have the same layout in memory as in shared memory. They fill a
/// kBlocksPerSm-th of shared memory but kReserved bytes: the rows of all stages, their weights,
/// barriers. kReaderWarps: of the block; the next one fills. kStageReaders: warps that read a
/// stage.
template <uint32_t kOutputs, uint32_t kRows, uint32_t kReaderWarps, uint32_t kBlocksPerSm,
          uint32_t kDepth = 1, class Pieces = TilePieces<kOutputs>, uint32_t kReserved = 0,
          uint32_t kStageReaders = kReaderWarps>
struct BulkStages {
  static constexpr uint32_t kRowHalves = kRows * kStep;  // of a step
  static constexpr uint32_t kRowBytes = kDepth * kRowHalves * sizeof(Half);
  static constexpr uint32_t kWeightBytes = kDepth / Pieces::kSteps * Pieces::kBytes;
  static constexpr uint32_t kStageBytes = kRowBytes + kWeightBytes + 2 * sizeof(uint64_t);
  /// As many as fit in shared memory: 228 KiB, of which each block costs one.
  static constexpr uint32_t kStages = ((228 / kBlocksPerSm - 1) * 1024 - kReserved) / kStageBytes;
  static constexpr uint32_t kBytes = kStages * kStageBytes;
  static_assert(kStages >= 3 && kTileOutputs % kOutputs == 0 && kDepth % Pieces::kSteps == 0);

  template <class Block>
  SAC_DEVICE static Half* rows(const Block& b, uint32_t stage, uint32_t step = 0) {
    return reinterpret_cast<Half*>(b.shared() + stage * kRowBytes) + step * kRowHalves;
  }
  /// A piece of the stage's weights.
  template <class Block>
  SAC_DEVICE static unsigned char* weights(const Block& b, uint32_t stage, uint32_t piece = 0) {
    return b.shared() + kStages * kRowBytes + stage * kWeightBytes + piece * Pieces::kBytes;
  }
  template <class Block>
  SAC_DEVICE static uint64_t* full(const Block& b, uint32_t stage) {
    return reinterpret_cast<uint64_t*>(weights(b, kStages)) + stage;
  }
  template <class Block>
  SAC_DEVICE static uint64_t* empty(const Block& b, uint32_t stage) {
    return full(b, kStages + stage);
  }

  template <class Block>
  SAC_DEVICE static void init(const Block& b) {
    if (b.thread() == 0) {
      for (uint32_t s = 0; s < kStages; ++s) {
        b.barrier_init(full(b, s), 2);
        b.barrier_init(empty(b, s), kStageReaders);
      }
      b.barrier_fence();
    }
    b.sync();
  }

  /// The outputs of the block; its rows are not known yet.
  SAC_DEVICE static ProductTile output_tile(uint32_t index) {
    ProductTile tile = {};
    tile.first_output = index * kOutputs;
    return tile;
  }

  /// Fills of stages with the steps [begin, end) of the matrix; the last may have fewer.
  template <class Block>
  struct Filler {
    const Block& b;
    const ProductArgs& a;
    const ProductTile& tile;
    const uint32_t begin;
    const uint32_t end;
    const unsigned char* const pieces = Pieces::first(a, tile);

    SAC_DEVICE uint32_t fills() const { return ceil_div(end - begin, kDepth); }
    SAC_DEVICE void await_empty(uint32_t stage, uint32_t parity) const {
      b.barrier_wait(empty(b, stage), parity);
    }
    SAC_DEVICE void fill_early(uint32_t stage, uint32_t fill) const {
      const uint32_t first = begin + fill * kDepth;
      const uint32_t count = ceil_div(steps_from(first), Pieces::kSteps);
      b.barrier_expect(full(b, stage), count * Pieces::kBytes);
      for (uint32_t i = 0; i < count; ++i) {
        b.bulk_copy(weights(b, stage, i),
                    pieces + size_t{first / Pieces::kSteps + i} * Pieces::kStride, Pieces::kBytes,
                    full(b, stage));
      }
    }
    /// Copies the rows that exist. What follows them in the stage reaches no result that is kept.
    SAC_DEVICE void fill(uint32_t stage, uint32_t fill) const {
      const uint32_t first = begin + fill * kDepth, steps = steps_from(first);
      const uint32_t bytes = tile.rows * kStep * sizeof(Half);
      b.barrier_expect(full(b, stage), steps * bytes);
      for (uint32_t i = 0; i < steps; ++i) {
        b.bulk_copy(rows(b, stage, i),
                    a.x.data + (first + i) * a.x.plane() + size_t{tile.first_x} * kStep, bytes,
                    full(b, stage));
      }
    }

   private:
    SAC_DEVICE uint32_t steps_from(uint32_t first) const {
      return kDepth == 1 ? 1 : min_u32(kDepth, end - first);
    }
  };

  /// Requests weights while the previous kernel still runs; of several row tiles' blocks, one does.
  /// Returns the fills whose weights are in flight; 0 to all threads but the one that fills.
  template <class Block>
  SAC_DEVICE static uint32_t begin_early(const Block& b, const Filler<Block>& filler) {
    if (!filler.a.early || b.thread() != kReaderWarps * kWarpThreads || b.x() > 0) return 0;
    return fill_early_stages<kStages>(filler.fills(), filler);
  }
  /// For a block that has nothing to do, but has requested weights.
  template <class Block>
  SAC_DEVICE static void await_early(const Block& b, uint32_t early) {
    for (uint32_t s = 0; s < early; ++s) {
      b.barrier_arrive(full(b, s));
      b.barrier_wait(full(b, s), 0);
    }
  }
};

/// b of mma, of 64 k and kEights * 8 rows of a step in shared memory, from the first-th on: of
/// each eight rows 32 k at a time.
template <uint32_t kEights, class Block>
SAC_DEVICE void load_rows(const Block& b, const Half* rows, uint32_t first,
                          uint32_t (&x)[kEights][kStep / 32][4]) {
  SAC_UNROLL
  for (uint32_t j = 0; j < kEights; ++j) {
    const uint32_t row = first + j * 8 + b.lane() % 8;
    SAC_UNROLL
    for (uint32_t k = 0; k < kStep / 32; ++k) {
      b.load_matrices(x[j][k], rows + row * kStep + swizzle(row, k * 4 + b.lane() / 8) * kPiece);
    }
  }
}

/// x += sum + bias, of the outputs `output` and 8 further. Nothing waits for x: memory adds to it.
template <uint32_t kEights, class Block>
SAC_DEVICE void add_sums(const Block& b, const ProductArgs& a, const ProductTile& tile,
                         uint32_t output, const float (&sums)[kEights][4]) {
  float* x = a.x_sums + size_t{tile.first} * a.x_width + output;
  SAC_UNROLL
  for (uint32_t h = 0; h < 2; ++h) {
    if (output + h * 8 >= a.x_width) continue;
    const float bias = a.x_bias[output + h * 8];
    SAC_UNROLL
    for (uint32_t j = 0; j < kEights; ++j) {
      SAC_UNROLL
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t row = j * 8 + b.lane() % 4 * 2 + e;
        if (row < tile.rows) b.add(x + size_t{row} * a.x_width + h * 8, sums[j][2 * h + e] + bias);
      }
    }
  }
}

/// gated = silu(gate) * up, of the gate's output `output` and up's, 8 further: see gated_row.
template <uint32_t kEights, class Block>
SAC_DEVICE void gate_sums(const Block& b, const ProductArgs& a, const ProductTile& tile,
                          uint32_t output, const float (&sums)[kEights][4]) {
  const uint32_t column = output / 16 * 8 + output % 8;
  const float gate_bias = a.gate_bias != nullptr ? a.gate_bias[column] : 0.0f;
  const float up_bias = a.gate_bias != nullptr ? a.up_bias[column] : 0.0f;
  SAC_UNROLL
  for (uint32_t e = 0; e < 2; ++e) {
    // A tile's rows begin at a multiple of 8, so rows 8 apart have the same layout.
    const uint32_t row = b.lane() % 4 * 2 + e;
    Half* to = a.gated.at(tile.first + row, column);
    SAC_UNROLL
    for (uint32_t j = 0; j < kEights; ++j) {
      if (j * 8 + row >= tile.rows) continue;
      to[j * 8 * kStep] = narrow(gated_unit(sums[j][e] + gate_bias, sums[j][2 + e] + up_bias));
    }
  }
}

/// What becomes of a warp's sums: 16 outputs from `first` of the block's on, kEights * 8 rows, as
/// an mma leaves them.
template <ProductEnd kEnd, uint32_t kEights, class Block>
SAC_DEVICE void end_sums(const Block& b, const ProductArgs& a, const ProductTile& tile,
                         uint32_t first, const float (&sums)[kEights][4]) {
  const uint32_t output = first + b.lane() / 4;
  if constexpr (kEnd == ProductEnd::kAdded) {
    add_sums(b, a, tile, tile.first_output + output, sums);
  } else if constexpr (kEnd == ProductEnd::kGated) {
    gate_sums(b, a, tile, tile.first_output + output, sums);
  } else {
    SAC_UNROLL
    for (uint32_t j = 0; j < kEights; ++j) {
      SAC_UNROLL
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t row = j * 8 + b.lane() % 4 * 2 + e;
        if (row < tile.rows) {
          store_pair<kEnd>(b, a, tile, output, row, sums[j][e], sums[j][2 + e]);
        }
      }
    }
  }
}

}  // namespace saccade::gpu
