// choose: who comes onto the device and who leaves it, where an operator chose another policy than
// first come, first served. The policy sees plain data and answers with two lists
// (policy/policy.hpp); this is what it is shown, and how far its answer is carried out.
//
// Whatever the policy says: requests that wait for blocks in transit get them first; whoever came
// in yields a token before it can be sent out by choice; and while nobody is on the device, the
// oldest comes in.
#pragma once
#include "sched/admit.hpp"
#include "sched/batch.hpp"
#include "sched/policy/decide.hpp"

namespace saccade {

/// A seated request as a policy sees it. Called for everyone at every tick: touches nothing but the
/// seat and its wishes.
SAC_HD inline void describe_seated(const Scheduler& s, uint32_t seat_index, Candidate& c) {
  const Seat& seat = s.seats[seat_index];
  const Wishes& wishes = s.wishes[seat_index];
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
  c.fixed = runs && (is_rotating_in(s, seat) || seat.num_produced == seat.entered_produced) ? 1 : 0;
  c.priority = wishes.priority;
  c.blocks = runs ? seat.num_blocks : s.limits.blocks_for(seat.num_tokens + 1);
  c.blocks_to_send = runs ? s.limits.blocks_for(seat.num_computed) - seat.num_host : 0;
  c.produced = seat.num_produced;
  c.prompt_tokens_left = decodes ? 0 : seat.num_tokens - seat.num_computed;
  c.rows = decodes ? 1 : rows_possible(s, seat_index, c.prompt_tokens_left);
}

/// Adds the seated to the candidates, behind those who wait. Returns the blocks that running
/// requests need for their next tokens.
SAC_HD inline uint32_t gather_seated(Scheduler& s) {
  s.num_candidates = s.num_waiting;
  uint32_t growth = 0;
  for (uint32_t i = 0; i < s.num_running; ++i) {
    const Seat& seat = s.seats[s.running[i]];
    if (reader_room(s, seat) == 0 || is_rotating_out(s, seat)) continue;
    s.candidate_slots[s.num_candidates] = seat.slot;
    describe_seated(s, s.running[i], s.candidates[s.num_candidates++]);
    const uint32_t needed = s.limits.blocks_for(seat.num_tokens);
    if (seat.num_blocks != 0 && needed > seat.num_blocks) growth += needed - seat.num_blocks;
  }
  return growth;
}

/// A list of candidates becomes one of slots, which stay what they are while requests are seated.
SAC_HD inline void name_slots(const Scheduler& s, uint32_t* list, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) list[i] = s.candidate_slots[list[i]];
}

/// What a policy sees beside the candidates.
SAC_HD inline PolicyInput describe_device(const Scheduler& s) {
  PolicyInput in = {};
  in.now_ns = s.tick_ns;
  in.step_ns = s.mean_step_ns;
  in.step_rows = s.limits.max_num_batched_tokens;
  in.free_blocks = s.pool.num_coming();
  in.free_host_blocks = s.host_pool.num_free;
  in.free_seats = s.num_free_seats;
  in.candidates = s.candidates;
  in.settings = s.limits.policy_settings;
  return in;
}

/// Every seated request runs and has room to grow, and none waits: any policy's answer would be
/// empty. The common tick, which must not cost what a decision costs.
SAC_HD inline bool is_quiet(const Scheduler& s) {
  if (s.num_waiting != 0 || !s.copies.idle()) return false;
  uint64_t entered_ns = 0;
  uint32_t growth = 0;
  for (uint32_t i = 0; i < s.num_running; ++i) {
    const Seat& seat = s.seats[s.running[i]];
    if (seat.num_blocks == 0 || seat.starved != 0 || reader_room(s, seat) == 0) return false;
    if (seat.moved_ns > entered_ns) entered_ns = seat.moved_ns;
    const uint32_t needed = s.limits.blocks_for(seat.num_tokens);
    if (needed > seat.num_blocks) growth += needed - seat.num_blocks;
  }
  return growth <= s.pool.num_coming() && may_pass(s.limits.policy, s.policy_state, entered_ns);
}

/// The policy's two lists, by slots.
SAC_HD inline PolicyOutput ask_policy(Scheduler& s) {
  const uint32_t growth_blocks = gather_seated(s);
  PolicyInput in = describe_device(s);
  in.growth_blocks = growth_blocks;
  in.num_candidates = s.num_candidates;
  PolicyOutput out = {s.bring_in, s.preempt, s.policy_scratch, s.policy_keys, 0, 0};
  decide(s.limits.policy, in, s.policy_state, out);
  name_slots(s, out.bring_in, out.num_bring_in);
  name_slots(s, out.preempt, out.num_preempt);
  return out;
}

/// Brings a candidate in. False: there is no room for it now, and what comes behind it waits too.
template <class Env>
SAC_HD bool bring_in(Scheduler& s, Env& env, uint32_t slot) {
  const Request& r = s.requests[slot];
  if (r.seat != kNone) return s.seats[r.seat].num_blocks != 0 || resume_seat(s, r.seat);
  if (r.state != SAC_STATE_PREFILL_PENDING) return true;
  return s.num_free_seats == 0 ||
         admit_slot(s, env, slot);  // without a seat it does not hold the rest
}

SAC_HD inline bool anyone_on_device(const Scheduler& s) {
  for (uint32_t i = 0; i < s.num_running; ++i)
    if (s.seats[s.running[i]].num_blocks != 0) return true;
  return false;
}

template <class Env>
SAC_HD void choose(Scheduler& s, Env& env) {
  if (is_quiet(s)) return pass(s.limits.policy, describe_device(s), s.pool.used(), s.policy_state);
  if (!feed_starved(s)) return;
  const PolicyOutput out = ask_policy(s);
  for (uint32_t i = 0; i < out.num_preempt; ++i) {
    const uint32_t seat_index = s.requests[out.preempt[i]].seat;
    if (seat_index != kNone && is_resident(s, s.seats[seat_index])) preempt(s, seat_index);
  }
  for (uint32_t i = 0; i < out.num_bring_in; ++i)
    if (!bring_in(s, env, out.bring_in[i])) break;
  if (!anyone_on_device(s)) admit_by_age(s, env);
}

}  // namespace saccade
