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

/// kRows and kBlockOutputs: of a block, 8 or 32 and 32 or 64. A block runs one slice. Grid: row
/// tiles, output tiles, slices.
///
/// A block reads its weights as fast as its warps take turns at the stages. So a stage has two
/// steps, the waits and loads of one are between the sums of the other, and weights and rows are
/// requested by a thread each.
template <uint32_t kRows, uint32_t kBlockOutputs, ProductEnd kEnd>
struct NarrowProductKernel {
  using Args = ProductArgs;
  static constexpr uint32_t kOutputs = kBlockOutputs;
  static constexpr uint32_t kReaderWarps = kOutputs / 16;
  static constexpr uint32_t kThreads = (kReaderWarps + 2) * kWarpThreads;
  /// Blocks that begin while others still run would fill the multiprocessors that are free first,
  /// and leave the rest idle, if two fit into one.
  static constexpr uint32_t kBlocksPerSm = 1;
  using Ring = BulkStages<kOutputs, kRows, kReaderWarps, kBlocksPerSm, 2>;
  static constexpr uint32_t kStages = Ring::kStages;
  static constexpr uint32_t kSharedBytes = Ring::kBytes;
  static constexpr bool kAwaitsPrevious = true;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    if constexpr (Block::kHasWarpgroupMma) {
      const uint32_t begin = b.z() * a.slice_steps;
      const uint32_t end = min_u32(begin + a.slice_steps, a.steps);
      ProductTile tile = Ring::output_tile(b);
      Ring::init(b);
      typename Ring::template Filler<Block> filler = {b, a, tile, begin, end};
      const uint32_t early = Ring::begin_early(b, filler);
      b.await_previous();
      if (!find_row_tile(b, a, kRows, tile)) return Ring::await_early(b, early);
      if (b.warp() < kReaderWarps) {
        multiply(b, a, tile, end - begin);
      } else if (b.lane() == 0 && b.warp() == kReaderWarps) {
        fill_early_parts<kStages>(filler.fills(), early, filler);
      } else if (b.lane() == 0) {
        fill_late_parts<kStages>(filler.fills(), filler);
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
  SAC_DEVICE static void await_full(const Block& b, const StageCursor<kStages>& at) {
    b.barrier_wait(Ring::full(b, at.stage), at.parity());
    b.warp_sync();
  }

  template <class Block>
  SAC_DEVICE static void load(const Block& b, uint32_t stage, uint32_t step, Operands& o) {
    const auto* weights = reinterpret_cast<const Half*>(Ring::weights(b, stage, step));
    const Half* rows = Ring::rows(b, stage, step);
    const uint32_t output = b.warp() * 16 + b.lane() % 16;
    SAC_UNROLL
    for (uint32_t k = 0; k < kStep / 16; ++k) {
      b.load_matrices(o.w[k],
                      weights + output * kStep + swizzle(output, k * 2 + b.lane() / 16) * kPiece);
    }
    SAC_UNROLL
    for (uint32_t j = 0; j < kEights; ++j) {
      const uint32_t row = j * 8 + b.lane() % 8;
      SAC_UNROLL
      for (uint32_t k = 0; k < kStep / 32; ++k) {
        b.load_matrices(o.x[j][k],
                        rows + row * kStep + swizzle(row, k * 4 + b.lane() / 8) * kPiece);
      }
    }
  }

  template <class Block>
  SAC_DEVICE static void add(const Block& b, const Operands& o, float (&sums)[kEights][4]) {
    SAC_UNROLL
    for (uint32_t k = 0; k < kStep / 16; ++k) {
      SAC_UNROLL
      for (uint32_t j = 0; j < kEights; ++j) {
        b.mma(sums[j], o.w[k], o.x[j][k / 2][k % 2 * 2], o.x[j][k / 2][k % 2 * 2 + 1]);
      }
    }
  }

  /// A stage a turn. While sums of one step are made, the other's operands are on their way.
  template <class Block>
  SAC_DEVICE static void multiply(const Block& b, const Args& a, const ProductTile& tile,
                                  uint32_t steps) {
    float sums[kEights][4] = {};
    Operands first, second;
    StageCursor<kStages> at;
    await_full(b, at);
    load(b, at.stage, 0, first);
    for (uint32_t step = 0; step < steps; step += 2) {
      const uint32_t stage = at.stage;
      const bool pair = step + 1 < steps;
      if (pair) load(b, stage, 1, second);
      add(b, first, sums);
      at.next();
      if (step + 2 < steps) {
        await_full(b, at);
        load(b, at.stage, 0, first);
      }
      if (pair) add(b, second, sums);
      b.warp_sync();
      if (b.lane() == 0) b.barrier_arrive(Ring::empty(b, stage));
    }
    end_sums<kEnd>(b, a, tile, b.warp() * 16, sums);
  }
};

}  // namespace saccade::gpu
