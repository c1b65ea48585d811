// Threads that run one job at a time together, phase by phase.
//
// Within a phase, items are taken one by one from a shared counter, so that a worker which the host
// preempts holds up the others by one item at most. Every wait looks for a bounded time first and
// then sleeps in the kernel: an idle pool uses no processor.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace saccade {

/// A word that threads wait on: looks kSpins times, then sleeps.
class WaitWord {
 public:
  uint32_t load() const { return value_.load(std::memory_order_acquire); }
  /// Returns once the value differs from `seen`.
  void wait_change(uint32_t seen) const;
  /// Publishes the next value and wakes all who wait.
  void advance();

 private:
  static constexpr uint32_t kSpins = 400;  // some ten microseconds
  std::atomic<uint32_t> value_{0};
};

class WorkerPool {
 public:
  /// What every worker runs; all workers must make the same calls of for_each.
  using Job = void (*)(void* context, WorkerPool& pool, uint32_t worker);

  /// Throws std::system_error when a thread cannot be started.
  explicit WorkerPool(uint32_t num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Starts a job and returns; the last one must be done.
  void start(Job job, void* context);
  bool done() const { return finished_.load() == started_.load(); }
  /// Blocks until the job is done.
  void wait() const;

  /// One phase, called from a job by every worker: f(item) for each item of [0, count), each on
  /// some worker. Returns when all items are done; what they wrote is visible to all workers.
  template <class F>
  void for_each(uint32_t count, F&& f) {
    for (;;) {
      const uint32_t item = next_item_.fetch_add(1, std::memory_order_relaxed);
      if (item >= count) break;
      f(item);
    }
    barrier();
  }

  uint32_t num_threads() const { return team_size_; }

 private:
  void run(uint32_t worker);
  void barrier();
  void stop();

  // Each on its own line: they are written by different threads at different times.
  alignas(128) WaitWord started_;
  alignas(128) WaitWord finished_;
  alignas(128) WaitWord phase_;
  alignas(128) std::atomic<uint32_t> next_item_{0};
  alignas(128) std::atomic<uint32_t> arrived_{0};
  alignas(128) std::atomic<uint32_t> running_{0};
  Job job_ = nullptr;  // null: the workers end
  void* context_ = nullptr;
  const uint32_t team_size_;
  std::vector<std::thread> threads_;
};

}  // namespace saccade
