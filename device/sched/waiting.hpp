// The queue of requests without a seat: a doubly linked list through slots, oldest at the head, so
// that a cancelled one leaves in constant time.
#pragma once
#include "sched/state.hpp"

namespace saccade {

SAC_HD inline void waiting_push(Scheduler& s, uint32_t slot) {
  Request& r = s.requests[slot];
  r.next = kNone;
  r.prev = s.waiting_tail;
  if (s.waiting_tail == kNone) {
    s.waiting_head = slot;
  } else {
    s.requests[s.waiting_tail].next = slot;
  }
  s.waiting_tail = slot;
  ++s.num_waiting;
}

SAC_HD inline void waiting_remove(Scheduler& s, uint32_t slot) {
  Request& r = s.requests[slot];
  if (r.prev == kNone) {
    s.waiting_head = r.next;
  } else {
    s.requests[r.prev].next = r.next;
  }
  if (r.next == kNone) {
    s.waiting_tail = r.prev;
  } else {
    s.requests[r.next].prev = r.prev;
  }
  --s.num_waiting;
}

}  // namespace saccade
