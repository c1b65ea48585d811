#include "cpu/worker_pool.hpp"

namespace saccade {
namespace {

/// Tells the core that this thread only looks.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void WaitWord::wait_change(uint32_t seen) const {
  for (uint32_t i = 0; i < kSpins; ++i) {
    // SYNC: acquire, with the release in advance(): what the waker wrote before is visible.
    if (value_.load(std::memory_order_acquire) != seen) return;
    relax();
  }
  value_.wait(seen, std::memory_order_acquire);
}

void WaitWord::advance() {
  // SYNC: release, with the acquire of wait_change() and load(). One thread at a time advances.
  value_.fetch_add(1, std::memory_order_release);
  value_.notify_all();
}

WorkerPool::WorkerPool(uint32_t num_threads) : team_size_(num_threads) {
  threads_.reserve(num_threads);
  try {
    for (uint32_t i = 0; i < num_threads; ++i) threads_.emplace_back([this, i] { run(i); });
  } catch (...) {  // no more threads to be had: end those that started
    stop();
    throw;
  }
}

WorkerPool::~WorkerPool() {
  wait();
  stop();
}

void WorkerPool::stop() {
  start(nullptr, nullptr);
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::start(Job job, void* context) {
  job_ = job;
  context_ = context;
  running_.store(team_size_, std::memory_order_relaxed);
  started_.advance();  // SYNC: publishes the job to wait_change() in run()
}

void WorkerPool::wait() const {
  const uint32_t target = started_.load();
  for (uint32_t seen = finished_.load(); seen != target; seen = finished_.load()) {
    finished_.wait_change(seen);
  }
}

void WorkerPool::run(uint32_t worker) {
  for (uint32_t seen = 0;; ++seen) {
    started_.wait_change(seen);
    if (job_ == nullptr) return;
    job_(context_, *this, worker);
    // SYNC: acquire-release joins all workers' writes; finished_ hands them to wait() and done().
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_.advance();
  }
}

void WorkerPool::barrier() {
  const uint32_t phase = phase_.load();
  // SYNC: acquire-release joins all workers' writes of the phase; phase_ hands them to the others.
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == team_size_) {
    arrived_.store(0, std::memory_order_relaxed);
    next_item_.store(0, std::memory_order_relaxed);
    phase_.advance();
  } else {
    phase_.wait_change(phase);
  }
}

}  // namespace saccade
