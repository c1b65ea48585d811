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
/// Scaled distances below this have weight 0: -ln(2^31), rounded away.
inline constexpr float kReach = -21.5f;

struct Candidates {
  uint32_t* ids;      // ascending
  uint32_t* weights;  // > 0
  uint32_t count;
};

/// Rounds e in [0, 1] to a weight; through int32, the conversion that every vector unit has.
SAC_HD inline uint32_t weight_of(float e) {
  return static_cast<uint32_t>(static_cast<int32_t>(e * kFullWeight + 0.5f));
}

/// Appends tokens [begin, end) of at most 16 that pass min_p and have a weight.
SAC_HD inline void gather_block(const float* logits, uint32_t begin, uint32_t end, float max,
                                float inverse_temperature, float min_p, Candidates& out) {
  float e[kLanes16];
  uint32_t weight[kLanes16];
  for (uint32_t j = 0; j < kLanes16; ++j) {
    // Past the end the last token is computed again and not used: fixed trip counts vectorise.
    const uint32_t i = begin + j < end ? begin + j : end - 1;
    e[j] = logits[i];
  }
  for (uint32_t j = 0; j < kLanes16; ++j) e[j] = exp_fixed((e[j] - max) * inverse_temperature);
  for (uint32_t j = 0; j < kLanes16; ++j) weight[j] = e[j] < min_p ? 0u : weight_of(e[j]);
  for (uint32_t j = 0; begin + j < end; ++j) {
    out.ids[out.count] = begin + j;
    out.weights[out.count] = weight[j];
    out.count += weight[j] != 0 ? 1u : 0u;
  }
}

/// All tokens within reach of the best that pass min_p (p >= min_p * p_max), in order of id.
/// ids and weights have room for n. logits are clean and max is finite.
SAC_HD inline Candidates gather(const float* logits, uint32_t n, float max,
                                float inverse_temperature, float min_p, uint32_t* ids,
                                uint32_t* weights) {
  Candidates out = {ids, weights, 0};
  for (uint32_t i = 0; i < n; i += kLanes16) {
    const uint32_t end = min_u32(i + kLanes16, n);
    if (end - i == kLanes16) {  // most blocks of a trained model are out of reach
      uint32_t reached = 0;
      for (uint32_t j = 0; j < kLanes16; ++j) {
        reached |= (logits[i + j] - max) * inverse_temperature > kReach ? 1u : 0u;
      }
      if (reached == 0) continue;
    }
    gather_block(logits, i, end, max, inverse_temperature, min_p, out);
  }
  return out;
}

SAC_HD inline uint64_t total_weight(const Candidates& c) {
  uint64_t total = 0;
  for (uint32_t i = 0; i < c.count; ++i) total += c.weights[i];
  return total;
}

}  // namespace SAC_ISA
}  // namespace saccade
