// The contract between the scheduler and whatever executes a step (one model launch): CPU kernels,
// a CUDA graph, a cost model, or the null step of benchmarks. Plain data only; the scheduler owns
// every array and none of them moves after start.
//
// A step computes, for each sequence s of the batch, rows at positions
// [first_position, first_position + num_rows), reading tokens and writing KV through the seat's
// block table. If `sample` is set, the last row also yields the next token, as record s of
// `sampled`; or, for a seat with SAC_REQ_EMBED, what the final norm makes of the row, as row s of
// `embeddings`.
//
// What makes a request independent of its batch (and of chunking, preemption and mode): a row's
// result may depend only on the tokens at positions <= its own and on the seat's parameters, with
// an order of floating-point operations that is a function of the position alone.
#pragma once
#include "grammar/place.hpp"
#include "grammar/vocab.hpp"
#include "platform/hd.hpp"

namespace saccade {

/// One pair of a request's logit_bias, as laid out in the arena.
struct LogitBias {
  uint32_t token;
  float bias;
};
static_assert(sizeof(LogitBias) == 8);

/// The token of a record where a grammar allows none: the request ends with an error.
inline constexpr uint32_t kNothingLegal = UINT32_MAX;

/// Output record: word 0 is the token, then up to 20 alternatives, best first. Each word has the
/// token id in bits 0-31 and its float logprob in bits 32-63.
inline constexpr uint32_t kRecordWords = 1 + SAC_MAX_TOP_LOGPROBS;

/// What a request asked for; copied from its descriptor when it is accepted, constant afterwards.
struct SeatParams {
  uint64_t seed;      // key of the counter-based generator
  float temperature;  // 0 = greedy
  float top_p;
  float min_p;
  uint32_t top_k;  // 0 = all
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  uint32_t flags;       // SAC_REQ_*
  uint32_t prompt_len;  // tokens
  uint32_t max_tokens;
  uint32_t min_tokens;  // stop ids are masked (-inf) while fewer tokens than this were produced
  uint32_t num_top_logprobs;
  uint32_t num_logit_bias;
  uint32_t num_stop_ids;
  uint32_t grammar_words;  // 0: the answer may be anything
  uint32_t request;        // number of the request, modulo 2^32: another one has another
  uint32_t adapter;        // 0: none
};

/// The grammars of all seats. Without room for words there are none.
struct GrammarTables {
  uint32_t max_words;          // of a seat's
  const uint32_t* automata;    // [num_seats][max_words]: abi/wire.h, checked
  const GrammarPlace* places;  // [num_seats]: where each answer is
  const TokenVocab* vocab;
};

/// What decides which tokens one answer may go on with.
struct RowGrammar {
  const uint32_t* words;  // null: all
  const GrammarPlace* place;
  const TokenVocab* vocab;
};

/// The tables a step reads, indexed by seat. Row pointers below are computed, not stored, so that
/// the struct can be copied to a device as it is.
struct SeatTables {
  uint32_t num_seats;           // = max_num_seqs
  uint32_t max_model_len;       // tokens per history row
  uint32_t max_blocks_per_seq;  // entries per block-table row
  uint32_t num_eos_ids;
  const SeatParams* params;      // [num_seats]
  const uint32_t* history;       // [num_seats][max_model_len]: prompt, then produced tokens
  const uint32_t* block_tables;  // [num_seats][max_blocks_per_seq]: KV block ids
  const LogitBias* logit_bias;   // [num_seats][SAC_MAX_LOGIT_BIAS]
  const uint32_t* stop_ids;      // [num_seats][SAC_MAX_STOP_IDS]
  const uint32_t* eos_ids;       // [num_eos_ids]: the model's end-of-sequence ids
  GrammarTables grammars = {};   // none, unless named

  SAC_HD const uint32_t* tokens(uint32_t seat) const {
    return history + static_cast<size_t>(seat) * max_model_len;
  }
  SAC_HD const uint32_t* block_table(uint32_t seat) const {
    return block_tables + static_cast<size_t>(seat) * max_blocks_per_seq;
  }
  SAC_HD const LogitBias* bias(uint32_t seat) const {
    return logit_bias + static_cast<size_t>(seat) * SAC_MAX_LOGIT_BIAS;
  }
  SAC_HD const uint32_t* stops(uint32_t seat) const {
    return stop_ids + static_cast<size_t>(seat) * SAC_MAX_STOP_IDS;
  }
  SAC_HD RowGrammar grammar(uint32_t seat) const {
    if (params[seat].grammar_words == 0) return {nullptr, nullptr, nullptr};
    return {grammars.automata + size_t{seat} * grammars.max_words, grammars.places + seat,
            grammars.vocab};
  }
};

/// One sequence of a batch.
struct StepSeq {
  uint32_t seat;
  uint32_t first_position;   // of its first row, in the sequence
  uint32_t num_rows;         // >= 1
  uint32_t first_row;        // index of its first row in the batch
  uint32_t sample;           // 1: the last row yields a token at position first_position + num_rows
  uint32_t prompt_logprobs;  // 1: each row r whose next position is in the prompt yields a record
};

/// One launch. Sequences are in batch order: decodes first, then prefill chunks.
struct StepBatch {
  uint64_t step;  // number of this launch, from 1
  uint32_t num_seqs;
  uint32_t num_rows;          // sum of num_rows, <= max_num_batched_tokens
  uint32_t num_samples;       // sequences with sample = 1
  uint32_t num_prompt_seqs;   // sequences with prompt_logprobs = 1
  uint32_t num_adapter_seqs;  // sequences whose seat has an adapter
  const StepSeq* seqs;        // [num_seqs]
};

/// Where a step writes. `sampled` row i belongs to sequence i of the batch; `prompt_records` row r
/// to row r of the batch: the record of the token at the row's position + 1.
struct StepOutputs {
  uint64_t* sampled;            // [max_num_seqs][kRecordWords]
  uint64_t* prompt_records;     // [max_num_batched_tokens][kRecordWords]
  float* embeddings = nullptr;  // [max_num_seqs][embedding_size]
  uint32_t embedding_size = 0;  // 0: no request asks for one

  SAC_HD float* embedding(uint32_t i) const { return embeddings + size_t{i} * embedding_size; }
};

/// A request for an embedding: nothing is sampled.
SAC_HD inline bool embeds(uint32_t flags) { return (flags & SAC_REQ_EMBED) != 0; }

/// Packs one word of a record.
SAC_HD inline uint64_t record_word(uint32_t token, float logprob) {
  union {
    float f;
    uint32_t u;
  } bits = {logprob};
  return (static_cast<uint64_t>(bits.u) << 32) | token;
}

/// Packs two values of an embedding.
SAC_HD inline uint64_t embedding_word(float low, float high) {
  union {
    float f;
    uint32_t u;
  } bits = {low};
  return record_word(bits.u, high);
}

}  // namespace saccade
