// One tick's decision of the policy that an operator chose.
#pragma once
#include "sched/policy/churn.hpp"
#include "sched/policy/fcfs.hpp"
#include "sched/policy/goodput.hpp"
#include "sched/policy/lvf.hpp"
#include "sched/policy/sf.hpp"
#include "sched/policy/wf.hpp"

namespace saccade {

/// Fills out.bring_in and out.preempt. Both are empty for a policy that there is not.
SAC_HD inline void decide(Policy policy, const PolicyInput& in, PolicyState& state,
                          PolicyOutput& out) {
  out.num_bring_in = out.num_preempt = 0;
  switch (policy) {
    case Policy::kFcfs:
      return decide_fcfs(in, out);
    case Policy::kWf:
      return decide_wf(in, out);
    case Policy::kSf:
      return decide_sf(in, out);
    case Policy::kLvf:
      return decide_lvf(in, out);
    case Policy::kGoodput:
      return decide_goodput(in, state, out);
    case Policy::kChurn:
      return decide_churn(in, out);
  }
}

}  // namespace saccade
