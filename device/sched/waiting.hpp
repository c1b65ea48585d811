// The line of requests without a seat: doubly linked through slots, oldest at the head, so that a
// cancelled one leaves in constant time. Beside it is what a policy is shown of each: under
// overload they are thousands, and a tick that gathered them again would do little else.
#pragma once
#include "sched/policy/policy.hpp"
#include "sched/seats.hpp"
#include "sched/slots.hpp"

namespace saccade {

struct WaitingLine {
  uint32_t head;  // slot, or kNone
  uint32_t tail;
  uint32_t count;
  uint64_t slo_ttft_ns;  // of requests that name no target of their own
  uint64_t slo_tbt_ns;
  // [num_slots] each. The first `count` candidates wait, in any order; each keeps its place for as
  // long as it waits, since nothing about it changes. Behind them there is room for the seated.
  Candidate* candidates;
  uint32_t* candidate_slots;
};

inline void lay_out(WaitingLine& line, const Limits& l, Layout& at) {
  line.candidates = at.take<Candidate>(l.num_slots);
  line.candidate_slots = at.take<uint32_t>(l.num_slots);
}
SAC_HD inline void reset(WaitingLine& line, const Limits& l) {
  line.head = line.tail = kNone;
  line.count = 0;
  line.slo_ttft_ns = l.slo_ttft_ns;
  line.slo_tbt_ns = l.slo_tbt_ns;
}

SAC_HD inline uint64_t target_ns(float seconds, uint64_t fallback_ns) {
  return seconds > 0 ? static_cast<uint64_t>(static_cast<double>(seconds) * 1e9) : fallback_ns;
}

SAC_HD inline Wishes wishes_of(const WaitingLine& line, const Request& r) {
  return {r.arrival_ns, target_ns(r.descriptor.slo_ttft_s, line.slo_ttft_ns),
          target_ns(r.descriptor.slo_tbt_s, line.slo_tbt_ns), r.descriptor.priority,
          r.descriptor.tenant};
}

/// A request as a policy sees it while it has no seat.
SAC_HD inline Candidate describe(const WaitingLine& line, const Request& r) {
  const Wishes wishes = wishes_of(line, r);
  Candidate c = {};
  c.order = r.arrival;
  c.arrival_ns = c.entered_ns = wishes.arrival_ns;
  c.slo_ttft_ns = wishes.slo_ttft_ns;
  c.slo_tbt_ns = wishes.slo_tbt_ns;
  c.priority = wishes.priority;
  c.tenant = wishes.tenant;
  c.state = CandidateState::kWaiting;
  c.blocks = r.places;
  c.prompt_tokens_left = c.rows = r.descriptor.prompt_len - r.num_cached;
  return c;
}

SAC_HD inline void waiting_push(WaitingLine& line, Slots& slots, uint32_t slot) {
  Request& r = slots[slot];
  r.next = kNone;
  r.prev = line.tail;
  if (line.tail == kNone) {
    line.head = slot;
  } else {
    slots[line.tail].next = slot;
  }
  line.tail = slot;
  r.candidate = line.count++;
  line.candidate_slots[r.candidate] = slot;
  line.candidates[r.candidate] = describe(line, r);
}

/// A request that was set aside takes its place by age.
SAC_HD inline void waiting_insert(WaitingLine& line, Slots& slots, uint32_t slot) {
  uint32_t older = line.tail;
  while (older != kNone && slots[older].arrival > slots[slot].arrival) older = slots[older].prev;
  waiting_push(line, slots, slot);
  Request& r = slots[slot];
  if (r.prev == older) return;
  line.tail = r.prev;
  slots[line.tail].next = kNone;
  r.prev = older;
  r.next = older == kNone ? line.head : slots[older].next;
  slots[r.next].prev = slot;
  (older == kNone ? line.head : slots[older].next) = slot;
}

SAC_HD inline void waiting_remove(WaitingLine& line, Slots& slots, uint32_t slot) {
  Request& r = slots[slot];
  if (r.prev == kNone) {
    line.head = r.next;
  } else {
    slots[r.prev].next = r.next;
  }
  if (r.next == kNone) {
    line.tail = r.prev;
  } else {
    slots[r.next].prev = r.prev;
  }
  // The last candidate takes the place that comes free.
  const uint32_t last = --line.count;
  line.candidates[r.candidate] = line.candidates[last];
  line.candidate_slots[r.candidate] = line.candidate_slots[last];
  slots[line.candidate_slots[last]].candidate = r.candidate;
}

}  // namespace saccade
