// fcfs: first come, first served. Requests off the device come in by age, and the first that finds
// no room holds up all behind it: no overtaking, no preemption by choice.
#pragma once
#include "sched/policy/pick.hpp"

namespace saccade {

SAC_HD inline void decide_fcfs(const PolicyInput& in, PolicyOutput& out) {
  const Sides sides = take_sides(in, out, [](const Candidate& c) { return age_key(c); });
  Ranking entrants = rank_entrants(in, out, sides);
  uint64_t left = spare_blocks(in);
  while (out.num_bring_in < entrants.size()) {
    const uint32_t blocks = in.candidates[entrants.at(out.num_bring_in)].blocks;
    if (blocks > left) return;
    left -= blocks;
    ++out.num_bring_in;
  }
}

}  // namespace saccade
