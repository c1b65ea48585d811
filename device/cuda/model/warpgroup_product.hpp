// Products by wgmma, for GPUs of compute capability 9.0: what product.hpp says, by other means.
//
// One warp fetches: a stage is a tile of weights and the same 64 k of the block's rows, two bulk
// copies, because both stand in memory as they stand in shared memory (view.hpp). Two warpgroups
// multiply, 64 outputs each. Nobody meets a barrier of the whole block on the way: stage_ring.hpp.
//
// Independence of company: a slice is one chain of wgmma steps, 16 k each, in rising order; slices
// and who adds them are product.hpp's. Rows are wgmma's columns.
#pragma once
#include "cuda/model/product.hpp"
#include "cuda/model/stage_ring.hpp"

namespace saccade::gpu {

/// wgmma's description of an operand in shared memory (PTX ISA, "matrix descriptor"): rows of 128
/// bytes with their pieces exchanged, eight rows of which are 1,024 bytes from the next eight. In
/// units of 16 bytes: where it begins (which may be some k further on in the first row), a distance
/// that this form does not use, and that of eight rows. 1 at bit 62: the exchange over 128 bytes.
SAC_HD constexpr uint64_t matrix_descriptor(uint32_t shared_address) {
  constexpr uint64_t kEightRows = 8 * kStep * sizeof(Half);
  return uint64_t{(shared_address & 0x3ffff) >> 4} | uint64_t{1} << 16 | kEightRows >> 4 << 32 |
         uint64_t{1} << 62;
}

/// kRows and kGroups: a block computes kGroups * 64 outputs of so many rows, a warpgroup for
/// each 64. kSerial: one block runs all slices, and has room for the sum of those before; otherwise
/// a block runs one. Grid: row tiles, tiles of kGroups * 64 outputs, slices (1 when serial).
template <uint32_t kRows, uint32_t kGroups, bool kSerial, ProductEnd kEnd>
struct WarpgroupProductKernel {
  using Args = ProductArgs;
  static constexpr uint32_t kGroupWarps = 4;
  static constexpr uint32_t kGroupOutputs = 64;
  static constexpr uint32_t kOutputs = kGroups * kGroupOutputs;
  static constexpr uint32_t kReaderWarps = kGroups * kGroupWarps;
  static constexpr uint32_t kThreads = (kReaderWarps + 1) * kWarpThreads;
  static constexpr uint32_t kBlocksPerSm = kRows > 64 ? 1 : 2;
  static constexpr uint32_t kWeightHalves = kOutputs * kStep;
  static constexpr uint32_t kStageHalves = kWeightHalves + kRows * kStep;
  static constexpr uint32_t kStageBytes = kStageHalves * sizeof(Half) + 2 * sizeof(uint64_t);
  /// As many as there is shared memory for: 228 KiB, of which each block costs one.
  static constexpr uint32_t kStages = (228 / kBlocksPerSm - 1) * 1024 / kStageBytes;
  static constexpr uint32_t kSharedBytes = kStages * kStageBytes;
  static_assert(kStages >= 3 && kTileOutputs % kOutputs == 0);
  static constexpr bool kAwaitsPrevious = true;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    if constexpr (Block::kHasWarpgroupMma) {
      const uint32_t begin = kSerial ? 0 : b.z() * a.slice_steps;
      const uint32_t end = kSerial ? a.steps : min_u32(begin + a.slice_steps, a.steps);
      ProductTile tile = {};
      tile.first_output = b.y() * kOutputs;
      tile.weights = a.weights + size_t{tile.first_output / kTileOutputs} * a.steps * kTileHalves +
                     tile.first_output % kTileOutputs * kStep;
      if (b.thread() == 0) {
        for (uint32_t s = 0; s < kStages; ++s) {
          b.barrier_init(full(b, s), 2);
          b.barrier_init(empty(b, s), kReaderWarps);
        }
        b.barrier_fence();
      }
      b.sync();
      Filler<Block> filler = {b, a, tile, begin};
      // Weights come while the kernel before still runs; of several row tiles' blocks one asks.
      uint32_t early = 0;
      if (b.thread() == kReaderWarps * kWarpThreads && b.x() == 0) {
        early = fill_early_stages<kStages>(end - begin, filler);
      }
      b.await_previous();
      if (!find_row_tile(b, a, kRows, tile)) return await_stages(b, early);
      // Asked of one lane, so that the compiler knows that a warp goes one way as a whole.
      if (b.shuffle(b.warp(), 0) < kReaderWarps) {
        Reader<Block> reader = {b, kSerial ? a.slice_steps : end - begin};
        read_stages<kStages>(end - begin, reader);
        store(b, a, tile, kSerial ? reader.total : reader.sums);
      } else if (b.lane() == 0) {
        fill_stages<kStages>(end - begin, early, filler);
      }
    }
  }

 private:
  struct Sums {
    float v[kRows / 8][4];
  };

  template <class Block>
  SAC_DEVICE static Half* stage_memory(const Block& b, uint32_t stage) {
    return reinterpret_cast<Half*>(b.shared()) + stage * kStageHalves;
  }
  template <class Block>
  SAC_DEVICE static uint64_t* full(const Block& b, uint32_t stage) {
    return reinterpret_cast<uint64_t*>(stage_memory(b, kStages)) + stage;
  }
  template <class Block>
  SAC_DEVICE static uint64_t* empty(const Block& b, uint32_t stage) {
    return full(b, kStages + stage);
  }

  /// Of a block that has nothing to do, but asked for weights.
  template <class Block>
  SAC_DEVICE static void await_stages(const Block& b, uint32_t early) {
    for (uint32_t s = 0; s < early; ++s) {
      b.barrier_arrive(full(b, s));
      b.barrier_wait(full(b, s), 0);
    }
  }

  template <class Block>
  struct Filler {
    const Block& b;
    const Args& a;
    const ProductTile& tile;
    const uint32_t begin;  // step of the matrix at which the slice begins

    SAC_DEVICE void await_empty(uint32_t stage, uint32_t parity) const {
      b.barrier_wait(empty(b, stage), parity);
    }
    SAC_DEVICE void fill_early(uint32_t stage, uint32_t step) const {
      copy(stage, stage_memory(b, stage), tile.weights + size_t{begin + step} * kTileHalves,
           kWeightHalves * sizeof(Half));
    }
    /// Of the rows, those that there are, in whole eights; what lies behind them in the stage meets
    /// no result that is kept.
    SAC_DEVICE void fill(uint32_t stage, uint32_t step) const {
      copy(stage, stage_memory(b, stage) + kWeightHalves,
           a.x.data + (begin + step) * a.x.plane() + size_t{tile.first} * kStep,
           round_up(tile.rows, 8) * kStep * sizeof(Half));
    }
    SAC_DEVICE void copy(uint32_t stage, Half* to, const Half* from, uint32_t bytes) const {
      b.barrier_expect(full(b, stage), bytes);
      b.bulk_copy(to, from, bytes, full(b, stage));
    }
  };

  template <class Block>
  struct Reader {
    const Block& b;
    const uint32_t slice_steps;
    bool adds = false;  // to sums; false: a slice begins
    Sums sums = {};
    Sums total = {};

    SAC_DEVICE void await_full(uint32_t stage, uint32_t parity) const {
      b.barrier_wait(full(b, stage), parity);
      b.warp_sync();
    }
    /// One stage: four steps of 16, in rising order of k.
    SAC_DEVICE void read(uint32_t stage, uint32_t) {
      const uint32_t rows = b.shared_address(stage_memory(b, stage) + kWeightHalves);
      const uint32_t weights =
          b.shared_address(stage_memory(b, stage) + b.warp() / kGroupWarps * kGroupOutputs * kStep);
      b.warpgroup_fence();
      SAC_UNROLL
      for (uint32_t k = 0; k < kStep; k += 16) {
        const uint32_t on = k * sizeof(Half);
        b.warpgroup_mma(sums.v, matrix_descriptor(weights + on), matrix_descriptor(rows + on),
                        adds || k > 0);
      }
      b.warpgroup_commit();
      adds = true;
    }
    SAC_DEVICE void await_other_reads() const { b.template warpgroup_wait<1>(); }
    SAC_DEVICE void await_all_reads() const { b.template warpgroup_wait<0>(); }
    SAC_DEVICE void release(uint32_t stage) const {
      if (b.lane() == 0) b.barrier_arrive(empty(b, stage));
    }
    SAC_DEVICE void close(uint32_t step) {
      if (!kSerial) return;
      const bool first = step == 0;
      SAC_UNROLL
      for (uint32_t j = 0; j < kRows / 8; ++j) {
        SAC_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          total.v[j][e] = first ? sums.v[j][e] : total.v[j][e] + sums.v[j][e];
        }
      }
      adds = false;
    }
  };

  template <class Block>
  SAC_DEVICE static void store(const Block& b, const Args& a, const ProductTile& tile,
                               const Sums& sums) {
    if constexpr (kEnd == ProductEnd::kAdded) return add(b, a, tile, sums);
    const uint32_t output = b.warp() * 16 + b.lane() / 4;
    SAC_UNROLL
    for (uint32_t j = 0; j < kRows / 8; ++j) {
      SAC_UNROLL
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t row = j * 8 + b.lane() % 4 * 2 + e;
        if (row >= tile.rows) continue;
        if constexpr (kEnd != ProductEnd::kAdded) {
          store_pair<kEnd>(b, a, tile, output, row, sums.v[j][e], sums.v[j][2 + e]);
        }
      }
    }
  }

  /// x += sum + bias. Eight or sixteen rows at a time, as registers allow, so that loads wait for
  /// few stores.
  template <class Block>
  SAC_DEVICE static void add(const Block& b, const Args& a, const ProductTile& tile,
                             const Sums& sums) {
    constexpr uint32_t kAtOnce = kRows == 8 || kRows == 256 ? 1 : 2;
    const uint32_t output = tile.first_output + b.warp() * 16 + b.lane() / 4;
    const bool there[2] = {output < a.x_width, output + 8 < a.x_width};
    const float bias[2] = {there[0] ? a.x_bias[output] : 0.0f,
                           there[1] ? a.x_bias[output + 8] : 0.0f};
    SAC_UNROLL
    for (uint32_t first = 0; first < kRows / 8; first += kAtOnce) {
      float* to[kAtOnce][4];
      float before[kAtOnce][4];
      SAC_UNROLL
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        SAC_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          const uint32_t row = (first + j) * 8 + b.lane() % 4 * 2 + e % 2;
          const bool real = row < tile.rows && there[e / 2];
          to[j][e] =
              real ? a.x_sums + size_t{tile.first + row} * a.x_width + output + e / 2 * 8 : nullptr;
          before[j][e] = real ? *to[j][e] : 0.0f;
        }
      }
      SAC_UNROLL
      for (uint32_t j = 0; j < kAtOnce; ++j) {
        SAC_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          if (to[j][e] == nullptr) continue;
          *to[j][e] = (sums.v[first + j][e] + bias[e / 2]) + before[j][e];
        }
      }
    }
  }
};

}  // namespace saccade::gpu
