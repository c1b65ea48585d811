// log_softmax of raw logits and the best alternatives of a row.
#pragma once
#include <math.h>

#include "sample/exp.hpp"
#include "sample/types.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Passes over a row go in blocks of this many elements, lane by lane (element i in lane i % 64),
/// and end in a fixed tree, whatever the width of the machine's vectors. Shorter inner loops would
/// be unrolled away before the compiler vectorises them.
inline constexpr uint32_t kBlock = 64;
/// Blocks that are summed in float before the sums go into double.
inline constexpr uint32_t kSumBlocks = 16;

/// NaN counts as -inf, +inf as the largest float.
SAC_HD inline float clean(float z) {
  z = z > -__builtin_inff() ? z : -__builtin_inff();
  return z < 3.402823466e+38f ? z : 3.402823466e+38f;
}

/// Makes a row safe to compute with, in place, and returns its maximum. That of an empty
/// distribution (all -inf) is -inf.
SAC_HD inline float clean_and_max(float* logits, uint32_t n) {
  float best[kBlock];
  for (uint32_t j = 0; j < kBlock; ++j) best[j] = -__builtin_inff();
  uint32_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    float* block = logits + i;
    for (uint32_t j = 0; j < kBlock; ++j) {
      const float z = clean(block[j]);
      block[j] = z;
      best[j] = z > best[j] ? z : best[j];
    }
  }
  float max = -__builtin_inff();
  for (; i < n; ++i) {
    logits[i] = clean(logits[i]);
    max = logits[i] > max ? logits[i] : max;
  }
  for (uint32_t j = 0; j < kBlock; ++j) max = best[j] > max ? best[j] : max;
  return max;
}

/// sum[j] += exp(logits[i] - max) for all i of [begin, end) with lane j.
SAC_HD inline void add_exp_blocks(const float* logits, uint32_t begin, uint32_t end, float max,
                                  float* sum) {
  uint32_t i = begin;
  for (; i + kBlock <= end; i += kBlock) {
    const float* block = logits + i;
    for (uint32_t j = 0; j < kBlock; ++j) sum[j] += exp_fixed(block[j] - max);
  }
  for (uint32_t j = 0; i + j < end; ++j) sum[j] += exp_fixed(logits[i + j] - max);
}

/// log(sum(exp(logits - max))), accumulated in double so that 256k terms lose nothing visible.
SAC_HD inline float log_sum_exp(const float* logits, uint32_t n, float max) {
  double total[kBlock];
  for (uint32_t j = 0; j < kBlock; ++j) total[j] = 0.0;
  for (uint32_t i = 0; i < n; i += kBlock * kSumBlocks) {
    float sum[kBlock];
    for (uint32_t j = 0; j < kBlock; ++j) sum[j] = 0.0f;
    add_exp_blocks(logits, i, min_u32(i + kBlock * kSumBlocks, n), max, sum);
    for (uint32_t j = 0; j < kBlock; ++j) total[j] += static_cast<double>(sum[j]);
  }
  for (uint32_t width = kBlock / 2; width > 0; width /= 2) {
    for (uint32_t j = 0; j < width; ++j) total[j] += total[j + width];
  }
  return static_cast<float>(::log(total[0]));
}

/// Whether any of kBlock logits is above the bound.
SAC_HD inline bool any_above(const float* block, float bound) {
  uint32_t above = 0;
  for (uint32_t j = 0; j < kBlock; ++j) above |= block[j] > bound ? 1u : 0u;
  return above != 0;
}

/// Whether any of kBlock logits is at the bound or above.
SAC_HD inline bool any_from(const float* block, float bound) {
  uint32_t from = 0;
  for (uint32_t j = 0; j < kBlock; ++j) from |= block[j] >= bound ? 1u : 0u;
  return from != 0;
}

/// What turns logits of one row into log-probabilities.
struct LogNormalizer {
  float max;
  float log_sum;

  SAC_HD float logprob(float logit) const {
    // A row without any finite logit has no distribution: report -inf rather than NaN.
    return max == -__builtin_inff() ? max : (logit - max) - log_sum;
  }
};

/// Cleans the row in place (see clean_and_max).
SAC_HD inline LogNormalizer normalize(float* logits, uint32_t n) {
  const float max = clean_and_max(logits, n);
  return {max, log_sum_exp(logits, n, max)};
}

/// Inserts (id, logit) into a list ordered by logit, best first; ids come in ascending order, so
/// that a logit goes after its equals in the list. Returns the new length.
SAC_HD inline uint32_t insert_best(uint32_t* ids, float* logits, uint32_t count, uint32_t capacity,
                                   uint32_t id, float logit) {
  uint32_t at = count < capacity ? count : capacity - 1;
  for (; at > 0 && logits[at - 1] < logit; --at) {
    ids[at] = ids[at - 1];
    logits[at] = logits[at - 1];
  }
  ids[at] = id;
  logits[at] = logit;
  return count < capacity ? count + 1 : capacity;
}

/// Writes the `num_top` best tokens of a row as record words, best first, ties by lower id. A
/// vocabulary smaller than num_top is padded with token 0 at -inf.
SAC_HD inline void write_top(const float* logits, uint32_t n, const LogNormalizer& norm,
                             uint32_t num_top, uint64_t* words) {
  uint32_t ids[SAC_MAX_TOP_LOGPROBS];
  float best[SAC_MAX_TOP_LOGPROBS];
  num_top = min_u32(num_top, SAC_MAX_TOP_LOGPROBS);
  if (num_top == 0) return;
  uint32_t count = 0;
  for (uint32_t i = 0; i < n; i += kBlock) {
    const uint32_t end = min_u32(i + kBlock, n);
    // Most blocks hold nothing better.
    if (count == num_top && end - i == kBlock && !any_above(logits + i, best[num_top - 1]))
      continue;
    for (uint32_t id = i; id < end; ++id) {
      if (count == num_top && !(logits[id] > best[num_top - 1])) continue;
      count = insert_best(ids, best, count, num_top, id, logits[id]);
    }
  }
  for (uint32_t j = 0; j < num_top; ++j) {
    words[j] =
        j < count ? record_word(ids[j], norm.logprob(best[j])) : record_word(0, -__builtin_inff());
  }
}

}  // namespace SAC_ISA
}  // namespace saccade
