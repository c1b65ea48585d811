// log_softmax of raw logits and the best alternatives of a row.
#pragma once
#include <math.h>

#include "sample/exp.hpp"
#include "sample/types.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Sums run in this many lanes (element i in lane i % 16) and end in a fixed tree, whatever the
/// width of the machine's vectors.
inline constexpr uint32_t kLanes16 = 16;

/// Makes a row safe to compute with, in place, and returns its maximum: NaN counts as -inf, +inf as
/// the largest float. The maximum of an empty distribution (all -inf) is -inf.
SAC_HD inline float clean_and_max(float* logits, uint32_t n) {
  constexpr float kInf = __builtin_inff();
  constexpr float kMax = 3.402823466e+38f;
  float best[kLanes16];
  for (uint32_t j = 0; j < kLanes16; ++j) best[j] = -kInf;
  uint32_t i = 0;
  for (; i + kLanes16 <= n; i += kLanes16) {
    for (uint32_t j = 0; j < kLanes16; ++j) {
      float z = logits[i + j];
      z = z > -kInf ? z : -kInf;
      z = z < kMax ? z : kMax;
      logits[i + j] = z;
      best[j] = z > best[j] ? z : best[j];
    }
  }
  for (uint32_t j = 0; i + j < n; ++j) {
    float z = logits[i + j];
    z = z > -kInf ? z : -kInf;
    z = z < kMax ? z : kMax;
    logits[i + j] = z;
    best[j] = z > best[j] ? z : best[j];
  }
  float max = best[0];
  for (uint32_t j = 1; j < kLanes16; ++j) max = best[j] > max ? best[j] : max;
  return max;
}

/// log(sum(exp(logits - max))), summed in double so that 256k terms lose nothing visible.
SAC_HD inline float log_sum_exp(const float* logits, uint32_t n, float max) {
  double sum[kLanes16];
  for (uint32_t j = 0; j < kLanes16; ++j) sum[j] = 0.0;
  uint32_t i = 0;
  for (; i + kLanes16 <= n; i += kLanes16) {
    float e[kLanes16];
    for (uint32_t j = 0; j < kLanes16; ++j) e[j] = exp_fixed(logits[i + j] - max);
    for (uint32_t j = 0; j < kLanes16; ++j) sum[j] += static_cast<double>(e[j]);
  }
  for (uint32_t j = 0; i + j < n; ++j)
    sum[j] += static_cast<double>(exp_fixed(logits[i + j] - max));
  for (uint32_t width = kLanes16 / 2; width > 0; width /= 2) {
    for (uint32_t j = 0; j < width; ++j) sum[j] += sum[j + width];
  }
  return static_cast<float>(::log(sum[0]));
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
/// that an equal logit stands behind those already there. Returns the new length.
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
/// vocabulary smaller than num_top is filled up with token 0 at -inf.
SAC_HD inline void write_top(const float* logits, uint32_t n, const LogNormalizer& norm,
                             uint32_t num_top, uint64_t* words) {
  uint32_t ids[SAC_MAX_TOP_LOGPROBS];
  float best[SAC_MAX_TOP_LOGPROBS];
  num_top = min_u32(num_top, SAC_MAX_TOP_LOGPROBS);
  if (num_top == 0) return;
  uint32_t count = 0;
  for (uint32_t i = 0; i < n; i += kLanes16) {
    const uint32_t end = min_u32(i + kLanes16, n);
    if (count == num_top && end - i == kLanes16) {  // most blocks hold nothing better
      uint32_t better = 0;
      for (uint32_t j = 0; j < kLanes16; ++j) better |= logits[i + j] > best[num_top - 1] ? 1u : 0u;
      if (better == 0) continue;
    }
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
