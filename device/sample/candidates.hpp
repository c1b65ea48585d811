// The tokens that a draw can reach, as integer weights. Integers make every sum exact and
// independent of its order, so a serial walk, vector code and a GPU's tree all agree on the drawn
// token.
#pragma once
#include "sample/logprobs.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Weight of the most likely token. Others have round(2^30 * exp((z - max) / temperature)); tokens
/// less likely than 2^-31 of the best have weight 0 and cannot be drawn.
inline constexpr float kFullWeight = 1073741824.0f;
/// exp of anything below is 0 as a weight: -ln(2^31), rounded away.
inline constexpr float kReach = 21.5f;

struct Candidates {
  uint32_t* ids;      // ascending
  uint32_t* weights;  // > 0
  uint32_t count;
  uint64_t total;  // sum of the weights
};

/// Rounds e in [0, 1] to a weight; through int32, the conversion that every vector unit has.
SAC_HD inline uint32_t weight_of(float e) {
  return static_cast<uint32_t>(static_cast<int32_t>(e * kFullWeight + 0.5f));
}

/// Appends the tokens [begin, begin + kBlock), as far as below n, that pass min_p and have a
/// weight.
SAC_HD inline void gather_block(const float* logits, uint32_t begin, uint32_t n, float max,
                                float inverse_temperature, float min_p, Candidates& out) {
  float z[kBlock];
  uint32_t weight[kBlock];
  const uint32_t count = min_u32(kBlock, n - begin);
  for (uint32_t j = 0; j < count; ++j) z[j] = logits[begin + j];
  for (uint32_t j = count; j < kBlock; ++j) z[j] = -__builtin_inff();
  for (uint32_t j = 0; j < kBlock; ++j) {
    const float e = exp_fixed((z[j] - max) * inverse_temperature);
    weight[j] = weight_of(e) & (0u - static_cast<uint32_t>(e >= min_p));
  }
  uint32_t at = out.count;  // local: a store to ids could change out as far as the compiler knows
  uint64_t total = 0;
  uint32_t* const ids = out.ids;
  uint32_t* const weights = out.weights;
  for (uint32_t j = 0; j < count; ++j) {
    ids[at] = begin + j;
    weights[at] = weight[j];
    at += weight[j] != 0 ? 1u : 0u;
    total += weight[j];
  }
  out.count = at;
  out.total += total;
}

/// All tokens within reach of the best that pass min_p (p >= min_p * p_max), in order of id.
/// ids and weights have room for n. logits are clean and max is finite.
SAC_HD inline Candidates gather(const float* logits, uint32_t n, float max, float temperature,
                                float min_p, uint32_t* ids, uint32_t* weights) {
  Candidates out = {ids, weights, 0, 0};
  const float inverse_temperature = 1.0f / temperature;
  // The 0.1 covers any rounding. With a large max, rounding may make the bound the max itself.
  const float bound = max - (kReach + 0.1f) * temperature;
  for (uint32_t i = 0; i < n; i += kBlock) {
    // Most blocks of a trained model are out of reach.
    if (i + kBlock <= n && !any_from(logits + i, bound)) continue;
    gather_block(logits, i, n, max, inverse_temperature, min_p, out);
  }
  return out;
}

}  // namespace SAC_ISA
}  // namespace saccade
