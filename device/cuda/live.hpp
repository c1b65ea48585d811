// The life of a device plane inside a team of threads: join the ring, tick until told to stop,
// leave. The same source is the body of the persistent kernel and of its twin made of host threads.
//
// Crew, beside what team_scan.hpp asks for: failed() (a wait of the leader ran out),
// report(site, late, expected, observed, waited_ns) (leaves the crash record), set_tick(tick), and
// nap() (a short pause when there was nothing to do).
#pragma once
#include "cuda/control.hpp"
#include "platform/clock.hpp"
#include "platform/team_scan.hpp"
#include "sched/null_step.hpp"
#include "sched/tick.hpp"

namespace saccade {

inline constexpr uint32_t kMaxTickTimes = 1u << 16;

/// The state that only the leader writes; read by the host before and after a life.
struct LifeState {
  Scheduler scheduler;
  uint32_t* tick_ns;  // [kMaxTickTimes]: how long each tick took that ran a step
  uint32_t num_tick_ns;
};

/// What a life is given. Copied to the device as it is.
struct Life {
  LifeState* state;
  RingView ring;
  Control* control;
  uint32_t eos_ids[kMaxEosIds];
};

/// Hands out the state and every array it points to; call with a measuring Layout first. Limits
/// must be set in `image`, whose copy must then be put where the first span is.
inline LifeState* lay_out(LifeState& image, Layout& at) {
  auto* state = at.take<LifeState>(1);
  lay_out(image.scheduler, at);
  image.tick_ns = at.take<uint32_t>(kMaxTickTimes);
  image.num_tick_ns = 0;
  return state;
}

/// The environment of a tick that runs in a team. Readers poll the ring, so that there is nobody to
/// notify.
template <bool kOverlapped, class Crew>
struct TeamEnv {
  static constexpr bool kOverlap = kOverlapped;
  static constexpr bool kHostActs = false;  // the tick runs where the steps do
  ScanBoard& board;
  Crew& crew;

  SAC_HD uint64_t now_ns() const { return monotonic_ns(); }
  SAC_HD void notify_publish() const {}
  SAC_HD uint32_t scan(const uint32_t* doorbells, const uint32_t* seen, uint32_t num_slots,
                       uint32_t* changed) const {
    return lead_scan(board, crew, doorbells, seen, num_slots, changed);
  }
};

/// True: one more tick may run. False: told to stop, or the host did not answer within the budget.
template <class Crew>
SAC_HD bool await_permit(Control& control, Crew& crew, uint64_t& beats, uint64_t ticks_done) {
  const uint64_t begin_ns = monotonic_ns();
  for (;;) {
    store_relaxed(&control.life.heartbeat, ++beats);
    // SYNC: acquire, with the host's release of its permit: what it wrote to the ring before is
    // seen by this tick.
    const uint64_t permit = load_acquire(&control.host.permit);
    if (permit == kStop) return false;
    if (ticks_done < permit) return true;
    const uint64_t waited_ns = monotonic_ns() - begin_ns;
    if (waited_ns <= budget_ns(WaitSite::kTickPermit)) continue;
    crew.report(WaitSite::kTickPermit, crew.rank(), ticks_done + 1, permit, waited_ns);
    return false;
  }
}

SAC_HD inline void note_tick_time(LifeState& state, uint64_t ns) {
  if (state.num_tick_ns == kMaxTickTimes) return;  // the first ones suffice
  state.tick_ns[state.num_tick_ns++] = static_cast<uint32_t>(ns);
}

template <bool kOverlapped, class Crew>
SAC_HD void tick_until_stopped(const Life& life, ScanBoard& board, Crew& crew) {
  Scheduler& s = life.state->scheduler;
  Control& control = *life.control;
  NullStep step{s.tables, s.outputs, s.limits.vocab_size};
  TeamEnv<kOverlapped, Crew> env{board, crew};
  uint64_t beats = 0;
  while (!crew.failed() && await_permit(control, crew, beats, s.tick)) {
    crew.set_tick(s.tick + 1);
    const uint64_t begin_ns = monotonic_ns();
    const uint32_t num_seqs = tick(s, step, env);
    if (num_seqs != 0) note_tick_time(*life.state, monotonic_ns() - begin_ns);
    // SYNC: release, with the host's acquire: what the tick wrote to the ring is visible.
    store_release(&control.life.ticks_done, s.tick);
    if (num_seqs == 0) crew.nap();
  }
}

/// The leader's whole life, on one thread.
template <bool kOverlapped, class Crew>
SAC_HD void lead(const Life& life, ScanBoard& board, Crew& crew) {
  Scheduler& s = life.state->scheduler;
  reset(s, life.eos_ids);
  join_ring(s, life.ring, monotonic_ns());
  go_ready(s);
  store_release(&life.control->life.phase, kLifeRuns);
  tick_until_stopped<kOverlapped>(life, board, crew);
  dismiss(board, crew);
  // SYNC: release, with the host's acquire: the crash record, if there is one, is whole.
  store_release(&life.control->life.phase, kLifeLeft);
}

}  // namespace saccade
