// shares: what the device's time went to of late, by tenant. A tenant that had more than its share
// while others are here, or has more than its share of the seats while they wait for theirs, comes
// behind them: with its requests that wait, and with its prompts in a step. And the prompts of one
// tenant, and the decodes of one over its share (turns.hpp), lengthen a step that serves others no
// further than its weight says, so that what it asks for is spread over the steps of those others.
//
// Shares are of the time that steps took, not of the clock: what others leave, anyone may use. One
// tenant alone costs nothing here, and decides nothing.
#pragma once
#include "sched/course.hpp"
#include "sched/pacing.hpp"
#include "sched/parking.hpp"
#include "sched/seats.hpp"
#include "sched/tenant_costs.hpp"
#include "sched/waiting.hpp"

namespace saccade {

/// What was used counts half after this long.
inline constexpr uint64_t kShareHalfNs = 1'000'000'000;
/// A tenant is over its share when it had one in this many parts more: two that both ask for all
/// hover at theirs.
inline constexpr uint64_t kShareSlack = 8;
/// However small its share, a tenant's prompts may lengthen others' steps by one in this many
/// parts, and so may its decodes (turns.hpp).
inline constexpr uint32_t kLeastShareParts = 10;

/// How the decodes of a tenant over its share come into steps of others.
struct Turns {
  uint64_t last;    // arrival of the request that had the last one
  double saved_ns;  // of its share of steps, for the next one
};

struct Shares {
  uint32_t first;                         // tenant of the first request; kNone: none has come
  uint32_t mixed;                         // 1: others have come since
  uint32_t num_tenants;                   // above the largest that has come
  uint64_t over;                          // bit by tenant: it had, or has, more than its share
  uint64_t weights_here;                  // of all tenants with requests that wait or are seated
  uint64_t halved_ns;                     // when used_ns was last halved
  uint64_t used_ns[SAC_MAX_TENANTS];      // of steps
  uint32_t weights[SAC_MAX_TENANTS];      // as the latest request has it
  uint32_t seated[SAC_MAX_TENANTS];       // requests
  uint32_t wanted[SAC_MAX_TENANTS];       // requests that wait or are seated
  uint32_t most_wanted[SAC_MAX_TENANTS];  // of late
  uint32_t kept[SAC_MAX_TENANTS];         // its share of the seats
  uint32_t spare_seats;                   // free ones that no tenant lacks of its share
  uint32_t num_decodes;                   // of the step that is being formed
  uint32_t num_prompt_rows;
  uint32_t decodes[SAC_MAX_TENANTS];  // of these
  uint32_t prompt_rows[SAC_MAX_TENANTS];
  uint32_t wanted_rows[SAC_MAX_TENANTS];  // see PolicyInput::tenant_rows
  uint32_t own_seats[SAC_MAX_TENANTS];    // see FreeSeats::own
  Turns turns[SAC_MAX_TENANTS];
  TenantCosts costs;

  SAC_HD TenantRows rows() const { return {decodes, prompt_rows, num_tenants}; }
  SAC_HD bool is_over(uint32_t tenant) const { return (over >> tenant & 1) != 0; }
};
static_assert(SAC_MAX_TENANTS == 64, "a bit of Shares::over each");

SAC_HD inline void reset(Shares& s) {
  s = Shares{};
  s.first = kNone;
}

/// A request of this tenant has come.
SAC_HD inline void note_tenant(Shares& s, const sac_descriptor& d) {
  if (s.first == kNone) s.first = d.tenant;
  s.mixed |= s.first != d.tenant ? 1u : 0u;
  s.num_tenants = max_u32(s.num_tenants, d.tenant + 1);
  s.weights[d.tenant] = max_u32(d.tenant_weight, 1);
}

/// What was used counts half a while later, and so does what others had seats for.
SAC_HD inline void fade(Shares& s, uint64_t now_ns) {
  if (now_ns - s.halved_ns < kShareHalfNs) return;
  s.halved_ns = now_ns;
  for (uint32_t t = 0; t < s.num_tenants; ++t) {
    s.used_ns[t] /= 2;
    s.most_wanted[t] = (s.most_wanted[t] + s.wanted[t]) / 2;
  }
}

/// Counts the requests of each tenant that are seated, or wait for a seat, also to return to one.
/// Returns a bit for each tenant that has one.
SAC_HD inline uint64_t count_requests(Shares& s, const Seats& seats, const WaitingLine& line,
                                      const Parking& parking) {
  for (uint32_t t = 0; t < s.num_tenants; ++t) s.seated[t] = 0;
  for (uint32_t i = 0; i < seats.num_running; ++i)
    ++s.seated[seats.wishes[seats.running[i]].tenant];
  for (uint32_t t = 0; t < s.num_tenants; ++t) s.wanted[t] = s.seated[t] + parking.returning[t];
  for (uint32_t i = 0; i < line.count; ++i) ++s.wanted[line.candidates[i].tenant];
  uint64_t here = 0;
  for (uint32_t t = 0; t < s.num_tenants; ++t) {
    here |= s.wanted[t] != 0 ? uint64_t{1} << t : 0;
    s.most_wanted[t] = max_u32(s.most_wanted[t], min_u32(s.wanted[t], seats.num_seats));
  }
  return here;
}

/// Marks the tenants that are over their shares of the time, of those with a bit in `here`. One at
/// least is not.
SAC_HD inline void judge_time(Shares& s, uint64_t here) {
  uint64_t used_ns = 0;
  s.weights_here = 0;
  for (uint32_t t = 0; t < s.num_tenants; ++t) {
    if ((here >> t & 1) == 0) continue;
    used_ns += s.used_ns[t];
    s.weights_here += s.weights[t];
  }
  s.over = 0;
  for (uint32_t t = 0; t < s.num_tenants; ++t) {
    const uint64_t forgiven_ns = s.used_ns[t] / (kShareSlack + 1) * kShareSlack;
    if ((here >> t & 1) != 0 && forgiven_ns * s.weights_here > used_ns * s.weights[t])
      s.over |= uint64_t{1} << t;
  }
}

/// Divides the seats between the tenants that had requests of late.
SAC_HD inline void divide_seats(Shares& s, uint32_t num_seats) {
  uint64_t weights = 0;
  for (uint32_t t = 0; t < s.num_tenants; ++t) weights += s.most_wanted[t] != 0 ? s.weights[t] : 0;
  for (uint32_t t = 0; t < s.num_tenants; ++t) {
    const uint64_t part = s.most_wanted[t] != 0 ? num_seats * uint64_t{s.weights[t]} / weights : 0;
    s.kept[t] = s.most_wanted[t] != 0 ? max_u32(static_cast<uint32_t>(part), 1) : 0;
  }
}

/// Seats that a tenant within its share of the time lacks of those it has this many requests for.
SAC_HD inline uint32_t lacking(const Shares& s, uint32_t tenant, uint32_t requests) {
  const uint32_t claim = s.is_over(tenant) ? 0 : min_u32(requests, s.kept[tenant]);
  return claim - min_u32(claim, s.seated[tenant]);
}

/// Requests that wait for a seat of their tenant's share.
SAC_HD inline uint32_t waiting_within(const Shares& s) {
  uint32_t count = 0;
  for (uint32_t t = 0; t < s.num_tenants; ++t) count += lacking(s, t, s.wanted[t]);
  return count;
}

/// While requests wait for a seat of their tenant's share, one with more than its own is over it.
/// Else a tenant that uses little time keeps others from seats for good: fault_sim finds it.
SAC_HD inline void judge_seats(Shares& s) {
  if (waiting_within(s) == 0) return;
  for (uint32_t t = 0; t < s.num_tenants; ++t)
    if (s.seated[t] > s.kept[t]) s.over |= uint64_t{1} << t;
}

/// Free seats, less what tenants lack of their shares by what they had requests for of late: a
/// client that asks again as soon as it was answered finds its seat free.
SAC_HD inline uint32_t spare_seats(const Shares& s, uint32_t num_free) {
  for (uint32_t t = 0; t < s.num_tenants && num_free != 0; ++t)
    num_free -= min_u32(num_free, lacking(s, t, s.most_wanted[t]));
  return num_free;
}

/// Who has more than its share, and what is left for it.
SAC_HD inline void weigh_shares(Shares& s, const Seats& seats, const WaitingLine& line,
                                const Parking& parking, uint64_t now_ns) {
  if (s.mixed == 0) return;
  fade(s, now_ns);
  judge_time(s, count_requests(s, seats, line, parking));
  divide_seats(s, seats.num_seats);
  judge_seats(s);
  s.spare_seats = spare_seats(s, seats.num_free);
}

/// It has a seat of its share left.
SAC_HD inline bool has_own_seat(const Shares& s, uint32_t tenant) {
  return !s.is_over(tenant) && s.seated[tenant] < s.kept[tenant];
}
/// May a request of this tenant have a free seat?
SAC_HD inline bool may_sit(const Shares& s, uint32_t tenant) {
  return s.mixed == 0 || s.spare_seats != 0 || has_own_seat(s, tenant);
}
SAC_HD inline void note_seat(Shares& s, uint32_t tenant) {
  if (s.mixed == 0) return;
  if (!has_own_seat(s, tenant)) --s.spare_seats;
  ++s.seated[tenant];
}

/// Seats as a policy sees them: by the same rules.
SAC_HD inline FreeSeats free_seats(Shares& s, uint32_t num_free) {
  for (uint32_t t = 0; t < s.num_tenants; ++t) s.own_seats[t] = lacking(s, t, s.kept[t]);
  return {num_free, s.spare_seats, s.own_seats};
}

/// What a step takes by tenant is learned, and its time charged: to each row its tenant's cost, and
/// an equal part of the rest.
SAC_HD inline void charge_step(Shares& s, uint64_t took_ns) {
  if (s.mixed == 0) return;
  TenantCosts& costs = s.costs;
  costs.note(s.rows(), took_ns);
  const double expected_ns = costs.step_ns(s.rows());
  if (expected_ns == 0) return;
  const double each_ns = costs.base_ns / (s.num_decodes + s.num_prompt_rows);
  for (uint32_t t = 0; t < s.num_tenants; ++t) {
    const double its_ns = s.decodes[t] * (costs.decode_ns[t] + each_ns) +
                          s.prompt_rows[t] * (costs.prompt_ns[t] + each_ns);
    s.used_ns[t] += static_cast<uint64_t>(static_cast<double>(took_ns) * its_ns / expected_ns);
  }
}

/// What running requests want of the next step is about to be counted.
SAC_HD inline void begin_count(Shares& s) {
  if (s.mixed == 0) return;
  for (uint32_t t = 0; t < s.num_tenants; ++t) s.wanted_rows[t] = 0;
}

/// A step is being formed.
SAC_HD inline void begin_step(Shares& s) {
  if (s.mixed == 0) return;
  s.num_decodes = s.num_prompt_rows = 0;
  for (uint32_t t = 0; t < s.num_tenants; ++t) s.decodes[t] = s.prompt_rows[t] = 0;
}
SAC_HD inline void note_decode(Shares& s, uint32_t tenant) {
  ++s.decodes[tenant];
  ++s.num_decodes;
}
/// A step is formed of a decode of each running request.
SAC_HD inline void note_all_decodes(Shares& s, const Seats& seats) {
  if (s.mixed == 0) return;
  begin_step(s);
  for (uint32_t i = 0; i < seats.num_running; ++i)
    note_decode(s, seats.wishes[seats.running[i]].tenant);
}
SAC_HD inline void note_prompt(Shares& s, uint32_t tenant, uint32_t rows) {
  s.prompt_rows[tenant] += rows;
  s.num_prompt_rows += rows;
}

/// The one of these tenants whose prompts come first into a step: within its share before over it,
/// then the larger weight, then who had less time.
SAC_HD inline uint32_t first_of(const Shares& s, uint64_t tenants) {
  uint32_t first = kNone;
  for (uint32_t t = 0; t < s.num_tenants; ++t) {
    if ((tenants >> t & 1) == 0) continue;
    const bool sooner =
        first == kNone || (s.is_over(t) != s.is_over(first)   ? s.is_over(first)
                           : s.weights[t] != s.weights[first] ? s.weights[t] > s.weights[first]
                                                              : s.used_ns[t] < s.used_ns[first]);
    if (sooner) first = t;
  }
  return first;
}

/// Of the tenants that have requests.
SAC_HD inline uint64_t weight_of_others(const Shares& s, uint32_t tenant) {
  // A request that has come back since shares were weighed may be the only one of its tenant.
  return s.weights_here > s.weights[tenant] ? s.weights_here - s.weights[tenant] : 1;
}

/// Rows that prompts of this tenant may have of the step as it is: what its weight says of the time
/// that the rows of others take in it. None until that is known.
SAC_HD inline uint32_t prompt_allowance(const Shares& s, uint32_t tenant, const StepCost& cost) {
  const uint32_t decodes = s.num_decodes - s.decodes[tenant];
  const uint32_t prompt_rows = s.num_prompt_rows - s.prompt_rows[tenant];
  if (decodes == 0 && prompt_rows == 0) return UINT32_MAX;
  const uint64_t alone_ns = cost.decodes.cost_ns(1), many_ns = cost.prompts.cost_ns(kManyRows);
  if (decodes != 0 && alone_ns == 0) return 0;
  if (many_ns == 0) return kLeastPromptRows;
  const uint64_t others_ns =
      (decodes == 0 ? 0 : alone_ns * decodes / s.num_decodes) + many_ns * prompt_rows / kManyRows;
  const uint64_t share_ns = others_ns * s.weights[tenant] / weight_of_others(s, tenant);
  const uint64_t least_ns = alone_ns / kLeastShareParts;
  const uint64_t rows = (share_ns > least_ns ? share_ns : least_ns) * kManyRows / many_ns;
  const uint32_t most = rows < UINT32_MAX ? max_u32(static_cast<uint32_t>(rows), 1) : UINT32_MAX;
  return most - min_u32(most, s.prompt_rows[tenant]);
}

}  // namespace saccade
