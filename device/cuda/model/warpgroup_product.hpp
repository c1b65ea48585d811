// Products by wgmma, for GPUs of compute capability 9.0: what product.hpp says, by other means.
//
// One warp fetches: a stage is a tile of weights and the same 64 k of the block's rows, two bulk
// copies, because both are laid out in memory as in shared memory (view.hpp). Two warpgroups
// multiply, 64 outputs each. No thread meets a block-wide barrier on the way: stage_ring.hpp.
//
// Independence of company: a slice is one chain of wgmma steps, 16 k each, in rising order; slices
// and what adds them are product.hpp's. Rows are wgmma's columns.
#pragma once
#include "cuda/model/bulk_stages.hpp"
#include "cuda/model/operands.hpp"

namespace saccade::gpu {

/// kRows and kGroups: a block computes kGroups * 64 outputs of kRows rows, a warpgroup for
/// each 64. kSerial: one block runs all slices, and has room for the sum of those before; otherwise
/// a block runs one.
template <uint32_t kRows, uint32_t kGroups, bool kSerial, ProductEnd kEnd, class Tiles = RowTiles>
struct WarpgroupProductKernel {
  using Args = ProductArgs;
  static constexpr uint32_t kGroupWarps = 4;
  static constexpr uint32_t kGroupOutputs = 64;
  static constexpr uint32_t kOutputs = kGroups * kGroupOutputs;
  static constexpr uint32_t kReaderWarps = kGroups * kGroupWarps;
  static constexpr uint32_t kThreads = (kReaderWarps + 1) * kWarpThreads;
  /// Narrow blocks are few, and so have many stages in flight.
  static constexpr uint32_t kBlocksPerSm = kRows > 64 || kGroups == 1 ? 1 : 2;
  using Ring = BulkStages<kOutputs, kRows, kReaderWarps, kBlocksPerSm>;
  static constexpr uint32_t kStages = Ring::kStages;
  static constexpr uint32_t kSharedBytes = Ring::kBytes;
  static constexpr bool kAwaitsPrevious = true;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    if constexpr (Block::kHasWarpgroupMma) {
      const uint32_t begin = kSerial ? 0 : b.z() * a.slice_steps;
      const uint32_t end = kSerial ? a.steps : min_u32(begin + a.slice_steps, a.steps);
      ProductTile tile = Ring::output_tile(Tiles::outputs(b));
      Ring::init(b);
      if (!Tiles::find_matrix(b, a, tile)) return;
      typename Ring::template Filler<Block> filler = {b, a, tile, begin, end};
      const uint32_t early = Tiles::kRouted ? 0 : Ring::begin_early(b, filler);
      if (!Tiles::find_rows(b, a, kRows, tile)) return Ring::await_early(b, early);
      // Read from one lane, so that the compiler knows that a warp branches as a whole.
      if (b.shuffle(b.warp(), 0) < kReaderWarps) {
        if (kHalves && b.shuffle(tile.rows, 0) <= kFew) {
          multiply<kFew>(b, a, tile, end - begin);
        } else {
          multiply<kRows>(b, a, tile, end - begin);
        }
      } else if (b.lane() == 0) {
        fill_stages<kStages>(filler.fills(), early, filler);
      }
    }
  }

 private:
  /// An expert's last tile may have any number of rows: then half of them are not multiplied.
  static constexpr bool kHalves = Tiles::kRouted && kRows > 64;
  static constexpr uint32_t kFew = kHalves ? kRows / 2 : kRows;

  template <uint32_t kUsed>
  struct Sums {
    float v[kUsed / 8][4];
  };

  /// kUsed: the rows of a stage that are multiplied.
  template <uint32_t kUsed, class Block>
  SAC_DEVICE static void multiply(const Block& b, const Args& a, const ProductTile& tile,
                                  uint32_t steps) {
    Reader<kUsed, Block> reader = {b, kSerial ? a.slice_steps : steps};
    read_stages<kStages>(steps, reader);
    end_sums<kEnd>(b, a, tile, b.warp() * 16, kSerial ? reader.total.v : reader.sums.v);
  }

  template <uint32_t kUsed, class Block>
  struct Reader {
    const Block& b;
    const uint32_t slice_steps;
    bool adds = false;  // to sums; false: a slice begins
    Sums<kUsed> sums = {};
    Sums<kUsed> total = {};

    SAC_DEVICE void await_full(uint32_t stage, uint32_t parity) const {
      b.barrier_wait(Ring::full(b, stage), parity);
      b.warp_sync();
    }
    /// One stage: four steps of 16, in rising order of k.
    SAC_DEVICE void read(uint32_t stage, uint32_t) {
      const uint32_t rows = b.shared_address(Ring::rows(b, stage));
      const uint32_t weights =
          b.shared_address(Ring::weights(b, stage)) +
          b.warp() / kGroupWarps * kGroupOutputs * kStep * uint32_t{sizeof(Half)};
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
      if (b.lane() == 0) b.barrier_arrive(Ring::empty(b, stage));
    }
    SAC_DEVICE void close(uint32_t step) {
      if (!kSerial) return;
      const bool first = step == 0;
      SAC_UNROLL
      for (uint32_t j = 0; j < kUsed / 8; ++j) {
        SAC_UNROLL
        for (uint32_t e = 0; e < 4; ++e) {
          total.v[j][e] = first ? sums.v[j][e] : total.v[j][e] + sums.v[j][e];
        }
      }
      adds = false;
    }
  };
};

}  // namespace saccade::gpu
