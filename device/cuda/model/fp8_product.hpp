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

/// Few rows, by mma: kRows is 8 or 32, kBlockOutputs 32, 64 or 128. A warp for each 16 outputs, and
/// as in NarrowProductKernel a thread each that requests weights and rows. Grid: row tiles, output
/// tiles.
template <uint32_t kRows, uint32_t kBlockOutputs, ProductEnd kEnd>
struct Fp8NarrowProductKernel {
  using Args = ProductArgs;
  static constexpr uint32_t kOutputs = kBlockOutputs;
  static constexpr uint32_t kReaderWarps = kOutputs / kUnitOutputs;
  static constexpr uint32_t kThreads = (kReaderWarps + 2) * kWarpThreads;
  static constexpr uint32_t kBlocksPerSm = kOutputs == kTileOutputs ? 2 : 1;
  /// Of a stage. A chain of mma waits for itself; with 8 rows a warp has no other but the next
  /// unit's.
  static constexpr uint32_t kUnits = kRows == 8 ? 2 : 1;
  using Ring = BulkStages<kOutputs, kRows, kReaderWarps, kBlocksPerSm, kUnits * kUnitSteps,
                          UnitPieces<kOutputs>>;
  static constexpr uint32_t kStages = Ring::kStages;
  static constexpr uint32_t kSharedBytes = Ring::kBytes;
  static constexpr bool kAwaitsPrevious = true;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    if constexpr (Block::kHasWarpgroupMma) {
      ProductTile tile = Ring::output_tile(b);
      Ring::init(b);
      typename Ring::template Filler<Block> filler = {b, a, tile, 0, a.steps};
      const uint32_t early = Ring::begin_early(b, filler);
      b.await_previous();
      if (!find_row_tile(b, a, kRows, tile)) return Ring::await_early(b, early);
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
  static constexpr uint32_t kEights = kRows / 8;
  /// Where warps are few, the next stage's operands are on their way while this one's multiply.
  static constexpr bool kAhead = kOutputs < kTileOutputs;

  /// What a lane multiplies of a stage.
  struct Operands {
    LaneUnit units[kUnits];
    uint32_t x[kUnits * kUnitSteps][kEights][kStep / 32][4];
  };

  template <class Block>
  SAC_DEVICE static void await(const Block& b, const StageCursor<kStages>& at) {
    b.barrier_wait(Ring::full(b, at.stage), at.parity());
    b.warp_sync();
  }
  template <class Block>
  SAC_DEVICE static void release(const Block& b, StageCursor<kStages>& at) {
    b.warp_sync();
    if (b.lane() == 0) b.barrier_arrive(Ring::empty(b, at.stage));
    at.next();
  }
  /// The weights of a stage's `units` units.
  template <class Block>
  SAC_DEVICE static void load_units(const Block& b, uint32_t stage, uint32_t units, Operands& o) {
    SAC_UNROLL
    for (uint32_t u = 0; u < kUnits; ++u) {
      if (u >= units) break;
      o.units[u].load(Ring::weights(b, stage, u) + b.warp() * kUnitBytes, b.lane());
    }
  }
  /// The rows of each unit's step-th 64 k.
  template <class Block>
  SAC_DEVICE static void load_rows(const Block& b, uint32_t stage, uint32_t units, uint32_t step,
                                   Operands& o) {
    SAC_UNROLL
    for (uint32_t u = 0; u < kUnits; ++u) {
      if (u >= units) break;
      const Half* rows = Ring::rows(b, stage, u * kUnitSteps + step);
      SAC_UNROLL
      for (uint32_t j = 0; j < kEights; ++j) {
        const uint32_t row = j * 8 + b.lane() % 8;
        SAC_UNROLL
        for (uint32_t k = 0; k < kStep / 32; ++k) {
          b.load_matrices(o.x[u * kUnitSteps + step][j][k],
                          rows + row * kStep + swizzle(row, k * 4 + b.lane() / 8) * kPiece);
        }
      }
    }
  }
  /// Waits for a stage, takes all of it, and gives it back.
  template <class Block>
  SAC_DEVICE static void take(const Block& b, StageCursor<kStages>& at, uint32_t units,
                              Operands& o) {
    await(b, at);
    load_units(b, at.stage, units, o);
    SAC_UNROLL
    for (uint32_t step = 0; step < kUnitSteps; ++step) load_rows(b, at.stage, units, step, o);
    release(b, at);
  }

  /// Adds 64 k of each unit to its chain; the chains go side by side.
  template <class Block>
  SAC_DEVICE static void add_step(const Block& b, const Operands& o, uint32_t units, uint32_t step,
                                  float (&sums)[kUnits][kEights][4]) {
    SAC_UNROLL
    for (uint32_t k = 0; k < kStep / 16; ++k) {
      SAC_UNROLL
      for (uint32_t u = 0; u < kUnits; ++u) {
        if (u >= units) break;
        uint32_t w[4];
        o.units[u].widen(b, step * (kStep / 16) + k, w);
        SAC_UNROLL
        for (uint32_t j = 0; j < kEights; ++j) {
          const uint32_t(&x)[4] = o.x[u * kUnitSteps + step][j][k / 2];
          b.mma(sums[u][j], w, x[k % 2 * 2], x[k % 2 * 2 + 1]);
        }
      }
    }
  }
  SAC_DEVICE static void end_units(const Operands& o, uint32_t units,
                                   const float (&sums)[kUnits][kEights][4],
                                   float (&total)[kEights][4]) {
    SAC_UNROLL
    for (uint32_t u = 0; u < kUnits; ++u) {
      if (u < units) add_scaled(total, o.units[u].scales, sums[u]);
    }
  }

  template <class Block>
  SAC_DEVICE static void multiply(const Block& b, const Args& a, const ProductTile& tile) {
    float total[kEights][4] = {};
    StageCursor<kStages> at;
    const uint32_t all = a.steps / kUnitSteps;
    Operands now, next;
    if (kAhead) take(b, at, min_u32(kUnits, all), now);
    for (uint32_t unit = 0; unit < all; unit += kUnits) {
      const uint32_t units = min_u32(kUnits, all - unit), after = all - unit - units;
      float sums[kUnits][kEights][4] = {};
      if (kAhead && after > 0) take(b, at, min_u32(kUnits, after), next);
      if (!kAhead) {
        await(b, at);
        load_units(b, at.stage, units, now);
      }
      SAC_UNROLL
      for (uint32_t step = 0; step < kUnitSteps; ++step) {
        if (!kAhead) load_rows(b, at.stage, units, step, now);
        add_step(b, now, units, step, sums);
      }
      if (!kAhead) release(b, at);
      end_units(now, units, sums, total);
      if (kAhead) now = next;
    }
    end_sums<kEnd>(b, a, tile, b.warp() * kUnitOutputs, total);
  }
};

/// More rows, by wgmma with weights in registers: kRows is 64 or 128. A warpgroup for each 64
/// outputs; while it multiplies a unit, the next one is widened. Grid: row tiles, output tiles.
template <uint32_t kRows, uint32_t kGroups, ProductEnd kEnd>
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
      ProductTile tile = Ring::output_tile(b);
      Ring::init(b);
      typename Ring::template Filler<Block> filler = {b, a, tile, 0, a.steps};
      const uint32_t early = Ring::begin_early(b, filler);
      b.await_previous();
      if (!find_row_tile(b, a, kRows, tile)) return Ring::await_early(b, early);
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
