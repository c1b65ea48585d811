// Adapters (LoRA): y = W x + scaling * B (A x). The rows of a step that have one are listed by
// adapter; two kernels compute what is added to their products, in f32, and the kernels that read
// the products' sums add it. Rows without an adapter are computed as if there were none.
//
// Independence of company: a change is a sum of slices of k of a fixed size, added in rising order;
// each is a chain of mma steps whose columns do not mix. The rank that is computed is the adapter's
// own. -0 is what is added where an adapter leaves a matrix as it is: that changes no number.
#pragma once
#include "cuda/model/rows.hpp"
#include "cuda/model/sequence_shape.hpp"

namespace saccade::gpu {

/// Inputs of one slice of A x.
inline constexpr uint32_t kShrinkSlice = 1024;
SAC_HD constexpr uint32_t shrink_slices(uint32_t k) { return ceil_div(k, kShrinkSlice); }
/// Slots of a tile: few where a shape has few rows, so that there are more blocks.
inline constexpr uint32_t kFewAdapterSlots = 8, kManyAdapterSlots = 64;
inline constexpr uint32_t kMaxFewRows = 64;

SAC_HD constexpr uint32_t adapter_tile_slots(uint32_t rows) {
  return rows <= kMaxFewRows ? kFewAdapterSlots : kManyAdapterSlots;
}
/// Most tiles that `rows` rows are cut into.
SAC_HD constexpr uint32_t max_adapter_tiles(uint32_t num_adapters, uint32_t rows,
                                            uint32_t tile_slots) {
  return min_u32(num_adapters, rows) + rows / tile_slots;
}

/// Gives each row that has an adapter a slot, adapter by adapter, and cuts each adapter's slots
/// into tiles. Which slot of its adapter a row gets depends on timing; no result does. Grid: one
/// block.
struct AdapterPlanKernel {
  static constexpr uint32_t kThreads = 512;
  static_assert(kThreads >= SAC_MAX_ADAPTERS, "a thread per adapter");
  static constexpr uint32_t kBlocksPerSm = 1;
  static constexpr uint32_t kSharedBytes = kOpsBytes + kThreads * sizeof(uint32_t);

  struct Args {
    const PlanCounts* counts;
    const PlanRow* rows;
    SeatTables seats;
    uint32_t num_adapters;
    uint32_t tile_slots;
    AdapterWork work;
  };

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    auto* next = reinterpret_cast<uint32_t*>(b.shared() + kOpsBytes);  // of adapter 1 + index
    const uint32_t num_rows = a.counts->num_rows;
    next[b.thread()] = 0;
    b.sync();
    for (uint32_t row = b.thread(); row < num_rows; row += kThreads) {
      const uint32_t adapter = adapter_of(a, row);
      if (adapter != 0) b.add(&next[adapter - 1], 1);
    }
    b.sync();
    const uint32_t count = next[b.thread()];
    const uint32_t tiles = ceil_div(count, a.tile_slots);
    uint32_t num_slots = 0, num_tiles = 0;
    const uint32_t slot = running_sum<kThreads>(b, count, num_slots);
    const uint32_t tile = running_sum<kThreads>(b, tiles, num_tiles);
    next[b.thread()] = slot;
    for (uint32_t t = 0; t < tiles; ++t) {
      const uint32_t done = t * a.tile_slots;
      a.work.tiles[tile + t] = {b.thread() + 1, slot + done, min_u32(a.tile_slots, count - done)};
    }
    if (b.thread() == 0) *a.work.num_tiles = num_tiles;
    b.sync();
    for (uint32_t row = b.thread(); row < num_rows; row += kThreads) {
      const uint32_t adapter = adapter_of(a, row);
      a.work.row_slot[row] = adapter != 0 ? b.add(&next[adapter - 1], 1) : Deltas::kNoSlot;
      if (adapter != 0) a.work.slot_row[a.work.row_slot[row]] = row;
    }
  }

 private:
  SAC_DEVICE static uint32_t adapter_of(const Args& a, uint32_t row) {
    const uint32_t adapter = a.seats.params[a.rows[row].seat].adapter;
    return adapter <= a.num_adapters ? adapter : 0;
  }
};

struct AdapterArgs {
  AdapterWork work;
  AdaptedView view;
  Activations x;
  uint32_t ranks;   // of the highest adapter of any matrix, a multiple of kFragmentRows
  Partials shrunk;  // of slots: [matrices][ranks]
};

/// False: there is no such tile.
SAC_DEVICE bool find_adapter_tile(const AdapterArgs& a, uint32_t index, AdapterTile& tile) {
  tile = a.work.tiles[index];  // there is memory: not waited for how many there are first
  return index < *a.work.num_tiles;
}
SAC_DEVICE Word4 load_words(const Half* at) { return *reinterpret_cast<const Word4*>(at); }

/// shrunk = A x, in slices of k. A warp has a quarter of a slice; the quarters are added in rising
/// order. Grid: tiles, matrices * ranks / 16, slices.
template <uint32_t kSlots>
struct ShrinkKernel {
  using Args = AdapterArgs;
  static constexpr uint32_t kThreads = 128;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kWarps = kThreads / kWarpThreads;
  static constexpr uint32_t kSharedBytes = kWarps * kSlots * kFragmentRows * sizeof(float);

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    AdapterTile tile;
    if (!find_adapter_tile(a, b.x(), tile)) return;
    const uint32_t units = a.ranks / kFragmentRows;
    const uint32_t matrix = b.y() / units, unit = b.y() % units;
    if (unit * kFragmentRows >= a.view.entries[a.view.index(tile.adapter, matrix)].rank) return;
    const Half* weights =
        a.view.a_of(tile.adapter, matrix) + size_t{unit} * kFragmentRows * a.view.k;
    Sums sums = {};
    multiply(b, a, tile, weights, sums);
    share(b, sums);
    b.sync();
    const auto* quarters = reinterpret_cast<const float*>(b.shared());
    float* out = a.shrunk.data + b.z() * a.shrunk.plane + matrix * a.ranks + unit * kFragmentRows;
    for (uint32_t i = b.thread(); i < tile.num_slots * kFragmentRows; i += kThreads) {
      float sum = quarters[i];
      for (uint32_t w = 1; w < kWarps; ++w) sum += quarters[w * kSlots * kFragmentRows + i];
      const size_t slot = tile.first_slot + i / kFragmentRows;
      out[slot * a.shrunk.stride + i % kFragmentRows] = sum;
    }
  }

 private:
  static constexpr uint32_t kEights = kSlots / 8;
  static constexpr uint32_t kWarpSteps = kShrinkSlice / kWarps / kStep;
  /// Steps, and eights of slots, whose operands are loaded before any is used: what fits in
  /// registers.
  static constexpr uint32_t kSteps = kEights == 1 ? kWarpSteps : 1;
  static constexpr uint32_t kTogether = kEights < 4 ? kEights : 4;

  struct Sums {
    float v[kEights][4];
  };
  struct Operand {
    Word4 v[4];
  };
  struct Columns {
    Word4 low, high;  // a lane's two pieces of a row
  };

  template <class Block>
  SAC_DEVICE static void multiply(const Block& b, const Args& a, const AdapterTile& tile,
                                  const Half* weights, Sums& sums) {
    const uint32_t begin = (b.z() * kWarps + b.warp()) * kWarpSteps;
    const uint32_t end = min_u32(begin + kWarpSteps, a.view.k / kStep);
    uint32_t rows[kEights];  // those beyond the tile repeat its last one
    SAC_UNROLL
    for (uint32_t j = 0; j < kEights; ++j) {
      const uint32_t slot = min_u32(j * 8 + b.lane() / 4, tile.num_slots - 1);
      rows[j] = a.work.slot_row[tile.first_slot + slot];
    }
    for (uint32_t first = begin; first < end; first += kSteps) {
      Operand w[kSteps];
      SAC_UNROLL
      for (uint32_t s = 0; s < kSteps; ++s) {
        const Half* unit = weights + size_t{min_u32(first + s, end - 1)} * kShrinkHalves;
        SAC_UNROLL
        for (uint32_t i = 0; i < 4; ++i)
          w[s].v[i] = load_words(unit + (i * kWarpThreads + b.lane()) * kPiece);
      }
      SAC_UNROLL
      for (uint32_t j = 0; j < kEights; j += kTogether) {
        if (j * 8 < tile.num_slots) add_columns(b, a, w, rows + j, first, end, sums.v + j);
      }
    }
  }

  template <class Block>
  SAC_DEVICE static void add_columns(const Block& b, const Args& a, const Operand (&w)[kSteps],
                                     const uint32_t* rows, uint32_t first, uint32_t end,
                                     float (*sums)[4]) {
    Columns x[kSteps][kTogether];
    SAC_UNROLL
    for (uint32_t s = 0; s < kSteps; ++s) {
      const uint32_t column = min_u32(first + s, end - 1) * kStep + b.lane() % 4 * kPiece;
      SAC_UNROLL
      for (uint32_t j = 0; j < kTogether; ++j) {
        x[s][j] = {load_words(a.x.at(rows[j], column)),
                   load_words(a.x.at(rows[j], column + kStep / 2))};
      }
    }
    SAC_UNROLL
    for (uint32_t s = 0; s < kSteps; ++s) {
      if (first + s >= end) continue;
      SAC_UNROLL
      for (uint32_t j = 0; j < kTogether; ++j) {
        const Columns& c = x[s][j];
        b.mma(sums[j], w[s].v[0].v, c.low.v[0], c.low.v[1]);
        b.mma(sums[j], w[s].v[1].v, c.low.v[2], c.low.v[3]);
        b.mma(sums[j], w[s].v[2].v, c.high.v[0], c.high.v[1]);
        b.mma(sums[j], w[s].v[3].v, c.high.v[2], c.high.v[3]);
      }
    }
  }

  /// Into shared memory: [warp][slot][rank].
  template <class Block>
  SAC_DEVICE static void share(const Block& b, const Sums& sums) {
    float* to = reinterpret_cast<float*>(b.shared()) + b.warp() * kSlots * kFragmentRows;
    const uint32_t g = b.lane() / 4, t = b.lane() % 4;
    SAC_UNROLL
    for (uint32_t j = 0; j < kEights; ++j) {
      SAC_UNROLL
      for (uint32_t e = 0; e < 4; ++e)
        to[(j * 8 + 2 * t + e % 2) * kFragmentRows + g + e / 2 * 8] = sums.v[j][e];
    }
  }
};

/// deltas = B (scaling * shrunk), the second factor in bf16, as the CPU has it. A warp has 16
/// outputs. Grid: tiles, blocks_of(view).
template <uint32_t kSlots>
struct ExpandKernel {
  using Args = AdapterArgs;
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kBlocksPerSm = 2;
  static constexpr uint32_t kWarps = kThreads / kWarpThreads;
  static constexpr uint32_t kOutputs = kWarps * kFragmentRows;
  /// Ranks that are in shared memory at once; a row of them is as long as leaves eight rows in
  /// different banks.
  static constexpr uint32_t kRanks = 128;
  static constexpr uint32_t kRowHalves = kRanks + 16;
  static constexpr uint32_t kSharedBytes = kSlots * kRowHalves * sizeof(Half);

  SAC_HD static uint32_t blocks_of(const AdaptedView& view, uint32_t matrix) {
    return ceil_div(view.outputs(matrix), kOutputs);
  }
  /// Of all matrices.
  static uint32_t blocks_of(const AdaptedView& view) {
    uint32_t blocks = 0;
    for (uint32_t m = 0; m < view.count; ++m) blocks += blocks_of(view, m);
    return blocks;
  }

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    AdapterTile tile;
    if (!find_adapter_tile(a, b.x(), tile)) return;
    uint32_t matrix = 0, block = b.y();
    for (; block >= blocks_of(a.view, matrix); ++matrix) block -= blocks_of(a.view, matrix);
    const AdapterEntry entry = a.view.entries[a.view.index(tile.adapter, matrix)];
    const uint32_t output = block * kOutputs + b.warp() * kFragmentRows;
    const bool has_outputs = output < a.view.outputs(matrix);
    const Half* weights = a.view.b_of(tile.adapter, matrix) + size_t{output} * entry.rank;
    Sums sums = {};
    for (uint32_t first = 0; first < entry.rank; first += kRanks) {
      const uint32_t ranks = min_u32(kRanks, entry.rank - first);
      Word4 w[kRanks / kFragmentRows] = {};
      SAC_UNROLL
      for (uint32_t i = 0; i < kRanks / kFragmentRows; ++i) {
        const Half* unit = weights + size_t{first} * kFragmentRows + i * kExpandHalves;
        if (has_outputs && i * kFragmentRows < ranks) w[i] = load_words(unit + b.lane() * kPiece);
      }
      b.sync();  // no warp still reads the last ranks
      narrow_ranks(b, a, tile, entry.scaling, matrix * a.ranks + first, ranks);
      b.sync();
      if (has_outputs) multiply(b, tile, w, ranks, sums);
    }
    if (has_outputs) store(b, a, tile, a.view.columns[matrix] + output, entry.rank != 0, sums);
  }

 private:
  static constexpr uint32_t kEights = kSlots / 8;

  struct Sums {
    float v[kEights][4];
  };

  /// Columns from `first` on of the tile's rows of shrunk, into shared memory.
  template <class Block>
  SAC_DEVICE static void narrow_ranks(const Block& b, const Args& a, const AdapterTile& tile,
                                      float scaling, uint32_t first, uint32_t ranks) {
    auto* rows = reinterpret_cast<Half*>(b.shared());
    const uint32_t fours = ranks / 4;
    for (uint32_t i = b.thread(); i < tile.num_slots * fours; i += kThreads) {
      const uint32_t slot = i / fours, r = i % fours * 4;
      const Float4 sum = sum_slices(a.shrunk, tile.first_slot + slot, first + r);
      Half4 out;
      SAC_UNROLL
      for (uint32_t e = 0; e < 4; ++e) out.v[e] = narrow(sum.v[e] * scaling);
      *reinterpret_cast<Half4*>(rows + slot * kRowHalves + r) = out;
    }
  }

  template <class Block>
  SAC_DEVICE static void multiply(const Block& b, const AdapterTile& tile,
                                  const Word4 (&w)[kRanks / kFragmentRows], uint32_t ranks,
                                  Sums& sums) {
    const auto* rows = reinterpret_cast<const Half*>(b.shared());
    const Half* lane = rows + b.lane() / 4 * kRowHalves + b.lane() % 4 * 4;
    SAC_UNROLL
    for (uint32_t j = 0; j < kEights; ++j) {
      if (j * 8 >= tile.num_slots) continue;
      SAC_UNROLL
      for (uint32_t i = 0; i < kRanks / kFragmentRows; ++i) {
        if (i * kFragmentRows >= ranks) continue;
        const auto x = *reinterpret_cast<const Word2*>(lane + j * 8 * kRowHalves + i * 16);
        b.mma(sums.v[j], w[i].v, x.v[0], x.v[1]);
      }
    }
  }

  template <class Block>
  SAC_DEVICE static void store(const Block& b, const Args& a, const AdapterTile& tile,
                               uint32_t column, bool changed, const Sums& sums) {
    const uint32_t g = b.lane() / 4, t = b.lane() % 4;
    SAC_UNROLL
    for (uint32_t j = 0; j < kEights; ++j) {
      SAC_UNROLL
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t slot = j * 8 + 2 * t + e;
        if (slot >= tile.num_slots) continue;
        float* to = a.work.deltas + size_t{tile.first_slot + slot} * a.view.stride() + column + g;
        to[0] = changed ? sums.v[j][e] : -0.0f;
        to[8] = changed ? sums.v[j][2 + e] : -0.0f;
      }
    }
  }
};

}  // namespace saccade::gpu
