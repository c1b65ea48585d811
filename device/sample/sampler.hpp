// From a row of raw logits to an output record. The order is that of vLLM's v1 sampler:
//
//   logprobs = log_softmax(raw logits)            reported; nothing below changes them
//   min_tokens mask, logit bias, penalties        edits.hpp
//   what the request's grammar does not allow     obey.hpp
//   temperature 0: the best token, lowest id at equal logits
//   otherwise temperature, min_p, top_k, top_p    candidates.hpp, select.hpp
//   then one draw by inverse CDF in order of id   philox.hpp, keyed by (seed, position)
//
// Two places where we fix what vLLM leaves to its sort: at equal logits top-p prefers lower ids,
// and the CDF runs in order of id. Temperatures below 1e-5 are greedy, as there.
#pragma once
#include "sample/edits.hpp"
#include "sample/obey.hpp"
#include "sample/philox.hpp"
#include "sample/select.hpp"

namespace saccade {
inline namespace SAC_ISA {

inline constexpr float kGreedyTemperature = 1e-5f;

/// Lowest index among the maxima of a clean row; 0 if nothing is finite.
SAC_HD inline uint32_t first_at(const float* logits, uint32_t n, float max) {
  for (uint32_t i = 0; i < n; i += kBlock) {
    const uint32_t end = min_u32(i + kBlock, n);
    if (end - i == kBlock) {
      uint32_t found = 0;
      for (uint32_t j = 0; j < kBlock; ++j) found |= logits[i + j] == max ? 1u : 0u;
      if (found == 0) continue;
    }
    for (uint32_t id = i; id < end; ++id) {
      if (logits[id] == max) return id;
    }
  }
  return 0;
}

/// The candidate at which the running weight passes a uniform draw from [0, total).
SAC_HD inline uint32_t draw(const Candidates& c, uint64_t bits) {
  uint64_t left = multiply_high(bits, c.total);
  for (uint32_t i = 0; i < c.count; ++i) {
    if (left < c.weights[i]) return c.ids[i];
    left -= c.weights[i];
  }
  return 0;  // only without candidates
}

/// Chooses the token from edited, clean logits with their maximum.
SAC_HD inline uint32_t choose(const SampleRow& row, const float* logits, float max,
                              const SampleScratch& scratch) {
  const SeatParams& p = *row.params;
  if (!(p.temperature >= kGreedyTemperature) || max == -__builtin_inff()) {
    return first_at(logits, row.vocab_size, max);
  }
  const SelectRow select = select_row(logits, max, p.temperature);
  Candidates c =
      gather(logits, row.vocab_size, max, p.temperature, p.min_p, scratch.ids, scratch.weights);
  keep_top_k(select, c, p.top_k, scratch);
  keep_top_p(select, c, p.top_p, scratch);
  return draw(c, random_bits(p.seed, row.num_tokens));
}

/// Alternatives in each of a request's records: any logprob flag gives them to all.
SAC_HD inline uint32_t record_tops(const SeatParams& p) {
  return sac_record_stride(p.flags, p.num_top_logprobs) - 1;
}

/// Draws the next token of a row and writes its record: word 0 the token with its raw logprob, then
/// the best alternatives if the request has a logprob flag; further words stay as they are. Cleans
/// `logits` [vocab_size] in place.
SAC_HD inline void sample_row(const SampleRow& row, float* logits, const SampleScratch& scratch,
                              uint64_t* record) {
  const LogNormalizer norm = normalize(logits, row.vocab_size);
  const float* edited = logits;
  float max = norm.max;
  if (has_edits(row) || has_grammar(row)) {
    for (uint32_t i = 0; i < row.vocab_size; ++i) scratch.logits[i] = logits[i];
    apply_edits(row, scratch.logits, scratch.counts);
    if (has_grammar(row)) obey_grammar(row, scratch.logits, scratch.mask);
    max = clean_and_max(scratch.logits, row.vocab_size);
    edited = scratch.logits;
  }
  const bool stuck = has_grammar(row) && max == -__builtin_inff();
  const uint32_t token =
      stuck ? first_legal(scratch.mask, row.vocab_size) : choose(row, edited, max, scratch);
  const float logit = token < row.vocab_size ? logits[token] : -__builtin_inff();
  record[0] = record_word(token, norm.logprob(logit));
  write_top(logits, row.vocab_size, norm, record_tops(*row.params), record + 1);
}

/// Writes the record of a known token (of the prompt) from the row before it.
SAC_HD inline void score_row(uint32_t token, uint32_t num_top, float* logits, uint32_t vocab_size,
                             uint64_t* record) {
  const LogNormalizer norm = normalize(logits, vocab_size);
  const float logit = token < vocab_size ? logits[token] : -__builtin_inff();
  record[0] = record_word(token, norm.logprob(logit));
  write_top(logits, vocab_size, norm, num_top, record + 1);
}

}  // namespace SAC_ISA
}  // namespace saccade
