#include "cpu/worker_pool.hpp"

#include "platform/clock.hpp"

namespace saccade {
namespace {

/// Tells the core that this thread is spinning.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint64_t pack_next(uint32_t phase, uint32_t item) { return uint64_t{phase} << 32 | item; }

}  // namespace

void WaitWord::wait_change(uint32_t seen) const {
  for (uint32_t i = 0; i < kSpins; ++i) {
    // SYNC: acquire, with advance_from(): what was written before the change is visible.
    if (value_.load(std::memory_order_acquire) != seen) return;
    relax();
  }
  value_.wait(seen, std::memory_order_acquire);
}

bool WaitWord::changes_soon(uint32_t seen) const {
  for (uint32_t i = 0; i < kPatientSpins; ++i) {
    // SYNC: acquire, as in wait_change().
    if (value_.load(std::memory_order_acquire) != seen) return true;
    relax();
  }
  return false;
}

void WaitWord::advance_from(uint32_t seen) {
  // SYNC: release part with wait_change(); sequential consistency for the entry protocol, see
  // join_job.
  if (value_.compare_exchange_strong(seen, seen + 1, std::memory_order_seq_cst))
    value_.notify_all();
}

WorkerPool::WorkerPool(uint32_t num_threads) : num_threads_(num_threads) {
  threads_.reserve(num_threads);
  try {
    for (uint32_t i = 0; i < num_threads; ++i) threads_.emplace_back([this, i] { run(i); });
  } catch (...) {  // no more threads available: end the ones that started
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
  wait();
  job_ = job;
  context_ = context;
  first_phase_ += phase_.load() - static_cast<uint32_t>(first_phase_);
  started_.advance_from(started_.load());  // SYNC: publishes the job to join_job
}

bool WorkerPool::done() const {
  // SYNC: finished_ before entering_, both sequentially consistent, see join_job.
  return finished_.load() == started_.load() && entering_.load(std::memory_order_seq_cst) == 0;
}

void WorkerPool::wait() const {
  const uint32_t target = started_.load();
  for (uint32_t seen = finished_.load(); seen != target; seen = finished_.load()) {
    finished_.wait_change(seen);
  }
  for (uint32_t n = entering_.load(); n != 0; n = entering_.load()) entering_.wait(n);
}

void WorkerPool::run(uint32_t index) {
  for (;;) {
    const uint32_t id = started_.load();
    if (finished_.load() == id) {
      started_.wait_change(id);
    } else if (!join_job(id, index)) {
      return;
    }
  }
}

bool WorkerPool::join_job(uint32_t id, uint32_t index) {
  // SYNC: we announce ourselves, then check whether the job is open; the waiter checks whether it
  // is finished, then whether any worker announced itself. All four are sequentially consistent, so
  // either we see that the job is over, or the waiter sees us and waits.
  entering_.fetch_add(1, std::memory_order_seq_cst);
  if (started_.load() != id || finished_.load() == id) {
    leave_entry();
    return true;
  }
  const Job job = job_;
  if (job == nullptr) {
    leave_entry();
    return false;
  }
  Worker worker(*this, index, first_phase_);
  job(context_, worker);
  worker.enter();  // for a job without phases
  // The first worker to get here has seen every phase end.
  // SYNC: relaxed; advance_from() below makes the time visible to threads that see the job done.
  if (finished_.load() == id - 1) done_ns_.store(monotonic_ns(), std::memory_order_relaxed);
  finished_.advance_from(id - 1);
  return true;
}

void WorkerPool::leave_entry() {
  if (entering_.fetch_sub(1, std::memory_order_seq_cst) == 1) entering_.notify_all();
}

uint32_t WorkerPool::take(uint32_t phase, uint32_t count) {
  uint64_t next = next_.load(std::memory_order_acquire);
  for (;;) {
    const uint32_t item = static_cast<uint32_t>(next);
    if (static_cast<uint32_t>(next >> 32) != phase || item >= count) return kNone;
    // SYNC: acquire, with the release in finish_item() that opened this phase.
    if (next_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
      return item;
    }
  }
}

bool WorkerPool::claim(uint64_t phase, uint32_t item) {
  if (item >= kMaxClaims) return true;  // no other worker has it
  uint64_t seen = claims_[item].load(std::memory_order_relaxed);
  // SYNC: relaxed: the claim only picks one worker. finish_item() hands on what it publishes.
  while (seen < phase + 1) {
    if (claims_[item].compare_exchange_weak(seen, phase + 1, std::memory_order_relaxed))
      return true;
  }
  return false;
}

uint32_t WorkerPool::find_unclaimed(uint64_t phase, uint32_t count) const {
  for (uint32_t item = 0; item < count; ++item) {
    if (claims_[item].load(std::memory_order_relaxed) < phase + 1) return item;
  }
  return kNone;
}

void WorkerPool::finish_item(uint32_t phase, uint32_t count) {
  // SYNC: acquire-release joins what all items wrote; next_ and phase_ hand it on. The phase cannot
  // end while an item is out, so the count is always this phase's.
  if (items_done_.fetch_add(1, std::memory_order_acq_rel) + 1 != count) return;
  items_done_.store(0, std::memory_order_relaxed);
  next_.store(pack_next(phase + 1, 0), std::memory_order_release);
  phase_.advance_from(phase);
}

}  // namespace saccade
