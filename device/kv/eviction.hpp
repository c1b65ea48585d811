// Which blocks that no request uses are evicted first. The baseline is least recently used. It
// finds little where reuse is further away than the pool is large: each chain leaves before it is
// used again. Then it is better to keep the new blocks of one request in N, and to let those of the
// others leave first; a block that was found once is kept like any other.
//
// Which N is best depends on the traffic, so each is played through on a sample of the blocks, by a
// shadow, and the pool follows a shadow that beats least recently used. To beat it is a matter of
// evidence: requests differ widely in what they find, so the difference, summed over requests, must
// exceed three times its standard deviation. Sums fade, so that the choice follows the traffic.
// And should the pool find less than least recently used would have, over all that it has served,
// it returns to that until it has caught up: whatever the traffic, the loss is bounded.
#pragma once
#include "kv/chain.hpp"
#include "kv/shadow.hpp"

namespace saccade {

/// Shares of requests whose new blocks are kept: one in this many. The first is least recently
/// used.
inline constexpr uint32_t kNumKeepRates = 3;
SAC_HD constexpr uint32_t keep_one_in(uint32_t rate) { return 1u << (2 * rate); }

/// A shadow has this many blocks if the pool has, and at most one in kMaxSample of the pool's.
inline constexpr uint32_t kMinShadowBlocks = 256;
inline constexpr uint32_t kMaxSample = 16;
/// Sums are halved each time that the sample has been used this many times over.
inline constexpr uint32_t kFadeTimes = 16;
/// A gain counts from this many standard deviations on (squared), and from this share of the hits.
inline constexpr uint64_t kEvidence = 9;
inline constexpr int64_t kMinGain = 20;
/// The hits that may be lost to least recently used: one in this many, and a few.
inline constexpr uint64_t kMaxLoss = 100;
inline constexpr uint64_t kFewHits = 4;

/// What a rate has gained over the baseline, request by request. Fades.
struct Gain {
  int64_t sum;
  uint64_t squares;

  SAC_HD void add(int64_t gained) {
    sum += gained;
    squares += static_cast<uint64_t>(gained * gained);
  }
  SAC_HD void fade() {
    sum /= 2;
    squares /= 4;
  }
  /// The sum exceeds as many standard deviations, squared.
  SAC_HD bool exceeds(uint64_t deviations) const {
    return sum > 0 && static_cast<uint64_t>(sum * sum) > deviations * squares;
  }
};

struct Eviction {
  uint32_t sample;  // one in this many blocks, a power of two
  uint32_t chosen;  // rate that the pool follows
  uint32_t held;    // 1: it found too little, and follows the baseline
  Shadow shadows[kNumKeepRates];
  Gain gains[kNumKeepRates];
  uint64_t baseline;  // what the baseline found; fades
  uint64_t num_used;  // sampled blocks since sums were halved last
  uint64_t lru_hits;  // what the baseline found
  uint64_t own_hits;  // and the pool itself
  // Of the request in hand:
  uint32_t request_hits[kNumKeepRates];
  bool request_kept[kNumKeepRates];  // its new blocks are kept at this rate
};

/// Blocks of a pool that a shadow samples: one in this many.
SAC_HD constexpr uint32_t sample_of(uint32_t num_blocks) {
  uint32_t sample = 1;
  while (sample < kMaxSample && num_blocks / (2 * sample) >= kMinShadowBlocks) sample *= 2;
  return sample;
}
SAC_HD constexpr uint32_t shadow_blocks(uint32_t num_blocks) {
  return max_u32(1, num_blocks / sample_of(num_blocks));
}

/// Whether the new blocks of a request are kept, or leave before others.
SAC_HD inline bool keeps_at(uint32_t rate, uint64_t request) {
  return mix_bits(request) % keep_one_in(rate) == 0;
}
SAC_HD inline bool keeps(const Eviction& e, uint64_t request) {
  return keeps_at(e.chosen, request);
}

SAC_HD inline void reset(Eviction& e, uint32_t num_blocks) {
  e.sample = sample_of(num_blocks);
  e.chosen = e.held = 0;
  e.baseline = e.num_used = e.lru_hits = e.own_hits = 0;
  for (uint32_t i = 0; i < kNumKeepRates; ++i) {
    e.shadows[i].reset(shadow_blocks(num_blocks));
    e.gains[i] = Gain{0, 0};
  }
}

/// A request leaves: its blocks follow, then note_request.
SAC_HD inline void begin_request(Eviction& e, uint64_t request) {
  for (uint32_t i = 0; i < kNumKeepRates; ++i) {
    e.request_hits[i] = 0;
    e.request_kept[i] = keeps_at(i, request);
  }
}

/// A block of the request in hand, from the last to the first. `found`: the pool had it.
SAC_HD inline void note_block(Eviction& e, uint64_t key, bool found) {
  const uint64_t mixed = mix_bits(key);
  if ((mixed & (e.sample - 1)) != 0) return;
  for (uint32_t i = 0; i < kNumKeepRates; ++i)
    e.request_hits[i] += e.shadows[i].access(mixed / e.sample, e.request_kept[i]) ? 1 : 0;
  e.own_hits += found ? 1 : 0;
  ++e.num_used;
}

/// Too little was found; or enough again.
SAC_HD inline void watch_loss(Eviction& e) {
  const uint64_t lost = e.lru_hits > e.own_hits ? e.lru_hits - e.own_hits : 0;
  if (lost > e.lru_hits / kMaxLoss + kFewHits) e.held = 1;
  if (lost <= e.lru_hits / (2 * kMaxLoss) + kFewHits / 2) e.held = 0;
}

/// The rate to follow: the one in use while it gains at all, or another that gains clearly.
SAC_HD inline uint32_t choose_rate(const Eviction& e) {
  if (e.held != 0) return 0;
  uint32_t best = e.chosen != 0 && e.gains[e.chosen].exceeds(1) ? e.chosen : 0;
  for (uint32_t i = 1; i < kNumKeepRates; ++i) {
    const Gain& gain = e.gains[i];
    const bool clear = gain.exceeds(kEvidence) &&
                       gain.sum > static_cast<int64_t>(e.baseline) / kMinGain &&
                       (best == 0 || gain.sum - gain.sum / kMinGain > e.gains[best].sum);
    if (clear) best = i;
  }
  return best;
}

/// All blocks of the request were noted.
SAC_HD inline void note_request(Eviction& e) {
  const uint32_t lru = e.request_hits[0];
  e.lru_hits += lru;
  e.baseline += lru;
  for (uint32_t i = 0; i < kNumKeepRates; ++i)
    e.gains[i].add(static_cast<int64_t>(e.request_hits[i]) - static_cast<int64_t>(lru));
  watch_loss(e);
  e.chosen = choose_rate(e);
  if (e.num_used < uint64_t{kFadeTimes} * e.shadows[0].capacity) return;
  e.num_used = 0;
  e.baseline /= 2;
  for (Gain& gain : e.gains) gain.fade();
}

}  // namespace saccade
