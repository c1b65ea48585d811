// One tick's decision of the policy that an operator chose.
#pragma once
#include "sched/policy/churn.hpp"
#include "sched/policy/fcfs.hpp"
#include "sched/policy/goodput.hpp"
#include "sched/policy/lvf.hpp"
#include "sched/policy/sf.hpp"
#include "sched/policy/wf.hpp"

namespace saccade {

/// Fills out.bring_in and out.preempt. Both are empty for an unknown policy.
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

/// Whether a policy's answer is empty while no request wants in, none has come in since the policy
/// was last asked (the latest did at `entered_ns`), and running requests have room to grow.
SAC_HD inline bool may_pass(Policy policy, const PolicyState& state, uint64_t entered_ns) {
  if (policy == Policy::kChurn) return false;
  return policy != Policy::kGoodput || (state.late_turn == 0 && entered_ns < state.last_tick_ns);
}
/// Replaces decide() in such a tick.
SAC_HD inline void pass(Policy policy, const PolicyInput& in, uint64_t held, PolicyState& state) {
  if (policy == Policy::kGoodput) pass_goodput(in, held, state);
}

}  // namespace saccade
