// Products with weights in e4m3, for GPUs of compute capability 9.0: half the bytes of bf16, which
// is what steps of few rows wait for. Weights are widened to bf16, exactly, on their way to the
// matrix units; activations stay bf16, and sums are floats.
//
// Independence of company: an output is the sum over k, in rising order, of scale times the chain
// of a unit's eight mma or wgmma steps, each added by one fma. There is one slice. The chains of
// mma and of wgmma have the same bits on Hopper: see narrow_product.hpp.
#pragma once
#include "cuda/model/bulk_stages.hpp"
#include "cuda/model/fp8_units.hpp"
#include "cuda/model/operands.hpp"

namespace saccade::gpu {

/// Few rows, by mma: kRows is 8 to 64, kBlockOutputs 32, 64 or 128. Each 16 outputs have
/// several warps where blocks have few outputs: one warp widens too slowly for the memory. These
/// warps take a stage's units in turn, exchange the sums of their chains through shared memory, and
/// each adds all units' sums, in order, for its part of the results. As in NarrowProductKernel a
/// thread each requests weights and rows.
template <uint32_t kRows, uint32_t kBlockOutputs, ProductEnd kEnd, class Tiles = RowTiles>
struct Fp8NarrowProductKernel {
  using Args = ProductArgs;
  static constexpr uint32_t kOutputs = kBlockOutputs;
  /// Of 16 outputs each, and the warps of one.
  static constexpr uint32_t kColumns = kOutputs / kUnitOutputs;
  static constexpr uint32_t kWarps = kOutputs == kTileOutputs      ? 1
                                     : kRows * kOutputs >= 32 * 64 ? 2
                                                                   : 4;
  static constexpr uint32_t kReaderWarps = kColumns * kWarps;
  static constexpr uint32_t kThreads = (kReaderWarps + 2) * kWarpThreads;
  static constexpr uint32_t kBlocksPerSm = kOutputs == kTileOutputs ? 2 : 1;
  /// A warp's of a stage. A chain of mma waits for itself; where a warp has few others beside it,
  /// it makes two.
  static constexpr uint32_t kUnits = kRows == 8 && kOutputs != 64 ? 2 : 1;
  static constexpr uint32_t kStageUnits = kWarps * kUnits;

 private:
  static constexpr uint32_t kEights = kRows / 8;
  static constexpr uint32_t kResults = kEights * 4;      // a lane's of 16 outputs
  static constexpr uint32_t kShare = kResults / kWarps;  // of them, what one warp adds up
  static constexpr uint32_t kUnitFloats = kResults * kWarpThreads + kUnitOutputs;
  /// Two stages' sums and scales, so that one is read while the next is written; a barrier for each
  /// column.
  static constexpr uint32_t kSumFloats = 2 * kColumns * kStageUnits * kUnitFloats;
  static constexpr uint32_t kSumBytes =
      kWarps == 1 ? 0 : kSumFloats * sizeof(float) + kColumns * sizeof(uint64_t);

 public:
  using Ring = BulkStages<kOutputs, kRows, kReaderWarps, kBlocksPerSm, kStageUnits * kUnitSteps,
                          UnitPieces<kOutputs>, kSumBytes>;
  static constexpr uint32_t kStages = Ring::kStages;
  static constexpr uint32_t kSharedBytes = Ring::kBytes + kSumBytes;
  static constexpr bool kAwaitsPrevious = true;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    if constexpr (Block::kHasWarpgroupMma) {
      ProductTile tile = Ring::output_tile(Tiles::outputs(b));
      if (kWarps > 1 && b.thread() == 0) {
        for (uint32_t c = 0; c < kColumns; ++c) b.barrier_init(exchanged(b, c), kWarps);
      }
      Ring::init(b);
      if (!Tiles::find_matrix(b, a, tile)) return;
      typename Ring::template Filler<Block> filler = {b, a, tile, 0, a.steps};
      const uint32_t early = Tiles::kRouted ? 0 : Ring::begin_early(b, filler);
      if (!Tiles::find_rows(b, a, kRows, tile)) return Ring::await_early(b, early);
      if (b.warp() < kReaderWarps) {
        multiply(b, a, tile);
      } else if (b.lane() == 0 && b.warp() == kReaderWarps) {
        fill_early_parts<kStages>(filler.fills(), early, filler);
      } else if (b.lane() == 0) {
        fill_late_parts<kStages>(filler.fills(), filler);
      }
    }
  }

 private:
  template <class Block>
  SAC_DEVICE static uint32_t column(const Block& b) {
    return b.warp() % kColumns;
  }
  /// Which of its column's warps this is.
  template <class Block>
  SAC_DEVICE static uint32_t part(const Block& b) {
    return b.warp() / kColumns;
  }
  /// Sums of a unit of the column, [kResults][lanes], and its scales.
  template <class Block>
  SAC_DEVICE static float* unit_sums(const Block& b, uint32_t turn, uint32_t unit) {
    const uint32_t at = (turn % 2 * kColumns + column(b)) * kStageUnits + unit;
    return reinterpret_cast<float*>(b.shared() + Ring::kBytes) + at * kUnitFloats;
  }
  template <class Block>
  SAC_DEVICE static uint64_t* exchanged(const Block& b, uint32_t column) {
    return reinterpret_cast<uint64_t*>(b.shared() + Ring::kBytes + kSumFloats * sizeof(float)) +
           column;
  }

  /// Chains of a warp's units of a stage, side by side.
  struct Chains {
    LaneUnit units[kUnits];
    float sums[kUnits][kEights][4];
  };

  /// Multiplies `units` units of a stage, those from the first-th on.
  template <class Block>
  SAC_DEVICE static void make_chains(const Block& b, uint32_t stage, uint32_t first, uint32_t units,
                                     Chains& c) {
    SAC_UNROLL
    for (uint32_t u = 0; u < kUnits; ++u) {
      if (u >= units) break;
      c.units[u].load(Ring::weights(b, stage, first + u) + column(b) * kUnitBytes, b.lane());
    }
    SAC_UNROLL
    for (uint32_t step = 0; step < kUnitSteps; ++step) {
      uint32_t x[kUnits][kEights][kStep / 32][4];
      SAC_UNROLL
      for (uint32_t u = 0; u < kUnits; ++u) {
        if (u >= units) break;
        load_rows(b, Ring::rows(b, stage, (first + u) * kUnitSteps + step), 0, x[u]);
      }
      SAC_UNROLL
      for (uint32_t k = 0; k < kStep / 16; ++k) {
        SAC_UNROLL
        for (uint32_t u = 0; u < kUnits; ++u) {
          if (u >= units) break;
          uint32_t w[4];
          c.units[u].widen(b, step * (kStep / 16) + k, w);
          SAC_UNROLL
          for (uint32_t j = 0; j < kEights; ++j) {
            b.mma(c.sums[u][j], w, x[u][j][k / 2][k % 2 * 2], x[u][j][k / 2][k % 2 * 2 + 1]);
          }
        }
      }
    }
  }

  /// Shows the chains of this warp's units to the column's other warps.
  template <class Block>
  SAC_DEVICE static void show(const Block& b, uint32_t turn, uint32_t first, uint32_t units,
                              const Chains& c) {
    SAC_UNROLL
    for (uint32_t u = 0; u < kUnits; ++u) {
      if (u >= units) break;
      float* to = unit_sums(b, turn, first + u);
      SAC_UNROLL
      for (uint32_t r = 0; r < kResults; ++r) {
        to[r * kWarpThreads + b.lane()] = c.sums[u][r / 4][r % 4];
      }
      if (b.lane() % 4 == 0) {
        auto* scales = reinterpret_cast<Float2*>(to + kResults * kWarpThreads);
        scales[b.lane() / 4] = c.units[u].scales;
      }
    }
    b.warp_sync();
    if (b.lane() == 0) b.barrier_arrive(exchanged(b, column(b)));
  }
  /// Adds a stage's `units` units to this warp's share of the results.
  template <class Block>
  SAC_DEVICE static void add_shown(const Block& b, uint32_t turn, uint32_t units,
                                   float (&total)[kShare]) {
    b.barrier_wait(exchanged(b, column(b)), phase_parity(turn));
    b.warp_sync();
    const uint32_t first = part(b) * kShare;
    SAC_UNROLL
    for (uint32_t u = 0; u < kStageUnits; ++u) {
      if (u >= units) break;
      const float* from = unit_sums(b, turn, u);
      const float* scales = from + kResults * kWarpThreads + b.lane() / 4 * 2;
      SAC_UNROLL
      for (uint32_t i = 0; i < kShare; ++i) {
        const uint32_t r = first + i;
        total[i] = fmaf(scales[r % 4 / 2], from[r * kWarpThreads + b.lane()], total[i]);
      }
    }
  }
  /// Brings the shares of a column's results to its first warp.
  template <class Block>
  SAC_DEVICE static void collect(const Block& b, uint32_t turn, const float (&share)[kShare],
                                 float (&total)[kEights][4]) {
    float* all = unit_sums(b, turn, 0);
    SAC_UNROLL
    for (uint32_t i = 0; i < kShare; ++i) {
      all[(part(b) * kShare + i) * kWarpThreads + b.lane()] = share[i];
    }
    b.warp_sync();
    if (b.lane() == 0) b.barrier_arrive(exchanged(b, column(b)));
    if (part(b) > 0) return;
    b.barrier_wait(exchanged(b, column(b)), phase_parity(turn));
    b.warp_sync();
    SAC_UNROLL
    for (uint32_t r = 0; r < kResults; ++r) {
      total[r / 4][r % 4] = all[r * kWarpThreads + b.lane()];
    }
  }

  template <class Block>
  SAC_DEVICE static void multiply(const Block& b, const Args& a, const ProductTile& tile) {
    const uint32_t all = a.steps / kUnitSteps, first = part(b) * kUnits;
    float total[kEights][4] = {}, share[kShare] = {};
    StageCursor<kStages> at;
    uint32_t turn = 0;
    for (uint32_t unit = 0; unit < all; unit += kStageUnits, ++turn) {
      const uint32_t left = all - unit;
      const uint32_t mine = first < left ? min_u32(kUnits, left - first) : 0;
      Chains c = {};
      b.barrier_wait(Ring::full(b, at.stage), at.parity());
      b.warp_sync();
      make_chains(b, at.stage, first, mine, c);
      b.warp_sync();
      if (b.lane() == 0) b.barrier_arrive(Ring::empty(b, at.stage));
      at.next();
      if constexpr (kWarps == 1) {
        SAC_UNROLL
        for (uint32_t u = 0; u < kUnits; ++u) {
          if (u < mine) add_scaled(total, c.units[u].scales, c.sums[u]);
        }
      } else {
        // SYNC: with the wait of add_shown: a warp that shows a turn has read the turn before,
        // whose memory the next turn takes.
        if (turn > 0) add_shown(b, turn - 1, kStageUnits, share);
        show(b, turn, first, mine, c);
      }
    }
    if constexpr (kWarps > 1) {
      add_shown(b, turn - 1, all - (turn - 1) * kStageUnits, share);
      collect(b, turn, share, total);
      if (part(b) > 0) return;
    }
    end_sums<kEnd>(b, a, tile, column(b) * kUnitOutputs, total);
  }
};

/// More rows, by wgmma with weights in registers: kRows is 64 or 128. A warpgroup for each 64
/// outputs; while it multiplies a unit, the next one is widened. Grid: row tiles, output tiles.
template <uint32_t kRows, uint32_t kGroups, ProductEnd kEnd, class Tiles = RowTiles>
struct Fp8ProductKernel {
  using Args = ProductArgs;
  static constexpr uint32_t kOutputs = kGroups * 64;
  static constexpr uint32_t kReaderWarps = kGroups * 4;
  /// Registers belong to warpgroups. Two that multiply 128 rows need some of those of a third, of
  /// which one thread fetches.
  static constexpr bool kUneven = kRows == 128 && kGroups == 2;
  static constexpr uint32_t kThreads = (kReaderWarps + (kUneven ? 4 : 1)) * kWarpThreads;
  static constexpr uint32_t kBlocksPerSm = 1;
  using Ring =
      BulkStages<kOutputs, kRows, kReaderWarps, kBlocksPerSm, kUnitSteps, UnitPieces<kOutputs>>;
  static constexpr uint32_t kStages = Ring::kStages;
  static constexpr uint32_t kSharedBytes = Ring::kBytes;
  static constexpr bool kAwaitsPrevious = true;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    if constexpr (Block::kHasWarpgroupMma) {
      ProductTile tile = Ring::output_tile(Tiles::outputs(b));
      Ring::init(b);
      if (!Tiles::find_matrix(b, a, tile)) return;
      typename Ring::template Filler<Block> filler = {b, a, tile, 0, a.steps};
      const uint32_t early = Tiles::kRouted ? 0 : Ring::begin_early(b, filler);
      if (!Tiles::find_rows(b, a, kRows, tile)) return Ring::await_early(b, early);
      // Read from one lane, so that the compiler knows that a warp branches as a whole.
      if (b.shuffle(b.warp(), 0) < kReaderWarps) {
        if constexpr (kUneven) b.template take_registers<kManyRegisters>();
        multiply(b, a, tile, filler.fills());
      } else {
        if constexpr (kUneven) b.template leave_registers<kFewRegisters>();
        if (b.thread() == kReaderWarps * kWarpThreads) {
          fill_stages<kStages>(filler.fills(), early, filler);
        }
      }
    }
  }

 private:
  static constexpr uint32_t kEights = kRows / 8;
  /// Of a thread: together those of the block, 168 each.
  static constexpr uint32_t kManyRegisters = 232, kFewRegisters = 40;

  /// A unit as wgmma takes it.
  struct WideUnit {
    uint32_t a[kUnitInputs / 16][4];
    Float2 scales;
  };

  template <class Block>
  SAC_DEVICE static void take(const Block& b, StageCursor<kStages>& at, WideUnit& unit) {
    b.barrier_wait(Ring::full(b, at.stage), at.parity());
    b.warp_sync();
    LaneUnit lane;
    lane.load(Ring::weights(b, at.stage) + b.warp() * kUnitBytes, b.lane());
    SAC_UNROLL
    for (uint32_t step = 0; step < kUnitInputs / 16; ++step) lane.widen(b, step, unit.a[step]);
    unit.scales = lane.scales;
    at.next();
  }

  /// Begins the chain of a unit that was taken from `stage`.
  template <class Block>
  SAC_DEVICE static void begin(const Block& b, uint32_t stage, const WideUnit& unit,
                               float (&sums)[kEights][4]) {
    b.warpgroup_fence();
    SAC_UNROLL
    for (uint32_t step = 0; step < kUnitInputs / 16; ++step) {
      const uint32_t rows = b.shared_address(Ring::rows(b, stage, step / 4));
      b.template warpgroup_mma<false>(
          sums, unit.a[step], matrix_descriptor(rows + step % 4 * 16 * uint32_t{sizeof(Half)}),
          step > 0);
    }
    b.warpgroup_commit();
  }

  template <class Block>
  SAC_DEVICE static void multiply(const Block& b, const Args& a, const ProductTile& tile,
                                  uint32_t units) {
    float sums[kEights][4] = {}, total[kEights][4] = {};
    WideUnit even, odd;
    StageCursor<kStages> at;
    // One unit of a pair: `next`, if there is one, is taken meanwhile.
    const auto turn = [&](uint32_t unit, const WideUnit& now, WideUnit& next) {
      const uint32_t stage = unit % kStages;
      begin(b, stage, now, sums);
      if (unit + 1 < units) take(b, at, next);
      b.template warpgroup_wait<0>();
      if (b.lane() == 0) b.barrier_arrive(Ring::empty(b, stage));
      add_scaled(total, now.scales, sums);
    };
    take(b, at, even);
    for (uint32_t unit = 0; unit < units; unit += 2) {
      turn(unit, even, odd);
      if (unit + 1 < units) turn(unit + 1, odd, even);
    }
    end_sums<kEnd>(b, a, tile, b.warp() * kUnitOutputs, total);
  }
};

}  // namespace saccade::gpu
