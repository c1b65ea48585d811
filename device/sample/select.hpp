// top-k and top-p without sorting: a radix select over ordered float keys finds the exact cut in
// three passes of counting and weighing.
#pragma once
#include "sample/candidates.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Maps floats to integers of the same order. -0 and +0 are one value.
SAC_HD inline uint32_t ordered_key(float z) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, z + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// Where the kept tokens end: every key above `key`, and the first `ties` (in order of id) of those
/// equal to it.
struct Cut {
  uint32_t key;
  uint32_t ties;
};

/// What a cut counts: tokens (top-k) or weight (top-p).
enum class Measure : uint32_t { kCount, kWeight };

struct Digit {
  uint32_t shift;
  uint32_t bits;
};

/// Fills the buckets with the candidates whose key agrees with `prefix` above the digit.
SAC_HD inline void fill_buckets(const float* logits, const Candidates& c, uint32_t prefix,
                                Digit digit, const SampleScratch& scratch) {
  const uint32_t buckets = 1u << digit.bits;
  for (uint32_t b = 0; b < buckets; ++b) {
    scratch.bucket_count[b] = 0;
    scratch.bucket_weight[b] = 0;
  }
  const uint32_t top = digit.shift + digit.bits;
  for (uint32_t i = 0; i < c.count; ++i) {
    const uint32_t key = ordered_key(logits[c.ids[i]]);
    if (top < 32 && (key >> top) != (prefix >> top)) continue;
    const uint32_t bucket = (key >> digit.shift) & (buckets - 1);
    scratch.bucket_count[bucket] += 1;
    scratch.bucket_weight[bucket] += c.weights[i];
  }
}

/// Key of the candidate at which the measure, summed from the best down, reaches `target` (>= 1 and
/// at most the whole); `left` becomes what of the target falls to the tokens of that key.
SAC_HD inline uint32_t find_key(const float* logits, const Candidates& c, Measure measure,
                                uint64_t& left, const SampleScratch& scratch) {
  constexpr Digit kDigits[3] = {{21, 11}, {10, 11}, {0, 10}};
  uint32_t prefix = 0;
  for (const Digit digit : kDigits) {
    fill_buckets(logits, c, prefix, digit, scratch);
    uint32_t bucket = (1u << digit.bits) - 1;
    for (; bucket > 0; --bucket) {
      const uint64_t amount =
          measure == Measure::kCount ? scratch.bucket_count[bucket] : scratch.bucket_weight[bucket];
      if (amount >= left) break;
      left -= amount;
    }
    prefix |= bucket << digit.shift;
  }
  return prefix;
}

/// Keeps what is above the cut, in place.
SAC_HD inline void keep(const float* logits, Candidates& c, Cut cut) {
  uint32_t kept = 0;
  uint32_t ties = cut.ties;
  for (uint32_t i = 0; i < c.count; ++i) {
    const uint32_t key = ordered_key(logits[c.ids[i]]);
    if (key < cut.key) continue;
    if (key == cut.key) {
      if (ties == 0) continue;
      --ties;
    }
    c.ids[kept] = c.ids[i];
    c.weights[kept] = c.weights[i];
    ++kept;
  }
  c.count = kept;
}

/// The k most likely tokens; those equal to the k-th all stay, as in vLLM. k = 0 keeps everything.
SAC_HD inline void keep_top_k(const float* logits, Candidates& c, uint32_t k,
                              const SampleScratch& scratch) {
  if (k == 0 || k >= c.count) return;
  uint64_t left = k;
  const uint32_t key = find_key(logits, c, Measure::kCount, left, scratch);
  keep(logits, c, {key, c.count});
}

/// The smallest set of most likely tokens whose probability reaches p; at equal logits the lower
/// ids. p >= 1 keeps everything; the best token always stays.
SAC_HD inline void keep_top_p(const float* logits, Candidates& c, float p,
                              const SampleScratch& scratch) {
  if (p >= 1.0f || c.count == 0) return;
  const uint64_t total = total_weight(c);
  const double reach = static_cast<double>(p) * static_cast<double>(total);
  uint64_t left = static_cast<uint64_t>(reach);
  if (static_cast<double>(left) < reach || left == 0) ++left;
  const uint32_t key = find_key(logits, c, Measure::kWeight, left, scratch);
  // Tokens of one key have one weight.
  uint64_t each = 1;
  for (uint32_t i = 0; i < c.count; ++i) {
    if (ordered_key(logits[c.ids[i]]) == key) {
      each = c.weights[i];
      break;
    }
  }
  keep(logits, c, {key, static_cast<uint32_t>((left + each - 1) / each)});
}

}  // namespace SAC_ISA
}  // namespace saccade
