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

/// kRows and kBlockOutputs: of a block, 8 to 64 and 32 or 64. A block runs one slice. Grid: row
/// tiles, output tiles, slices.
///
/// A warp has 16 outputs and up to 32 rows. One alone would wait for each product of the chain, and
/// between them for its operands: half of the memory's rate. So several take turns: each has a
/// stage's operands in registers before its turn comes, gets the sums from the warp before it
/// through shared memory, and leaves them to the next. Weights and rows are requested by a thread
/// each.
template <uint32_t kRows, uint32_t kBlockOutputs, ProductEnd kEnd>
struct NarrowProductKernel {
  using Args = ProductArgs;
  static constexpr uint32_t kOutputs = kBlockOutputs;
  static constexpr uint32_t kWarpRows = kRows < 16 || kBlockOutputs == 64 ? kRows : 16;
  /// Parts of the block's results, of 16 outputs and kWarpRows rows; the warps that take turns at
  /// one.
  static constexpr uint32_t kColumns = kOutputs / 16;
  static constexpr uint32_t kParts = kColumns * (kRows / kWarpRows);
  static constexpr uint32_t kWarps = kParts == 8 ? 2 : 8 / kParts;
  static constexpr uint32_t kReaderWarps = kParts * kWarps;
  static constexpr uint32_t kThreads = (kReaderWarps + 2) * kWarpThreads;
  /// Blocks that begin while others still run would fill the multiprocessors that are free first,
  /// and leave the rest idle, if two fit into one.
  static constexpr uint32_t kBlocksPerSm = 1;
  /// Steps of a turn: what fits in registers.
  static constexpr uint32_t kSteps = kReaderWarps == 8 && kWarpRows <= 16 ? 4 : 2;

 private:
  static constexpr uint32_t kEights = kWarpRows / 8;
  static constexpr uint32_t kSumBytes = kParts * kEights * kWarpThreads * sizeof(Float4);
  static constexpr uint32_t kReserved = kSumBytes + kReaderWarps * sizeof(uint64_t);

 public:
  using Ring = BulkStages<kOutputs, kRows, kReaderWarps, kBlocksPerSm, kSteps, TilePieces<kOutputs>,
                          kReserved, kParts>;
  static constexpr uint32_t kStages = Ring::kStages;
  static constexpr uint32_t kSharedBytes = Ring::kBytes + kReserved;
  // A warp waits for a stage only when all turns before its last one are over: with fewer stages,
  // an earlier use of the stage might not be.
  static_assert(kStages >= kWarps);
  static constexpr bool kAwaitsPrevious = true;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    if constexpr (Block::kHasWarpgroupMma) {
      const uint32_t begin = b.z() * a.slice_steps;
      const uint32_t end = min_u32(begin + a.slice_steps, a.steps);
      ProductTile tile = Ring::output_tile(b.y());
      if (b.thread() == 0) {
        for (uint32_t w = 0; w < kReaderWarps; ++w) b.barrier_init(turn_of(b, w), 1);
      }
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
  /// One step's operands.
  struct Operands {
    uint32_t w[kStep / 16][4];
    uint32_t x[kEights][kStep / 32][4];
  };

  /// The part of the results that is this warp's.
  template <class Block>
  SAC_DEVICE static uint32_t part(const Block& b) {
    return b.warp() % kParts;
  }
  template <class Block>
  SAC_DEVICE static uint32_t first_output(const Block& b) {
    return part(b) % kColumns * 16;
  }
  template <class Block>
  SAC_DEVICE static uint32_t first_row(const Block& b) {
    return part(b) / kColumns * kWarpRows;
  }
  /// A lane's sums, between turns.
  template <class Block>
  SAC_DEVICE static Float4* sums_between(const Block& b) {
    return reinterpret_cast<Float4*>(b.shared() + Ring::kBytes) + part(b) * kEights * kWarpThreads +
           b.lane();
  }
  /// Of a warp, a phase for each turn that it takes over. Of one barrier for all, the phase before
  /// the awaited one might not be over, and its parity is that of the one before that.
  template <class Block>
  SAC_DEVICE static uint64_t* turn_of(const Block& b, uint32_t warp) {
    return reinterpret_cast<uint64_t*>(b.shared() + Ring::kBytes + kSumBytes) + warp;
  }

  template <class Block>
  SAC_DEVICE static void load(const Block& b, uint32_t stage, uint32_t step, Operands& o) {
    const auto* weights = reinterpret_cast<const Half*>(Ring::weights(b, stage, step));
    const uint32_t output = first_output(b) + b.lane() % 16;
    SAC_UNROLL
    for (uint32_t k = 0; k < kStep / 16; ++k) {
      b.load_matrices(o.w[k],
                      weights + output * kStep + swizzle(output, k * 2 + b.lane() / 16) * kPiece);
    }
    load_rows(b, Ring::rows(b, stage, step), first_row(b), o.x);
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

  template <class Block>
  SAC_DEVICE static void take_over(const Block& b, uint32_t turn, float (&sums)[kEights][4]) {
    if (turn == 0) return;
    // SYNC: acquire, with hand_over() of the warp before.
    b.barrier_wait(turn_of(b, b.warp()), phase_parity((turn - 1) / kWarps));
    b.warp_sync();
    const Float4* from = sums_between(b);
    SAC_UNROLL
    for (uint32_t j = 0; j < kEights; ++j) {
      const Float4 four = from[j * kWarpThreads];
      SAC_UNROLL
      for (uint32_t e = 0; e < 4; ++e) sums[j][e] = four.v[e];
    }
  }
  template <class Block>
  SAC_DEVICE static void hand_over(const Block& b, const float (&sums)[kEights][4]) {
    Float4* to = sums_between(b);
    SAC_UNROLL
    for (uint32_t j = 0; j < kEights; ++j) {
      to[j * kWarpThreads] = {sums[j][0], sums[j][1], sums[j][2], sums[j][3]};
    }
    b.warp_sync();
    if (b.lane() == 0) b.barrier_arrive(turn_of(b, (b.warp() + kParts) % kReaderWarps));
  }

  template <class Block>
  SAC_DEVICE static void multiply(const Block& b, const Args& a, ProductTile tile, uint32_t steps) {
    const uint32_t turns = ceil_div(steps, kSteps);
    float sums[kEights][4] = {};
    for (uint32_t turn = b.warp() / kParts; turn < turns; turn += kWarps) {
      const uint32_t stage = turn % kStages, count = min_u32(kSteps, steps - turn * kSteps);
      Operands operands[kSteps];
      b.barrier_wait(Ring::full(b, stage), phase_parity(turn / kStages));
      b.warp_sync();
      SAC_UNROLL
      for (uint32_t s = 0; s < kSteps; ++s) {
        if (s < count) load(b, stage, s, operands[s]);
      }
      b.warp_sync();
      if (b.lane() == 0) b.barrier_arrive(Ring::empty(b, stage));
      take_over(b, turn, sums);
      SAC_UNROLL
      for (uint32_t s = 0; s < kSteps; ++s) {
        if (s < count) add(b, operands[s], sums);
      }
      if (turn + 1 < turns) hand_over(b, sums);
    }
    // The warp of the last turn has the whole sums.
    const uint32_t row = first_row(b);
    if ((turns - 1) % kWarps != b.warp() / kParts || row >= tile.rows) return;
    tile.first += row, tile.rows = min_u32(kWarpRows, tile.rows - row);
    end_sums<kEnd>(b, a, tile, first_output(b), sums);
  }
};

}  // namespace saccade::gpu
