// A step that only writes tokens: for benchmarks of everything around the model, and for tests.
// Each token is a function of the sequence alone, as a real model's would be.
#pragma once
#include "step/step.hpp"

namespace saccade {

/// The token that follows `position` in a sequence whose last token is `last`.
SAC_HD inline uint32_t null_token(uint32_t last, uint32_t position, uint64_t seed, uint32_t vocab) {
  uint64_t x = (uint64_t{last} << 32 | position) ^ (seed * 0x9e3779b97f4a7c15ull);
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ull;  // splitmix64's mixer
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>((x ^ (x >> 31)) % vocab);
}

struct NullStep {
  SeatTables tables;
  StepOutputs outputs;
  uint32_t vocab_size;

  SAC_HD void write_record(uint64_t* record, uint32_t seat, uint32_t token) const {
    record[0] = record_word(token, -1.0f);
    for (uint32_t i = 0; i < tables.params[seat].num_top_logprobs; ++i)
      record[1 + i] = record_word((token + i) % vocab_size, -1.0f - static_cast<float>(i));
  }
  /// Sequence i of the batch.
  SAC_HD void run_seq(const StepBatch& batch, uint32_t i) const {
    const StepSeq& q = batch.seqs[i];
    const uint32_t* tokens = tables.tokens(q.seat);
    const SeatParams& p = tables.params[q.seat];
    const uint32_t last = q.first_position + q.num_rows - 1;
    if (q.prompt_logprobs != 0)
      for (uint32_t r = 0; r < q.num_rows && q.first_position + r + 1 < p.prompt_len; ++r)
        write_record(outputs.prompt_records + size_t{q.first_row + r} * kRecordWords, q.seat,
                     tokens[q.first_position + r + 1]);
    if (q.sample != 0)
      write_record(outputs.sampled + size_t{i} * kRecordWords, q.seat,
                   null_token(tokens[last], last, p.seed, vocab_size));
  }
  SAC_HD void launch(const StepBatch& batch) const {
    for (uint32_t i = 0; i < batch.num_seqs; ++i) run_seq(batch, i);
  }
  SAC_HD void wait() const {}
  SAC_HD uint64_t done_ns() const { return 0; }
};

}  // namespace saccade
