// Threads that run one job at a time together, phase by phase.
//
// A phase ends when its items are done, not when its workers arrive: a worker that the host has
// descheduled delays the others only by the item it is working on, and not at all if it has none.
// Where items can be computed aside and published afterwards (for_each_published), the others
// compute that item again and continue; the late worker drops its result. A worker that comes back
// late finds the phases it missed done, passes through them and joins in.
//
// Every wait spins for a bounded time first and then sleeps in the kernel: an idle pool uses no
// processor.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace saccade {

/// A word that threads wait on: spins kSpins times, then sleeps.
class WaitWord {
 public:
  uint32_t load() const { return value_.load(std::memory_order_seq_cst); }
  /// Returns once the value differs from `seen`.
  void wait_change(uint32_t seen) const;
  /// Spins for some tens of microseconds, without sleeping; whether the value differs from `seen`.
  bool changes_soon(uint32_t seen) const;
  /// Moves the value from `seen` to the next and wakes all waiters; does nothing if it has already
  /// moved.
  void advance_from(uint32_t seen);

 private:
  static constexpr uint32_t kSpins = 400;  // about ten microseconds
  static constexpr uint32_t kPatientSpins = 3 * kSpins;
  std::atomic<uint32_t> value_{0};
};

class WorkerPool {
 public:
  class Worker;
  /// What every worker runs: the same calls of Worker::for_each with the same counts. Before the
  /// first of them it may read the context; afterwards only items may read what another job
  /// changes, because a worker that falls behind can outlive its job.
  using Job = void (*)(void* context, Worker& worker);

  /// Throws std::system_error when a thread cannot be started.
  explicit WorkerPool(uint32_t num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Waits for the previous job, starts this one and returns.
  void start(Job job, void* context);
  /// Whether the job's items are all done and no worker still reads its context.
  bool done() const;
  /// Blocks until done().
  void wait() const;
  /// When the last job's items were done; valid once done(). A statistic: a worker that was
  /// descheduled just here can blur one reading.
  uint64_t done_ns() const { return done_ns_.load(std::memory_order_relaxed); }

  uint32_t num_threads() const { return num_threads_; }

 private:
  void run(uint32_t index);
  /// Runs job number `id` if it is still open; false to end the worker.
  bool join_job(uint32_t id, uint32_t index);
  void leave_entry();
  void stop();

  /// Takes an item of a phase: its number, or kNone once all are taken or the phase is over.
  uint32_t take(uint32_t phase, uint32_t count);
  void finish_item(uint32_t phase, uint32_t count);
  /// Whether the caller may publish an item of a phase: one caller for each, and none once the
  /// phase is over.
  bool claim(uint64_t phase, uint32_t item);
  /// An item of [0, count) that no worker has published, or kNone.
  uint32_t find_unclaimed(uint64_t phase, uint32_t count) const;

  static constexpr uint32_t kNone = ~0u;
  /// Most items of a phase that are watched one by one; in larger phases no worker helps out.
  static constexpr uint32_t kMaxClaims = 1u << 15;
#if defined(__SANITIZE_THREAD__)
  // A late worker may read what later phases write, and drops the result. The sanitizer cannot know
  // that.
  static constexpr bool kHelpsOut = false;
#else
  static constexpr bool kHelpsOut = true;
#endif

  // Each on its own cache line: different threads write them at different times.
  alignas(128) WaitWord started_;               // number of jobs started
  alignas(128) WaitWord finished_;              // number of jobs finished
  alignas(128) WaitWord phase_;                 // phases finished, over all jobs
  alignas(128) std::atomic<uint64_t> next_{0};  // phase in the upper half, next item in the lower
  alignas(128) std::atomic<uint32_t> items_done_{0};  // of the current phase
  alignas(128) std::atomic<uint32_t> entering_{0};    // workers that read the job and its context
  std::atomic<uint64_t> done_ns_{0};                  // clock of platform/clock.hpp
  Job job_ = nullptr;                                 // null: the workers end
  void* context_ = nullptr;
  uint64_t first_phase_ = 0;  // of the job; phase_ holds the lower half
  std::vector<std::atomic<uint64_t>> claims_ =
      std::vector<std::atomic<uint64_t>>(kMaxClaims);  // by item: 1 + the phase that claimed it
  const uint32_t num_threads_;
  std::vector<std::thread> threads_;
};

/// One worker's pass through a job.
class WorkerPool::Worker {
 public:
  uint32_t index() const { return index_; }
  uint32_t num_threads() const { return pool_.num_threads(); }

  /// One phase: f(item) for each item of [0, count), each once, on some worker. Returns when all
  /// items are done; what they wrote is visible to the items of later phases.
  template <class F>
  void for_each(uint32_t count, F&& f) {
    enter();
    if (count == 0) return;
    for (;;) {
      const uint32_t item = pool_.take(phase(), count);
      if (item == kNone) break;
      f(item);
      pool_.finish_item(phase(), count);
    }
    end_phase();
  }

  /// The same, where compute(item) reads nothing that may be freed and writes only to the worker's
  /// own memory, and publish(item), which is short, hands the result to all. compute() may run on
  /// several workers for one item and may see anything in its inputs when it is late; publish()
  /// runs once.
  template <class Compute, class Publish>
  void for_each_published(uint32_t count, Compute&& compute, Publish&& publish) {
    enter();
    if (count == 0) return;
    const auto once = [&](uint32_t item) {
      compute(item);
      if (!pool_.claim(phase_, item)) return;
      publish(item);
      pool_.finish_item(phase(), count);
    };
    for (uint32_t i = pool_.take(phase(), count); i != kNone; i = pool_.take(phase(), count)) {
      once(i);
    }
    while (kHelpsOut && count <= kMaxClaims && !pool_.phase_.changes_soon(phase())) {
      const uint32_t left = pool_.find_unclaimed(phase_, count);
      if (left == kNone) break;
      once(left);
    }
    end_phase();
  }

 private:
  friend class WorkerPool;
  Worker(WorkerPool& pool, uint32_t index, uint64_t phase)
      : pool_(pool), index_(index), phase_(phase) {}
  uint32_t phase() const { return static_cast<uint32_t>(phase_); }
  void end_phase() {
    pool_.phase_.wait_change(phase());
    ++phase_;
  }
  /// Ends the time in which the worker may read the context.
  void enter() {
    if (!entered_) pool_.leave_entry();
    entered_ = true;
  }

  WorkerPool& pool_;
  const uint32_t index_;
  uint64_t phase_;
  bool entered_ = false;
};

}  // namespace saccade
