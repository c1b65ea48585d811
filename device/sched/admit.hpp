// admit: waiting requests take seats, oldest first, when the blocks of their whole prompt and of
// the first token are free. First come, first served without overtaking: the head waits for room
// rather than being starved by smaller ones behind it, and nobody is admitted while an older,
// preempted request still waits for blocks.
#pragma once
#include "sched/drain.hpp"
#include "sched/preempt.hpp"

namespace saccade {

/// Copies a request's arena extent into the seat's tables. False if a token id is out of range.
template <class Env>
SAC_HD bool copy_inputs(Scheduler& s, Env& env, uint32_t seat_index, const sac_descriptor& d) {
  const uint32_t vocab = s.limits.vocab_size;
  const uint32_t* from = s.ring.arena_words(d.arena_extent);
  uint32_t* tokens = s.tokens(seat_index);
  LogitBias* bias = s.logit_bias + static_cast<size_t>(seat_index) * SAC_MAX_LOGIT_BIAS;
  uint32_t* stops = s.stop_ids + static_cast<size_t>(seat_index) * SAC_MAX_STOP_IDS;
  s.fetches[0] = {tokens, from, d.prompt_len, 0};
  from += d.prompt_len;
  s.fetches[1] = {stops, from + 2 * size_t{d.num_logit_bias}, d.num_stop_ids, 0};
  s.fetches[2] = {reinterpret_cast<uint32_t*>(bias), from, 2 * d.num_logit_bias, 0};
  env.fetch(s.fetches, 3);
  bool ok = s.fetches[0].most < vocab && s.fetches[1].most < vocab;
  for (uint32_t i = 0; i < d.num_logit_bias; ++i)
    ok &= bias[i].token < vocab && within(bias[i].bias, -1e4f, 1e4f);
  return ok;
}

SAC_HD inline SeatParams seat_params(const sac_descriptor& d) {
  SeatParams p = {};
  p.seed = d.seed;
  p.temperature = d.temperature;
  p.top_p = d.top_p;
  p.min_p = d.min_p;
  p.top_k = d.top_k;
  p.repetition_penalty = d.repetition_penalty;
  p.presence_penalty = d.presence_penalty;
  p.frequency_penalty = d.frequency_penalty;
  p.flags = d.flags;
  p.prompt_len = d.prompt_len;
  p.max_tokens = d.max_tokens;
  p.min_tokens = d.min_tokens;
  p.num_top_logprobs = d.num_top_logprobs;
  p.num_logit_bias = d.num_logit_bias;
  p.num_stop_ids = d.num_stop_ids;
  return p;
}

SAC_HD inline void seat_request(Scheduler& s, uint32_t slot, uint32_t seat_index) {
  Request& r = s.requests[slot];
  const sac_descriptor& d = r.descriptor;
  Seat& seat = s.seats[seat_index];
  seat = Seat{};
  seat.arrival = r.arrival;
  seat.moved_ns = s.tick_ns;
  seat.slot = slot;
  seat.ticket = r.ticket;
  seat.state = SAC_STATE_PREFILL_PROCESSING;
  seat.num_tokens = d.prompt_len;
  seat.stride = sac_record_stride(d.flags, d.num_top_logprobs);
  seat.capacity = s.ring.out_ring_words / seat.stride;
  seat.asked = {d.flags, d.prompt_len, d.max_tokens, d.min_tokens, d.num_stop_ids};
  s.params[seat_index] = seat_params(d);
  s.wishes[seat_index] = wishes_of(s, r);
  follow_cursor(s.peers, seat_index, slot);
  r.seat = seat_index;
  r.state = seat.state;
}

/// Puts a seat into the list of the seated, which is in order of arrival.
SAC_HD inline void add_running(Scheduler& s, uint32_t seat_index) {
  uint32_t at = s.num_running++;
  for (; at > 0 && s.seats[s.running[at - 1]].arrival > s.seats[seat_index].arrival; --at)
    s.running[at] = s.running[at - 1];
  s.running[at] = seat_index;
}

/// Tries to seat a waiting request. False: there is no room for it in this tick.
template <class Env>
SAC_HD bool admit_slot(Scheduler& s, Env& env, uint32_t slot) {
  const sac_descriptor& d = s.requests[slot].descriptor;
  if (s.num_free_seats == 0) return false;
  const uint32_t seat_index = s.free_seats[s.num_free_seats - 1];
  const uint32_t needed = s.limits.blocks_for(d.prompt_len + 1);
  while (needed > s.pool.num_free)
    if (needed <= s.pool.num_coming() || !preempt_stalled(s)) return false;
  if (!copy_inputs(s, env, seat_index, d)) {
    waiting_remove(s, slot);
    --s.stats.requests_accepted;
    ++s.stats.requests_rejected;
    publish_end(s, slot, SAC_FINISH_INVALID, 0);
    return true;
  }
  seat_request(s, slot, seat_index);
  if (!reserve_blocks(s, seat_index, d.prompt_len + 1)) {  // free, but a step still touches them
    release_blocks(s, seat_index);
    forget_cursor(s.peers, seat_index);
    s.requests[slot].seat = kNone;
    s.requests[slot].state = SAC_STATE_PREFILL_PENDING;
    return false;
  }
  waiting_remove(s, slot);
  --s.num_free_seats;
  add_running(s, seat_index);
  post_status(s, slot,
              sac_status_word(s.seats[seat_index].ticket, SAC_STATE_PREFILL_PROCESSING,
                              SAC_FINISH_NONE, 0));
  s.log.add(s.tick, Decision::kAdmit, slot, s.seats[seat_index].num_blocks);
  return true;
}

/// Gives a preempted request blocks again, and asks for the KV that host memory has of it. False if
/// the blocks are not there, or copies still read the ones that it gave up.
SAC_HD inline bool resume_seat(Scheduler& s, uint32_t seat_index) {
  Seat& seat = s.seats[seat_index];
  if (is_rotating_out(s, seat)) return false;
  const uint32_t needed = s.limits.blocks_for(seat.num_tokens + 1);
  while (!reserve_blocks(s, seat_index, seat.num_tokens + 1)) {
    if ((needed > s.pool.num_coming()) && preempt_stalled(s)) continue;
    release_blocks(s, seat_index);
    return false;
  }
  seat.state = SAC_STATE_PREFILL_PROCESSING;
  seat.entered_produced = seat.num_produced;
  seat.moved_ns = s.tick_ns;
  const uint32_t fetched = fetch_up(s, seat_index);
  if (fetched != 0) s.log.add(s.tick, Decision::kRotateIn, seat.slot, fetched);
  if (fetched == 0 || !is_decode(seat))
    s.log.add(s.tick, Decision::kResume, seat.slot, seat.num_tokens - seat.num_computed);
  return true;
}

/// Gives preempted requests their blocks back, oldest first. True if none is left that could run.
SAC_HD inline bool resume(Scheduler& s) {
  for (uint32_t i = 0; i < s.num_running; ++i) {
    const Seat& seat = s.seats[s.running[i]];
    if (seat.num_blocks != 0 || reader_room(s, seat) == 0) continue;
    if (!resume_seat(s, s.running[i])) return false;
  }
  return true;
}

/// Requests that waited for blocks in transit get them before anyone else, oldest first: those who
/// gave them up must not take them back. False while one still waits.
SAC_HD inline bool feed_starved(Scheduler& s) {
  for (uint32_t i = 0; i < s.num_running; ++i) {
    Seat& seat = s.seats[s.running[i]];
    if (seat.starved == 0) continue;
    if (!reserve_blocks(s, s.running[i], seat.num_tokens)) return false;
    seat.starved = 0;
  }
  return true;
}

/// Whoever has no blocks comes in by age.
template <class Env>
SAC_HD void admit_by_age(Scheduler& s, Env& env) {
  if (!resume(s)) return;
  while (s.num_waiting != 0 && admit_slot(s, env, s.waiting_head)) {
  }
}

template <class Env>
SAC_HD void admit(Scheduler& s, Env& env) {
  if (feed_starved(s)) admit_by_age(s, env);
}

}  // namespace saccade
