// Where a policy works: its settings, what it keeps from tick to tick, and the arrays it answers
// in.
#pragma once
#include "platform/layout.hpp"
#include "sched/limits.hpp"

namespace saccade {

struct PolicyDesk {
  Policy policy;
  PolicySettings settings;
  uint32_t step_rows;  // tokens that one step computes at most
  PolicyState state;
  // [num_slots] each; see PolicyOutput.
  uint32_t* bring_in;
  uint32_t* preempt;
  uint32_t* scratch;
  int64_t* keys;

  /// A request that came in at this time or later is still news to the policy.
  SAC_HD uint64_t settled_ns() const {
    return policy == Policy::kGoodput ? state.last_tick_ns : UINT64_MAX;
  }
};

inline void lay_out(PolicyDesk& desk, const Limits& l, Layout& at) {
  desk.bring_in = at.take<uint32_t>(l.num_slots);
  desk.preempt = at.take<uint32_t>(l.num_slots);
  desk.scratch = at.take<uint32_t>(l.num_slots);
  desk.keys = at.take<int64_t>(l.num_slots);
}
SAC_HD inline void reset(PolicyDesk& desk, const Limits& l) {
  desk.policy = l.policy;
  desk.settings = l.policy_settings;
  desk.step_rows = l.max_num_batched_tokens;
  desk.state = PolicyState{};
}

}  // namespace saccade
