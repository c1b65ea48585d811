// The request of each slot of the ring, from its acceptance to its last status.
#pragma once
#include "platform/layout.hpp"
#include "sched/limits.hpp"

namespace saccade {

/// A request that waits for a seat or holds one, or the free entry of a slot.
struct Request {
  sac_descriptor descriptor;  // private, checked copy
  uint64_t arrival;           // order among all requests; the scheduler's only notion of age
  uint64_t arrival_ns;        // when it was accepted
  uint32_t ticket;
  // EMPTY, PREFILL_PENDING while it waits, PREFILL_PROCESSING while it is seated (the seat knows
  // more), DECODE_COMPLETED from its last status on.
  uint32_t state;
  uint32_t seat;  // kNone unless seated
  uint32_t next;  // of the waiting line, by slot
  uint32_t prev;
  uint32_t copied;  // 1 + the ticket whose descriptor was copied before it was accepted; 0 = none
  uint32_t in_bounds;   // 1: the copied descriptor keeps every bound
  uint32_t candidate;   // while it waits: its place among the candidates
  uint32_t num_cached;  // prompt tokens that were cached when that was looked at last
  uint32_t places;      // on the device, that it would take, as of then
  uint32_t fetch;  // 1 + the entry of what a store has of its prompt, until it is seated; 0: none
};

/// It waits or holds a seat; the slot must not ring a new ticket.
SAC_HD inline bool is_busy(const Request& r) {
  return r.state != SAC_STATE_EMPTY && r.state != SAC_STATE_DECODE_COMPLETED;
}

struct Slots {
  Request* requests;  // [num_slots]
  uint64_t next_arrival;

  SAC_HD Request& operator[](uint32_t slot) { return requests[slot]; }
  SAC_HD const Request& operator[](uint32_t slot) const { return requests[slot]; }
};

inline void lay_out(Slots& slots, const Limits& l, Layout& at) {
  slots.requests = at.take<Request>(l.num_slots);
}
/// The requests themselves are cleared when the ring is joined.
SAC_HD inline void reset(Slots& slots) { slots.next_arrival = 0; }

}  // namespace saccade
