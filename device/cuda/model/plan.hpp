// The first kernel of a step: from the tick's batch to what the other kernels walk over. It reads
// the batch once; whatever the batch says, no index produced here is outside a buffer.
#pragma once
#include "cuda/model/block_ops.hpp"
#include "cuda/model/shape.hpp"

namespace saccade::gpu {

/// Positions whose attention is one partial result; they begin at multiples of it.
inline constexpr uint32_t kContextChunk = 256;
/// Positions that are folded into a running softmax at once; they begin at multiples of it.
inline constexpr uint32_t kContextTile = 32;
/// Query vectors, (row, head) pairs of one kv head, that one block takes through a context.
inline constexpr uint32_t kTileVectors = 64;

/// One row of the batch: a token at a position of a seat's sequence.
struct PlanRow {
  uint32_t token;
  uint32_t position;
  uint32_t seat;
};
/// One chunk of the context of a row that is alone in its sequence.
struct ChunkItem {
  uint32_t row;
  uint32_t seat;
  uint32_t position;
  uint32_t chunk;
};
/// The chunks of such a row: consecutive items.
struct SplitRow {
  uint32_t row;
  uint32_t first_item;
  uint32_t num_items;
};
/// Consecutive rows of one sequence whose attention one block computes, kv head by kv head.
struct RowTile {
  uint32_t seat;
  uint32_t first_row;
  uint32_t num_rows;
  uint32_t first_position;
};
/// What becomes of a row behind the final norm.
enum RowEnd : uint32_t {
  kScored,    // a record of the prompt's token at position + 1
  kSampled,   // a record of the next token, which is drawn
  kEmbedded,  // the embedding: nothing reads its logits
};
/// A row that the final norm takes.
struct LogitsRow {
  uint32_t row;
  uint32_t seat;
  uint32_t position;
  uint32_t end;     // RowEnd
  uint32_t record;  // of StepOutputs: prompt_records, sampled, or embeddings
};

struct PlanCounts {
  uint32_t num_rows;
  uint32_t num_items;
  uint32_t num_split_rows;
  uint32_t num_tiles;
  uint32_t num_logits;
};

/// What a step is made of, in device memory; arrays are as long as the limits allow.
struct StepPlan {
  PlanCounts* counts;
  PlanRow* rows;
  ChunkItem* items;
  SplitRow* split_rows;
  RowTile* tiles;
  LogitsRow* logits;
  uint32_t* logits_left;  // [logit_tiles]: rows of each tile of logits
};

/// Sizes that bound a plan.
struct PlanLimits {
  uint32_t max_rows;
  uint32_t max_seqs;
  uint32_t max_items;   // of all resident contexts: their blocks have one owner each
  uint32_t tile_rows;   // of a RowTile
  uint32_t logit_rows;  // that are computed at once
  uint32_t max_window;  // of all layers; 0: a layer looks back to the start

  SAC_HD uint32_t max_tiles() const { return ceil_div(max_rows, tile_rows) + max_seqs; }
  SAC_HD uint32_t max_logits() const { return max_rows + max_seqs; }
  SAC_HD uint32_t logit_tiles() const { return ceil_div(max_logits(), logit_rows); }
};

/// Rows that a tile holds, by query heads per kv head.
SAC_HD inline uint32_t tile_rows_of(uint32_t group) { return max_u32(1, kTileVectors / group); }

struct PlanKernel {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kBlocksPerSm = 1;
  static constexpr uint32_t kSharedBytes = kOpsBytes;

  struct Args {
    SeatTables seats;
    const StepBatch* batch;
    StepPlan plan;
    PlanLimits limits;
  };

  /// Block 0 lists the work; the others each write kThreads rows.
  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const StepSeq* seqs = a.batch->seqs;
    const uint32_t num_seqs = min_u32(a.batch->num_seqs, a.limits.max_seqs);
    const uint32_t num_rows = min_u32(a.batch->num_rows, a.limits.max_rows);
    if (b.x() == 0) {
      list_work(b, a, seqs, num_seqs, num_rows);
    } else {
      write_row(a, seqs, num_seqs, num_rows, (b.x() - 1) * kThreads + b.thread());
    }
  }

 private:
  SAC_DEVICE static void write_row(const Args& a, const StepSeq* seqs, uint32_t num_seqs,
                                   uint32_t num_rows, uint32_t row) {
    if (row >= num_rows) return;
    // The last sequence that begins at or before the row: sequences are in order of their rows.
    uint32_t low = 0, high = num_seqs;
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      if (seqs[middle].first_row <= row) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const StepSeq& q = seqs[low];
    const uint32_t position = q.first_position + row - q.first_row;
    a.plan.rows[row] = {a.seats.tokens(q.seat)[position], position, q.seat};
  }

  /// What one sequence adds to each list.
  struct Shares {
    uint32_t items;
    uint32_t split;
    uint32_t tiles;
    uint32_t logits;
  };

  SAC_DEVICE static uint32_t first_chunk(const Args& a, const StepSeq& q) {
    if (a.limits.max_window == 0 || q.first_position < a.limits.max_window) return 0;
    return (q.first_position + 1 - a.limits.max_window) / kContextChunk;
  }
  SAC_DEVICE static uint32_t prompt_records(const Args& a, const StepSeq& q) {
    const uint32_t prompt_len = a.seats.params[q.seat].prompt_len;
    if (q.prompt_logprobs == 0 || q.first_position + 1 >= prompt_len) return 0;
    return min_u32(q.num_rows, prompt_len - 1 - q.first_position);
  }
  SAC_DEVICE static Shares shares_of(const Args& a, const StepSeq& q) {
    Shares s = {};
    if (q.num_rows == 1) {
      s.items = q.first_position / kContextChunk + 1 - first_chunk(a, q);
      s.split = 1;
    } else {
      s.tiles = ceil_div(q.num_rows, a.limits.tile_rows);
    }
    s.logits = prompt_records(a, q) + (q.sample != 0 ? 1 : 0);
    return s;
  }

  SAC_DEVICE static void write_entries(const Args& a, const StepSeq& q, uint32_t index,
                                       const Shares& s, const PlanCounts& at) {
    const uint32_t chunk = s.split != 0 ? first_chunk(a, q) : 0;
    if (s.split != 0) {
      const uint32_t room = a.limits.max_items - min_u32(at.num_items, a.limits.max_items);
      const uint32_t items = min_u32(s.items, room);
      for (uint32_t i = 0; i < items; ++i) {
        a.plan.items[at.num_items + i] = {q.first_row, q.seat, q.first_position, chunk + i};
      }
      a.plan.split_rows[at.num_split_rows] = {q.first_row, at.num_items, items};
    }
    for (uint32_t i = 0; i < s.tiles; ++i) {
      const uint32_t first = i * a.limits.tile_rows;
      a.plan.tiles[at.num_tiles + i] = {q.seat, q.first_row + first,
                                        min_u32(a.limits.tile_rows, q.num_rows - first),
                                        q.first_position + first};
    }
    const uint32_t prompts = s.logits - (q.sample != 0 ? 1 : 0);
    for (uint32_t i = 0; i < prompts; ++i) {
      const uint32_t row = q.first_row + i;
      a.plan.logits[at.num_logits + i] = {row, q.seat, q.first_position + i, kScored, row};
    }
    if (q.sample != 0) {
      const uint32_t last = q.num_rows - 1;
      const uint32_t end = embeds(a.seats.params[q.seat].flags) ? kEmbedded : kSampled;
      a.plan.logits[at.num_logits + prompts] = {q.first_row + last, q.seat, q.first_position + last,
                                                end, index};
    }
  }

  /// Takes kThreads sequences at a time; each thread writes the entries of its own.
  template <class Block>
  SAC_DEVICE static void list_work(const Block& b, const Args& a, const StepSeq* seqs,
                                   uint32_t num_seqs, uint32_t num_rows) {
    PlanCounts total = {num_rows, 0, 0, 0, 0};
    for (uint32_t first = 0; first < num_seqs; first += kThreads) {
      const uint32_t index = first + b.thread();
      const bool there = index < num_seqs;
      const StepSeq q = there ? seqs[index] : StepSeq{};
      const Shares s = there ? shares_of(a, q) : Shares{};
      PlanCounts at = total;
      at.num_items += running_sum<kThreads>(b, s.items, total.num_items);
      at.num_split_rows += running_sum<kThreads>(b, s.split, total.num_split_rows);
      at.num_tiles += running_sum<kThreads>(b, s.tiles, total.num_tiles);
      at.num_logits += running_sum<kThreads>(b, s.logits, total.num_logits);
      if (there) write_entries(a, q, index, s, at);
    }
    total.num_items = min_u32(total.num_items, a.limits.max_items);
    if (b.thread() == 0) *a.plan.counts = total;
    for (uint32_t t = b.thread(); t < a.limits.logit_tiles(); t += kThreads) {
      const uint32_t first = min_u32(t * a.limits.logit_rows, total.num_logits);
      a.plan.logits_left[t] = min_u32(total.num_logits - first, a.limits.logit_rows);
    }
  }
};

}  // namespace saccade::gpu
