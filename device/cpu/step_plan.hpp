// What one step has to do, worked out from the batch before the workers start.
#pragma once
#include <vector>

#include "cpu/attention_plan.hpp"

namespace saccade {

/// One row of the batch: a token at a position of a seat's sequence.
struct PlanRow {
  uint32_t token;
  uint32_t position;
  uint32_t seat;
};

/// A row that needs logits, and where its record goes.
struct PlanLogits {
  uint32_t yield;  // see StepPlan::yield_row
  uint32_t seat;
  uint32_t position;
  bool sample;  // draw the next token; otherwise score the prompt's token at position + 1
  uint64_t* record;
};

/// A row whose final norm is an embedding, and where that goes.
struct PlanEmbedding {
  uint32_t yield;
  float* values;
};

/// Arrays sized once for the largest batch.
///
/// Of most rows of a prompt only K and V are wanted. Rows that yield something, in ascending order,
/// are numbered: the last layer may compute what follows K and V for them alone.
class StepPlan {
 public:
  /// The last layer may narrow where at most one row in this many yields something: moving them is
  /// one worker's item.
  static constexpr uint32_t kNarrowingShare = 2;

  StepPlan(uint32_t max_num_seqs, uint32_t max_num_batched_tokens, const AttentionCut& cut);

  void build(const StepBatch& batch, const SeatTables& tables, const StepOutputs& outputs);

  uint32_t num_rows() const { return num_rows_; }
  uint32_t num_yields() const { return num_yields_; }
  uint32_t num_logits() const { return num_logits_; }
  uint32_t num_embeddings() const { return num_embeddings_; }
  const PlanRow& row(uint32_t i) const { return rows_[i]; }
  uint32_t yield_row(uint32_t i) const { return yields_[i]; }
  const PlanLogits& logits(uint32_t i) const { return logits_[i]; }
  const PlanEmbedding& embedding(uint32_t i) const { return embeddings_[i]; }
  bool may_narrow() const { return num_yields_ <= num_rows_ / kNarrowingShare; }
  const AttentionPlan& attention() const { return attention_; }
  /// If the last layer may narrow: of the rows that yield something, whose results go to rows by
  /// their numbers.
  const AttentionPlan& last_attention() const { return last_attention_; }

 private:
  void add_seq(const StepSeq& seq, uint32_t index, const SeatTables& tables,
               const StepOutputs& outputs);
  /// What the last row of a sequence yields.
  void add_last(const StepSeq& seq, uint32_t index, const SeatParams& params,
                const StepOutputs& outputs);
  /// The number of a row that yields something.
  uint32_t add_yield(uint32_t row);

  std::vector<PlanRow> rows_;
  std::vector<uint32_t> yields_;
  std::vector<PlanLogits> logits_;
  std::vector<PlanEmbedding> embeddings_;
  AttentionPlan attention_;
  AttentionPlan last_attention_;
  uint32_t num_rows_ = 0;
  uint32_t num_yields_ = 0;
  uint32_t num_logits_ = 0;
  uint32_t num_embeddings_ = 0;
};

}  // namespace saccade
