// park: a request whose reader is behind gives its seat up when others wait for one. It comes back
// when its reader has made room for a share of its output ring, in the order of waiting requests:
// it counts as having arrived then. So requests with slow readers, however many, cost another what
// as many requests of that share's length would.
//
// So do requests of a tenant that is over its share, beyond its share of the seats, when others'
// requests wait: they come back when a seat is to spare for them, or their tenant is within its
// share again.
//
// A parked request holds no KV. What it computed stays findable by prefix caching for as long as
// its room is not needed; the rest is computed again.
#pragma once
#include "sched/admit.hpp"
#include "sched/seatwise.hpp"

namespace saccade {

/// Requests that give up their seats, or take one again, in a tick: each is a copy of its tokens.
inline constexpr uint32_t kParksPerTick = 8;
/// Spans that are copied at once.
inline constexpr uint32_t kSpansAtOnce = kFewFetches;

/// What parking touches.
struct Sharing {
  Parking& parking;
  Admission at;
  uint64_t max_wait_ns;  // a request that waited for its return for longer goes first
};

/// The words that only a seat has of its request.
struct SeatWords {
  static constexpr uint32_t kKinds = 4;  // tokens, biases, stop ids, grammar: each begins a page
  uint32_t* at[kKinds];
  uint32_t count[kKinds];

  SAC_HD uint32_t pages() const {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < kKinds; ++k) sum += ceil_div(count[k], kPageWords);
    return sum;
  }
};
SAC_HD inline SeatWords words_of(const Seats& seats, uint32_t seat_index) {
  const SeatParams& p = seats.params[seat_index];
  auto* bias = reinterpret_cast<uint32_t*>(seats.bias(seat_index));
  return {{seats.tokens(seat_index), bias, seats.stops(seat_index), seats.automaton(seat_index)},
          {seats[seat_index].num_tokens, 2 * p.num_logit_bias, p.num_stop_ids, p.grammar_words}};
}

/// Copies a seat's words to a chain of pages, or from it.
template <class Env>
SAC_HD void move_words(const Sharing& s, Env& env, const SeatWords& words, uint32_t page,
                       bool to_seat) {
  Fetch* spans = s.at.inbox.fetches;
  uint32_t num_spans = 0;
  for (uint32_t k = 0; k < SeatWords::kKinds; ++k) {
    for (uint32_t done = 0; done < words.count[k]; done += kPageWords) {
      uint32_t* own = words.at[k] + done;
      uint32_t* kept = s.parking.page(page);
      const uint32_t count = min_u32(kPageWords, words.count[k] - done);
      spans[num_spans++] = to_seat ? Fetch{own, kept, count, 0} : Fetch{kept, own, count, 0};
      page = s.parking.next_page[page];
      if (num_spans < kSpansAtOnce) continue;
      env.fetch(spans, num_spans);
      num_spans = 0;
    }
  }
  if (num_spans != 0) env.fetch(spans, num_spans);
}

/// Gives up the KV of a seat on both tiers.
SAC_HD inline void give_up_kv(const Preemption& p, uint32_t seat_index) {
  Seat& seat = p.seats[seat_index];
  const uint32_t freed = seat.num_blocks;
  if (freed != 0) {
    if (shares_blocks(p.kv, seat)) file_filled(p.kv, p.seats, seat_index);
    release_blocks(p.kv, p.seats, seat_index);
    seat.num_host = 0;
    ++p.report.stats.preemptions;
  } else {
    release_host_blocks(p.kv, p.seats, seat_index, true);
  }
  seat.num_computed = seat.starved = seat.places = seat.follows = 0;
  p.report.note(Decision::kPark, seat.slot, freed);
  p.report.ring.write_progress(seat.slot, 0, seat.num_cached);
}

/// Nothing is under way for it.
SAC_HD inline bool may_park(const Seats& seats, const KvTiers& kv, uint32_t seat_index) {
  const Seat& seat = seats[seat_index];
  return !has_ended(seat) && !is_rotating_in(kv, seat) && !is_rotating_out(kv, seat) &&
         seat.fetch == 0;
}

/// Takes the seat of the request at place `i` of the running list. False: no pages are left for it.
template <class Env>
SAC_HD bool park(const Sharing& s, Env& env, uint32_t i) {
  const Admission& a = s.at;
  const uint32_t seat_index = a.seats.running[i];
  Seat& seat = a.seats[seat_index];
  const SeatWords words = words_of(a.seats, seat_index);
  if (words.pages() > s.parking.num_free_pages) return false;
  const bool behind = a.seats.is_behind(seat_index);
  give_up_kv(a.preemption(), seat_index);
  if (behind) {
    stall(seat, a.report);
  } else {
    pause(seat, a.report);
  }
  end_hold(a.seats, seat);
  seat.moved_ns = a.course.tick_ns;
  ParkedRequest& kept = s.parking.requests[seat.slot];
  const bool obeys = seat.asked.grammar_words != 0;
  kept = {seat, a.seats.wishes[seat_index], obeys ? a.seats.places[seat_index] : GrammarPlace{},
          take_pages(s.parking, words.pages()), a.seats.cursors.read[seat_index]};
  move_words(s, env, words, kept.first_page, false);
  s.parking.asleep[seat.slot / 32] |= 1u << seat.slot % 32;
  ++s.parking.num_parked;
  a.slots[seat.slot].seat = kNone;
  a.slots[seat.slot].state = SAC_STATE_DECODE_PAUSED;
  forget_cursor(a.seats.cursors, seat_index);
  a.seats.remove_running(i);
  a.seats.free[a.seats.num_free++] = seat_index;
  return true;
}

/// Parks up to `count` of the requests that `gives(seat_index)` names, youngest first.
template <class Env, class Gives>
SAC_HD void park_youngest(const Sharing& s, Env& env, uint32_t count, const Gives& gives) {
  const Seats& seats = s.at.seats;
  for (uint32_t i = seats.num_running; i > 0 && count > 0; --i) {
    const uint32_t seat_index = seats.running[i - 1];
    if (may_park(seats, s.at.kv, seat_index) && gives(seat_index) && park(s, env, i - 1)) --count;
  }
}

/// Parks up to `count` requests whose readers are behind.
template <class Env>
SAC_HD void park_behind(const Sharing& s, Env& env, uint32_t count) {
  park_youngest(s, env, count, [&](uint32_t i) { return s.at.seats.is_behind(i); });
}

/// Seats of tenants over their shares, for requests of others that wait.
template <class Env>
SAC_HD void yield_seats(const Sharing& s, Env& env) {
  const Admission& a = s.at;
  Shares& shares = a.shares;
  if (shares.over == 0) return;
  const uint32_t claims = min_u32(kParksPerTick, waiting_within(shares));
  if (a.seats.num_free >= claims) return;
  park_youngest(s, env, claims - a.seats.num_free, [&](uint32_t i) {
    const uint32_t tenant = a.seats.wishes[i].tenant;
    if (!shares.is_over(tenant) || shares.seated[tenant] <= shares.kept[tenant]) return false;
    --shares.seated[tenant];
    return true;
  });
}

/// A parked request comes to the end of the line, as if it arrived now.
SAC_HD inline void join_last(const Sharing& s, uint32_t slot) {
  Slots& slots = s.at.slots;
  s.parking.requests[slot].seat.arrival = slots[slot].arrival = slots.next_arrival++;
  join_line(s.parking, slots, slot);
}

/// The reader of a parked request has made room. What its targets are held against stood still
/// while it had not.
SAC_HD inline void wake(const Sharing& s, uint32_t slot) {
  ParkedRequest& kept = s.parking.requests[slot];
  const uint64_t now_ns = s.at.course.tick_ns;
  if (kept.seat.first_token_ns == 0) kept.wishes.arrival_ns += now_ns - kept.seat.moved_ns;
  pass_hold(kept.seat, now_ns);
  kept.seat.moved_ns = now_ns;
  join_last(s, slot);
}

/// Looks at the cursors of some slots; in turn at those of all that are parked.
template <class Env>
SAC_HD void look_at_readers(const Sharing& s, Env& env) {
  Parking& parking = s.parking;
  if (parking.num_parked == parking.num_returning) return;
  const RingView& ring = s.at.inbox.ring;
  const uint32_t first = next_asleep(parking, ring.num_slots, parking.next_look);
  const uint32_t count = min_u32(kParkingLooks, ring.num_slots - first);
  s.at.inbox.fetches[0] = {parking.cursors, ring.cursors + first, count, 0};
  env.fetch(s.at.inbox.fetches, 1);
  // SYNC: acquire, with the frontends' releases of cursors: records below a cursor have been read.
  fence_acquire();
  for_marked(parking.asleep + first / 32, count, [&](uint32_t i) {
    ParkedRequest& kept = parking.requests[first + i];
    kept.cursor = parking.cursors[i];
    if (has_made_room(kept.seat, kept.cursor)) wake(s, first + i);
  });
  parking.next_look = first + count == ring.num_slots ? 0 : first + count;
}

/// The first returning request comes before the first waiting one.
SAC_HD inline bool return_is_due(const Sharing& s) {
  if (s.parking.num_returning == 0) return false;
  const Seat& seat = s.parking.requests[s.parking.head].seat;
  return s.at.waiting.count == 0 || s.at.slots[s.at.waiting.head].arrival > seat.arrival ||
         s.at.course.tick_ns - seat.moved_ns > s.max_wait_ns;
}

/// The first returning request takes a free seat. It has no blocks there yet.
template <class Env>
SAC_HD void return_first(const Sharing& s, Env& env) {
  const Admission& a = s.at;
  const uint32_t slot = s.parking.head;
  const uint32_t seat_index = a.seats.free[--a.seats.num_free];
  const ParkedRequest& kept = s.parking.requests[slot];
  a.seats[seat_index] = kept.seat;
  a.seats.wishes[seat_index] = kept.wishes;
  a.seats.params[seat_index] = seat_params(a.slots[slot]);
  if (kept.seat.asked.grammar_words != 0) a.seats.places[seat_index] = kept.place;
  follow_cursor(a.seats.cursors, seat_index, slot);
  a.seats.cursors.read[seat_index] = kept.cursor;
  move_words(s, env, words_of(a.seats, seat_index), kept.first_page, true);
  leave_parking(s.parking, a.slots, slot);
  a.slots[slot].seat = seat_index;
  a.slots[slot].state = SAC_STATE_PREFILL_PROCESSING;
  a.seats.add_running(seat_index);
  a.report.note(Decision::kReturn, slot, kept.seat.num_tokens);
}

/// The first returning request may not have a seat now: it goes behind all others.
SAC_HD inline void pass_over_first(const Sharing& s) {
  const uint32_t slot = s.parking.head;
  leave_line(s.parking, s.at.slots, slot);
  join_last(s, slot);
}

/// Once a tick, before it is decided who comes in: seats go from requests whose readers are behind
/// to requests that wait for one.
template <class Env>
SAC_HD void share_seats(const Sharing& s, Env& env) {
  lift_holds(s.at.seats, s.at.course.tick_ns);
  look_at_readers(s, env);
  const uint32_t claims = min_u32(kParksPerTick, s.at.waiting.count + s.parking.num_returning);
  if (s.at.seats.num_free < claims) park_behind(s, env, claims - s.at.seats.num_free);
  yield_seats(s, env);
  for (uint32_t i = 0; i < kParksPerTick && s.at.seats.num_free != 0 && return_is_due(s); ++i) {
    const uint32_t tenant = s.at.slots[s.parking.head].descriptor.tenant;
    if (!may_sit(s.at.shares, tenant)) {
      pass_over_first(s);
      continue;
    }
    return_first(s, env);
    note_seat(s.at.shares, tenant);
  }
}

}  // namespace saccade
