// top-k and top-p without sorting. Tokens are counted and weighed in buckets by their distance from
// the best; only the bucket in which the cut falls is looked at again, by a radix select that finds
// the exact logit.
#pragma once
#include "sample/candidates.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Maps floats to integers of the same order. -0 and +0 are one value.
SAC_HD inline uint32_t ordered_key(float z) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, z + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// A row of logits as the selection sees it.
struct SelectRow {
  const float* logits;
  float max;
  float buckets_per_unit;  // of logit: the reach of the candidates over all buckets
};

SAC_HD inline SelectRow select_row(const float* logits, float max, float temperature) {
  return {logits, max, static_cast<float>(kSelectBuckets) / (kReach * temperature)};
}

/// 0 for the best; a larger logit never has a larger bucket.
SAC_HD inline uint32_t bucket_of(const SelectRow& row, float z) {
  const float distance = (row.max - z) * row.buckets_per_unit;
  constexpr float kLast = static_cast<float>(kSelectBuckets - 1);
  return static_cast<uint32_t>(static_cast<int32_t>(distance < kLast ? distance : kLast));
}

/// What a cut counts: tokens (top-k) or weight (top-p).
enum class Measure : uint32_t { kCount, kWeight };

/// Where the kept tokens end: every key above `key`, and the first `ties` (in order of id) of those
/// equal to it.
struct Cut {
  uint32_t key;
  uint32_t ties;
};

SAC_HD inline void clear_buckets(const SampleScratch& scratch, uint32_t count) {
  for (uint32_t b = 0; b < count; ++b) {
    scratch.bucket_count[b] = 0;
    scratch.bucket_weight[b] = 0;
  }
}

SAC_HD inline uint64_t bucket_amount(const SampleScratch& scratch, Measure measure, uint32_t b) {
  return measure == Measure::kCount ? scratch.bucket_count[b] : scratch.bucket_weight[b];
}

/// Lists the candidates (as indices into c) of the bucket in which the measure, summed from the
/// best down, reaches `left`; subtracts what is above from `left`. Returns how many there are.
SAC_HD inline uint32_t list_bucket(const SelectRow& row, const Candidates& c, Measure measure,
                                   uint64_t& left, const SampleScratch& scratch) {
  clear_buckets(scratch, kSelectBuckets);
  uint32_t* const bucket_count = scratch.bucket_count;
  uint64_t* const bucket_weight = scratch.bucket_weight;
  for (uint32_t i = 0; i < c.count; ++i) {
    const uint32_t b = bucket_of(row, row.logits[c.ids[i]]);
    bucket_count[b] += 1;
    bucket_weight[b] += c.weights[i];
  }
  uint32_t bucket = 0;
  for (; bucket + 1 < kSelectBuckets; ++bucket) {
    const uint64_t amount = bucket_amount(scratch, measure, bucket);
    if (amount >= left) break;
    left -= amount;
  }
  uint32_t* const members = scratch.members;
  uint32_t count = 0;
  for (uint32_t i = 0; i < c.count; ++i) {
    members[count] = i;
    count += bucket_of(row, row.logits[c.ids[i]]) == bucket ? 1u : 0u;
  }
  return count;
}

struct Digit {
  uint32_t shift;
  uint32_t bits;
};

/// Key of the listed member at which the measure reaches `left`, digit by digit from the top;
/// subtracts what is above from `left`.
SAC_HD inline uint32_t find_key(const SelectRow& row, const Candidates& c, uint32_t num_members,
                                Measure measure, uint64_t& left, const SampleScratch& scratch) {
  constexpr Digit kDigits[4] = {{24, 8}, {16, 8}, {8, 8}, {0, 8}};
  uint32_t prefix = 0;
  for (const Digit digit : kDigits) {
    clear_buckets(scratch, 1u << digit.bits);
    const uint64_t above = ~uint64_t{0} << (digit.shift + digit.bits);
    for (uint32_t m = 0; m < num_members; ++m) {
      const uint32_t i = scratch.members[m];
      const uint32_t key = ordered_key(row.logits[c.ids[i]]);
      if (((key ^ prefix) & above) != 0) continue;
      const uint32_t b = (key >> digit.shift) & ((1u << digit.bits) - 1);
      scratch.bucket_count[b] += 1;
      scratch.bucket_weight[b] += c.weights[i];
    }
    uint32_t bucket = (1u << digit.bits) - 1;
    for (; bucket > 0; --bucket) {
      const uint64_t amount = bucket_amount(scratch, measure, bucket);
      if (amount >= left) break;
      left -= amount;
    }
    prefix |= bucket << digit.shift;
  }
  return prefix;
}

/// Keeps what is above the cut, in place.
SAC_HD inline void keep(const float* logits, Candidates& c, Cut cut) {
  uint32_t* const ids = c.ids;
  uint32_t* const weights = c.weights;
  uint32_t kept = 0;
  uint32_t ties = cut.ties;
  uint64_t total = 0;
  for (uint32_t i = 0, count = c.count; i < count; ++i) {
    const uint32_t id = ids[i];
    const uint32_t weight = weights[i];
    const uint32_t key = ordered_key(logits[id]);
    const bool stays = key > cut.key || (key == cut.key && ties > 0);
    ties -= key == cut.key && ties > 0 ? 1u : 0u;
    ids[kept] = id;
    weights[kept] = weight;
    kept += stays ? 1u : 0u;
    total += stays ? weight : 0u;
  }
  c.count = kept;
  c.total = total;
}

/// The k most likely tokens; those equal to the k-th all stay, as in vLLM. k = 0 keeps everything.
SAC_HD inline void keep_top_k(const SelectRow& row, Candidates& c, uint32_t k,
                              const SampleScratch& scratch) {
  if (k == 0 || k >= c.count) return;
  uint64_t left = k;
  const uint32_t members = list_bucket(row, c, Measure::kCount, left, scratch);
  const uint32_t key = find_key(row, c, members, Measure::kCount, left, scratch);
  keep(row.logits, c, {key, c.count});
}

/// The smallest set of most likely tokens whose probability reaches p; at equal logits the lower
/// ids. p >= 1 keeps everything; the best token always stays.
SAC_HD inline void keep_top_p(const SelectRow& row, Candidates& c, float p,
                              const SampleScratch& scratch) {
  if (p >= 1.0f || c.count == 0) return;
  const double reach = static_cast<double>(p) * static_cast<double>(c.total);
  uint64_t left = static_cast<uint64_t>(reach);
  if (static_cast<double>(left) < reach || left == 0) ++left;
  const uint32_t members = list_bucket(row, c, Measure::kWeight, left, scratch);
  const uint32_t key = find_key(row, c, members, Measure::kWeight, left, scratch);
  uint64_t each = 1;  // tokens of one key have one weight
  for (uint32_t m = 0; m < members; ++m) {
    if (ordered_key(row.logits[c.ids[scratch.members[m]]]) == key) {
      each = c.weights[scratch.members[m]];
      break;
    }
  }
  keep(row.logits, c, {key, static_cast<uint32_t>((left + each - 1) / each)});
}

}  // namespace SAC_ISA
}  // namespace saccade
