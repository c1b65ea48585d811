// Everything a request may do to its logits before the draw, in the order of vLLM's v1 sampler:
// min_tokens, logit bias, then repetition, frequency and presence penalties.
#pragma once
#include "sample/isa.hpp"
#include "sample/types.hpp"

namespace saccade {
inline namespace SAC_ISA {

SAC_HD inline uint32_t num_produced(const SampleRow& row) {
  return row.num_tokens > row.params->prompt_len ? row.num_tokens - row.params->prompt_len : 0;
}

SAC_HD inline bool has_penalties(const SeatParams& p) {
  return p.repetition_penalty != 1.0f || p.frequency_penalty != 0.0f || p.presence_penalty != 0.0f;
}

SAC_HD inline bool has_edits(const SampleRow& row) {
  return num_produced(row) < row.params->min_tokens || row.params->num_logit_bias > 0 ||
         has_penalties(*row.params);
}

/// Stop ids cannot be drawn while fewer than min_tokens tokens were produced.
SAC_HD inline void mask_stops(const SampleRow& row, float* logits) {
  if (num_produced(row) >= row.params->min_tokens) return;
  if ((row.params->flags & SAC_REQ_IGNORE_EOS) == 0) {
    for (uint32_t i = 0; i < row.num_eos_ids; ++i) {
      if (row.eos_ids[i] < row.vocab_size) logits[row.eos_ids[i]] = -__builtin_inff();
    }
  }
  for (uint32_t i = 0; i < row.params->num_stop_ids; ++i) {
    if (row.stops[i] < row.vocab_size) logits[row.stops[i]] = -__builtin_inff();
  }
}

SAC_HD inline void add_bias(const SampleRow& row, float* logits) {
  for (uint32_t i = 0; i < row.params->num_logit_bias; ++i) {
    if (row.bias[i].token < row.vocab_size) logits[row.bias[i].token] += row.bias[i].bias;
  }
}

/// One token's logit after the three penalties; `produced` is how often it was produced. The prompt
/// counts for the repetition penalty only.
SAC_HD inline float penalize(const SeatParams& p, float logit, uint32_t produced) {
  logit = logit > 0.0f ? logit / p.repetition_penalty : logit * p.repetition_penalty;
  if (produced > 0) {
    logit -= p.frequency_penalty * static_cast<float>(produced);
    logit -= p.presence_penalty;
  }
  return logit;
}

/// Walks the history twice: first to count, then to apply each token's penalty once and clear its
/// count, which leaves the scratch zero again.
SAC_HD inline void apply_penalties(const SampleRow& row, float* logits, uint32_t* counts) {
  if (!has_penalties(*row.params)) return;
  constexpr uint32_t kSeen = 1u << 31;
  for (uint32_t i = 0; i < row.num_tokens; ++i) {
    const uint32_t token = row.tokens[i];
    if (token >= row.vocab_size) continue;
    counts[token] = (counts[token] | kSeen) + (i >= row.params->prompt_len ? 1u : 0u);
  }
  for (uint32_t i = 0; i < row.num_tokens; ++i) {
    const uint32_t token = row.tokens[i];
    if (token >= row.vocab_size || counts[token] == 0) continue;
    logits[token] = penalize(*row.params, logits[token], counts[token] & ~kSeen);
    counts[token] = 0;
  }
}

SAC_HD inline void apply_edits(const SampleRow& row, float* logits, uint32_t* counts) {
  mask_stops(row, logits);
  add_bias(row, logits);
  apply_penalties(row, logits, counts);
}

}  // namespace SAC_ISA
}  // namespace saccade
