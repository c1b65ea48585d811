// idle: what the step engine waited for while no step was in flight. This is the one definition of
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
//   copy_wait_ns    The same, while copies between the tiers are under way, or KV comes from a
//   store,
//                   and none could run.
//
// Only clock readings that a tick makes anyway are used.
#pragma once
#include "sched/course.hpp"
#include "sched/fetch/desk.hpp"
#include "sched/parking.hpp"
#include "sched/tiers.hpp"
#include "sched/waiting.hpp"

namespace saccade {

/// What the step engine waits for between two steps.
enum class Idle : uint32_t {
  kNoWork = 0,
  kForHost = 1,
  kForReaders = 2,
  kForCopies = 3,
};

struct IdleMeter {
  uint64_t since_ns;  // valid unless `waits` is kNoWork
  Idle waits;
};

/// A request waits for a seat, holds one and has not ended, or is parked.
SAC_HD inline bool has_unfinished(const WaitingLine& waiting, const Seats& seats,
                                  const Parking& parking, const FetchDesk& fetch) {
  return waiting.count != 0 || seats.num_running != seats.num_ended || fetch.num_aside != 0 ||
         parking.num_parked != 0;
}

/// A request could run, were it not for a copy.
SAC_HD inline bool any_waits_for_copies(const Seats& seats, const KvTiers& kv,
                                        const FetchDesk& fetch) {
  if (fetch.num_aside != 0 || fetch.num_loading != 0) return true;
  if (kv.store.copies.idle()) return false;
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const Seat& seat = seats[seats.running[i]];
    if (seat.starved != 0 || is_rotating_in(kv, seat) || is_rotating_out(kv, seat)) return true;
  }
  return false;
}

/// Adds the time since idleness began, or was last counted, to what is waited for.
SAC_HD inline void count_wait(const IdleMeter& meter, uint64_t tick_ns, sac_device_stats& stats) {
  const uint64_t waited_ns = tick_ns - meter.since_ns;
  if (meter.waits == Idle::kForReaders) stats.reader_wait_ns += waited_ns;
  if (meter.waits == Idle::kForCopies) stats.copy_wait_ns += waited_ns;
}

/// A step was launched.
SAC_HD inline void end_idle(IdleMeter& meter, const Course& course, bool host_acts,
                            sac_device_stats& stats) {
  const uint64_t runnable_ns = meter.waits == Idle::kForHost ? meter.since_ns : course.tick_ns;
  count_wait(meter, course.tick_ns, stats);
  if (host_acts) stats.host_wait_ns += course.launch_ns - runnable_ns;
  meter.waits = Idle::kNoWork;
}

/// A tick found nothing to launch. The oldest request that is not held always can run, now or when
/// copies are done (rotate.hpp), so what is left is held for a reader or for copies; and was, when
/// the last step ended. `unfinished`: something is left.
SAC_HD inline void stay_idle(IdleMeter& meter, bool unfinished, const Seats& seats,
                             const KvTiers& kv, const FetchDesk& fetch, uint64_t tick_ns,
                             sac_device_stats& stats) {
  if (!unfinished) {
    meter.waits = Idle::kNoWork;
    return;
  }
  const Idle waits = any_waits_for_copies(seats, kv, fetch) ? Idle::kForCopies : Idle::kForReaders;
  if (meter.waits == Idle::kForHost) meter.waits = waits;
  count_wait(meter, tick_ns, stats);
  meter.waits = waits;
  meter.since_ns = tick_ns;
}

/// The results of a step stood at `done_ns`, and are committed.
SAC_HD inline void begin_idle(IdleMeter& meter, bool unfinished, uint64_t done_ns) {
  meter.waits = unfinished ? Idle::kForHost : Idle::kNoWork;
  meter.since_ns = done_ns;
}

}  // namespace saccade
