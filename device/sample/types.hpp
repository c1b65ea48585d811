// What the sampler reads and the memory it works in. Plain data: the same for every device.
#pragma once
#include "sample/kept_masks.hpp"

namespace saccade {

/// One row of logits to turn into a token, and the seat's tables it depends on.
struct SampleRow {
  const SeatParams* params;
  const uint32_t* tokens;  // [num_tokens]: prompt, then produced tokens
  uint32_t num_tokens;     // = position of the token to draw
  uint32_t vocab_size;
  const LogitBias* bias;    // [params->num_logit_bias]
  const uint32_t* stops;    // [params->num_stop_ids]
  const uint32_t* eos_ids;  // [num_eos_ids]
  uint32_t num_eos_ids;
  RowGrammar grammar;
  KeptMasks kept = {};  // the seat's, where there are any
};

/// Buckets in which top-k and top-p count the candidates by distance from the best.
inline constexpr uint32_t kSelectBuckets = 2048;

/// Working memory of one sampling thread; all arrays have vocab_size entries except the buckets.
struct SampleScratch {
  uint32_t* counts;         // occurrences of tokens; all zero between calls
  float* logits;            // copy of the row with bias and penalties applied
  uint32_t* ids;            // candidates in order of id
  uint32_t* weights;        // their weights
  uint32_t* members;        // candidates of one bucket
  uint64_t* bucket_weight;  // [kSelectBuckets]
  uint32_t* bucket_count;   // [kSelectBuckets]
  uint32_t* mask;           // [ceil(vocab_size / 32)]: tokens that a grammar allows
};

}  // namespace saccade
