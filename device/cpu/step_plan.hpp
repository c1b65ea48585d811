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

/// Consecutive rows of one sequence whose attention is one item of work per kv head.
struct PlanChunk {
  uint32_t seat;
  uint32_t first_row;
  uint32_t num_rows;
  uint32_t first_position;
};

/// A row that needs logits, and where its record goes.
struct PlanLogits {
  uint32_t row;
  uint32_t seat;
  uint32_t position;
  bool sample;  // draw the next token; otherwise score the prompt's token at position + 1
  uint64_t* record;
};

/// Arrays sized once for the largest batch.
class StepPlan {
 public:
  /// chunk_rows: most rows of a chunk.
  StepPlan(uint32_t max_num_seqs, uint32_t max_num_batched_tokens, uint32_t chunk_rows);

  void build(const StepBatch& batch, const SeatTables& tables, const StepOutputs& outputs);

  uint32_t num_rows() const { return num_rows_; }
  uint32_t num_chunks() const { return num_chunks_; }
  uint32_t num_logits() const { return num_logits_; }
  const PlanRow& row(uint32_t i) const { return rows_[i]; }
  const PlanChunk& chunk(uint32_t i) const { return chunks_[i]; }
  const PlanLogits& logits(uint32_t i) const { return logits_[i]; }

 private:
  void add_seq(const StepSeq& seq, uint32_t index, const SeatTables& tables,
               const StepOutputs& outputs);

  const uint32_t chunk_rows_;
  std::vector<PlanRow> rows_;
  std::vector<PlanChunk> chunks_;
  std::vector<PlanLogits> logits_;
  uint32_t num_rows_ = 0;
  uint32_t num_chunks_ = 0;
  uint32_t num_logits_ = 0;
};

}  // namespace saccade
