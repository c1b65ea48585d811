// Matrix products: y[row][output] = sum over k of weight[output][k] * x[row][k], bf16 with sums in
// f32 on the matrix units. Two kernels: here by mma.m16n8k16, on every GPU (weights are its rows,
// activations its columns); in warpgroup_product.hpp by wgmma.
//
// One block computes kTileOutputs outputs of up to kRows rows. Weights and activations pass through
// a ring of shared-memory stages filled by asynchronous copies. Independence of company: an output
// is the sum of slices of k whose number is fixed by the matrix; a slice is one chain of mma steps,
// 16 k each, in rising order. Small batches give each slice to a block of its own and leave the
// slices to the kernel that reads them; large ones run all slices in one block and add them up
// there in the same order. Columns of an mma never mix.
#pragma once
#include "cuda/model/rows.hpp"
#include "cuda/model/view.hpp"

namespace saccade::gpu {

struct ProductArgs {
  const uint32_t* num_rows;
  const Half* weights;         // tiles of the matrix, or of expert 0
  const unsigned char* units;  // instead, of a matrix in e4m3
  uint32_t steps;              // of kStep
  uint32_t slice_steps;
  bool early;  // whether to request weights before it is known if there are rows
  Activations x;
  Partials y;              // slices = 1 where blocks add up
  Activations gated;       // of gated products
  const float* gate_bias;  // null: none
  const float* up_bias;
  float* x_sums;  // of adding products: [rows][x_width], to which sum + bias is added
  uint32_t x_width;
  const float* x_bias;
  const ExpertTile* tiles;  // of grouped products
  const uint32_t* num_tiles;
  const uint32_t* slot_row;  // by mma: row of x of a slot; null: the slot itself
  bool shared_rows;          // by wgmma: each tile reads the same rows of x, from 0 on
  size_t expert_stride;      // between experts' matrices: of weights, or bytes of units
};

/// What becomes of a product's sums.
enum class ProductEnd : uint32_t {
  kSums,   // they are left to the kernel that reads them
  kGated,  // silu(gate) * up; only where one block has the whole sum
  kAdded,  // they are added to the residual stream; likewise
};

/// What one block computes.
struct ProductTile {
  const Half* weights;    // of the output tile's first step; not of products by bulk copies
  uint32_t expert;        // whose matrix it is; 0 without experts
  uint32_t first_output;  // of the matrix
  uint32_t first;         // row of the results, or slot
  uint32_t first_x;       // row of x
  uint32_t rows;
};

/// False: there is nothing for this block.
template <class Block>
SAC_DEVICE bool find_row_tile(const Block& b, const ProductArgs& a, uint32_t max_rows,
                              ProductTile& tile) {
  const uint32_t num_rows = *a.num_rows;
  tile.first = tile.first_x = b.x() * max_rows;
  if (tile.first >= num_rows) return false;
  tile.rows = min_u32(max_rows, num_rows - tile.first);
  return true;
}
/// The same of tile `index` of the experts.
SAC_DEVICE bool find_expert_tile(const ProductArgs& a, uint32_t index, ProductTile& tile) {
  const ExpertTile t = a.tiles[index];  // there is memory: not waited for how many there are first
  if (index >= *a.num_tiles) return false;
  tile.expert = t.expert;
  tile.first = t.first_slot;
  tile.first_x = a.shared_rows ? 0 : t.first_slot;
  tile.rows = t.num_slots;
  return true;
}

/// What becomes of two results of one thread: the sums of `output` of the tile and of the one 8
/// further, in one row of the tile.
template <ProductEnd kEnd, class Block>
SAC_DEVICE void store_pair(const Block& b, const ProductArgs& a, const ProductTile& tile,
                           uint32_t output, uint32_t row, float low, float high) {
  static_assert(kEnd != ProductEnd::kAdded, "reads, and so has a form of its own");
  output += tile.first_output;
  if (kEnd == ProductEnd::kGated) {  // gate and up of one output: see gated_row
    const uint32_t column = output / 16 * 8 + output % 8;
    if (a.gate_bias != nullptr) {
      low += a.gate_bias[column];
      high += a.up_bias[column];
    }
    *a.gated.at(tile.first + row, column) = narrow(gated_unit(low, high));
    return;
  }
  float* at = a.y.data + size_t{b.z()} * a.y.plane + size_t{tile.first + row} * a.y.stride + output;
  at[0] = low;
  at[8] = high;
}

/// kRows: of a block. kSerial: one block runs all slices. kGated: see ProductEnd. kGrouped: rows
/// are tiles of experts' slots. Grid: row tiles, output tiles, slices (1 when serial).
template <uint32_t kRows, bool kSerial, bool kGated, bool kGrouped>
struct ProductKernel {
  using Args = ProductArgs;
  static constexpr uint32_t kWarpRows = kRows > 64 ? 64 : kRows;
  static constexpr uint32_t kWarpOutputs = 32;
  static constexpr uint32_t kOutputWarps = kTileOutputs / kWarpOutputs;
  static constexpr uint32_t kThreads = kOutputWarps * (kRows / kWarpRows) * kWarpThreads;
  static constexpr uint32_t kBlocksPerSm = kRows > 64 ? 1 : kRows > 8 ? 2 : 3;
  static constexpr uint32_t kStages = 4;
  static constexpr uint32_t kStageHalves = kTileHalves + kRows * kStep;
  static constexpr uint32_t kSharedBytes = kStages * kStageHalves * sizeof(Half);

  /// If begun early, blocks would crowd the multiprocessors freed first.
  static constexpr bool kBeginsAlone = true;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t begin = kSerial ? 0 : b.z() * a.slice_steps;
    const uint32_t end = kSerial ? a.steps : min_u32(begin + a.slice_steps, a.steps);
    ProductTile tile = {};
    tile.weights = a.weights + size_t{b.y()} * a.steps * kTileHalves;
    tile.first_output = b.y() * kTileOutputs;
    const bool work =
        kGrouped ? find_expert_tile(a, b.x(), tile) : find_row_tile(b, a, kRows, tile);
    if (!work) return;
    tile.weights += tile.expert * a.expert_stride;
    const Half* sources[kCopies];
    SAC_UNROLL
    for (uint32_t i = 0; i < kCopies; ++i) sources[i] = activation_source(b, a, tile, i);
    const auto fetch = [&](uint32_t step, uint32_t stage) {
      if (step < end) copy_step(b, a, tile, sources, step, stage);
      b.commit();
    };
    SAC_UNROLL
    for (uint32_t s = 0; s + 1 < kStages; ++s) fetch(begin + s, s);
    // Adds steps [from, to) to these sums only, so that the compiler keeps them in place.
    const auto add_steps = [&](uint32_t from, uint32_t to, Sums& sums) {
      for (uint32_t step = from; step < to; ++step) {
        b.template wait<kStages - 2>();
        b.sync();  // this step has arrived for all threads, and the stage of the last one is free
        const uint32_t stage = (step - begin) % kStages;
        fetch(step + kStages - 1, (stage + kStages - 1) % kStages);
        multiply(b, stage, sums);
      }
    };
    Sums total = {};
    if (kSerial) {
      for (uint32_t step = 0; step < end; step += a.slice_steps) {
        Sums sums = {};
        add_steps(step, min_u32(step + a.slice_steps, end), sums);
        add_slice(sums, total, step == 0);
      }
    } else {
      add_steps(begin, end, total);
    }
    store(b, a, tile, total);
  }

 private:
  static constexpr uint32_t kOutputTiles = kWarpOutputs / 16;
  static constexpr uint32_t kRowTiles = kWarpRows / 8;
  static constexpr uint32_t kPieces = kStep / kPiece;  // of a row of a stage
  /// Pieces of activations that a thread copies per step.
  static constexpr uint32_t kCopies = (kRows * kPieces + kThreads - 1) / kThreads;

  struct Sums {
    float v[kOutputTiles][kRowTiles][4];
  };

  /// Where the i-th piece of activations of this thread comes from, at step 0. Rows beyond the tile
  /// repeat its last one.
  template <class Block>
  SAC_DEVICE static const Half* activation_source(const Block& b, const Args& a,
                                                  const ProductTile& tile, uint32_t i) {
    const uint32_t piece = b.thread() + i * kThreads;
    uint32_t row = tile.first + min_u32(piece / kPieces, tile.rows - 1);
    if (kGrouped && a.slot_row != nullptr) row = a.slot_row[row];
    return a.x.at(row, piece % kPieces * kPiece);
  }

  template <class Block>
  SAC_DEVICE static Half* stage_memory(const Block& b, uint32_t stage) {
    return reinterpret_cast<Half*>(b.shared()) + stage * kStageHalves;
  }

  /// Starts the copies of one step.
  template <class Block>
  SAC_DEVICE static void copy_step(const Block& b, const Args& a, const ProductTile& tile,
                                   const Half* const (&sources)[kCopies], uint32_t step,
                                   uint32_t stage) {
    Half* to = stage_memory(b, stage);
    const Half* weights = tile.weights + size_t{step} * kTileHalves;
    SAC_UNROLL
    for (uint32_t i = 0; i < kTileHalves / kPiece / kThreads; ++i) {
      const uint32_t at = (b.thread() + i * kThreads) * kPiece;
      b.copy16(to + at, weights + at);
    }
    Half* rows = to + kTileHalves;
    SAC_UNROLL
    for (uint32_t i = 0; i < kCopies; ++i) {
      const uint32_t piece = b.thread() + i * kThreads;
      const uint32_t row = piece / kPieces;
      if (row >= kRows) break;
      b.copy16(rows + row * kStep + swizzle(row, piece % kPieces) * kPiece,
               sources[i] + step * a.x.plane());
    }
  }

  /// One stage: four mma steps of 16, in rising order of k.
  template <class Block>
  SAC_DEVICE static void multiply(const Block& b, uint32_t stage, Sums& sums) {
    const Half* weights = stage_memory(b, stage);
    const Half* rows = weights + kTileHalves;
    const uint32_t lane = b.lane();
    const uint32_t first_output = b.warp() % kOutputWarps * kWarpOutputs;
    const uint32_t first_row = b.warp() / kOutputWarps * kWarpRows;
    SAC_UNROLL
    for (uint32_t k = 0; k < kPieces; k += 4) {  // pieces: 32 of k
      uint32_t w[kOutputTiles][2][4];
      SAC_UNROLL
      for (uint32_t i = 0; i < kOutputTiles; ++i) {
        SAC_UNROLL
        for (uint32_t h = 0; h < 2; ++h) {
          const uint32_t r = first_output + i * 16 + lane % 16;
          const uint32_t piece = swizzle(r, k + h * 2 + lane / 16);
          b.load_matrices(w[i][h], weights + r * kStep + piece * kPiece);
        }
      }
      SAC_UNROLL
      for (uint32_t j = 0; j < kRowTiles; ++j) {
        uint32_t x[4];
        const uint32_t r = first_row + j * 8 + lane % 8;
        b.load_matrices(x, rows + r * kStep + swizzle(r, k + lane / 8) * kPiece);
        SAC_UNROLL
        for (uint32_t i = 0; i < kOutputTiles; ++i) {
          b.mma(sums.v[i][j], w[i][0], x[0], x[1]);
          b.mma(sums.v[i][j], w[i][1], x[2], x[3]);
        }
      }
    }
  }

  SAC_DEVICE static void add_slice(const Sums& sums, Sums& total, bool first) {
    SAC_UNROLL
    for (uint32_t i = 0; i < kOutputTiles; ++i) {
      SAC_UNROLL
      for (uint32_t j = 0; j < kRowTiles; ++j) {
        SAC_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          total.v[i][j][e] = first ? sums.v[i][j][e] : total.v[i][j][e] + sums.v[i][j][e];
        }
      }
    }
  }

  template <class Block>
  SAC_DEVICE static void store(const Block& b, const Args& a, const ProductTile& tile,
                               const Sums& sums) {
    const uint32_t g = b.lane() / 4, t = b.lane() % 4;
    const uint32_t first_output = b.warp() % kOutputWarps * kWarpOutputs;
    const uint32_t first_row = b.warp() / kOutputWarps * kWarpRows;
    SAC_UNROLL
    for (uint32_t j = 0; j < kRowTiles; ++j) {
      SAC_UNROLL
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t row = first_row + j * 8 + 2 * t + e;
        if (row >= tile.rows) continue;
        SAC_UNROLL
        for (uint32_t i = 0; i < kOutputTiles; ++i) {
          store_pair<kGated ? ProductEnd::kGated : ProductEnd::kSums>(
              b, a, tile, first_output + i * 16 + g, row, sums.v[i][j][e], sums.v[i][j][2 + e]);
        }
      }
    }
  }
};

}  // namespace saccade::gpu
