#include "cpu/step_plan.hpp"

namespace saccade {

StepPlan::StepPlan(uint32_t max_num_seqs, uint32_t max_num_batched_tokens, const AttentionCut& cut)
    : cut_(cut),
      rows_(max_num_batched_tokens),
      chunks_(max_num_batched_tokens),
      logits_(size_t{max_num_batched_tokens} + max_num_seqs),
      embeddings_(max_num_seqs) {
  // A row is cut by ranges, into about the target number of items, or by heads.
  const uint32_t by_ranges = kItemsPerWorker * cut.num_workers;
  items_.reserve((size_t{max_num_batched_tokens} + by_ranges) * cut.num_kv_heads);
  cut_rows_.reserve(min_u32(max_num_batched_tokens, cut.max_parts));
}

void StepPlan::build(const StepBatch& batch, const SeatTables& tables, const StepOutputs& outputs) {
  num_rows_ = batch.num_rows;
  num_chunks_ = 0;
  num_logits_ = 0;
  num_embeddings_ = 0;
  for (uint32_t i = 0; i < batch.num_seqs; ++i) add_seq(batch.seqs[i], i, tables, outputs);
  items_.clear();
  cut_rows_.clear();
  num_parts_ = 0;
  cut_rows();
  cut_prompts();
}

void StepPlan::add_seq(const StepSeq& seq, uint32_t index, const SeatTables& tables,
                       const StepOutputs& outputs) {
  const uint32_t* tokens = tables.tokens(seq.seat);
  const uint32_t prompt_len = tables.params[seq.seat].prompt_len;
  for (uint32_t r = 0; r < seq.num_rows; ++r) {
    const uint32_t position = seq.first_position + r;
    const uint32_t row = seq.first_row + r;
    rows_[row] = {tokens[position], position, seq.seat};
    if (r % cut_.chunk_rows == 0) {
      chunks_[num_chunks_++] = {seq.seat, row, min_u32(cut_.chunk_rows, seq.num_rows - r),
                                position};
    }
    if (seq.prompt_logprobs != 0 && position + 1 < prompt_len) {
      logits_[num_logits_++] = {row, seq.seat, position, false,
                                outputs.prompt_records + size_t{row} * kRecordWords};
    }
  }
  if (seq.sample != 0) add_yield(seq, index, tables.params[seq.seat], outputs);
}

void StepPlan::add_yield(const StepSeq& seq, uint32_t index, const SeatParams& params,
                         const StepOutputs& outputs) {
  const uint32_t last = seq.num_rows - 1;
  if (embeds(params.flags)) {
    embeddings_[num_embeddings_++] = {seq.first_row + last, outputs.embedding(index)};
    return;
  }
  logits_[num_logits_++] = {seq.first_row + last, seq.seat, seq.first_position + last, true,
                            outputs.sampled + size_t{index} * kRecordWords};
}

uint32_t StepPlan::num_ranges(uint32_t chunk) const {
  return chunks_[chunk].first_position / kAttentionRange + 1;
}

void StepPlan::cut_rows() {
  uint32_t rows = 0, ranges = 0;
  for (uint32_t c = 0; c < num_chunks_; ++c) {
    if (chunks_[c].num_rows != 1) continue;
    rows += 1;
    ranges += num_ranges(c);
  }
  if (rows == 0) return;
  const uint32_t wanted = kItemsPerWorker * cut_.num_workers;
  const uint32_t per_item = ceil_div(ranges, wanted);
  for (uint32_t c = 0; c < num_chunks_; ++c) {
    if (chunks_[c].num_rows != 1) continue;
    // A token's heads are adjacent in memory: split them only where workers would be idle.
    const uint32_t heads = ceil_div(cut_.num_kv_heads, ceil_div(cut_.num_workers, ranges));
    cut_by_ranges(c, per_item, heads);
  }
}

void StepPlan::cut_by_ranges(uint32_t chunk, uint32_t per_item, uint32_t heads) {
  const uint32_t ranges = num_ranges(chunk);
  if (ranges <= per_item || num_parts_ + ranges > cut_.max_parts) {
    return cut_by_heads(chunk, heads);
  }
  for (uint32_t r = 0; r < ranges; r += per_item) {
    for (uint32_t h = 0; h < cut_.num_kv_heads; h += heads) {
      items_.push_back({chunk, h, min_u32(heads, cut_.num_kv_heads - h), r,
                        min_u32(r + per_item, ranges), num_parts_});
    }
  }
  cut_rows_.push_back({chunk, num_parts_});
  num_parts_ += ranges;
}

void StepPlan::cut_by_heads(uint32_t chunk, uint32_t heads) {
  for (uint32_t h = 0; h < cut_.num_kv_heads; h += heads) {
    const uint32_t num_heads = min_u32(heads, cut_.num_kv_heads - h);
    items_.push_back({chunk, h, num_heads, 0, num_ranges(chunk), kNotCut});
  }
}

void StepPlan::cut_prompts() {
  for (uint32_t begin = 0, end = 0; begin < num_chunks_; begin = end) {
    while (end < num_chunks_ && chunks_[end].seat == chunks_[begin].seat) ++end;
    // Chunks of a prompt share a head's KV, which then comes from the second-level cache.
    for (uint32_t h = 0; h < cut_.num_kv_heads; ++h) {
      for (uint32_t c = begin; c < end; ++c) {
        if (chunks_[c].num_rows > 1) items_.push_back({c, h, 1, 0, ~0u, kNotCut});
      }
    }
  }
}

}  // namespace saccade
