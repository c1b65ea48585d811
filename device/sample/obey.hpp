// A grammar's part of the draw: what it does not allow cannot be drawn, whatever else was asked
// for.
#pragma once
#include "grammar/mask.hpp"
#include "sample/types.hpp"

namespace saccade {
inline namespace SAC_ISA {

SAC_HD inline bool has_grammar(const SampleRow& row) { return row.grammar.words != nullptr; }

/// Tokens that end the answer may be drawn where it may end, and nowhere else.
SAC_HD inline void mask_ends(const SampleRow& row, bool end, uint32_t* mask) {
  const auto put = [&](uint32_t token) {
    if (token >= row.vocab_size) return;
    const uint32_t bit = 1u << token % 32;
    mask[token / 32] = end ? mask[token / 32] | bit : mask[token / 32] & ~bit;
  };
  if ((row.params->flags & SAC_REQ_IGNORE_EOS) == 0)
    for (uint32_t i = 0; i < row.num_eos_ids; ++i) put(row.eos_ids[i]);
  for (uint32_t i = 0; i < row.params->num_stop_ids; ++i) put(row.stops[i]);
}

/// A logit, or -inf if its bit is 0. By arithmetic: a condition would become a branch for each
/// token, and legal and other tokens mix.
SAC_HD inline float kept_logit(float logit, uint32_t bit) {
  const uint32_t kept = 0u - bit;
  const uint32_t none = __builtin_bit_cast(uint32_t, -__builtin_inff());
  return __builtin_bit_cast(float, (__builtin_bit_cast(uint32_t, logit) & kept) | (none & ~kept));
}

/// Logits of tokens that the mask lacks become -inf.
SAC_HD inline void apply_mask(float* logits, uint32_t vocab_size, const uint32_t* mask) {
  uint32_t i = 0;
  for (; i + 32 <= vocab_size; i += 32) {
    const uint32_t word = mask[i / 32];
    if (word == ~0u) continue;
    float* const of_word = logits + i;
    for (uint32_t j = 0; j < 32; ++j) of_word[j] = kept_logit(of_word[j], word >> j & 1);
  }
  for (; i < vocab_size; ++i) logits[i] = kept_logit(logits[i], mask[i / 32] >> i % 32 & 1);
}

/// Leaves what the grammar allows: bits in the mask, logits.
SAC_HD inline void obey_grammar(const SampleRow& row, float* logits, uint32_t* mask) {
  const Automaton automaton = {row.grammar.words};
  const GrammarPlace& place = *row.grammar.place;
  const uint32_t* kept = row.kept.find(row.params->request, place);
  if (kept != nullptr) {
    row.kept.copy_mask(kept, mask);
  } else {
    const uint32_t nodes = fill_mask(automaton, place, *row.grammar.vocab, mask);
    row.kept.keep(row.params->request, place, nodes, mask);
  }
  mask_ends(row, may_end(automaton, *row.grammar.place), mask);
  apply_mask(logits, row.vocab_size, mask);
}

/// The first token of a mask: for rows that allow only what has no finite logit.
SAC_HD inline uint32_t first_legal(const uint32_t* mask, uint32_t vocab_size) {
  for (uint32_t i = 0; i < vocab_size; ++i)
    if ((mask[i / 32] >> i % 32 & 1) != 0) return i;
  return kNothingLegal;
}

}  // namespace SAC_ISA
}  // namespace saccade
