// admit: waiting requests take seats, oldest first, when the blocks of their whole prompt and of
// the first token are free. First come, first served without overtaking: the head waits for room
// rather than being starved by smaller ones behind it, and none is admitted while an older,
// preempted request still waits for blocks.
#pragma once
#include "sched/drain.hpp"
#include "sched/preempt.hpp"

namespace saccade {

/// What admission touches: all that a request passes on its way onto the device.
struct Admission {
  uint32_t vocab_size;
  Inbox& inbox;
  Slots& slots;
  WaitingLine& waiting;
  Seats& seats;
  KvTiers& kv;
  const Course& course;
  Report& report;

  SAC_HD Preemption preemption() const { return {kv, seats, course, report}; }
};

/// Copies a request's arena extent into the seat's tables. False if a token id is out of range.
template <class Env>
SAC_HD bool copy_inputs(const Admission& a, Env& env, uint32_t seat_index,
                        const sac_descriptor& d) {
  const uint32_t* from = a.inbox.ring.arena_words(d.arena_extent);
  LogitBias* bias = a.seats.bias(seat_index);
  Fetch* fetches = a.inbox.fetches;
  fetches[0] = {a.seats.tokens(seat_index), from, d.prompt_len, 0};
  from += d.prompt_len;
  fetches[1] = {a.seats.stops(seat_index), from + 2 * size_t{d.num_logit_bias}, d.num_stop_ids, 0};
  fetches[2] = {reinterpret_cast<uint32_t*>(bias), from, 2 * d.num_logit_bias, 0};
  env.fetch(fetches, 3);
  bool ok = fetches[0].most < a.vocab_size && fetches[1].most < a.vocab_size;
  for (uint32_t i = 0; i < d.num_logit_bias; ++i)
    ok &= bias[i].token < a.vocab_size && within(bias[i].bias, -1e4f, 1e4f);
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

SAC_HD inline void seat_request(const Admission& a, uint32_t slot, uint32_t seat_index) {
  Request& r = a.slots[slot];
  const sac_descriptor& d = r.descriptor;
  Seat& seat = a.seats[seat_index];
  seat = Seat{};
  seat.arrival = r.arrival;
  seat.moved_ns = a.course.tick_ns;
  seat.slot = slot;
  seat.ticket = r.ticket;
  seat.state = SAC_STATE_PREFILL_PROCESSING;
  seat.num_tokens = d.prompt_len;
  seat.stride = sac_record_stride(d.flags, d.num_top_logprobs);
  seat.capacity = a.inbox.ring.out_ring_words / seat.stride;
  seat.asked = {d.flags, d.prompt_len, d.max_tokens, d.min_tokens, d.num_stop_ids};
  a.seats.params[seat_index] = seat_params(d);
  a.seats.wishes[seat_index] = wishes_of(a.waiting, r);
  follow_cursor(a.seats.cursors, seat_index, slot);
  r.seat = seat_index;
  r.state = seat.state;
}

/// Takes a request off the seat on which it found no blocks.
SAC_HD inline void unseat_request(const Admission& a, uint32_t slot, uint32_t seat_index) {
  release_blocks(a.kv, a.seats, seat_index);
  forget_cursor(a.seats.cursors, seat_index);
  a.slots[slot].seat = kNone;
  a.slots[slot].state = SAC_STATE_PREFILL_PENDING;
}

SAC_HD inline void refuse(const Admission& a, uint32_t slot) {
  waiting_remove(a.waiting, a.slots, slot);
  --a.report.stats.requests_accepted;
  ++a.report.stats.requests_rejected;
  publish_end(a.slots, a.report, slot, SAC_FINISH_INVALID);
}

/// Tries to seat a waiting request. False: there is no room for it in this tick.
template <class Env>
SAC_HD bool admit_slot(const Admission& a, Env& env, uint32_t slot) {
  const sac_descriptor& d = a.slots[slot].descriptor;
  if (a.seats.num_free == 0) return false;
  const uint32_t seat_index = a.seats.free[a.seats.num_free - 1];
  const uint32_t needed = a.kv.blocks_for(d.prompt_len + 1);
  while (needed > a.kv.pool.num_free)
    if (needed <= a.kv.pool.num_coming() || !preempt_stalled(a.preemption())) return false;
  if (!copy_inputs(a, env, seat_index, d)) {
    refuse(a, slot);
    return true;
  }
  seat_request(a, slot, seat_index);
  if (!reserve_blocks(a.kv, a.seats, seat_index, d.prompt_len + 1)) {
    unseat_request(a, slot, seat_index);  // blocks are free, but a step still touches them
    return false;
  }
  waiting_remove(a.waiting, a.slots, slot);
  --a.seats.num_free;
  a.seats.add_running(seat_index);
  const Seat& seat = a.seats[seat_index];
  a.report.post_status(slot, sac_status_word(seat.ticket, seat.state, SAC_FINISH_NONE, 0));
  a.report.note(Decision::kAdmit, slot, seat.num_blocks);
  return true;
}

/// Gives a preempted request blocks again, and asks for the KV that host memory has of it. False if
/// the blocks are not there, or copies still read the ones that it gave up.
SAC_HD inline bool resume_seat(const Preemption& p, uint32_t seat_index) {
  Seat& seat = p.seats[seat_index];
  if (is_rotating_out(p.kv, seat)) return false;
  const uint32_t needed = p.kv.blocks_for(seat.num_tokens + 1);
  while (!reserve_blocks(p.kv, p.seats, seat_index, seat.num_tokens + 1)) {
    if ((needed > p.kv.pool.num_coming()) && preempt_stalled(p)) continue;
    release_blocks(p.kv, p.seats, seat_index);
    return false;
  }
  seat.state = SAC_STATE_PREFILL_PROCESSING;
  seat.entered_produced = seat.num_produced;
  seat.moved_ns = p.course.tick_ns;
  const uint32_t fetched = fetch_up(p.kv, p.seats, p.report, seat_index);
  if (fetched != 0) p.report.note(Decision::kRotateIn, seat.slot, fetched);
  if (fetched == 0 || !is_decode(seat))
    p.report.note(Decision::kResume, seat.slot, seat.num_tokens - seat.num_computed);
  return true;
}

/// Gives preempted requests their blocks back, oldest first. True if none is left that could run.
SAC_HD inline bool resume(const Preemption& p) {
  for (uint32_t i = 0; i < p.seats.num_running; ++i) {
    const uint32_t seat_index = p.seats.running[i];
    if (p.seats[seat_index].num_blocks != 0 || p.seats.reader_room(seat_index) == 0) continue;
    if (!resume_seat(p, seat_index)) return false;
  }
  return true;
}

/// Requests that waited for blocks in transit get them before all others, oldest first: the ones
/// that gave them up must not take them back. False while one still waits.
SAC_HD inline bool feed_starved(KvTiers& kv, Seats& seats) {
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    Seat& seat = seats[seats.running[i]];
    if (seat.starved == 0) continue;
    if (!reserve_blocks(kv, seats, seats.running[i], seat.num_tokens)) return false;
    seat.starved = 0;
  }
  return true;
}

/// Requests without blocks come in by age.
template <class Env>
SAC_HD void admit_by_age(const Admission& a, Env& env) {
  if (!resume(a.preemption())) return;
  while (a.waiting.count != 0 && admit_slot(a, env, a.waiting.head)) {
  }
}

template <class Env>
SAC_HD void admit(const Admission& a, Env& env) {
  if (feed_starved(a.kv, a.seats)) admit_by_age(a, env);
}

}  // namespace saccade
