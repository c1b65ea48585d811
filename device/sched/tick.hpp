// The tick: what a device plane does, over and over, whatever it runs on.
//
//   drain -> retire -> admit -> rotate -> batch -> launch -> (scan beside the step) -> commit ->
//   publish
//
// Step: launch(const StepBatch&), wait(), and done_ns(), when the last step's results stood by the
// environment's clock (0: not known apart from the return of wait). Env: now_ns(), notify_publish()
// (wakes sleeping readers, never blocks), scan(doorbells, seen, num_slots, changed) (as
// scan_changed, with whatever threads there are), kHostActs, which says whether the tick runs on a
// host that a device waits for, and kOverlap, which says whether new requests are copied and
// checked while the step runs. Without it this is the readable specification; with it the same
// decisions are made, and less is left to do between two steps.
#pragma once
#include "sched/admit.hpp"
#include "sched/batch.hpp"
#include "sched/commit.hpp"
#include "sched/drain.hpp"
#include "sched/idle.hpp"
#include "sched/retire.hpp"
#include "sched/rotate.hpp"

namespace saccade {

/// Joins the ring: a new epoch, in which every slot is EMPTY with the ticket that its doorbell
/// shows. Nothing that was submitted to an earlier life is run. Phase READY is written by
/// `go_ready`.
SAC_HD inline void join_ring(Scheduler& s, const RingView& ring, uint64_t now_ns) {
  s.ring = ring;
  store_relaxed(&ring.device->phase, SAC_PHASE_LOADING);
  // SYNC: release; requests that read the epoch before this point carry the old one and are
  // refused.
  store_release(&ring.device->epoch, load_relaxed(&ring.device->epoch) + 1);
  fence_seq_cst();
  for (uint32_t slot = 0; slot < ring.num_slots; ++slot) {
    s.seen[slot] = ring.doorbell(slot);
    Request& r = s.requests[slot];
    r = Request{};
    r.ticket = sac_doorbell_ticket(s.seen[slot]);
    r.seat = kNone;
    ring.write_progress(slot, 0, 0);
    ring.write_status(slot, sac_status_word(r.ticket, SAC_STATE_EMPTY, SAC_FINISH_NONE, 0));
  }
  for (uint32_t f = 0; f < ring.num_frontends; ++f) {
    const uint32_t epoch = load_acquire(&ring.frontends[f].epoch);
    s.watch[f] = FrontendWatch{load_relaxed(&ring.frontends[f].heartbeat), now_ns, epoch, 0, 0};
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
  st.num_paused = 0;
  for (uint32_t i = 0; i < s.num_running; ++i)
    st.num_paused += s.seats[s.running[i]].state == SAC_STATE_DECODE_PAUSED ? 1 : 0;
  st.blocks_used = s.pool.used();
  st.blocks_used_max = max_u32(st.blocks_used_max, st.blocks_used);
  const auto* from = reinterpret_cast<const uint64_t*>(&st);
  auto* to = reinterpret_cast<uint64_t*>(s.ring.stats);
  for (size_t w = 0; w < offsetof(sac_device_stats, _pad1) / 8; ++w) store_relaxed(to + w, from[w]);
}

/// Runs the launched step, with whatever may be done meanwhile. Returns when its results stood.
template <class Step, class Env>
SAC_HD uint64_t run_step(Scheduler& s, Step& step, Env& env) {
  const uint64_t launch_ns = env.now_ns();
  end_idle(s, launch_ns, Env::kHostActs);
  step.launch(s.effects.batch);
  if (Env::kOverlap) scan_beside_step(s, env);
  step.wait();
  const uint64_t now_ns = env.now_ns();
  uint64_t done_ns = step.done_ns();
  if (done_ns < launch_ns || done_ns > now_ns) done_ns = now_ns;
  s.stats.step_ns += done_ns - launch_ns;
  return done_ns;
}

/// One tick. Returns the number of sequences in the step that it ran, 0 if none could run.
template <class Step, class Env>
SAC_HD uint32_t tick(Scheduler& s, Step& step, Env& env) {
  ++s.tick;
  s.tick_ns = env.now_ns();
  store_relaxed(&s.ring.device->heartbeat, load_relaxed(&s.ring.device->heartbeat) + 1);
  drain(s, env);
  retire(s);
  admit(s);
  rotate(s);
  batch(s);
  const uint32_t num_seqs = s.effects.batch.num_seqs;
  if (num_seqs != 0) {
    const uint64_t done_ns = run_step(s, step, env);
    commit(s);
    publish(s);
    begin_idle(s, done_ns);
  } else {
    stay_idle(s);
  }
  publish_stats(s);
  if (s.published != 0) {
    s.published = 0;
    // SYNC: release; a reader that sees the new count sees every status written before it.
    store_release(&s.ring.device->publish_count, load_relaxed(&s.ring.device->publish_count) + 1);
    env.notify_publish();
  }
  return num_seqs;
}

}  // namespace saccade
