// Products of few rows with matrices of few outputs, for GPUs of compute capability 9.0 where the
// larger shapes multiply by wgmma: blocks of 32 or 64 outputs, so that there are as many blocks as
// multiprocessors. wgmma takes 64 outputs and, eight rows at a time, waits long for each 16 k.
//
// They multiply by mma.m16n8k16, one chain over all k in rising order. On Hopper that gives the
// bits of wgmma's chain: no document says so, and model_gpu_test compares rows of small steps with
// the same rows in large ones, with sums of up to 512 products.
#pragma once
#include "cuda/model/bulk_stages.hpp"

namespace saccade::gpu {

/// kRows and kBlockOutputs: of a block, 8 or 32 and 32 or 64. Grid: row tiles, output tiles. One
/// block has the whole sum.
template <uint32_t kRows, uint32_t kBlockOutputs, ProductEnd kEnd>
struct NarrowProductKernel {
  using Args = ProductArgs;
  static constexpr uint32_t kOutputs = kBlockOutputs;
  static constexpr uint32_t kReaderWarps = kOutputs / 16;
  static constexpr uint32_t kThreads = (kReaderWarps + 1) * kWarpThreads;
  /// Blocks that begin while others still run would fill the multiprocessors that are free first,
  /// and leave the rest idle, if two fit into one.
  static constexpr uint32_t kBlocksPerSm = 1;
  using Ring = BulkStages<kOutputs, kRows, kReaderWarps, kBlocksPerSm>;
  static constexpr uint32_t kStages = Ring::kStages;
  static constexpr uint32_t kSharedBytes = Ring::kBytes;
  static constexpr bool kAwaitsPrevious = true;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    if constexpr (Block::kHasWarpgroupMma) {
      ProductTile tile = Ring::output_tile(b, a);
      Ring::init(b);
      typename Ring::template Filler<Block> filler = {b, a, tile, 0};
      const uint32_t early = Ring::begin_early(b, filler, a.steps);
      b.await_previous();
      if (!find_row_tile(b, a, kRows, tile)) return Ring::await_early(b, early);
      if (b.warp() < kReaderWarps) {
        multiply(b, a, tile);
      } else if (b.lane() == 0) {
        fill_stages<kStages>(a.steps, early, filler);
      }
    }
  }

 private:
  static constexpr uint32_t kEights = kRows / 8;

  /// One step's operands: of the warp's 16 outputs, and of all rows.
  struct Operands {
    uint32_t w[kStep / 16][4];
    uint32_t x[kEights][kStep / 32][4];
  };

  template <class Block>
  SAC_DEVICE static void load(const Block& b, uint32_t step, Operands& o) {
    const uint32_t stage = step % kStages;
    b.barrier_wait(Ring::full(b, stage), phase_parity(step / kStages));
    b.warp_sync();
    const uint32_t output = b.warp() * 16 + b.lane() % 16;
    SAC_UNROLL
    for (uint32_t k = 0; k < kStep / 16; ++k) {
      b.load_matrices(o.w[k], Ring::weights(b, stage) + output * kStep +
                                  swizzle(output, k * 2 + b.lane() / 16) * kPiece);
    }
    SAC_UNROLL
    for (uint32_t j = 0; j < kEights; ++j) {
      const uint32_t row = j * 8 + b.lane() % 8;
      SAC_UNROLL
      for (uint32_t k = 0; k < kStep / 32; ++k) {
        b.load_matrices(o.x[j][k], Ring::rows(b, stage) + row * kStep +
                                       swizzle(row, k * 4 + b.lane() / 8) * kPiece);
      }
    }
  }

  /// The next step's operands are in flight while this one's are multiplied.
  template <class Block>
  SAC_DEVICE static void multiply(const Block& b, const Args& a, const ProductTile& tile) {
    float sums[kEights][4] = {};
    Operands next;
    load(b, 0, next);
    for (uint32_t step = 0; step < a.steps; ++step) {
      const Operands now = next;
      if (step + 1 < a.steps) load(b, step + 1, next);
      SAC_UNROLL
      for (uint32_t k = 0; k < kStep / 16; ++k) {
        SAC_UNROLL
        for (uint32_t j = 0; j < kEights; ++j) {
          b.mma(sums[j], now.w[k], now.x[j][k / 2][k % 2 * 2], now.x[j][k / 2][k % 2 * 2 + 1]);
        }
      }
      b.warp_sync();
      if (b.lane() == 0) b.barrier_arrive(Ring::empty(b, step % kStages));
    }
    end_sums<kEnd>(b, a, tile, b.warp() * 16, sums);
  }
};

}  // namespace saccade::gpu
