// wf: waiting first. A new request comes in at once, by preempting those that have run longest; who
// was rotated out returns by age, into blocks that are free. TTFT is short, TBT pays for it.
#pragma once
#include "sched/policy/exchange.hpp"
#include "sched/policy/fcfs.hpp"

namespace saccade {

SAC_HD inline void decide_wf(const PolicyInput& in, PolicyOutput& out) {
  if (everything_fits(in)) return decide_fcfs(in, out);
  for (uint32_t i = 0; i < in.num_candidates; ++i) {
    const Candidate& c = in.candidates[i];
    const int64_t waiting_first = waits_for_first_token(c) ? kOverdueKey / 2 : 0;
    if (is_running(c)) {
      out.keys[i] = ran_key(in, c);
    } else if (is_overdue(in, c)) {
      out.keys[i] = overdue_key(in, c);
    } else {
      out.keys[i] = waiting_first - static_cast<int64_t>(c.order);
    }
  }
  exchange(in, out, Claim::kFirstTokens, Line::kHold);
}

}  // namespace saccade
