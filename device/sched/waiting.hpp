// The queue of requests without a seat: a doubly linked list through slots, oldest at the head, so
// that a cancelled one leaves in constant time. Beside it stands what a policy is shown of each:
// under overload they are thousands, and a tick that gathered them anew would do little else.
#pragma once
#include "sched/state.hpp"

namespace saccade {

SAC_HD inline uint64_t target_ns(float seconds, uint64_t fallback_ns) {
  return seconds > 0 ? static_cast<uint64_t>(static_cast<double>(seconds) * 1e9) : fallback_ns;
}

SAC_HD inline Wishes wishes_of(const Scheduler& s, const Request& r) {
  return {r.arrival_ns, target_ns(r.descriptor.slo_ttft_s, s.limits.slo_ttft_ns),
          target_ns(r.descriptor.slo_tbt_s, s.limits.slo_tbt_ns), r.descriptor.priority};
}

/// A request as a policy sees it while it has no seat.
SAC_HD inline void describe(const Scheduler& s, uint32_t slot, Candidate& c) {
  const Request& r = s.requests[slot];
  const Wishes wishes = wishes_of(s, r);
  c = Candidate{};
  c.order = r.arrival;
  c.arrival_ns = c.entered_ns = wishes.arrival_ns;
  c.slo_ttft_ns = wishes.slo_ttft_ns;
  c.slo_tbt_ns = wishes.slo_tbt_ns;
  c.priority = wishes.priority;
  c.state = CandidateState::kWaiting;
  c.blocks = s.limits.blocks_for(r.descriptor.prompt_len + 1);
  c.prompt_tokens_left = c.rows = r.descriptor.prompt_len;
}

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
  r.candidate = s.num_waiting++;
  s.candidate_slots[r.candidate] = slot;
  describe(s, slot, s.candidates[r.candidate]);
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
  // The last candidate takes the place that comes free.
  const uint32_t last = --s.num_waiting;
  s.candidates[r.candidate] = s.candidates[last];
  s.candidate_slots[r.candidate] = s.candidate_slots[last];
  s.requests[s.candidate_slots[last]].candidate = r.candidate;
}

}  // namespace saccade
