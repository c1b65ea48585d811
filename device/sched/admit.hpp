// admit: waiting requests take seats, oldest first, when the blocks of their whole prompt and of
// the first token are free. First come, first served without overtaking: the head waits for room
// rather than being starved by smaller ones behind it, and none is admitted while an older,
// preempted request still waits for blocks.
#pragma once
#include "grammar/forced.hpp"
#include "sched/drain.hpp"
#include "sched/prefix.hpp"
#include "sched/shares.hpp"

namespace saccade {

/// What admission touches: all that a request passes on its way onto the device.
struct Admission {
  uint32_t vocab_size;
  Inbox& inbox;
  Slots& slots;
  WaitingLine& waiting;
  Seats& seats;
  KvTiers& kv;
  FetchDesk& fetch;
  const Course& course;
  Shares& shares;
  Report& report;

  SAC_HD Preemption preemption() const { return {kv, seats, course, report}; }
};

/// Copies a request's arena extent into the seat's tables. False if a token id is out of range, or
/// its grammar is none.
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
  from += 2 * size_t{d.num_logit_bias} + d.num_stop_ids;
  uint32_t* automaton = a.seats.automaton(seat_index);
  fetches[3] = {automaton, from, d.grammar_words, 0};
  env.fetch(fetches, d.grammar_words == 0 ? 3 : 4);
  if (d.grammar_words != 0 && !env.is_grammar(automaton, d.grammar_words)) return false;
  bool ok = fetches[0].most < a.vocab_size && fetches[1].most < a.vocab_size;
  for (uint32_t i = 0; i < d.num_logit_bias; ++i)
    ok &= bias[i].token < a.vocab_size && within(bias[i].bias, -1e4f, 1e4f);
  return ok;
}

SAC_HD inline SeatParams seat_params(const Request& r) {
  const sac_descriptor& d = r.descriptor;
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
  p.grammar_words = d.grammar_words;
  p.request = static_cast<uint32_t>(r.arrival);
  p.adapter = d.adapter;
  return p;
}

/// Words of one record of a request.
SAC_HD inline uint32_t record_words(const Seats& seats, const sac_descriptor& d) {
  return embeds(d.flags) ? sac_embedding_words(seats.embedding_size)
                         : sac_record_stride(d.flags, d.num_top_logprobs);
}

/// Words of its grammar that are forced tokens, if it may have any: one that asks for logprobs
/// wants those of draws, and one that biases logits may prefer other tokens of the same text. Their
/// records have one word.
SAC_HD inline uint32_t forced_words_of(const Seats& seats, uint32_t seat_index,
                                       const sac_descriptor& d) {
  const Seat& seat = seats[seat_index];
  const bool draws_all =
      (d.flags & SAC_REQ_LOGPROBS) != 0 || seat.stride != 1 || d.num_logit_bias != 0;
  if (d.grammar_words == 0 || draws_all || seat.capacity < 2 * SAC_MAX_FORCED_TOKENS) return 0;
  return forced_words(seats.automaton(seat_index), d.grammar_words);
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
  seat.stride = record_words(a.seats, d);
  seat.capacity = a.inbox.ring.out_ring_words / seat.stride;
  seat.cache_salt = a.inbox.salt_of(d);
  seat.owner = a.inbox.owner_of(d);
  seat.asked = {d.flags,
                d.prompt_len,
                d.max_tokens,
                d.min_tokens,
                d.num_stop_ids,
                d.grammar_words,
                forced_words_of(a.seats, seat_index, d)};
  if (d.grammar_words != 0) a.seats.places[seat_index] = GrammarPlace{};
  a.seats.params[seat_index] = seat_params(r);
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
  forget_lookup(a.fetch, a.slots[slot]);
  --a.report.stats.requests_accepted;
  ++a.report.stats.requests_rejected;
  publish_end(a.slots, a.report, slot, SAC_FINISH_INVALID);
}

/// A request that found too few places is looked up again when there are as many as it lacked, and
/// in one tick of this many.
inline constexpr uint64_t kLookAgainTicks = 64;

/// Blocks that hold the beginning of a seat's tokens: what it has in host memory, or what is found.
SAC_HD inline uint32_t ready_blocks(const Preemption& p, uint32_t seat_index) {
  const uint32_t kept = p.seats[seat_index].num_host;
  return kept != 0 ? kept : match(p.kv, p.seats, seat_index);
}

/// The places that a seat lacks, and what it need not compute.
struct Places {
  uint32_t needed;
  uint32_t ready;  // blocks, the first of its table
};

/// Places for `tokens` of a seat. Where they are too few, requests with slow readers give theirs
/// up. False if there are not enough.
SAC_HD_INLINE bool find_places(const Preemption& p, uint32_t seat_index, uint32_t tokens,
                               Places& places) {
  for (;;) {
    // Blocks that were found are not in use yet: a preemption may evict them.
    places.ready = ready_blocks(p, seat_index);
    places.needed = places_for(p.kv.store, p.kv.table(seat_index), places.ready) +
                    p.kv.blocks_for(tokens) - places.ready;
    if (places.needed <= p.kv.device().num_free()) return true;
    if (places.needed <= p.kv.device().num_coming() || !preempt_stalled(p)) return false;
  }
}

/// A seat whose first `ready` blocks hold what they shall gets all that it needs for `tokens`.
/// False: then it holds none.
SAC_HD inline bool take_blocks(const Preemption& p, uint32_t seat_index, uint32_t ready,
                               uint32_t tokens) {
  if (bring_up(p.kv, p.seats, p.report, seat_index, ready) &&
      reserve_blocks(p.kv, p.seats, seat_index, tokens))
    return true;
  release_blocks(p.kv, p.seats, seat_index);
  return false;
}

/// The first `ready` blocks of a seat came from the cache.
SAC_HD inline void skip_cached(const Preemption& p, uint32_t seat_index, uint32_t ready) {
  Seat& seat = p.seats[seat_index];
  seat.num_computed = ready * p.kv.block_size;
  seat.was_computed = max_u32(seat.was_computed, seat.num_computed);
  if (!shares_blocks(p.kv, seat)) return;
  catch_up(p.kv, p.seats, p.course, p.report, seat_index);
}

/// Makes room for the places that a request would have taken when it was looked at last. False: it
/// is not there; then the request is looked at again at times, since it may share more by then.
SAC_HD inline bool may_fit(const Preemption& p, uint32_t places) {
  if (p.kv.shares != 0 && p.course.tick % kLookAgainTicks == 0) return true;
  while (places > p.kv.device().num_free())
    if (places <= p.kv.device().num_coming() || !preempt_stalled(p)) return false;
  return true;
}

/// Tries to seat a waiting request. False: there is no room for it in this tick.
template <class Env>
SAC_HD_INLINE bool admit_slot(const Admission& a, Env& env, uint32_t slot) {
  Request& r = a.slots[slot];
  if (a.seats.num_free == 0 || !may_fit(a.preemption(), r.places)) return false;
  const uint32_t seat_index = a.seats.free[a.seats.num_free - 1];
  if (!copy_inputs(a, env, seat_index, r.descriptor)) {
    refuse(a, slot);
    return true;
  }
  seat_request(a, slot, seat_index);
  Seat& seat = a.seats[seat_index];
  const uint32_t tokens = tokens_to_hold(seat.asked.flags, seat.num_tokens);
  Places places = {};
  const bool fits = find_places(a.preemption(), seat_index, tokens, places);
  r.num_cached = max_u32(places.ready * a.kv.block_size, found_tokens(a.fetch, r));
  r.places = places.needed;
  if (!fits || !take_blocks(a.preemption(), seat_index, places.ready, tokens)) {
    unseat_request(a, slot, seat_index);
    a.waiting.candidates[r.candidate] = describe(a.waiting, r);  // what it takes is known better
    return false;
  }
  seat.num_cached = places.ready * a.kv.block_size;
  if (shares_blocks(a.kv, seat)) a.report.stats.prefix_query_tokens += seat.num_tokens;
  a.report.stats.prefix_hit_tokens += seat.num_cached;
  skip_cached(a.preemption(), seat_index, places.ready);
  begin_sharing(a.kv, a.seats, seat_index);
  const bool loads = begin_load(a.fetch, a.seats, a.kv, a.course, a.report, r, seat_index);
  waiting_remove(a.waiting, a.slots, slot);
  --a.seats.num_free;
  a.seats.add_running(seat_index);
  a.report.ring.write_progress(slot, loads ? 0 : seat.num_computed, seat.num_cached);
  a.report.post_status(slot, sac_status_word(seat.ticket, seat.state, SAC_FINISH_NONE, 0));
  a.report.note(Decision::kAdmit, slot, seat.num_blocks);
  if (seat.num_cached != 0) a.report.note(Decision::kCached, slot, seat.num_cached);
  return true;
}

/// Gives a preempted request blocks again, and asks for the KV that host memory has of it. False if
/// the places are not there, or copies still read the ones that it gave up.
SAC_HD_INLINE bool resume_seat(const Preemption& p, uint32_t seat_index) {
  Seat& seat = p.seats[seat_index];
  if (is_rotating_out(p.kv, seat) || !may_fit(p, seat.places)) return false;
  const uint32_t tokens = tokens_to_hold(seat.asked.flags, seat.num_tokens);
  const bool kept = seat.num_host != 0;
  const uint64_t copies = p.kv.store.copies.up.asked;
  Places places = {};
  const bool fits = find_places(p, seat_index, tokens, places);
  seat.places = places.needed;
  if (!fits || !take_blocks(p, seat_index, places.ready, tokens)) return false;
  if (kept) {
    leave_host(p.kv, p.seats, seat_index);
  } else {
    skip_cached(p, seat_index, places.ready);
  }
  begin_sharing(p.kv, p.seats, seat_index);
  seat.state = SAC_STATE_PREFILL_PROCESSING;
  seat.entered_produced = seat.num_produced;
  seat.moved_ns = p.course.tick_ns;
  const auto fetched = static_cast<uint32_t>(p.kv.store.copies.up.asked - copies);
  if (fetched != 0) p.report.note(Decision::kRotateIn, seat.slot, fetched);
  if (fetched == 0 || !is_decode(seat))
    p.report.note(Decision::kResume, seat.slot, seat.num_tokens - seat.num_computed);
  return true;
}

/// Gives preempted requests their blocks back, oldest first. True if none is left that could run.
SAC_HD inline bool resume(const Preemption& p) {
  for (uint32_t i = 0; i < p.seats.num_running; ++i) {
    const uint32_t seat_index = p.seats.running[i];
    if (p.seats[seat_index].num_blocks != 0 || p.seats.is_behind(seat_index)) continue;
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
SAC_HD_INLINE void admit_by_age(const Admission& a, Env& env) {
  if (!resume(a.preemption())) return;
  while (a.waiting.count != 0 && admit_slot(a, env, a.waiting.head)) {
  }
}

template <class Env>
SAC_HD_INLINE void admit(const Admission& a, Env& env) {
  if (feed_starved(a.kv, a.seats)) admit_by_age(a, env);
}

}  // namespace saccade
