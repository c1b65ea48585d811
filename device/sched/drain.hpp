// drain: what frontends asked for since the last look. New tickets join the waiting queue in order
// of arrival, cancels mark their request, slots of frontends that went away are taken back.
#pragma once
#include "sched/fetch/load.hpp"
#include "sched/inbox.hpp"
#include "sched/lookup.hpp"
#include "sched/parking.hpp"
#include "sched/report.hpp"
#include "sched/retire.hpp"
#include "sched/shares.hpp"
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
  return uint64_t{d.prompt_len} + 2 * uint64_t{d.num_logit_bias} + d.num_stop_ids +
         uint64_t{d.grammar_words};
}

/// The extent lies in its frontend's share of the arena: what it names cannot be another's prompt.
SAC_HD inline bool extent_in_share(const RingView& ring, uint32_t slot, const sac_descriptor& d) {
  const uint32_t frontend = ring.frontend_of(slot);
  const uint64_t end = ring.first_arena_byte(frontend + 1);
  const uint64_t bytes = 4 * extent_words(d);
  return d.arena_extent % SAC_ARENA_ALIGN_BYTES == 0 &&
         d.arena_extent >= ring.first_arena_byte(frontend) && d.arena_extent <= end &&
         bytes <= end - d.arena_extent;
}

/// How many tokens are asked for: none with an embedding, which leaves nothing to choose either.
SAC_HD inline bool output_in_bounds(const Limits& l, const sac_descriptor& d) {
  if (!embeds(d.flags)) return d.max_tokens >= 1 && d.max_tokens <= l.max_model_len - d.prompt_len;
  return l.embedding_size != 0 && d.flags == SAC_REQ_EMBED && d.max_tokens == 0 &&
         d.num_logit_bias == 0 && d.num_stop_ids == 0 && d.num_top_logprobs == 0 &&
         d.grammar_words == 0;
}

/// Every bound of a descriptor but token ids and the grammar, which are checked when they are
/// copied.
SAC_HD inline bool descriptor_in_bounds(const Limits& l, const RingView& ring, uint32_t slot,
                                        const sac_descriptor& d) {
  const bool sizes = d.prompt_len >= 1 && d.prompt_len <= l.max_model_len &&
                     output_in_bounds(l, d) && d.min_tokens <= d.max_tokens &&
                     d.num_logit_bias <= SAC_MAX_LOGIT_BIAS && d.num_stop_ids <= SAC_MAX_STOP_IDS &&
                     d.grammar_words <= l.grammar_words && d.adapter <= l.num_adapters &&
                     (d.flags & ~SAC_REQ_KNOWN_FLAGS) == 0;
  const bool tenant = d.tenant < SAC_MAX_TENANTS && d.tenant_weight <= SAC_MAX_TENANT_WEIGHT;
  return sizes && tenant && sampling_in_bounds(d) && targets_in_bounds(d) &&
         extent_in_share(ring, slot, d);
}

/// What draining the doorbells touches.
struct Drain {
  const Limits& limits;
  Inbox& inbox;
  Slots& slots;
  WaitingLine& waiting;
  Seats& seats;
  Parking& parking;
  const KvTiers& kv;
  FetchDesk& fetch;
  uint64_t now_ns;
  Shares& shares;
  Report& report;
};

SAC_HD inline void publish_end(Slots& slots, Report& report, uint32_t slot, uint32_t finish) {
  Request& r = slots[slot];
  r.state = SAC_STATE_DECODE_COMPLETED;
  report.post_status(slot, sac_status_word(r.ticket, r.state, finish, 0));
}

/// The slot rang a new ticket whose descriptor is to be copied.
SAC_HD inline bool wants_copy(const Inbox& inbox, const Slots& slots, uint32_t slot) {
  const Request& r = slots[slot];
  const uint32_t ticket = sac_doorbell_ticket(inbox.peers.rung[slot]);
  return !is_busy(r) && ticket != sac_doorbell_ticket(inbox.seen[slot]) && r.copied != ticket + 1;
}

/// Adds the generations of prefixes to what is fetched. Behind the acquire of the doorbells: a
/// request that was rung after a reset is not seated by an older generation.
SAC_HD inline uint32_t with_generations(Inbox& inbox, Fetch* fetches, uint32_t count) {
  for (uint32_t f = 0; f < inbox.ring.num_frontends; ++f)
    fetches[count++] = {inbox.generations + f, &inbox.ring.frontends[f].prefix_generation, 1, 0};
  return count;
}

/// Takes private copies of the descriptors of new tickets among `which`, and checks them.
template <class Env>
SAC_HD void copy_requests(const Limits& limits, Inbox& inbox, Slots& slots, Env& env,
                          const uint32_t* which, uint32_t count) {
  const bool few = count + inbox.ring.num_frontends <= kFewFetches;
  Fetch* fetches = few ? inbox.fetches : inbox.many_fetches;
  uint32_t wanted = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (!wants_copy(inbox, slots, which[i])) continue;
    const auto* from = reinterpret_cast<const uint32_t*>(inbox.ring.descriptors + which[i]);
    auto* to = reinterpret_cast<uint32_t*>(&slots[which[i]].descriptor);
    fetches[wanted++] = {to, from, sizeof(sac_descriptor) / 4, 0};
  }
  if (wanted == 0) return;
  env.fetch(fetches, with_generations(inbox, fetches, wanted));
  for (uint32_t i = 0; i < count; ++i) {
    if (!wants_copy(inbox, slots, which[i])) continue;
    Request& r = slots[which[i]];
    const sac_descriptor d = r.descriptor;  // all of it in one go
    r.in_bounds = descriptor_in_bounds(limits, inbox.ring, which[i], d) ? 1 : 0;
    r.copied = sac_doorbell_ticket(inbox.peers.rung[which[i]]) + 1;
  }
}

/// What a new request would take, so that the policy knows: of a prompt whose beginning is cached,
/// the rest. What is not cached here is asked of a store: then the request is set aside, and the
/// answer is true.
template <class Env>
SAC_HD bool price(const Drain& d, Env& env, Request& r, uint32_t slot) {
  const sac_descriptor& asked = r.descriptor;
  r.num_cached = r.fetch = 0;
  r.places = d.kv.blocks_for(tokens_to_hold(asked.flags, asked.prompt_len));
  const bool shares = d.kv.shares != 0 && (asked.flags & SAC_REQ_PROMPT_LOGPROBS) == 0;
  if (!shares || blocks_to_share(d.kv, asked.prompt_len) == 0) return false;
  d.inbox.fetches[0] = {d.inbox.prompt, d.inbox.ring.arena_words(asked.arena_extent),
                        asked.prompt_len, 0};
  env.fetch(d.inbox.fetches, 1);
  const uint64_t salt = d.inbox.salt_of(asked);
  const Found found = look_up(d.kv, d.inbox.prompt, asked.prompt_len, salt, nullptr);
  r.num_cached = found.blocks * d.kv.block_size;
  r.places -= found.in_use;
  return begin_lookup(d.fetch, d.report, r, slot, d.inbox.prompt, salt, d.now_ns);
}

/// A slot rang a ticket that is new: let it wait, or refuse it.
template <class Env>
SAC_HD void accept(const Drain& d, Env& env, uint32_t slot, uint32_t ticket) {
  Request& r = d.slots[slot];
  copy_requests(d.limits, d.inbox, d.slots, env, &slot, 1);  // unless that is done
  r.copied = 0;
  r.ticket = ticket;
  r.seat = kNone;
  const bool stale = r.descriptor.device_epoch != d.inbox.epoch;
  if (stale || r.in_bounds == 0) {
    ++d.report.stats.requests_rejected;
    publish_end(d.slots, d.report, slot, stale ? SAC_FINISH_STALE_EPOCH : SAC_FINISH_INVALID);
    return;
  }
  note_tenant(d.shares, r.descriptor);
  r.arrival = d.slots.next_arrival++;
  r.arrival_ns = d.now_ns;
  r.state = SAC_STATE_PREFILL_PENDING;
  if (!price(d, env, r, slot)) waiting_push(d.waiting, d.slots, slot);
  ++d.report.stats.requests_accepted;
  d.report.ring.write_progress(slot, 0, 0);
  d.report.post_status(slot, sac_status_word(ticket, r.state, SAC_FINISH_NONE, 0));
}

/// Ends a request before its time; a seated one is retired in this tick. False if it has ended
/// already, or never began.
SAC_HD inline bool cancel(const Drain& d, uint32_t slot) {
  Request& r = d.slots[slot];
  if (r.seat != kNone) {
    Seat& seat = d.seats[r.seat];
    if (has_ended(seat)) return false;
    seat.finish = SAC_FINISH_CANCELLED;
    ++d.seats.num_ended;
    return true;
  }
  if (is_parked(r)) {
    leave_parking(d.parking, d.slots, slot);
    Seat& seat = d.parking.requests[slot].seat;
    seat.finish = SAC_FINISH_CANCELLED;
    publish_seat_end(d.slots, seat, d.report);
    return true;
  }
  if (r.state != SAC_STATE_PREFILL_PENDING) return false;
  if (!is_aside(d.fetch, r)) waiting_remove(d.waiting, d.slots, slot);
  forget_lookup(d.fetch, r);
  ++d.report.stats.requests_finished;
  publish_end(d.slots, d.report, slot, SAC_FINISH_CANCELLED);
  return true;
}

/// Is `a` to be accepted before `b`? Frontends count their own submissions; the distance decides,
/// so that the counter may wrap. Between frontends the slot number decides: any order is fair
/// there.
SAC_HD inline bool rang_before(const RingView& ring, const Slots& slots, uint32_t a, uint32_t b) {
  const uint32_t fa = ring.frontend_of(a), fb = ring.frontend_of(b);
  if (fa != fb) return fa < fb;
  const uint64_t sa = slots[a].descriptor.sequence;
  const uint64_t sb = slots[b].descriptor.sequence;
  return sa == sb ? a < b : static_cast<int64_t>(sa - sb) < 0;
}

/// Restores the heap below `root` in changed[0 .. count): latest arrival on top.
SAC_HD inline void sift_down(const Inbox& inbox, const Slots& slots, uint32_t root,
                             uint32_t count) {
  uint32_t* changed = inbox.changed;
  for (uint32_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
    if (child + 1 < count && rang_before(inbox.ring, slots, changed[child], changed[child + 1]))
      ++child;
    if (!rang_before(inbox.ring, slots, changed[root], changed[child])) return;
    const uint32_t slot = changed[root];
    changed[root] = changed[child];
    changed[child] = slot;
    root = child;
  }
}

/// Puts slots in order of arrival. Heapsort: in place, and n log n even when a hostile frontend
/// chooses the sequences.
SAC_HD inline void order_by_arrival(const Inbox& inbox, const Slots& slots, uint32_t count) {
  uint32_t* changed = inbox.changed;
  for (uint32_t i = count / 2; i > 0; --i) sift_down(inbox, slots, i - 1, count);
  for (uint32_t end = count; end > 1; --end) {
    const uint32_t latest = changed[0];
    changed[0] = changed[end - 1];
    changed[end - 1] = latest;
    sift_down(inbox, slots, 0, end - 1);
  }
}

/// Acts upon a doorbell that changed: a new ticket, a cancel, or both at once.
template <class Env>
SAC_HD void answer_doorbell(const Drain& d, Env& env, uint32_t slot) {
  const uint32_t rung = d.inbox.peers.rung[slot];
  const uint32_t ticket = sac_doorbell_ticket(rung);
  const bool is_new = ticket != sac_doorbell_ticket(d.inbox.seen[slot]);
  Request& r = d.slots[slot];
  if (is_new && is_busy(r)) {
    // The frontend broke the protocol (a ticket over a live one). The old one ends first; the new
    // one is looked at again when the slot is free.
    cancel(d, slot);
    if (r.seat != kNone) return;
  }
  if (is_new) accept(d, env, slot, ticket);
  d.inbox.seen[slot] = rung;
  if ((rung & SAC_DOORBELL_CANCEL) != 0) cancel(d, slot);
}

/// Everything of a frontend ends; when no seat of it is left, its slots are EMPTY. True when done.
SAC_HD inline bool reclaim_slots(const Drain& d, uint32_t frontend) {
  bool done = true;
  const uint32_t end = d.inbox.ring.first_slot(frontend + 1);
  for (uint32_t slot = d.inbox.ring.first_slot(frontend); slot < end; ++slot) {
    Request& r = d.slots[slot];
    if (cancel(d, slot)) ++d.report.stats.requests_reclaimed;
    if (r.seat != kNone) {
      done = false;
      continue;
    }
    d.inbox.seen[slot] = d.inbox.peers.rung[slot];
    r.state = SAC_STATE_EMPTY;
    r.ticket = sac_doorbell_ticket(d.inbox.seen[slot]);
    d.report.post_status(slot, sac_status_word(r.ticket, r.state, SAC_FINISH_NONE, 0));
  }
  return done;
}

/// A frontend whose heartbeat has not moved for too long is given up, until it moves again.
SAC_HD inline void give_up(FrontendWatch& watch, sac_frontend_ack& ack) {
  watch.lost = 1;
  watch.reclaimed = 0;
  store_relaxed(&ack.lost, load_relaxed(&ack.lost) + 1);
}

/// A frontend that restarted, or was given up, loses what it had: within two ticks, because
/// seats are retired between them.
SAC_HD inline void watch_frontend(const Drain& d, uint32_t frontend) {
  FrontendWatch& w = d.inbox.watch[frontend];
  sac_frontend_ack& ack = d.report.ring.acks[frontend];
  const uint64_t heartbeat = d.inbox.peers.heartbeats[frontend];
  const uint32_t epoch = d.inbox.peers.epochs[frontend];
  if (heartbeat != w.heartbeat) {
    w.heartbeat = heartbeat;
    w.changed_ns = d.now_ns;
    w.lost = 0;
  }
  if (epoch != w.acked_epoch) {
    if (!reclaim_slots(d, frontend)) return;
    // Its first heartbeat may come after its epoch: the time to give it up starts here.
    w = FrontendWatch{heartbeat, d.now_ns, epoch, 0, 0};
    d.report.send_statuses();
    // SYNC: release, with the joining frontend's acquire of the ack: its slots read EMPTY.
    store_release(&ack.epoch, epoch);
    return;
  }
  const bool silent = d.now_ns - w.changed_ns > uint64_t{SAC_FRONTEND_LOST_MS} * 1000000;
  if (epoch != 0 && w.lost == 0 && silent) give_up(w, ack);
  if (w.lost != 0 && w.reclaimed == 0) w.reclaimed = reclaim_slots(d, frontend) ? 1 : 0;
}

/// A doorbell waits for an answer.
inline bool doorbell_pending(Inbox& inbox) {
  const uint32_t found =
      scan_changed(inbox.ring.doorbells, inbox.seen, inbox.ring.num_slots, inbox.changed);
  for (uint32_t i = 0; i < found; ++i)
    if (inbox.is_served(inbox.changed[i])) return true;
  return false;
}

/// A frontend waits for an answer: it rang, or began a new life. For hosts, which sleep when none
/// does.
inline bool frontend_waits(Inbox& inbox) {
  for (uint32_t f = 0; f < inbox.ring.num_frontends; ++f)
    if (load_relaxed(&inbox.ring.frontends[f].epoch) != inbox.watch[f].acked_epoch) return true;
  return doorbell_pending(inbox);
}

/// What an earlier reading found need not be there any more: a frontend may take a doorbell back
/// that was not answered yet.
template <class Env>
SAC_HD uint32_t read_peers(Inbox& inbox, ReaderCursors& cursors, Env& env) {
  for (uint32_t i = 0; i < inbox.num_changed; ++i)
    inbox.peers.rung[inbox.changed[i]] = inbox.seen[inbox.changed[i]];
  const PeerReading reading = reading_of(inbox.ring, inbox.peers, cursors, inbox.seen);
  return inbox.num_changed = env.read_peers(reading, inbox.changed);
}

/// What was read beside the last step, where the environment takes that for what it would read now:
/// then no trip to the ring lies between two steps. If no step is to follow (`idle`) and nothing
/// was found, a fresh reading delays nothing, and sees what was rung since. Each reading is used
/// once.
template <class Env>
SAC_HD uint32_t read_for_tick(Inbox& inbox, ReaderCursors& cursors, bool idle, Env& env) {
  const ReadAhead ahead = inbox.ahead;
  inbox.ahead = ReadAhead{};
  if (env.takes(ahead) && (ahead.found != 0 || !idle)) return ahead.found;
  return read_peers(inbox, cursors, env);
}

/// A frontend has begun a new life that was not acknowledged yet.
SAC_HD inline bool any_rejoined(const Inbox& inbox) {
  for (uint32_t f = 0; f < inbox.ring.num_frontends; ++f)
    if (inbox.peers.epochs[f] != inbox.watch[f].acked_epoch) return true;
  return false;
}

template <class Env>
SAC_HD void drain(const Drain& d, Env& env) {
  Inbox& inbox = d.inbox;
  const bool idle = d.waiting.count == 0 && d.seats.num_running == d.seats.num_ended;
  uint32_t found = read_for_tick(inbox, d.seats.cursors, idle, env);
  // The doorbells of its earlier lives are certain only in a reading that follows the epoch's.
  if (any_rejoined(inbox)) found = read_peers(inbox, d.seats.cursors, env);
  for (uint32_t f = 0; f < inbox.ring.num_frontends; ++f) watch_frontend(d, f);
  if (found == 0) return;
  copy_requests(d.limits, inbox, d.slots, env, inbox.changed, found);
  order_by_arrival(inbox, d.slots, found);
  for (uint32_t i = 0; i < found; ++i)
    if (inbox.is_served(inbox.changed[i])) answer_doorbell(d, env, inbox.changed[i]);
}

}  // namespace saccade
