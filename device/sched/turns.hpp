// turns: the decodes of tenants that are over their shares, in steps that serve others. Each step
// sets aside for such a tenant what its weight says of the time that the others' decodes take; as
// many of its requests have a row as that pays for, one after another. What rows cost is learned
// from steps with and without them, so some steps are always without.
#pragma once
#include "sched/shares.hpp"

namespace saccade {

/// One step in this many has no turns.
inline constexpr uint64_t kBareSteps = 8;

SAC_HD inline bool has_turns(uint64_t step) { return step % kBareSteps != 0; }

/// What a turn of this tenant costs: never more than the step without it, so that a tenant's turns
/// do not end, and never nothing.
SAC_HD inline double turn_ns(const Shares& s, uint32_t tenant, double others_ns) {
  const double row_ns = s.costs.decode_ns[tenant];
  return row_ns > others_ns ? others_ns : row_ns < 1 ? 1 : row_ns;
}

/// Sets aside this step's part for a tenant over its share, and returns the rows that it pays for.
/// The decodes of tenants within their shares are in the step already.
SAC_HD inline uint32_t save_for_turns(Shares& s, uint32_t tenant, double others_ns) {
  if (!s.costs.known()) return 1;
  const double share =
      static_cast<double>(s.weights[tenant]) / static_cast<double>(weight_of_others(s, tenant));
  const double part_ns =
      others_ns * (share * kLeastShareParts > 1 ? share : 1.0 / kLeastShareParts);
  const double row_ns = turn_ns(s, tenant, others_ns);
  // What is not used is kept for one row only.
  const double most_ns = part_ns > row_ns ? part_ns : row_ns;
  double& saved_ns = s.turns[tenant].saved_ns;
  saved_ns = saved_ns + part_ns < most_ns ? saved_ns + part_ns : most_ns;
  const double rows = saved_ns / row_ns;
  return rows < SAC_MAX_SLOTS ? static_cast<uint32_t>(rows) : SAC_MAX_SLOTS;
}

/// A request has its turn.
SAC_HD inline void note_turn(Shares& s, uint32_t tenant, uint64_t arrival, double others_ns) {
  Turns& turns = s.turns[tenant];
  turns.last = arrival;
  const double row_ns = turn_ns(s, tenant, others_ns);
  turns.saved_ns = turns.saved_ns > row_ns ? turns.saved_ns - row_ns : 0;
  note_decode(s, tenant);
}

}  // namespace saccade
