// drain: what frontends asked for since the last look. New tickets join the waiting queue in order
// of arrival, cancels mark their request, slots of frontends that went away are taken back.
#pragma once
#include "sched/waiting.hpp"

namespace saccade {

inline constexpr float kMaxTemperature = 100.0f;
inline constexpr float kMaxRepetitionPenalty = 10.0f;
inline constexpr float kMaxPenalty = 2.0f;

/// A number within [low, high]; NaN is not.
SAC_HD inline bool within(float x, float low, float high) { return x >= low && x <= high; }

SAC_HD inline bool sampling_in_bounds(const sac_descriptor& d) {
  return within(d.temperature, 0.0f, kMaxTemperature) && d.top_p > 0.0f && d.top_p <= 1.0f &&
         within(d.min_p, 0.0f, 1.0f) && d.repetition_penalty > 0.0f &&
         d.repetition_penalty <= kMaxRepetitionPenalty &&
         within(d.presence_penalty, -kMaxPenalty, kMaxPenalty) &&
         within(d.frequency_penalty, -kMaxPenalty, kMaxPenalty) &&
         d.num_top_logprobs <= SAC_MAX_TOP_LOGPROBS;
}

inline constexpr float kMaxTargetS = 86400.0f;

/// Targets of latency; 0 = the device's default.
SAC_HD inline bool targets_in_bounds(const sac_descriptor& d) {
  return within(d.slo_ttft_s, 0.0f, kMaxTargetS) && within(d.slo_tbt_s, 0.0f, kMaxTargetS);
}

/// The arena extent of a checked descriptor, in words.
SAC_HD inline uint64_t extent_words(const sac_descriptor& d) {
  return uint64_t{d.prompt_len} + 2 * uint64_t{d.num_logit_bias} + d.num_stop_ids;
}

/// The extent lies in its frontend's share of the arena: what it names cannot be another's prompt.
SAC_HD inline bool extent_in_share(const Scheduler& s, uint32_t slot, const sac_descriptor& d) {
  const uint32_t frontend = s.ring.frontend_of(slot);
  const uint64_t end = s.ring.first_arena_byte(frontend + 1);
  const uint64_t bytes = 4 * extent_words(d);
  return d.arena_extent % SAC_ARENA_ALIGN_BYTES == 0 &&
         d.arena_extent >= s.ring.first_arena_byte(frontend) && d.arena_extent <= end &&
         bytes <= end - d.arena_extent;
}

/// Every bound of a descriptor but the token ids, which are checked when they are copied.
SAC_HD inline bool descriptor_in_bounds(const Scheduler& s, uint32_t slot,
                                        const sac_descriptor& d) {
  const Limits& l = s.limits;
  const bool sizes = d.prompt_len >= 1 && d.prompt_len < l.max_model_len && d.max_tokens >= 1 &&
                     d.max_tokens <= l.max_model_len - d.prompt_len &&
                     d.min_tokens <= d.max_tokens && d.num_logit_bias <= SAC_MAX_LOGIT_BIAS &&
                     d.num_stop_ids <= SAC_MAX_STOP_IDS && (d.flags & ~SAC_REQ_KNOWN_FLAGS) == 0;
  return sizes && sampling_in_bounds(d) && targets_in_bounds(d) && extent_in_share(s, slot, d);
}

SAC_HD inline void publish_end(Scheduler& s, uint32_t slot, uint32_t finish, uint32_t count) {
  Request& r = s.requests[slot];
  r.state = SAC_STATE_DECODE_COMPLETED;
  post_status(s, slot, sac_status_word(r.ticket, r.state, finish, count));
}

/// A request of this slot waits or holds a seat; a new ticket must not be rung.
SAC_HD inline bool is_busy(const Request& r) {
  return r.state != SAC_STATE_EMPTY && r.state != SAC_STATE_DECODE_COMPLETED;
}

/// The slot rang a new ticket whose descriptor is to be copied.
SAC_HD inline bool wants_copy(const Scheduler& s, uint32_t slot) {
  const Request& r = s.requests[slot];
  const uint32_t ticket = sac_doorbell_ticket(s.peers.rung[slot]);
  return !is_busy(r) && ticket != sac_doorbell_ticket(s.seen[slot]) && r.copied != ticket + 1;
}

/// Takes private copies of the descriptors of new tickets among `slots`, and checks them.
template <class Env>
SAC_HD void copy_requests(Scheduler& s, Env& env, const uint32_t* slots, uint32_t count) {
  uint32_t wanted = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (!wants_copy(s, slots[i])) continue;
    const auto* from = reinterpret_cast<const uint32_t*>(s.ring.descriptors + slots[i]);
    auto* to = reinterpret_cast<uint32_t*>(&s.requests[slots[i]].descriptor);
    s.fetches[wanted++] = {to, from, sizeof(sac_descriptor) / 4, 0};
  }
  if (wanted == 0) return;
  env.fetch(s.fetches, wanted);
  for (uint32_t i = 0; i < count; ++i) {
    if (!wants_copy(s, slots[i])) continue;
    Request& r = s.requests[slots[i]];
    r.in_bounds = descriptor_in_bounds(s, slots[i], r.descriptor) ? 1 : 0;
    r.copied = sac_doorbell_ticket(s.peers.rung[slots[i]]) + 1;
  }
}

/// A slot rang a ticket that is new: let it wait, or refuse it.
template <class Env>
SAC_HD void accept(Scheduler& s, Env& env, uint32_t slot, uint32_t ticket) {
  Request& r = s.requests[slot];
  copy_requests(s, env, &slot, 1);  // unless that is done
  r.copied = 0;
  r.ticket = ticket;
  r.seat = kNone;
  const bool stale = r.descriptor.device_epoch != s.epoch;
  if (stale || r.in_bounds == 0) {
    ++s.stats.requests_rejected;
    publish_end(s, slot, stale ? SAC_FINISH_STALE_EPOCH : SAC_FINISH_INVALID, 0);
    return;
  }
  r.arrival = s.next_arrival++;
  r.arrival_ns = s.tick_ns;
  r.state = SAC_STATE_PREFILL_PENDING;
  waiting_push(s, slot);
  ++s.stats.requests_accepted;
  s.ring.write_progress(slot, 0, 0);
  post_status(s, slot, sac_status_word(ticket, r.state, SAC_FINISH_NONE, 0));
}

/// Ends a request before its time; a seated one is retired in this tick. False if it has ended
/// already, or never began.
SAC_HD inline bool cancel(Scheduler& s, uint32_t slot) {
  Request& r = s.requests[slot];
  if (r.seat != kNone) {
    Seat& seat = s.seats[r.seat];
    if (seat.finish != SAC_FINISH_NONE) return false;
    seat.finish = SAC_FINISH_CANCELLED;
    ++s.num_ended;
    return true;
  }
  if (r.state != SAC_STATE_PREFILL_PENDING) return false;
  waiting_remove(s, slot);
  ++s.stats.requests_finished;
  publish_end(s, slot, SAC_FINISH_CANCELLED, 0);
  return true;
}

/// Is `a` to be accepted before `b`? Frontends count their own submissions; the distance decides,
/// so that the counter may wrap. Between frontends the slot number decides: any order is fair
/// there.
SAC_HD inline bool rang_before(const Scheduler& s, uint32_t a, uint32_t b) {
  const uint32_t fa = s.ring.frontend_of(a), fb = s.ring.frontend_of(b);
  if (fa != fb) return fa < fb;
  const uint64_t sa = s.requests[a].descriptor.sequence;
  const uint64_t sb = s.requests[b].descriptor.sequence;
  return sa == sb ? a < b : static_cast<int64_t>(sa - sb) < 0;
}

/// Restores the heap below `root` in changed[0 .. count): latest arrival on top.
SAC_HD inline void sift_down(Scheduler& s, uint32_t root, uint32_t count) {
  for (uint32_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
    if (child + 1 < count && rang_before(s, s.changed[child], s.changed[child + 1])) ++child;
    if (!rang_before(s, s.changed[root], s.changed[child])) return;
    const uint32_t slot = s.changed[root];
    s.changed[root] = s.changed[child];
    s.changed[child] = slot;
    root = child;
  }
}

/// Puts slots in order of arrival. Heapsort: in place, and n log n even when a hostile frontend
/// chooses the sequences.
SAC_HD inline void order_by_arrival(Scheduler& s, uint32_t count) {
  for (uint32_t i = count / 2; i > 0; --i) sift_down(s, i - 1, count);
  for (uint32_t end = count; end > 1; --end) {
    const uint32_t latest = s.changed[0];
    s.changed[0] = s.changed[end - 1];
    s.changed[end - 1] = latest;
    sift_down(s, 0, end - 1);
  }
}

/// Acts upon a doorbell that changed: a new ticket, a cancel, or both at once.
template <class Env>
SAC_HD void answer_doorbell(Scheduler& s, Env& env, uint32_t slot) {
  const uint32_t rung = s.peers.rung[slot];
  const uint32_t ticket = sac_doorbell_ticket(rung);
  const bool is_new = ticket != sac_doorbell_ticket(s.seen[slot]);
  Request& r = s.requests[slot];
  if (is_new && is_busy(r)) {
    // The frontend broke the protocol (a ticket over a live one). The old one ends first; the new
    // one is looked at again when the slot is free.
    cancel(s, slot);
    if (r.seat != kNone) return;
  }
  if (is_new) accept(s, env, slot, ticket);
  s.seen[slot] = rung;
  if ((rung & SAC_DOORBELL_CANCEL) != 0) cancel(s, slot);
}

/// Everything of a frontend ends; when no seat of it is left, its slots are EMPTY. True when done.
SAC_HD inline bool reclaim_slots(Scheduler& s, uint32_t frontend) {
  bool done = true;
  const uint32_t end = s.ring.first_slot(frontend + 1);
  for (uint32_t slot = s.ring.first_slot(frontend); slot < end; ++slot) {
    Request& r = s.requests[slot];
    if (cancel(s, slot)) ++s.stats.requests_reclaimed;
    if (r.seat != kNone) {
      done = false;
      continue;
    }
    s.seen[slot] = s.peers.rung[slot];
    r.state = SAC_STATE_EMPTY;
    r.ticket = sac_doorbell_ticket(s.seen[slot]);
    post_status(s, slot, sac_status_word(r.ticket, r.state, SAC_FINISH_NONE, 0));
  }
  return done;
}

/// A frontend whose heartbeat stood still too long is given up, until it moves again.
SAC_HD inline void give_up(Scheduler& s, uint32_t frontend) {
  s.watch[frontend].lost = 1;
  s.watch[frontend].reclaimed = 0;
  store_relaxed(&s.ring.acks[frontend].lost, load_relaxed(&s.ring.acks[frontend].lost) + 1);
}

/// A frontend that started anew, or was given up, loses what it had: within two ticks, because
/// seats are retired between them.
SAC_HD inline void watch_frontend(Scheduler& s, uint32_t frontend, uint64_t now_ns) {
  FrontendWatch& w = s.watch[frontend];
  const uint64_t heartbeat = s.peers.heartbeats[frontend];
  const uint32_t epoch = s.peers.epochs[frontend];
  if (heartbeat != w.heartbeat) {
    w.heartbeat = heartbeat;
    w.changed_ns = now_ns;
    w.lost = 0;
  }
  if (epoch != w.acked_epoch) {
    if (!reclaim_slots(s, frontend)) return;
    // Its first heartbeat may come after its epoch: the time to give it up starts here.
    w = FrontendWatch{heartbeat, now_ns, epoch, 0, 0};
    send_statuses(s);
    // SYNC: release, with the joining frontend's acquire of the ack: its slots read EMPTY.
    store_release(&s.ring.acks[frontend].epoch, epoch);
    return;
  }
  const bool silent = now_ns - w.changed_ns > uint64_t{SAC_FRONTEND_LOST_MS} * 1000000;
  if (epoch != 0 && w.lost == 0 && silent) give_up(s, frontend);
  if (w.lost != 0 && w.reclaimed == 0) w.reclaimed = reclaim_slots(s, frontend) ? 1 : 0;
}

/// Slots whose frontend waits for an ack or was given up are left alone.
SAC_HD inline bool is_served(const Scheduler& s, uint32_t slot) {
  const uint32_t frontend = s.ring.frontend_of(slot);
  return s.watch[frontend].lost == 0 && s.watch[frontend].acked_epoch == s.peers.epochs[frontend];
}

/// A doorbell waits for an answer. For hosts, which sleep when none does.
inline bool doorbell_pending(Scheduler& s) {
  const uint32_t found = scan_changed(s.ring.doorbells, s.seen, s.limits.num_slots, s.changed);
  for (uint32_t i = 0; i < found; ++i)
    if (is_served(s, s.changed[i])) return true;
  return false;
}

template <class Env>
SAC_HD uint32_t read_peers(Scheduler& s, Env& env) {
  return env.read_peers(PeerReading{s.ring, &s.peers, s.seen}, s.changed);
}

/// The part of drain that may run beside a step: new requests are copied and checked. All
/// decisions, also the order of arrival, are left to the tick, so that overlapping changes none.
template <class Env>
SAC_HD void read_beside_step(Scheduler& s, Env& env) {
  s.ahead.at_ns = env.now_ns();
  s.ahead.found = read_peers(s, env);
  copy_requests(s, env, s.changed, s.ahead.found);
}

/// What was read beside the last step, where the environment takes that for what it would read now:
/// then no trip to the ring lies between two steps. Each reading is used once.
template <class Env>
SAC_HD uint32_t read_for_tick(Scheduler& s, Env& env) {
  const ReadAhead ahead = s.ahead;
  s.ahead = ReadAhead{};
  return env.takes(ahead) ? ahead.found : read_peers(s, env);
}

/// A frontend has begun a new life that was not acknowledged yet.
SAC_HD inline bool any_rejoined(const Scheduler& s) {
  for (uint32_t f = 0; f < s.ring.num_frontends; ++f)
    if (s.peers.epochs[f] != s.watch[f].acked_epoch) return true;
  return false;
}

template <class Env>
SAC_HD void drain(Scheduler& s, Env& env) {
  uint32_t found = read_for_tick(s, env);
  // The doorbells of its earlier lives are certain only in a reading that follows the epoch's.
  if (any_rejoined(s)) found = read_peers(s, env);
  for (uint32_t f = 0; f < s.ring.num_frontends; ++f) watch_frontend(s, f, s.tick_ns);
  if (found == 0) return;
  copy_requests(s, env, s.changed, found);
  order_by_arrival(s, found);
  for (uint32_t i = 0; i < found; ++i)
    if (is_served(s, s.changed[i])) answer_doorbell(s, env, s.changed[i]);
}

}  // namespace saccade
