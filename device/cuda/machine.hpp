// A device plane that lives in threads of its own, as the host sees it: start it, let it tick, stop
// it, read what it left. The threads are a GPU's (cuda_device.hpp) or a host's
// (thread_machine.hpp).
#pragma once
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cuda/live.hpp"
#include "cuda/watchdog.hpp"

namespace saccade {

/// What a life left behind.
struct LifeOutcome {
  std::vector<uint64_t> decisions;  // words of the decision log
  uint64_t decisions_dropped = 0;
  std::vector<StepTimes> times;  // of the first ticks that ran a step
  sac_device_stats stats = {};
  uint64_t relaunches = 0;  // of the scheduler's graph, where it relaunches itself
};

class Machine {
 public:
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Begins the life, without permission for any tick. Once per machine.
  void start(bool overlapped) {
    {
      const Watchdog watchdog("launching a life", kDriverBudget, [this] { return crash(); });
      launch(overlapped);
    }
    await("the life to begin", [this] { return phase() != kLifeUnborn; });
  }
  /// Lets `count` more ticks run and waits until they are done.
  void run_ticks(uint64_t count) {
    granted_ += count;
    permit(granted_);
    await("ticks to be done", [this] { return ticks_done() >= granted_; });
  }
  void run_freely() { permit(kRunFreely); }
  /// Ends the life and says what it left.
  LifeOutcome stop() {
    permit(kStop);
    await("the life to end", [this] { return phase() == kLifeLeft; });
    guarded_reap();
    return collect();
  }
  /// Waits until the life ends on its own. Empty, or the crash record as a sentence.
  std::string await_end() {
    await("the life to end", [this] { return phase() == kLifeLeft; });
    guarded_reap();
    return crash();
  }

  // SYNC: acquire, with the device's release after each tick: what it wrote to the ring is visible.
  uint64_t ticks_done() const { return load_acquire(&control_->life.ticks_done); }
  /// Empty, or a rule of the platform that was seen broken. After the end of the life.
  virtual std::string broken() const { return ""; }
  /// The life is over, on its own or because it was told to stop.
  bool ended() const { return phase() == kLifeLeft; }
  uint64_t heartbeat() const { return load_relaxed(&control_->life.heartbeat); }
  /// The crash record as a sentence; empty if there is none. May be called while the device hangs.
  std::string crash() const {
    const CrashRecord& r = control_->crash;
    // SYNC: acquire, with the device's release of site, written last.
    const auto site = static_cast<WaitSite>(load_acquire(&r.site));
    if (site == WaitSite::kNone) return "";
    char text[256];
    std::snprintf(text, sizeof(text),
                  "thread %u waited %.1f s at \"%s\" for thread %u: expected %llu, observed %llu, "
                  "in tick %llu",
                  r.who, static_cast<double>(r.waited_ns) * 1e-9, name_of(site), r.late,
                  static_cast<unsigned long long>(r.expected),
                  static_cast<unsigned long long>(r.observed),
                  static_cast<unsigned long long>(r.tick));
    return text;
  }

 protected:
  /// `control`: zeroed, outlives the machine.
  explicit Machine(Control* control) : control_(control) {}
  virtual void launch(bool overlapped) = 0;
  /// Waits for the threads of a life whose phase is kLifeLeft.
  virtual void reap() = 0;
  virtual LifeOutcome collect() = 0;

  uint32_t phase() const { return load_acquire(&control_->life.phase); }
  // SYNC: release, with the device's acquire: what was written to the ring before is visible.
  void permit(uint64_t ticks) { store_release(&control_->host.permit, ticks); }

 private:
  /// Longer than any budget of the device, so that its record can explain the failure.
  static constexpr uint64_t kAnswerBudgetNs = 20ull * 1000 * 1000 * 1000;
  /// Of calls that wait for the driver, and may wait for kernels in it.
  static constexpr std::chrono::seconds kDriverBudget{30};

  void guarded_reap() {
    const Watchdog watchdog("ending a life", kDriverBudget, [this] { return crash(); });
    reap();
  }

  template <class Done>
  void await(const char* what, Done done) const {
    const uint64_t begin_ns = monotonic_ns();
    while (!done()) {
      const bool over = monotonic_ns() - begin_ns > kAnswerBudgetNs;
      if (phase() == kLifeLeft && !done()) fail(what, "the life has ended");
      if (over) fail(what, "no answer within the budget");
      std::this_thread::yield();
    }
  }
  [[noreturn]] void fail(const char* what, const char* why) const {
    throw std::runtime_error(std::string("waiting for ") + what + ": " + why + "; ticks done " +
                             std::to_string(ticks_done()) + ", heartbeat " +
                             std::to_string(heartbeat()) +
                             "; crash record: " + (crash().empty() ? "none" : crash()));
  }

  Control* control_;
  uint64_t granted_ = 0;
};

}  // namespace saccade
