// Layers with experts: which rows go where. The products are ProductKernel's, grouped.
#pragma once
#include "cuda/model/rows.hpp"

namespace saccade::gpu {

inline constexpr uint32_t kMaxExperts = 512;
inline constexpr uint32_t kMaxPicks = kWarpThreads;  // experts of a token

/// How slots are cut into tiles.
struct SlotCut {
  uint32_t tile_slots;  // of a tile, at most
  uint32_t unit;        // an expert's slots begin at a multiple of it
  /// Each tile has a slot for each row of the step, of which there are tile_slots at most: then
  /// products read the rows where they are.
  bool shared;
};

/// Most tiles that `rows` rows are cut into, tile_slots slots each.
SAC_HD inline uint32_t max_expert_tiles(uint32_t num_experts, uint32_t per_token, uint32_t rows,
                                        const SlotCut& cut) {
  const uint32_t picks = rows * per_token;
  return min_u32(num_experts, picks) + (cut.shared ? 0 : picks / cut.tile_slots);
}

/// Assigns a slot to each pick, expert by expert, and cuts each expert's slots into tiles. Which
/// slot of its expert a row gets depends on timing; no result does. Grid: one block.
struct GroupKernel {
  static constexpr uint32_t kThreads = 512;
  static_assert(kThreads >= kMaxExperts, "a thread per expert");
  static constexpr uint32_t kBlocksPerSm = 1;
  static constexpr uint32_t kSharedBytes = kOpsBytes + kMaxExperts * sizeof(uint32_t);

  struct Args {
    const PlanCounts* counts;
    uint32_t num_experts;
    uint32_t per_token;
    SlotCut cut;
    ExpertSpace space;
  };

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    if (a.cut.shared) return share(b, a);
    auto* next = reinterpret_cast<uint32_t*>(b.shared() + kOpsBytes);
    const uint32_t picks = a.counts->num_rows * a.per_token;
    next[b.thread()] = 0;
    b.sync();
    for (uint32_t i = b.thread(); i < picks; i += kThreads) b.add(&next[pick_of(b, a, i)], 1);
    b.sync();
    const uint32_t count = next[b.thread()];
    const uint32_t tiles = ceil_div(count, a.cut.tile_slots);
    uint32_t num_slots = 0, num_tiles = 0;
    const uint32_t slot = running_sum<kThreads>(b, round_up(count, a.cut.unit), num_slots);
    const uint32_t tile = running_sum<kThreads>(b, tiles, num_tiles);
    next[b.thread()] = slot;
    for (uint32_t t = 0; t < tiles; ++t) {
      const uint32_t done = t * a.cut.tile_slots;
      a.space.tiles[tile + t] = {b.thread(), slot + done, min_u32(a.cut.tile_slots, count - done)};
    }
    if (b.thread() == 0) *a.space.num_tiles = num_tiles;
    b.sync();
    for (uint32_t i = b.thread(); i < picks; i += kThreads) {
      const uint32_t at = b.add(&next[pick_of(b, a, i)], 1);
      a.space.slots[i] = at;
      a.space.slot_row[at] = i / a.per_token;
    }
  }

 private:
  /// A tile for each expert that some row picked, with a slot for each row.
  template <class Block>
  SAC_DEVICE static void share(const Block& b, const Args& a) {
    auto* picked = reinterpret_cast<uint32_t*>(b.shared() + kOpsBytes);  // then: tile of an expert
    const uint32_t rows = a.counts->num_rows, picks = rows * a.per_token;
    picked[b.thread()] = 0;
    b.sync();
    for (uint32_t i = b.thread(); i < picks; i += kThreads) picked[pick_of(b, a, i)] = 1;
    b.sync();
    const bool mine = picked[b.thread()] != 0;
    uint32_t num_tiles = 0;
    const uint32_t tile = running_sum<kThreads>(b, mine ? 1 : 0, num_tiles);
    picked[b.thread()] = tile;
    if (mine) a.space.tiles[tile] = {b.thread(), tile * a.cut.tile_slots, rows};
    if (b.thread() == 0) *a.space.num_tiles = num_tiles;
    b.sync();
    for (uint32_t i = b.thread(); i < picks; i += kThreads) {
      a.space.slots[i] = picked[pick_of(b, a, i)] * a.cut.tile_slots + i / a.per_token;
    }
  }

  template <class Block>
  SAC_DEVICE static uint32_t pick_of(const Block& b, const Args& a, uint32_t i) {
    return b.load_far(a.space.picks + i);
  }
};

/// Each row to the slots of its picks. Grid: rows.
struct GatherKernel {
  static constexpr uint32_t kThreads = kRowThreads;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kSharedBytes = 0;

  struct Args {
    const PlanCounts* counts;
    const uint32_t* slots;
    uint32_t per_token;
    Activations from;  // rows
    Activations to;    // slots
    uint32_t width;
  };

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t row = b.x();
    if (row >= a.counts->num_rows) return;  // its slots are anything
    for (uint32_t i = b.thread() * kPiece; i < a.width; i += kThreads * kPiece) {
      const Word4 piece = *reinterpret_cast<const Word4*>(a.from.at(row, i));
      for (uint32_t p = 0; p < a.per_token; ++p) {
        const uint32_t slot = a.slots[size_t{row} * a.per_token + p];
        *reinterpret_cast<Word4*>(a.to.at(slot, i)) = piece;
      }
    }
  }
};

/// Picks the experts of each row from its router logits and weighs them, as cpu/moe.hpp: of equal
/// logits the lower number goes first; picks are in rising order. A warp per row; grid: rows /
/// kWarps. The last block to end groups all picks.
struct RouteKernel {
  static constexpr uint32_t kThreads = GroupKernel::kThreads;
  static constexpr uint32_t kWarps = kThreads / kWarpThreads;
  static constexpr uint32_t kBlocksPerSm = 2;
  static constexpr uint32_t kSharedBytes = kWarps * kMaxExperts * sizeof(float);

  struct Args {
    const PlanCounts* counts;
    Partials router;  // [rows]
    uint32_t num_experts;
    uint32_t per_token;
    uint32_t norm_topk_prob;
    SlotCut cut;
    ExpertSpace space;
  };

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t row = b.x() * kWarps + b.warp();
    if (row < a.counts->num_rows) pick(b, a, row);
    auto* word = reinterpret_cast<uint32_t*>(b.shared());
    if (!arrive_last(b, a.space.arrivals, b.grid_x(), word)) return;
    GroupKernel::run(b, {a.counts, a.num_experts, a.per_token, a.cut, a.space});
  }

 private:
  template <class Block>
  SAC_DEVICE static void pick(const Block& b, const Args& a, uint32_t row) {
    float* logits = reinterpret_cast<float*>(b.shared()) + b.warp() * kMaxExperts;
    // Four at once: rows of sums are as long as tiles of outputs.
    for (uint32_t e = b.lane() * 4; e < a.num_experts; e += kWarpThreads * 4) {
      store4(logits + e, sum_slices(a.router, row, e));
    }
    b.warp_sync();
    // Lane j keeps the j-th best.
    Pick mine = {0, 0};
    Pick last = {infinity(), 0};
    float top = 0;
    for (uint32_t j = 0; j < a.per_token; ++j) {
      last = next_best(b, a, logits, j == 0, last);
      if (j == 0) top = last.logit;
      if (b.lane() == j) mine = last;
    }
    write_picks(b, a, row, logits, top, mine);
  }

  struct Pick {
    float logit;
    uint32_t expert;
  };

  /// The best expert after `last` in the order of logits, then of numbers.
  template <class Block>
  SAC_DEVICE static Pick next_best(const Block& b, const Args& a, const float* logits, bool first,
                                   const Pick& last) {
    Pick best = {-infinity(), a.num_experts};
    for (uint32_t e = b.lane(); e < a.num_experts; e += kWarpThreads) {
      const bool behind =
          first || logits[e] < last.logit || (logits[e] == last.logit && e > last.expert);
      if (behind && (best.expert == a.num_experts || logits[e] > best.logit)) best = {logits[e], e};
    }
    SAC_UNROLL
    for (uint32_t mask = kWarpThreads / 2; mask > 0; mask /= 2) {
      const Pick other = {b.shuffle_xor(best.logit, mask), b.shuffle_xor(best.expert, mask)};
      const bool better =
          other.logit > best.logit || (other.logit == best.logit && other.expert < best.expert);
      if (better) best = other;
    }
    best.expert = min_u32(best.expert, a.num_experts - 1);  // NaN has no order
    return best;
  }

  template <class Block>
  SAC_DEVICE static void write_picks(const Block& b, const Args& a, uint32_t row,
                                     const float* logits, float top, const Pick& mine) {
    const bool picks = b.lane() < a.per_token;
    const float weight = picks ? exp_fixed(mine.logit - top) : 0.0f;
    float all = 0;
    if (a.norm_topk_prob == 0) {
      for (uint32_t e = b.lane(); e < a.num_experts; e += kWarpThreads) {
        all += exp_fixed(logits[e] - top);
      }
    }
    const float sum = warp_sum(b, a.norm_topk_prob != 0 ? weight : all);
    uint32_t rank = 0;
    for (uint32_t j = 0; j < a.per_token; ++j) {
      const uint32_t other = b.shuffle(mine.expert, j);
      rank += other < mine.expert || (other == mine.expert && j < b.lane()) ? 1 : 0;
    }
    if (!picks) return;
    const size_t at = size_t{row} * a.per_token + rank;
    a.space.picks[at] = mine.expert;
    a.space.weights[at] = weight / sum;
  }
};

}  // namespace saccade::gpu
