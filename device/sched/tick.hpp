// The tick: what a device plane does, over and over, whatever it runs on.
//
//   settle -> hear -> drain -> retire -> share seats -> admit or choose -> rotate -> copy ahead ->
//   batch -> launch (copies, step) -> (scan beside the step) -> commit -> publish
//
// Engine: what copies KV blocks between the tiers (kv/copies.hpp).
// Step: launch(const StepBatch&), wait(), and done_ns(), when the last step's results stood by the
// environment's clock (0: not known apart from the return of wait). Env: now_ns(), notify_publish()
// (wakes sleeping readers, never blocks), notify_fetch(view) (the same for a fetch plane that waits
// for commands), read_peers(reading, changed), fetch(fetches, count) and is_grammar(words, count)
// (as those of ring/peers.hpp, with whatever threads there are), takes(ahead) (is that reading as
// good as one made now), each_seat(s, verb, count) (as that of sched/seatwise.hpp), kHostActs,
// which says whether the tick runs on a host that a device waits for, kOverlap, which says whether
// new requests are copied and checked while the step runs, and kSteady, which says whether steady
// and empty ticks are decided by steady.hpp. Without the last two this is the readable
// specification; with them the same is decided, and less is left to do between two steps.
#pragma once
#include "sched/admit.hpp"
#include "sched/batch.hpp"
#include "sched/choose.hpp"
#include "sched/commit.hpp"
#include "sched/drain.hpp"
#include "sched/fetch/hear.hpp"
#include "sched/fetch/store.hpp"
#include "sched/idle.hpp"
#include "sched/park.hpp"
#include "sched/retire.hpp"
#include "sched/rotate.hpp"
#include "sched/steady.hpp"

namespace saccade {

/// Joins the ring: a new epoch, in which every slot is EMPTY with the ticket that its doorbell
/// shows. Nothing that was submitted to an earlier life is run. Phase READY is written by
/// `go_ready`.
SAC_HD inline void join_ring(Inbox& inbox, Slots& slots, Report& report, const RingView& ring,
                             uint64_t now_ns) {
  inbox.ring = report.ring = ring;
  store_relaxed(&ring.device->phase, SAC_PHASE_LOADING);
  inbox.epoch = load_relaxed(&ring.device->epoch) + 1;
  report.heartbeat = load_relaxed(&ring.device->heartbeat);
  report.publish_count = load_relaxed(&ring.device->publish_count);
  // SYNC: release; requests that read the epoch before this point carry the old one and are
  // refused.
  store_release(&ring.device->epoch, inbox.epoch);
  fence_seq_cst();
  for (uint32_t slot = 0; slot < ring.num_slots; ++slot) {
    inbox.seen[slot] = inbox.peers.rung[slot] = load_acquire(ring.doorbells + slot);
    Request& r = slots[slot];
    r = Request{};
    r.ticket = sac_doorbell_ticket(inbox.seen[slot]);
    r.seat = kNone;
    ring.write_progress(slot, 0, 0);
    report.post_status(slot, sac_status_word(r.ticket, SAC_STATE_EMPTY, SAC_FINISH_NONE, 0));
  }
  report.send_statuses();
  for (uint32_t f = 0; f < ring.num_frontends; ++f) {
    const uint32_t epoch = load_acquire(&ring.frontends[f].epoch);
    inbox.peers.epochs[f] = epoch;
    inbox.peers.heartbeats[f] = load_relaxed(&ring.frontends[f].heartbeat);
    inbox.watch[f] = FrontendWatch{inbox.peers.heartbeats[f], now_ns, epoch, 0, 0};
    // SYNC: release, with the joining frontend's acquire: the statuses above are visible.
    store_release(&ring.acks[f].epoch, epoch);
  }
}
SAC_HD inline void join_ring(Scheduler& s, const RingView& ring, uint64_t now_ns) {
  join_ring(s.inbox, s.slots, s.report, ring, now_ns);
}

/// Tells frontends what they may ask for, then that the device is ready.
SAC_HD inline void go_ready(const Scheduler& s) {
  const Limits& l = s.limits;
  sac_device_line* line = s.report.ring.device;
  store_relaxed(&line->vocab_size, l.vocab_size);
  store_relaxed(&line->max_model_len, l.max_model_len);
  store_relaxed(&line->block_size, l.block_size);
  store_relaxed(&line->num_blocks, l.num_blocks);
  store_relaxed(&line->num_host_blocks, l.num_host_blocks);
  store_relaxed(&line->max_num_seqs, l.num_seats);
  store_relaxed(&line->max_num_batched_tokens, l.max_num_batched_tokens);
  // SYNC: release, with a frontend's acquire of phase: the limits above are visible.
  store_release(&line->phase, SAC_PHASE_READY);
}

/// Counts what is there: requests by state, blocks by tier. In a steady tick all seats run.
SAC_HD inline void take_stock(const WaitingLine& waiting, const Seats& seats,
                              const Parking& parking, const KvTiers& kv, const FetchDesk& fetch,
                              bool steady, sac_device_stats& stats) {
  stats.num_running = seats.num_running;
  stats.num_waiting = waiting.count + fetch.num_aside;
  stats.num_paused = parking.num_parked;
  stats.num_rotated = 0;
  for (uint32_t i = 0; i < seats.num_running && !steady; ++i) {
    const Seat& seat = seats[seats.running[i]];
    stats.num_paused += seat.state == SAC_STATE_DECODE_PAUSED ? 1 : 0;
    stats.num_rotated += seat.num_blocks == 0 && seat.num_host != 0 ? 1 : 0;
  }
  stats.blocks_used = kv.device().used();
  stats.blocks_used_max = max_u32(stats.blocks_used_max, stats.blocks_used);
  stats.host_blocks_used = kv.host().used();
  stats.host_blocks_used_max = max_u32(stats.host_blocks_used_max, stats.host_blocks_used);
  stats.blocks_cached = kv.device().num_idle();
  stats.host_blocks_cached = kv.host().num_idle();
  stats.prefix_evictions = kv.store.num_evicted;
}

SAC_HD inline void publish_words(const void* stats, void* line, size_t bytes) {
  const auto* from = static_cast<const uint64_t*>(stats);
  auto* to = static_cast<uint64_t*>(line);
  for (size_t w = 0; w < bytes / 8; ++w) store_relaxed(to + w, from[w]);
}
SAC_HD inline void publish_stats(const Report& report) {
  publish_words(&report.stats, report.ring.stats, offsetof(sac_device_stats, _pad0));
}

SAC_HD inline void take_stock_of_fetches(const FetchDesk& desk, const WriteBehind& write_behind,
                                         uint64_t now_ns, sac_fetch_stats& stats) {
  stats.num_aside = desk.num_aside;
  stats.num_loading = desk.num_loading;
  stats.num_frames = desk.limits.num_frames;
  stats.frames_used = stats.num_frames - desk.num_frames_in(FrameUse::kFree);
  stats.stores_waiting = write_behind.count;
  stats.stores_dropped = write_behind.num_dropped;
  stats.plane_epoch = desk.epoch;
  stats.plane_alive = now_ns - desk.alive_ns <= kFetchLostNs ? 1 : 0;
  stats.breaker = desk.breaker;
}
SAC_HD inline void publish_fetch_stats(const Report& report) {
  publish_words(&report.fetch, report.ring.fetch_stats, offsetof(sac_fetch_stats, _pad0));
}

SAC_HD inline Admission admission_of(Scheduler& s) {
  return {s.limits.vocab_size,
          s.inbox,
          s.slots,
          s.waiting,
          s.seats,
          s.kv,
          s.fetch,
          s.course,
          s.shares,
          s.report};
}

/// The general way from the requests that are there to the batch that runs.
template <class Env>
SAC_HD_INLINE void decide(Scheduler& s, Env& env) {
  const Admission admission = admission_of(s);
  if (s.desk.policy == Policy::kFcfs && s.shares.mixed == 0) {
    admit(admission, env);
  } else {
    choose(s.desk, admission, env);
  }
  rotate(admission.preemption());
  copy_ahead(s.kv, s.seats, s.report);
  if (s.fetch.limits.synchronous != 0 && s.fetch.num_loading != 0) {
    s.launch.batch.num_seqs = 0;
    return;
  }
  if (batch(s.limits, s.seats, s.kv, s.launch, s.report, s.course, s.shares)) ++s.course.step;
}

/// What became findable, or is so no longer, is told to routers.
SAC_HD inline void tell_routers(KvBlocks& store, const FetchView& view) {
  KvEvents& events = store.events;
  if (!events.enabled()) return;
  // SYNC: acquire, with the reader's release of events_read: the places below it may be written.
  const uint64_t read = load_acquire(&view.plane->events_read);
  if (read > events.read && read <= events.written) events.read = read;
  retell(store);
  store_relaxed(&view.device->events_dropped, events.dropped);
  // SYNC: release, with the reader's acquire of events_written: the events are visible.
  if (load_relaxed(&view.device->events_written) != events.written)
    store_release(&view.device->events_written, events.written);
}

/// Loads and stores go on, whatever the step is.
template <class Env>
SAC_HD void ask_fetch_plane(Scheduler& s, Env& env) {
  FetchDesk& desk = s.fetch;
  if (desk.view.device == nullptr) return;
  ask_for_chunks(desk, s.seats, s.kv, s.course, s.report);
  store_behind(desk, s.kv, s.report, s.course.tick_ns);
  tell_routers(s.kv.store, desk.view);
  if (desk.commands_written == desk.commands_told) return;
  desk.commands_told = desk.commands_written;
  env.notify_fetch(desk.view);
}

/// The part of drain that may run beside a step: new requests are copied and checked. All
/// decisions, also the order of arrival, are left to the tick, so that overlapping changes none.
template <class Env>
SAC_HD void read_beside_step(Scheduler& s, Env& env) {
  s.inbox.ahead.at_ns = env.now_ns();
  s.inbox.ahead.found = read_peers(s.inbox, s.seats.cursors, env);
  copy_requests(s.limits, s.inbox, s.slots, env, s.inbox.changed, s.inbox.ahead.found);
}

/// First part of a tick: decides what runs next, and asks for copies. The batch is in s.launch.
/// Returns its number of sequences, 0 if none can run; then `end_tick` follows.
template <class Engine, class Env>
SAC_HD_INLINE uint32_t begin_tick(Scheduler& s, Engine& engine, Env& env) {
  s.report.stats.ticks = ++s.course.tick;
  const uint64_t last_ns = s.course.tick_ns;
  s.course.tick_ns = env.now_ns();
  s.report.beat();
  const uint64_t since_ns = s.course.tick_ns - last_ns;
  settle(s.kv, engine, since_ns);
  hear({s.fetch, s.slots, s.waiting, s.seats, s.kv, s.course, s.report}, since_ns);
  drain({s.limits, s.inbox, s.slots, s.waiting, s.seats, s.parking, s.kv, s.fetch, s.course.tick_ns,
         s.shares, s.report},
        env);
  s.report.send_statuses();  // a claim does not wait for the decision
  if (Env::kSteady && is_empty(s)) {
    weigh_shares(s.shares, s.seats, s.waiting, s.parking, s.course.tick_ns);
    begin_batch(s.course, s.launch, s.shares);
    s.course.steady = false;
  } else {
    share(s.kv, s.seats, s.course, s.report);  // before what has ended gives its blocks back
    retire(s.slots, s.seats, s.kv, s.fetch, s.report);
    weigh_shares(s.shares, s.seats, s.waiting, s.parking, s.course.tick_ns);
    share_seats({s.parking, admission_of(s), s.desk.settings.max_wait_ns}, env);
    s.course.steady = Env::kSteady && decide_steady(s, env);
    if (!s.course.steady) decide(s, env);
  }
  ask_fetch_plane(s, env);
  s.report.send_statuses();
  const Copies& copies = s.kv.store.copies;
  if (!copies.idle()) engine.submit(copies.down, copies.up);
  if (s.launch.batch.num_seqs == 0)
    stay_idle(s.idle, has_unfinished(s.waiting, s.seats, s.parking, s.fetch), s.seats, s.kv,
              s.fetch, s.course.tick_ns, s.report.stats);
  return s.launch.batch.num_seqs;
}

/// Second part: the batch is about to be launched.
template <class Env>
SAC_HD void note_launch(Scheduler& s, const Env& env) {
  s.course.launch_ns = env.now_ns();
  end_idle(s.idle, s.course, Env::kHostActs, s.report.stats);
}

/// Third part: the step's results stand. `done_ns`: since when, 0 if that is not known.
template <class Env>
SAC_HD void take_results(Scheduler& s, uint64_t done_ns, Env& env) {
  const uint64_t now_ns = env.now_ns();
  if (done_ns < s.course.launch_ns || done_ns > now_ns) done_ns = now_ns;
  const uint64_t took_ns = done_ns - s.course.launch_ns;
  s.report.stats.step_ns += took_ns;
  s.course.note_results(done_ns);
  const StepBatch& b = s.launch.batch;
  charge_step(s.shares, took_ns);
  note_cost(s.course.cost, b, s.launch.num_decodes, took_ns);
  if (b.num_rows != b.num_seqs) s.kv.break_even.note_prompt_step(took_ns, b.num_rows);
  const Results results = {s.slots, s.seats, s.launch, done_ns, s.report};
  env.each_seat(s, SeatVerb::kCommit, s.launch.batch.num_seqs);
  commit_rest(results);
  s.kv.store.step_done = s.launch.batch.step;
  publish(results);
  begin_idle(s.idle, has_unfinished(s.waiting, s.seats, s.parking, s.fetch), done_ns);
}

/// Last part: tells readers.
template <class Env>
SAC_HD void end_tick(Scheduler& s, Env& env) {
  take_stock(s.waiting, s.seats, s.parking, s.kv, s.fetch, s.course.steady, s.report.stats);
  publish_stats(s.report);
  if (s.fetch.limits.enabled()) {
    take_stock_of_fetches(s.fetch, s.kv.write_behind, s.course.tick_ns, s.report.fetch);
    publish_fetch_stats(s.report);
  }
  // SYNC: release; a reader that sees the new count, or a host that sees the tick done, sees every
  // status written before.
  fence_release();
  if (s.report.published == 0) return;
  s.report.published = 0;
  store_relaxed(&s.report.ring.device->publish_count, ++s.report.publish_count);
  env.notify_publish();
}

/// One tick. Returns the number of sequences in the step that it ran, 0 if none could run. Where a
/// step outlives the code that launched it (device/cuda/launch/), the parts are called one by one.
template <class Step, class Engine, class Env>
SAC_HD uint32_t tick(Scheduler& s, Step& step, Engine& engine, Env& env) {
  const uint32_t num_seqs = begin_tick(s, engine, env);
  if (num_seqs != 0) {
    note_launch(s, env);
    step.launch(s.launch.batch);
    if (Env::kOverlap) read_beside_step(s, env);
    step.wait();
    take_results(s, step.done_ns(), env);
  }
  end_tick(s, env);
  return num_seqs;
}

/// One tick of a device with one tier: limits.num_host_blocks is 0.
template <class Step, class Env>
SAC_HD uint32_t tick(Scheduler& s, Step& step, Env& env) {
  NoCopies none;
  return tick(s, step, none, env);
}

}  // namespace saccade
