// The ring of stages of the products by warpgroups with host threads: one fetches, one is the copy
// engine, some are warps that multiply. Stages are plain memory, so that ThreadSanitizer sees one
// that is refilled while a thread reads it, or read before its bytes have arrived.
#pragma once
#include <atomic>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "cuda/checks.hpp"
#include "cuda/model/stage_ring.hpp"
#include "tests/random.hpp"

namespace saccade::test {

/// A barrier as shared memory has it: a phase ends when all have arrived and all bytes have.
class ThreadBarrier {
 public:
  explicit ThreadBarrier(uint32_t arrivals) : whole_(uint64_t{arrivals} << 32), left_(whole_) {}

  void arrive() { take(uint64_t{1} << 32); }
  void expect(uint32_t bytes) { take((uint64_t{1} << 32) - bytes); }
  void complete(uint32_t bytes) { take(bytes); }
  void wait(uint32_t parity) const {
    // SYNC: acquire, with the release of the thread that ended the phase.
    while (phase_.load(std::memory_order_acquire) % 2 == parity) std::this_thread::yield();
  }

 private:
  void take(uint64_t amount) {
    // SYNC: acquire and release: the thread that ends the phase has seen what all others did.
    if (left_.fetch_sub(amount, std::memory_order_acq_rel) != amount) return;
    left_.store(whole_, std::memory_order_relaxed);
    phase_.fetch_add(1, std::memory_order_release);
  }

  const uint64_t whole_;
  std::atomic<uint64_t> left_;  // arrivals above bit 32, bytes below
  std::atomic<uint32_t> phase_{0};
};

/// Stages, and copies in flight to them, which arrive in any order.
class RingTwin {
 public:
  static constexpr uint32_t kStages = 3, kReaders = 3, kWords = 64;
  static constexpr uint32_t kBytes = kWords * sizeof(uint32_t) / 2;  // of one of two copies

  /// apart: the two parts of a stage are filled by a thread each.
  RingTwin(uint32_t steps, uint32_t slice_steps, bool apart, uint64_t seed)
      : steps_(steps), slice_steps_(slice_steps), apart_(apart), random_(seed) {
    for (uint32_t s = 0; s < kStages; ++s) {
      full_.push_back(std::make_unique<ThreadBarrier>(2));
      empty_.push_back(std::make_unique<ThreadBarrier>(kReaders));
    }
  }
  /// True: every reader found every slice's sum as it should be.
  bool run() {
    std::thread engine([this] { copy_all(); });
    std::vector<std::thread> readers;
    std::atomic<uint32_t> right = 0;
    for (uint32_t r = 0; r < kReaders; ++r) {
      readers.emplace_back([this, &right] {
        Reader reader = {*this, slice_steps_};
        gpu::read_stages<kStages>(steps_, reader);
        right += reader.right && reader.slices == num_slices() ? 1 : 0;
      });
    }
    Filler filler = {*this};
    const uint32_t early = steps_ % 2 == 0 ? 0 : gpu::fill_early_stages<kStages>(steps_, filler);
    if (apart_) {
      std::thread late([this] {
        Filler own = {*this};
        gpu::fill_late_parts<kStages>(steps_, own);
      });
      gpu::fill_early_parts<kStages>(steps_, early, filler);
      late.join();
    } else {
      gpu::fill_stages<kStages>(steps_, early, filler);
    }
    for (std::thread& t : readers) t.join();
    engine.join();
    return right == kReaders;
  }

 private:
  struct Copy {
    uint32_t* to;
    uint32_t value;
    ThreadBarrier* barrier;
  };
  struct Filler {
    RingTwin& twin;
    void await_empty(uint32_t stage, uint32_t parity) { twin.empty_[stage]->wait(parity); }
    void fill_early(uint32_t stage, uint32_t step) const { copy(stage, 0, step); }
    void fill(uint32_t stage, uint32_t step) { copy(stage, kWords / 2, step); }
    void copy(uint32_t stage, uint32_t word, uint32_t step) const {
      ThreadBarrier& full = *twin.full_[stage];
      full.expect(kBytes);
      const std::lock_guard lock(twin.mutex_);
      twin.copies_.push_back({twin.memory_[stage] + word, step + 1, &full});
    }
  };
  /// As a warp whose products read their operands no sooner than they are waited for.
  struct Reader {
    RingTwin& twin;
    const uint32_t slice_steps;
    std::vector<uint32_t> begun = {};  // stages
    uint64_t sum = 0;
    uint64_t expected = 0;
    uint32_t slices = 0;
    bool right = true;

    void await_full(uint32_t stage, uint32_t parity) { twin.full_[stage]->wait(parity); }
    void read(uint32_t stage, uint32_t step) {
      begun.push_back(stage);
      expected += uint64_t{step + 1} * kWords;
    }
    void await_other_reads() { await(1); }
    void await_all_reads() { await(0); }
    void await(uint32_t left) {
      for (; begun.size() > left; begun.erase(begun.begin())) {
        const uint32_t* words = twin.memory_[begun.front()];
        sum = std::accumulate(words, words + kWords, sum);
      }
    }
    void release(uint32_t stage) { twin.empty_[stage]->arrive(); }
    void close(uint32_t) {
      right = right && sum == expected;
      ++slices;
    }
  };

  uint32_t num_slices() const { return ceil_div(steps_, slice_steps_); }
  void copy_all() {
    for (uint32_t left = 2 * steps_; left > 0;) {
      Copy copy = {};
      {
        const std::lock_guard lock(mutex_);
        if (!copies_.empty()) {
          const uint32_t i = random_.in(0, static_cast<uint32_t>(copies_.size()) - 1);
          copy = copies_[i];
          copies_.erase(copies_.begin() + i);
        }
      }
      if (copy.to == nullptr) {
        std::this_thread::yield();
        continue;
      }
      std::fill_n(copy.to, kWords / 2, copy.value);
      copy.barrier->complete(kBytes);
      --left;
    }
  }

  const uint32_t steps_;
  const uint32_t slice_steps_;
  const bool apart_;
  Random random_;
  std::mutex mutex_;
  std::vector<Copy> copies_;
  uint32_t memory_[kStages][kWords] = {};
  std::vector<std::unique_ptr<ThreadBarrier>> full_;
  std::vector<std::unique_ptr<ThreadBarrier>> empty_;
};

/// Fewer steps than stages, many more, and slices that end anywhere.
inline void check_stage_ring(Report& report) {
  bool ok = true;
  for (const uint32_t steps : {1u, 2u, 3u, 4u, 50u, 301u}) {
    for (const uint32_t slice_steps : {1u, 2u, 5u, 301u}) {
      for (const bool apart : {false, true}) {
        ok &= RingTwin(steps, slice_steps, apart, steps + slice_steps).run();
      }
    }
  }
  report.check(ok, "products by warpgroups: each stage is read whole before it is filled again");
}

}  // namespace saccade::test
