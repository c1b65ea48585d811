#include "cpu/step_plan.hpp"

namespace saccade {

StepPlan::StepPlan(uint32_t max_num_seqs, uint32_t max_num_batched_tokens, const AttentionCut& cut)
    : rows_(max_num_batched_tokens),
      yields_(max_num_batched_tokens),
      logits_(size_t{max_num_batched_tokens} + max_num_seqs),
      embeddings_(max_num_seqs),
      attention_(max_num_batched_tokens, cut),
      last_attention_(max_num_batched_tokens, cut) {}

void StepPlan::build(const StepBatch& batch, const SeatTables& tables, const StepOutputs& outputs) {
  num_rows_ = batch.num_rows;
  num_yields_ = 0;
  num_logits_ = 0;
  num_embeddings_ = 0;
  attention_.clear();
  last_attention_.clear();
  for (uint32_t i = 0; i < batch.num_seqs; ++i) add_seq(batch.seqs[i], i, tables, outputs);
  attention_.cut();
  if (may_narrow()) last_attention_.cut();
}

void StepPlan::add_seq(const StepSeq& seq, uint32_t index, const SeatTables& tables,
                       const StepOutputs& outputs) {
  const uint32_t* tokens = tables.tokens(seq.seat);
  const uint32_t prompt_len = tables.params[seq.seat].prompt_len;
  for (uint32_t r = 0; r < seq.num_rows; ++r) {
    const uint32_t position = seq.first_position + r;
    const uint32_t row = seq.first_row + r;
    rows_[row] = {tokens[position], position, seq.seat};
    attention_.add_row(seq.seat, row, row, position);
    if (seq.prompt_logprobs != 0 && position + 1 < prompt_len) {
      logits_[num_logits_++] = {add_yield(row), seq.seat, position, false,
                                outputs.prompt_records + size_t{row} * kRecordWords};
    }
  }
  if (seq.sample != 0) add_last(seq, index, tables.params[seq.seat], outputs);
}

uint32_t StepPlan::add_yield(uint32_t row) {
  if (num_yields_ != 0 && yields_[num_yields_ - 1] == row) return num_yields_ - 1;
  last_attention_.add_row(rows_[row].seat, row, num_yields_, rows_[row].position);
  yields_[num_yields_] = row;
  return num_yields_++;
}

void StepPlan::add_last(const StepSeq& seq, uint32_t index, const SeatParams& params,
                        const StepOutputs& outputs) {
  const uint32_t last = seq.num_rows - 1;
  const uint32_t yield = add_yield(seq.first_row + last);
  if (embeds(params.flags)) {
    embeddings_[num_embeddings_++] = {yield, outputs.embedding(index)};
    return;
  }
  logits_[num_logits_++] = {yield, seq.seat, seq.first_position + last, true,
                            outputs.sampled + size_t{index} * kRecordWords};
}

}  // namespace saccade
