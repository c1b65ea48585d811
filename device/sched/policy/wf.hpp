// wf: waiting first. A new request comes in at once, by preempting the requests that have run
// longest; rotated-out ones return by age, into free blocks. TTFT is short, TBT pays for it.
#pragma once
#include "sched/policy/exchange.hpp"
#include "sched/policy/fcfs.hpp"

namespace saccade {

SAC_HD inline void decide_wf(const PolicyInput& in, PolicyOutput& out) {
  if (everything_fits(in)) return decide_fcfs(in, out);
  exchange(in, out, Claim::kFirstTokens, Line::kHold, [&](const Candidate& c) {
    if (is_running(c)) return ran_key(in, c);
    if (is_overdue(in, c)) return overdue_key(in, c);
    return (waits_for_first_token(c) ? kOverdueKey / 2 : 0) + age_key(c);
  });
}

}  // namespace saccade
