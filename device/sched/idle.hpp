// idle: whom the step engine waited for while no step was in flight. This is the one definition of
// the two sums in sac_device_stats; a step itself is step_ns, and time without work is in no sum.
//
//   host_wait_ns    A request could have run, but the host had to act first: from the moment at
//                   which the last step's results stood (or, if nothing could run then, from the
//                   start of the tick that took up something that could) to the next launch. It
//                   holds the host's waking up after a step, commit, publish, drain, admit, rotate
//                   and batch, and any time that the thread which does them was off its core. It
//                   does not hold the time from a doorbell to the tick that sees it, because
//                   doorbells carry no time. It stays 0 where the scheduler lives on the device
//                   (Env::kHostActs is false): then no host is waited for, by construction.
//   reader_wait_ns  Requests wait or hold seats, and every one that could run was held for its slow
//                   reader: from the same beginning to the start of the tick that runs one again.
//   copy_wait_ns    The same, while copies between the tiers are under way and none could run.
//
// Only clock readings that a tick makes anyway are used.
#pragma once
#include "sched/tiers.hpp"

namespace saccade {

/// A request waits for a seat, or holds one and has not ended.
SAC_HD inline bool has_unfinished(const Scheduler& s) {
  return s.num_waiting != 0 || s.num_running != s.num_ended;
}

/// A request could run, were it not for a copy.
SAC_HD inline bool any_waits_for_copies(const Scheduler& s) {
  if (s.copies.idle()) return false;
  for (uint32_t i = 0; i < s.num_running; ++i) {
    const Seat& seat = s.seats[s.running[i]];
    if (seat.starved != 0 || is_rotating_in(s, seat) || is_rotating_out(s, seat)) return true;
  }
  return false;
}

/// Adds the time since idleness began, or was last counted, to what is waited for.
SAC_HD inline void count_wait(Scheduler& s) {
  const uint64_t waited_ns = s.tick_ns - s.idle_since_ns;
  if (s.idle == Idle::kForReaders) s.stats.reader_wait_ns += waited_ns;
  if (s.idle == Idle::kForCopies) s.stats.copy_wait_ns += waited_ns;
}

/// A step is launched at `launch_ns`.
SAC_HD inline void end_idle(Scheduler& s, uint64_t launch_ns, bool host_acts) {
  const uint64_t runnable_ns = s.idle == Idle::kForHost ? s.idle_since_ns : s.tick_ns;
  count_wait(s);
  if (host_acts) s.stats.host_wait_ns += launch_ns - runnable_ns;
  s.idle = Idle::kNoWork;
}

/// A tick found nothing to launch. The oldest request that is not held always can run, now or when
/// copies are done (rotate.hpp), so whoever is left is held for a reader or for copies; and was,
/// when the last step ended.
SAC_HD inline void stay_idle(Scheduler& s) {
  if (!has_unfinished(s)) {
    s.idle = Idle::kNoWork;
    return;
  }
  const Idle waits_for = any_waits_for_copies(s) ? Idle::kForCopies : Idle::kForReaders;
  if (s.idle == Idle::kForHost) s.idle = waits_for;
  count_wait(s);
  s.idle = waits_for;
  s.idle_since_ns = s.tick_ns;
}

/// The results of a step stood at `done_ns`, and are committed.
SAC_HD inline void begin_idle(Scheduler& s, uint64_t done_ns) {
  s.idle = has_unfinished(s) ? Idle::kForHost : Idle::kNoWork;
  s.idle_since_ns = done_ns;
}

}  // namespace saccade
