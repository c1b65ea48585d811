// The tokens of a run. They decide nothing but what is equal: a prompt with block ids repeats each
// id for the tokens of its block, and everything else of a request is one token that only it has.
#pragma once
#include <algorithm>

#include "sim/saccade_sim.h"

namespace saccade::sim {

/// Of requests that are counted from 0.
inline uint32_t own_token(uint64_t request) {
  return SAC_SIM_BLOCK_IDS + static_cast<uint32_t>(request);
}

/// Tokens of simulated requests are below this.
inline constexpr uint32_t kVirtualVocab = 2 * SAC_SIM_BLOCK_IDS;

/// Writes the first `count` tokens of a request's prompt; returns the largest of them.
inline uint32_t write_prompt(const sac_sim_load& load, uint64_t request, uint32_t* to,
                             uint32_t count) {
  const sac_sim_request& r = load.requests[request];
  if (r.num_block_ids == 0) {
    std::fill_n(to, count, own_token(request));
    return own_token(request);
  }
  const uint32_t* ids = load.block_ids + r.first_block_id;
  uint32_t most = 0;
  for (uint32_t at = 0; at < count; at += load.block_tokens, ++ids) {
    std::fill_n(to + at, std::min(load.block_tokens, count - at), *ids);
    most = std::max(most, *ids);
  }
  return most;
}

}  // namespace saccade::sim
