// churn: for tests. At every tick all running requests leave the device, and requests off it come
// in by age as far as blocks are free: the most copies that a workload can be made to cause.
#pragma once
#include "sched/policy/fcfs.hpp"

namespace saccade {

SAC_HD inline void decide_churn(const PolicyInput& in, PolicyOutput& out) {
  decide_fcfs(in, out);
  for (uint32_t i = 0; i < in.num_candidates; ++i) {
    const Candidate& c = in.candidates[i];
    if (is_running(c) && c.fixed == 0) out.preempt[out.num_preempt++] = i;
  }
}

}  // namespace saccade
