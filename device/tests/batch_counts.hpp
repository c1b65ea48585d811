// What a batch says of its sequences, against a count of them.
#pragma once
#include <stdexcept>

#include "step/step.hpp"

namespace saccade::test {

/// Throws where a number of the batch is not that of its sequences. `tables`: what the step reads.
inline void check_counts(const StepBatch& b, const SeatTables& tables) {
  uint32_t rows = 0, samples = 0, prompts = 0, adapted = 0;
  for (uint32_t i = 0; i < b.num_seqs; ++i) {
    rows += b.seqs[i].num_rows;
    samples += b.seqs[i].sample;
    prompts += b.seqs[i].prompt_logprobs;
    adapted += tables.params[b.seqs[i].seat].adapter != 0 ? 1 : 0;
  }
  if (rows != b.num_rows || samples != b.num_samples || prompts != b.num_prompt_seqs ||
      adapted != b.num_adapter_seqs)
    throw std::runtime_error("a batch miscounts its sequences");
}

}  // namespace saccade::test
