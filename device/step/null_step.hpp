// A step that only writes tokens: for benchmarks of everything around the model, and for tests.
// Each token is a function of the sequence alone, as a real model's would be.
#pragma once
#include "grammar/mask.hpp"
#include "step/step.hpp"

namespace saccade {

/// The token that follows `position` in a sequence whose last token is `last`.
SAC_HD inline uint32_t null_token(uint32_t last, uint32_t position, uint64_t seed, uint32_t vocab) {
  uint64_t x = (uint64_t{last} << 32 | position) ^ (seed * 0x9e3779b97f4a7c15ull);
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ull;  // splitmix64's mixer
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>((x ^ (x >> 31)) % vocab);
}

/// The seed by which the null step draws a request's tokens: each adapter has its own.
SAC_HD inline uint64_t null_seed(uint64_t seed, uint32_t adapter) {
  return seed ^ uint64_t { adapter } << 32;
}

/// Value i of the embedding of a prompt whose last token is `last`, at `position`: in [-1, 1).
SAC_HD inline float null_embedding(uint32_t last, uint32_t position, uint32_t i) {
  return static_cast<float>(null_token(last, position, uint64_t{i} + 1, 1u << 24)) / (1u << 23) - 1;
}

struct NullStep {
  SeatTables tables;
  StepOutputs outputs;
  uint32_t vocab_size;

  SAC_HD void write_record(uint64_t* record, uint32_t seat, uint32_t token) const {
    record[0] = record_word(token, -1.0f);
    token = token < vocab_size ? token : 0;
    for (uint32_t i = 0; i < tables.params[seat].num_top_logprobs; ++i)
      record[1 + i] = record_word((token + i) % vocab_size, -1.0f - static_cast<float>(i));
  }
  SAC_HD void write_embedding(uint32_t i, uint32_t last, uint32_t position) const {
    float* values = outputs.embedding(i);
    for (uint32_t k = 0; k < outputs.embedding_size; ++k)
      values[k] = null_embedding(last, position, k);
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
    if (q.sample == 0) return;
    if (embeds(p.flags)) return write_embedding(i, tokens[last], last);
    const uint64_t seed = null_seed(p.seed, p.adapter);
    const uint32_t token = null_token(tokens[last], last, seed, vocab_size);
    write_record(outputs.sampled + size_t{i} * kRecordWords, q.seat, obey(q.seat, token));
  }
  /// The token itself, or the first one from it on that the seat's grammar allows. An answer that
  /// may end does.
  SAC_HD uint32_t obey(uint32_t seat, uint32_t token) const {
    const RowGrammar grammar = tables.grammar(seat);
    if (grammar.words == nullptr) return token;
    const Automaton automaton = {grammar.words};
    const bool ends = (tables.params[seat].flags & SAC_REQ_IGNORE_EOS) == 0;
    if (ends && tables.num_eos_ids != 0 && may_end(automaton, *grammar.place))
      return tables.eos_ids[0];
    for (uint32_t i = 0; i < vocab_size; ++i) {
      const uint32_t next = token + i < vocab_size ? token + i : token + i - vocab_size;
      if (!is_end(seat, next) && is_legal(automaton, *grammar.place, *grammar.vocab, next))
        return next;
    }
    return kNothingLegal;
  }
  /// Such tokens end an answer, wherever they come.
  SAC_HD bool is_end(uint32_t seat, uint32_t token) const {
    const SeatParams& p = tables.params[seat];
    const uint32_t num_eos = (p.flags & SAC_REQ_IGNORE_EOS) == 0 ? tables.num_eos_ids : 0;
    for (uint32_t i = 0; i < num_eos; ++i)
      if (tables.eos_ids[i] == token) return true;
    for (uint32_t i = 0; i < p.num_stop_ids; ++i)
      if (tables.stops(seat)[i] == token) return true;
    return false;
  }
  SAC_HD void launch(const StepBatch& batch) const {
    for (uint32_t i = 0; i < batch.num_seqs; ++i) run_seq(batch, i);
  }
  SAC_HD void wait() const {}
  SAC_HD uint64_t done_ns() const { return 0; }
};

}  // namespace saccade
