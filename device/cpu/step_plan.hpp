// What one step has to do, worked out from the batch before the workers start.
#pragma once
#include <vector>

#include "cpu/kernels.hpp"

namespace saccade {

/// One row of the batch: a token at a position of a seat's sequence.
struct PlanRow {
  uint32_t token;
  uint32_t position;
  uint32_t seat;
};

/// Consecutive rows of one sequence that attention computes together.
struct PlanChunk {
  uint32_t seat;
  uint32_t first_row;
  uint32_t num_rows;
  uint32_t first_position;
};

/// One item of a layer's attention: some kv heads of a chunk and, for a row that is cut by its
/// context, some of its ranges (kAttentionRange).
struct AttentionItem {
  uint32_t chunk;
  uint32_t first_head;
  uint32_t num_heads;
  uint32_t first_range;
  uint32_t end_range;
  /// Where the row's parts begin, in ranges; kNotCut: the item does the whole context.
  uint32_t part;
};

/// A row whose ranges are split among items.
struct CutRow {
  uint32_t chunk;
  uint32_t part;
};

/// What the cutting of attention into items depends on. None of it changes a result.
struct AttentionCut {
  uint32_t chunk_rows;  // most rows of a chunk
  uint32_t num_kv_heads;
  uint32_t num_workers;
  uint32_t max_parts;  // ranges that there is room for
};

/// A row that needs logits, and where its record goes.
struct PlanLogits {
  uint32_t row;
  uint32_t seat;
  uint32_t position;
  bool sample;  // draw the next token; otherwise score the prompt's token at position + 1
  uint64_t* record;
};

/// A row whose final norm is an embedding, and where that goes.
struct PlanEmbedding {
  uint32_t row;
  float* values;
};

/// Arrays sized once for the largest batch.
class StepPlan {
 public:
  static constexpr uint32_t kNotCut = ~0u;

  StepPlan(uint32_t max_num_seqs, uint32_t max_num_batched_tokens, const AttentionCut& cut);

  void build(const StepBatch& batch, const SeatTables& tables, const StepOutputs& outputs);

  uint32_t num_rows() const { return num_rows_; }
  uint32_t num_items() const { return static_cast<uint32_t>(items_.size()); }
  uint32_t num_cut_rows() const { return static_cast<uint32_t>(cut_rows_.size()); }
  uint32_t num_logits() const { return num_logits_; }
  uint32_t num_embeddings() const { return num_embeddings_; }
  const PlanRow& row(uint32_t i) const { return rows_[i]; }
  const PlanChunk& chunk(uint32_t i) const { return chunks_[i]; }
  const AttentionItem& item(uint32_t i) const { return items_[i]; }
  const CutRow& cut_row(uint32_t i) const { return cut_rows_[i]; }
  const PlanLogits& logits(uint32_t i) const { return logits_[i]; }
  const PlanEmbedding& embedding(uint32_t i) const { return embeddings_[i]; }

  /// Target number of attention items per worker: enough that no worker waits long for the last.
  static constexpr uint32_t kItemsPerWorker = 8;

 private:
  void add_seq(const StepSeq& seq, uint32_t index, const SeatTables& tables,
               const StepOutputs& outputs);
  /// What the last row of a sequence yields.
  void add_yield(const StepSeq& seq, uint32_t index, const SeatParams& params,
                 const StepOutputs& outputs);
  /// Cuts single rows: decodes, and what remains of prompts.
  void cut_rows();
  void cut_by_ranges(uint32_t chunk, uint32_t per_item, uint32_t heads);
  void cut_by_heads(uint32_t chunk, uint32_t heads);
  /// Cuts chunks of several rows.
  void cut_prompts();
  uint32_t num_ranges(uint32_t chunk) const;

  const AttentionCut cut_;
  std::vector<PlanRow> rows_;
  std::vector<PlanChunk> chunks_;
  std::vector<AttentionItem> items_;
  std::vector<CutRow> cut_rows_;
  std::vector<PlanLogits> logits_;
  std::vector<PlanEmbedding> embeddings_;
  uint32_t num_rows_ = 0;
  uint32_t num_chunks_ = 0;
  uint32_t num_logits_ = 0;
  uint32_t num_embeddings_ = 0;
  uint32_t num_parts_ = 0;
};

}  // namespace saccade
