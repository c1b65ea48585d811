// lvf: largest virtual lag time first (SuperInfer, arXiv 2601.20309, 4.2.2 and algorithm 1).
//
//   VLT(rotated out) = alpha * max(0, now - last token - beta_b * target of TBT)
//   VLT(waiting)     =         max(0, now - arrival    - beta_f * target of TTFT)
//   VLT(running)     =        -(now - entered)
//
// Largest lag first: requests off the device claim the free blocks and b_xfer more, skipping any
// that does not fit; running requests leave, smallest lag first, until the claims are met.
// docs/policies.md has what the paper leaves open, and what is decided here.
#pragma once
#include "sched/policy/exchange.hpp"
#include "sched/policy/fcfs.hpp"

namespace saccade {

/// max(0, now - then - share * target), ns.
SAC_HD inline double lag_ns(uint64_t now_ns, uint64_t then_ns, float share, uint64_t target_ns) {
  const double lag =
      static_cast<double>(since(now_ns, then_ns)) - double{share} * static_cast<double>(target_ns);
  return lag > 0 ? lag : 0;
}

/// Virtual lag time in ns: not negative off the device, not positive on it. A request that lost its
/// blocks before its first token waits like one that never had any.
SAC_HD inline int64_t virtual_lag_ns(const PolicyInput& in, const Candidate& c) {
  const PolicySettings& set = in.settings;
  if (is_running(c)) return -static_cast<int64_t>(since(in.now_ns, c.entered_ns));
  const double lag =
      waits_for_first_token(c)
          ? lag_ns(in.now_ns, c.arrival_ns, set.beta_f, c.slo_ttft_ns)
          : double{set.alpha} * lag_ns(in.now_ns, c.last_token_ns, set.beta_b, c.slo_tbt_ns);
  constexpr double kMost = static_cast<double>(kOverdueKey / 2);
  return static_cast<int64_t>(lag < kMost ? lag : kMost);
}

SAC_HD inline void decide_lvf(const PolicyInput& in, PolicyOutput& out) {
  if (everything_fits(in)) return decide_fcfs(in, out);
  exchange(in, out, Claim::kEverybody, Line::kPass, [&](const Candidate& c) {
    const bool goes_first = !is_running(c) && is_overdue(in, c);
    return goes_first ? overdue_key(in, c) : virtual_lag_ns(in, c);
  });
}

}  // namespace saccade
