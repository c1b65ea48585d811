// The scheduler's environment on a host: its one clock, and how it wakes readers and sleeps.
#pragma once
#include "host/futex.hpp"
#include "platform/clock.hpp"
#include "sched/tick.hpp"

namespace saccade {

/// Wakes a fetch plane that waits for commands.
inline void wake_fetch_plane(const FetchView& view) {
  // SYNC: with the plane, which sets `waiting`, fences, and looks at commands_written again before
  // it sleeps: either it sees the new commands or we see that it waits.
  fence_seq_cst();
  if (load_relaxed(&view.plane->waiting) != 0) futex_wake(&view.device->commands_written);
}

/// kOverlapped: see tick.hpp.
template <bool kOverlapped>
struct HostEnv : ReadsAlone, SeatsAlone {
  static constexpr bool kOverlap = kOverlapped;
  static constexpr bool kSteady = kOverlapped;
  static constexpr bool kHostActs = true;
  RingView ring;

  explicit HostEnv(const RingView& view) : ring(view) {}
  uint64_t now_ns() const { return monotonic_ns(); }

  void notify_fetch(const FetchView& view) const { wake_fetch_plane(view); }
  void notify_publish() const {
    // SYNC: with the token reader, which sets `waiting`, fences, and reads publish_count again
    // before it sleeps: either it sees the new count or we see that it waits.
    fence_seq_cst();
    for (uint32_t f = 0; f < ring.num_frontends; ++f) {
      if (load_relaxed(&ring.frontends[f].waiting) == 0) continue;
      futex_wake(&ring.device->publish_count);
      return;
    }
  }
};

/// What ended a wait.
enum class WaitEnd : uint8_t { kFrontend, kWoken, kTimeRanOut };

/// Waits until a frontend wants an answer, for at most kSleepNs: first spins, then sleeps. The
/// heartbeat moves once per tick, so this bounds its period too.
class IdleWait {
 public:
  static constexpr uint64_t kSpinNs = 20 * 1000;
  static constexpr uint64_t kSleepNs = 50 * 1000 * 1000;
  /// While requests are held by slow readers: cursors move without a doorbell.
  static constexpr uint64_t kStalledSleepNs = 500 * 1000;
  /// While copies between the tiers are in flight, or an answer of the fetch plane is awaited:
  /// about the time of one.
  static constexpr uint64_t kCopySleepNs = 100 * 1000;

  /// idle_ns: the longest sleep without work.
  static WaitEnd wait(Scheduler& s, uint64_t idle_ns = kSleepNs) {
    const uint64_t start_ns = monotonic_ns();
    while (monotonic_ns() - start_ns < kSpinNs)
      if (frontend_waits(s.inbox)) return WaitEnd::kFrontend;
    sac_device_line* line = s.report.ring.device;
    const uint32_t kick = load_acquire(&s.report.ring.wake->device_kick);
    store_relaxed(&line->sleeping, 1u);
    // SYNC: with a frontend, which rings or joins, fences, and then reads `sleeping`: either it
    // sees that we sleep and kicks, or we see its doorbell or epoch here.
    fence_seq_cst();
    WaitEnd end = WaitEnd::kFrontend;
    if (!frontend_waits(s.inbox)) {
      const bool ran_out =
          futex_wait(&s.report.ring.wake->device_kick, kick, longest_ns(s, idle_ns));
      end = ran_out ? WaitEnd::kTimeRanOut : WaitEnd::kWoken;
    }
    store_relaxed(&line->sleeping, 0u);
    return end;
  }

 private:
  static uint64_t longest_ns(const Scheduler& s, uint64_t idle_ns) {
    if (!s.kv.store.copies.idle() || !s.fetch.is_quiet()) return kCopySleepNs;
    return s.has_work() ? kStalledSleepNs : idle_ns;
  }
};

}  // namespace saccade
