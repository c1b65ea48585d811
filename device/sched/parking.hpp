// Parking: requests that gave up their seats because their readers are behind. What only a seat has
// of a request (tokens, biases, stop ids, grammar) is kept in pages. Fixed memory; verbs are in
// park.hpp.
#pragma once
#include "sched/seats.hpp"
#include "sched/slots.hpp"

namespace saccade {

/// Words of a page.
inline constexpr uint32_t kPageWords = 256;
/// Bytes of all pages, unless less holds a request of full length for each slot, or this does not
/// hold one for each seat.
inline constexpr uint64_t kParkingBytes = uint64_t{64} << 20;
/// Slots whose cursors are looked at in a tick: whole words of Parking::asleep.
inline constexpr uint32_t kParkingLooks = 256;
static_assert(kParkingLooks % 32 == 0);

/// A request without a seat. `seat` holds no blocks; its moved_ns is when it was parked, then when
/// its reader had made room.
struct ParkedRequest {
  Seat seat;
  Wishes wishes;
  GrammarPlace place;  // of its answer, if it has a grammar
  uint32_t first_page;
  uint32_t cursor;  // of its reader, as looked at last
};

struct Parking {
  uint32_t num_parked;     // all of them
  uint32_t num_returning;  // of these: their readers have made room, they wait for a seat
  uint32_t head;  // slot, or kNone: the line of these, in order of arrival, by Request::next
  uint32_t tail;
  uint32_t returning[SAC_MAX_TENANTS];  // num_returning by tenant
  uint32_t next_look;                   // slot
  uint32_t num_pages;
  uint32_t num_free_pages;
  uint32_t first_free_page;
  uint32_t* next_page;      // [num_pages]: of the same request, or the next free one; kNone: none
  uint32_t* words;          // [num_pages][kPageWords]
  uint32_t* asleep;         // [num_slots / 32]: bit by slot, parked and not returning
  uint32_t* cursors;        // [kParkingLooks]: scratch
  ParkedRequest* requests;  // [num_slots]: those of slots that are parked

  SAC_HD uint32_t* page(uint32_t index) const { return words + size_t{index} * kPageWords; }
};

/// It has no seat because its reader is behind, or was.
SAC_HD inline bool is_parked(const Request& r) {
  return r.seat == kNone && r.state == SAC_STATE_DECODE_PAUSED;
}

/// The first slot, from `from` on and around, of a word of `asleep` that names one. There is one.
SAC_HD inline uint32_t next_asleep(const Parking& p, uint32_t num_slots, uint32_t from) {
  uint32_t word = from / 32;
  while (p.asleep[word] == 0) word = word + 1 == num_slots / 32 ? 0 : word + 1;
  return 32 * word;
}

inline uint32_t parking_pages(const Limits& l) {
  const uint64_t of_one =
      ceil_div(l.max_model_len, kPageWords) + ceil_div(2 * SAC_MAX_LOGIT_BIAS, kPageWords) +
      ceil_div(SAC_MAX_STOP_IDS, kPageWords) + ceil_div(l.grammar_words, kPageWords);
  const uint64_t of_slots = l.num_slots * of_one, of_seats = l.num_seats * of_one;
  const uint64_t usual = kParkingBytes / (kPageWords * sizeof(uint32_t));
  const uint64_t pages = of_seats > usual ? of_seats : usual;
  return static_cast<uint32_t>(pages < of_slots ? pages : of_slots);
}

inline void lay_out(Parking& p, const Limits& l, Layout& at) {
  p.num_pages = parking_pages(l);
  p.next_page = at.take<uint32_t>(p.num_pages);
  p.words = at.take<uint32_t>(size_t{p.num_pages} * kPageWords);
  p.asleep = at.take<uint32_t>(ceil_div(l.num_slots, 32));
  p.cursors = at.take<uint32_t>(kParkingLooks);
  p.requests = at.take<ParkedRequest>(l.num_slots);
}

SAC_HD inline void reset(Parking& p, const Limits& l) {
  p.num_parked = p.num_returning = p.next_look = 0;
  p.head = p.tail = kNone;
  for (uint32_t& count : p.returning) count = 0;
  p.num_free_pages = p.num_pages;
  p.first_free_page = 0;
  for (uint32_t i = 0; i < p.num_pages; ++i) p.next_page[i] = i + 1 == p.num_pages ? kNone : i + 1;
  for (uint32_t w = 0; w < ceil_div(l.num_slots, 32); ++w) p.asleep[w] = 0;
}

/// A chain of `count` pages; 1 <= count <= num_free_pages.
SAC_HD inline uint32_t take_pages(Parking& p, uint32_t count) {
  const uint32_t first = p.first_free_page;
  uint32_t last = first;
  for (uint32_t i = 1; i < count; ++i) last = p.next_page[last];
  p.first_free_page = p.next_page[last];
  p.next_page[last] = kNone;
  p.num_free_pages -= count;
  return first;
}
SAC_HD inline void give_pages(Parking& p, uint32_t first) {
  uint32_t last = first, count = 1;
  for (; p.next_page[last] != kNone; ++count) last = p.next_page[last];
  p.next_page[last] = p.first_free_page;
  p.first_free_page = first;
  p.num_free_pages += count;
}

/// Puts a request whose reader has made room at the end of the line.
SAC_HD inline void join_line(Parking& p, Slots& slots, uint32_t slot) {
  slots[slot].next = kNone;
  slots[slot].prev = p.tail;
  (p.tail == kNone ? p.head : slots[p.tail].next) = slot;
  p.tail = slot;
  p.asleep[slot / 32] &= ~(1u << slot % 32);
  ++p.num_returning;
  ++p.returning[slots[slot].descriptor.tenant];
}
SAC_HD inline void leave_line(Parking& p, Slots& slots, uint32_t slot) {
  const Request& r = slots[slot];
  (r.prev == kNone ? p.head : slots[r.prev].next) = r.next;
  (r.next == kNone ? p.tail : slots[r.next].prev) = r.prev;
  --p.num_returning;
  --p.returning[r.descriptor.tenant];
}

/// A parked request ends, or gets a seat: nothing of it is kept. Its entry may be read until
/// another is parked.
SAC_HD inline void leave_parking(Parking& p, Slots& slots, uint32_t slot) {
  const uint32_t bit = 1u << slot % 32;
  if ((p.asleep[slot / 32] & bit) == 0) leave_line(p, slots, slot);
  p.asleep[slot / 32] &= ~bit;
  give_pages(p, p.requests[slot].first_page);
  --p.num_parked;
}

}  // namespace saccade
