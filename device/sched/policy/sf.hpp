// sf: swapped first. Rotated-out requests return before any new one comes in, both by age and into
// free blocks. TBT is short, TTFT pays for it.
#pragma once
#include "sched/policy/exchange.hpp"
#include "sched/policy/fcfs.hpp"

namespace saccade {

SAC_HD inline void decide_sf(const PolicyInput& in, PolicyOutput& out) {
  if (everything_fits(in)) return decide_fcfs(in, out);
  exchange(in, out, Claim::kNobody, Line::kHold, [&](const Candidate& c) {
    const int64_t rotated_first = c.state == CandidateState::kRotatedOut ? kOverdueKey / 2 : 0;
    return !is_running(c) && is_overdue(in, c) ? overdue_key(in, c) : rotated_first + age_key(c);
  });
}

}  // namespace saccade
