// What the step engine is given, and where it answers.
#pragma once
#include "platform/layout.hpp"
#include "sched/limits.hpp"
#include "step/step.hpp"

namespace saccade {

struct Launch {
  StepBatch batch;
  StepSeq* seqs;      // [num_seats]: of `batch`
  SeatTables tables;  // read-only view of the seats' arrays
  StepOutputs outputs;
  uint32_t num_decodes;   // of the batch, before its prompts
  uint64_t pause_before;  // inline policy: prompts older than this hold the decodes; 0 = no pause

  /// The record that a step left for the i-th of its sequences.
  SAC_HD const uint64_t* sampled_record(uint32_t i) const {
    return outputs.sampled + size_t{i} * kRecordWords;
  }
  /// The embedding that it left for it.
  SAC_HD const float* embedding(uint32_t i) const { return outputs.embedding(i); }
  /// That of a row of the batch, of the token behind it in the prompt.
  SAC_HD const uint64_t* prompt_record(uint32_t row) const {
    return outputs.prompt_records + size_t{row} * kRecordWords;
  }
};

inline void lay_out(Launch& launch, const Limits& l, Layout& at) {
  const size_t seats = l.num_seats;
  launch.seqs = at.take<StepSeq>(seats);
  launch.outputs.sampled = at.take<uint64_t>(seats * kRecordWords);
  launch.outputs.prompt_records =
      at.take<uint64_t>(size_t{l.max_num_batched_tokens} * kRecordWords);
  launch.outputs.embedding_size = l.embedding_size;
  launch.outputs.embeddings = at.take<float>(seats * l.embedding_size);
}
SAC_HD inline void reset(Launch& launch, const SeatTables& tables) {
  launch.tables = tables;
  launch.batch = StepBatch{};
  launch.batch.seqs = launch.seqs;
  launch.num_decodes = 0;
  launch.pause_before = 0;
}

}  // namespace saccade
