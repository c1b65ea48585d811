// choose: who comes onto the device and who leaves it, where an operator chose another policy than
// first come, first served. The policy sees plain data and answers with two lists
// (policy/policy.hpp); this is what it is shown, and how far its answer is carried out.
//
// Whatever the policy says: requests that wait for blocks in transit get them first; a request that
// came in yields a token before it can be sent out by choice; and while none is on the device, the
// oldest comes in.
#pragma once
#include "sched/admit.hpp"
#include "sched/batch.hpp"
#include "sched/policy/decide.hpp"
#include "sched/policy_desk.hpp"

namespace saccade {

/// A seated request as a policy sees it. Called for each at every tick: touches nothing but the
/// seat and its wishes.
SAC_HD inline void describe_seated(const Seats& seats, const KvTiers& kv, uint32_t seat_index,
                                   Candidate& c) {
  const Seat& seat = seats[seat_index];
  const Wishes& wishes = seats.wishes[seat_index];
  const bool runs = seat.num_blocks != 0;
  const bool decodes = seat.num_produced != 0 && is_decode(seat);
  c.order = seat.arrival;
  c.arrival_ns = wishes.arrival_ns;
  c.entered_ns = seat.moved_ns;
  c.first_token_ns = seat.first_token_ns;
  c.last_token_ns = seat.last_token_ns;
  c.slo_ttft_ns = wishes.slo_ttft_ns;
  c.slo_tbt_ns = wishes.slo_tbt_ns;
  c.state = runs ? CandidateState::kRunning : CandidateState::kRotatedOut;
  c.fixed =
      runs && (is_rotating_in(kv, seat) || seat.num_produced == seat.entered_produced) ? 1 : 0;
  c.priority = wishes.priority;
  c.tenant = wishes.tenant;
  c.blocks =
      runs ? seat.num_blocks : kv.blocks_for(tokens_to_hold(seat.asked.flags, seat.num_tokens));
  c.blocks_to_send = runs ? kv.blocks_for(seat.num_computed) - seat.num_host : 0;
  c.produced = seat.num_produced;
  // What a store has of a prompt takes no rows of a step.
  const bool loads = seat.fetch != 0;
  c.prompt_tokens_left = decodes || loads ? 0 : seat.num_tokens - seat.num_computed;
  c.rows = decodes ? 1 : rows_possible(seats, seat_index, c.prompt_tokens_left);
}

/// Blocks that a request on the device needs for its next token, and does not hold.
SAC_HD inline uint32_t growth_of(const KvTiers& kv, const Seat& seat) {
  const uint32_t needed = kv.blocks_for(seat.num_tokens);
  return seat.num_blocks != 0 && needed > seat.num_blocks ? needed - seat.num_blocks : 0;
}

/// How many candidates there are, the growth of the running ones, and what is held by requests
/// whose readers are behind.
struct Gathered {
  uint32_t count;
  uint32_t growth_blocks;
  uint32_t stalled_blocks;
};

/// Adds the seated to the candidates, behind the waiting ones.
SAC_HD inline Gathered gather_seated(const WaitingLine& line, const Seats& seats, const KvTiers& kv,
                                     Shares& shares) {
  Gathered g = {line.count, 0, 0};
  begin_count(shares);
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const uint32_t seat_index = seats.running[i];
    const Seat& seat = seats[seat_index];
    if (seats.is_behind(seat_index)) {
      g.stalled_blocks += is_resident(kv, seat) ? seat.num_blocks : 0;
      continue;
    }
    if (is_rotating_out(kv, seat)) continue;
    line.candidate_slots[g.count] = seat.slot;
    Candidate& c = line.candidates[g.count++];
    describe_seated(seats, kv, seat_index, c);
    if (shares.mixed != 0 && c.state == CandidateState::kRunning)
      shares.wanted_rows[c.tenant] += c.rows;
    g.growth_blocks += growth_of(kv, seat);
  }
  return g;
}

/// A list of candidates becomes one of slots, which stay what they are while requests are seated.
SAC_HD inline void name_slots(const uint32_t* candidate_slots, uint32_t* list, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) list[i] = candidate_slots[list[i]];
}

/// What a policy sees beside the candidates.
SAC_HD inline PolicyInput describe_device(const PolicyDesk& desk, const KvTiers& kv,
                                          const Seats& seats, const Course& course) {
  PolicyInput in = {};
  in.now_ns = course.tick_ns;
  in.step_ns = course.mean_step_ns;
  in.step_rows = desk.step_rows;
  in.free_blocks = kv.device().num_coming();
  in.free_host_blocks = kv.host().num_free();
  in.seats = {seats.num_free, seats.num_free, nullptr};
  in.settings = desk.settings;
  return in;
}

/// Instead of asking the policy, in a tick in which its answer would be empty.
SAC_HD inline void pass_policy(PolicyDesk& desk, const KvTiers& kv, const Seats& seats,
                               const Course& course) {
  pass(desk.policy, describe_device(desk, kv, seats, course), kv.device().used(), desk.state);
}

/// Every seated request runs and has room to grow, and none waits: any policy's answer would be
/// empty. The common tick, which must not cost what a decision costs.
SAC_HD inline bool is_quiet(const PolicyDesk& desk, const WaitingLine& line, const Seats& seats,
                            const KvTiers& kv) {
  if (line.count != 0 || !kv.store.copies.idle()) return false;
  uint64_t entered_ns = 0;
  uint32_t growth = 0;
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const Seat& seat = seats[seats.running[i]];
    if (seat.num_blocks == 0 || seat.starved != 0 || seats.reader_room(seats.running[i]) == 0)
      return false;
    if (seat.moved_ns > entered_ns) entered_ns = seat.moved_ns;
    growth += growth_of(kv, seat);
  }
  return growth <= kv.device().num_coming() && may_pass(desk.policy, desk.state, entered_ns);
}

/// The policy's two lists, by slots.
SAC_HD inline PolicyOutput ask_policy(PolicyDesk& desk, const Admission& a) {
  const Gathered gathered = gather_seated(a.waiting, a.seats, a.kv, a.shares);
  PolicyInput in = describe_device(desk, a.kv, a.seats, a.course);
  in.over = a.shares.over;
  if (a.shares.mixed != 0) {
    in.tenant_rows = a.shares.wanted_rows;
    in.seats = free_seats(a.shares, a.seats.num_free);
  }
  in.growth_blocks = gathered.growth_blocks;
  // They are free as soon as a request that comes in needs them: see may_fit.
  in.free_blocks += gathered.stalled_blocks;
  in.candidates = a.waiting.candidates;
  in.num_candidates = gathered.count;
  PolicyOutput out = {desk.bring_in, desk.preempt, desk.scratch, desk.keys, 0, 0};
  decide(desk.policy, in, desk.state, out);
  name_slots(a.waiting.candidate_slots, out.bring_in, out.num_bring_in);
  name_slots(a.waiting.candidate_slots, out.preempt, out.num_preempt);
  return out;
}

/// Brings a candidate in. False: there is no room for it now, and what comes behind it waits too.
template <class Env>
SAC_HD_INLINE bool bring_in(const Admission& a, Env& env, uint32_t slot) {
  const Request& r = a.slots[slot];
  if (r.seat != kNone)
    return a.seats[r.seat].num_blocks != 0 || resume_seat(a.preemption(), r.seat);
  if (r.state != SAC_STATE_PREFILL_PENDING) return true;
  const uint32_t tenant = r.descriptor.tenant;
  // Without a seat it does not hold the rest.
  if (a.seats.num_free == 0 || !may_sit(a.shares, tenant)) return true;
  if (!admit_slot(a, env, slot)) return false;
  note_seat(a.shares, tenant);
  return true;
}

SAC_HD inline bool any_on_device(const Seats& seats) {
  for (uint32_t i = 0; i < seats.num_running; ++i)
    if (seats[seats.running[i]].num_blocks != 0) return true;
  return false;
}

template <class Env>
SAC_HD_INLINE void choose(PolicyDesk& desk, const Admission& a, Env& env) {
  if (is_quiet(desk, a.waiting, a.seats, a.kv)) return pass_policy(desk, a.kv, a.seats, a.course);
  if (!feed_starved(a.kv, a.seats)) return;
  const PolicyOutput out = ask_policy(desk, a);
  for (uint32_t i = 0; i < out.num_preempt; ++i) {
    const uint32_t seat_index = a.slots[out.preempt[i]].seat;
    if (seat_index != kNone && is_resident(a.kv, a.seats[seat_index]))
      preempt(a.preemption(), seat_index);
  }
  for (uint32_t i = 0; i < out.num_bring_in; ++i)
    if (!bring_in(a, env, out.bring_in[i])) break;
  if (!any_on_device(a.seats)) admit_by_age(a, env);
}

}  // namespace saccade
