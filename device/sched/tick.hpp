// The tick: what a device plane does, over and over, whatever it runs on.
//
//   settle -> drain -> retire -> admit or choose -> rotate -> copy ahead -> batch ->
//   launch (copies, step) -> (scan beside the step) -> commit -> publish
//
// Engine: what copies KV blocks between the tiers (kv/copies.hpp).
// Step: launch(const StepBatch&), wait(), and done_ns(), when the last step's results stood by the
// environment's clock (0: not known apart from the return of wait). Env: now_ns(), notify_publish()
// (wakes sleeping readers, never blocks), read_peers(reading, changed) and fetch(fetches, count)
// (as those of ring/peers.hpp, with whatever threads there are), takes(ahead) (is that reading as
// good as one made now), each_seat(s, verb, count) (as that of sched/seatwise.hpp), kHostActs,
// which says whether the tick runs on a host that a device waits for, kOverlap, which says whether
// new requests are copied and checked while the step runs, and kSteady, which says whether steady
// ticks are decided by steady.hpp. Without the last two this is the readable specification; with
// them the same decisions are made, and less is left to do between two steps.
#pragma once
#include "sched/admit.hpp"
#include "sched/batch.hpp"
#include "sched/choose.hpp"
#include "sched/commit.hpp"
#include "sched/drain.hpp"
#include "sched/idle.hpp"
#include "sched/retire.hpp"
#include "sched/rotate.hpp"
#include "sched/steady.hpp"

namespace saccade {

/// Joins the ring: a new epoch, in which every slot is EMPTY with the ticket that its doorbell
/// shows. Nothing that was submitted to an earlier life is run. Phase READY is written by
/// `go_ready`.
SAC_HD inline void join_ring(Scheduler& s, const RingView& ring, uint64_t now_ns) {
  s.ring = ring;
  store_relaxed(&ring.device->phase, SAC_PHASE_LOADING);
  s.epoch = load_relaxed(&ring.device->epoch) + 1;
  s.heartbeat = load_relaxed(&ring.device->heartbeat);
  s.publish_count = load_relaxed(&ring.device->publish_count);
  // SYNC: release; requests that read the epoch before this point carry the old one and are
  // refused.
  store_release(&ring.device->epoch, s.epoch);
  fence_seq_cst();
  for (uint32_t slot = 0; slot < ring.num_slots; ++slot) {
    s.seen[slot] = s.peers.rung[slot] = load_acquire(ring.doorbells + slot);
    Request& r = s.requests[slot];
    r = Request{};
    r.ticket = sac_doorbell_ticket(s.seen[slot]);
    r.seat = kNone;
    ring.write_progress(slot, 0, 0);
    post_status(s, slot, sac_status_word(r.ticket, SAC_STATE_EMPTY, SAC_FINISH_NONE, 0));
  }
  send_statuses(s);
  for (uint32_t f = 0; f < ring.num_frontends; ++f) {
    const uint32_t epoch = load_acquire(&ring.frontends[f].epoch);
    s.peers.epochs[f] = epoch;
    s.peers.heartbeats[f] = load_relaxed(&ring.frontends[f].heartbeat);
    s.watch[f] = FrontendWatch{s.peers.heartbeats[f], now_ns, epoch, 0, 0};
    // SYNC: release, with the joining frontend's acquire: the statuses above are visible.
    store_release(&ring.acks[f].epoch, epoch);
  }
}

/// Tells frontends what they may ask for, then that the device is ready.
SAC_HD inline void go_ready(Scheduler& s) {
  sac_device_line* line = s.ring.device;
  store_relaxed(&line->vocab_size, s.limits.vocab_size);
  store_relaxed(&line->max_model_len, s.limits.max_model_len);
  store_relaxed(&line->block_size, s.limits.block_size);
  store_relaxed(&line->num_blocks, s.limits.num_blocks);
  store_relaxed(&line->num_host_blocks, s.limits.num_host_blocks);
  store_relaxed(&line->max_num_seqs, s.limits.num_seats);
  store_relaxed(&line->max_num_batched_tokens, s.limits.max_num_batched_tokens);
  // SYNC: release, with a frontend's acquire of phase: the limits above are visible.
  store_release(&line->phase, SAC_PHASE_READY);
}

SAC_HD inline void publish_stats(Scheduler& s) {
  sac_device_stats& st = s.stats;
  st.ticks = s.tick;
  st.num_running = s.num_running;
  st.num_waiting = s.num_waiting;
  st.num_paused = st.num_rotated = 0;
  for (uint32_t i = 0; i < s.num_running && !s.steady; ++i) {
    const Seat& seat = s.seats[s.running[i]];
    st.num_paused += seat.state == SAC_STATE_DECODE_PAUSED ? 1 : 0;
    st.num_rotated += seat.num_blocks == 0 && seat.num_host != 0 ? 1 : 0;
  }
  st.blocks_used = s.pool.used();
  st.blocks_used_max = max_u32(st.blocks_used_max, st.blocks_used);
  st.host_blocks_used = s.host_pool.used();
  st.host_blocks_used_max = max_u32(st.host_blocks_used_max, st.host_blocks_used);
  const auto* from = reinterpret_cast<const uint64_t*>(&st);
  auto* to = reinterpret_cast<uint64_t*>(s.ring.stats);
  for (size_t w = 0; w < offsetof(sac_device_stats, _pad0) / 8; ++w) store_relaxed(to + w, from[w]);
}

SAC_HD inline void note_step_time(Scheduler& s, uint64_t done_ns) {
  const uint64_t took_ns = done_ns > s.tick_ns ? done_ns - s.tick_ns : 0;
  s.mean_step_ns = s.mean_step_ns == 0 ? took_ns : (7 * s.mean_step_ns + took_ns) / 8;
  s.step_done_ns = done_ns;
}

/// The general way from who is there to what runs.
template <class Env>
SAC_HD void decide(Scheduler& s, Env& env) {
  if (s.limits.policy == Policy::kFcfs) {
    admit(s, env);
  } else {
    choose(s, env);
  }
  rotate(s);
  copy_ahead(s);
  batch(s);
}

/// First part of a tick: decides what runs next, and asks for copies. The batch stands in
/// s.effects. Returns its number of sequences, 0 if none can run; then `end_tick` follows.
template <class Engine, class Env>
SAC_HD_INLINE uint32_t begin_tick(Scheduler& s, Engine& engine, Env& env) {
  ++s.tick;
  s.tick_ns = env.now_ns();
  store_relaxed(&s.ring.device->heartbeat, ++s.heartbeat);
  settle(s, engine);
  drain(s, env);
  send_statuses(s);  // a claim does not wait for the decision
  retire(s);
  s.steady = Env::kSteady && decide_steady(s, env);
  if (!s.steady) decide(s, env);
  send_statuses(s);
  if (!s.copies.idle()) engine.submit(s.copies.down, s.copies.up);
  if (s.effects.batch.num_seqs == 0) stay_idle(s);
  return s.effects.batch.num_seqs;
}

/// Second part: the batch is about to be launched.
template <class Env>
SAC_HD void note_launch(Scheduler& s, const Env& env) {
  s.launch_ns = env.now_ns();
  end_idle(s, s.launch_ns, Env::kHostActs);
}

/// Third part: the step's results stand. `done_ns`: since when, 0 if that is not known.
template <class Env>
SAC_HD void take_results(Scheduler& s, uint64_t done_ns, Env& env) {
  const uint64_t now_ns = env.now_ns();
  if (done_ns < s.launch_ns || done_ns > now_ns) done_ns = now_ns;
  s.stats.step_ns += done_ns - s.launch_ns;
  note_step_time(s, done_ns);
  commit(s, env);
  publish(s);
  begin_idle(s, done_ns);
}

/// Last part: tells readers.
template <class Env>
SAC_HD void end_tick(Scheduler& s, Env& env) {
  publish_stats(s);
  // SYNC: release; a reader that sees the new count, or a host that sees the tick done, sees every
  // status written before.
  fence_release();
  if (s.published == 0) return;
  s.published = 0;
  store_relaxed(&s.ring.device->publish_count, ++s.publish_count);
  env.notify_publish();
}

/// One tick. Returns the number of sequences in the step that it ran, 0 if none could run. Where a
/// step outlives the code that launched it (device/cuda/launch/), the parts are called one by one.
template <class Step, class Engine, class Env>
SAC_HD uint32_t tick(Scheduler& s, Step& step, Engine& engine, Env& env) {
  const uint32_t num_seqs = begin_tick(s, engine, env);
  if (num_seqs != 0) {
    note_launch(s, env);
    step.launch(s.effects.batch);
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
