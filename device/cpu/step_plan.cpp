#include "cpu/step_plan.hpp"

namespace saccade {

StepPlan::StepPlan(uint32_t max_num_seqs, uint32_t max_num_batched_tokens, uint32_t chunk_rows)
    : chunk_rows_(chunk_rows),
      rows_(max_num_batched_tokens),
      chunks_(max_num_batched_tokens),
      logits_(size_t{max_num_batched_tokens} + max_num_seqs) {}

void StepPlan::build(const StepBatch& batch, const SeatTables& tables, const StepOutputs& outputs) {
  num_rows_ = batch.num_rows;
  num_chunks_ = 0;
  num_logits_ = 0;
  for (uint32_t i = 0; i < batch.num_seqs; ++i) add_seq(batch.seqs[i], i, tables, outputs);
}

void StepPlan::add_seq(const StepSeq& seq, uint32_t index, const SeatTables& tables,
                       const StepOutputs& outputs) {
  const uint32_t* tokens = tables.tokens(seq.seat);
  const uint32_t prompt_len = tables.params[seq.seat].prompt_len;
  for (uint32_t r = 0; r < seq.num_rows; ++r) {
    const uint32_t position = seq.first_position + r;
    const uint32_t row = seq.first_row + r;
    rows_[row] = {tokens[position], position, seq.seat};
    if (r % chunk_rows_ == 0) {
      chunks_[num_chunks_++] = {seq.seat, row, min_u32(chunk_rows_, seq.num_rows - r), position};
    }
    if (seq.prompt_logprobs != 0 && position + 1 < prompt_len) {
      logits_[num_logits_++] = {row, seq.seat, position, false,
                                outputs.prompt_records + size_t{row} * kRecordWords};
    }
    if (seq.sample != 0 && r + 1 == seq.num_rows) {
      logits_[num_logits_++] = {row, seq.seat, position, true,
                                outputs.sampled + size_t{index} * kRecordWords};
    }
  }
}

}  // namespace saccade
