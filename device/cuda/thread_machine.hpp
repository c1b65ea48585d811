// The persistent kernel's twin: the same life and the same team scan, on threads of the host.
#pragma once
#include <barrier>
#include <chrono>
#include <memory>

#include "cuda/machine.hpp"
#include "tests/test_ring.hpp"

namespace saccade::test {

/// What the threads share.
struct ThreadTeam {
  explicit ThreadTeam(uint32_t num_members)
      : size(num_members), barrier(static_cast<std::ptrdiff_t>(num_members) + 1) {}
  const uint32_t size;
  std::barrier<> barrier;
  ScanBoard board = {};
};

/// A thread that plays a whole warp; rank `size` leads.
class ThreadCrew {
 public:
  using Look = uint32_t;
  ThreadCrew(ThreadTeam& team, uint32_t rank, CrashRecord* crash)
      : team_(team), rank_(rank), crash_(crash) {}

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return team_.size; }
  bool is_scribe() const { return true; }
  bool failed() const { return failed_; }
  void set_tick(uint64_t tick) { tick_ = tick; }
  void nap() const { std::this_thread::yield(); }
  bool meet(WaitSite) {
    team_.barrier.arrive_and_wait();
    return true;
  }
  Look look(const uint32_t* doorbells, const uint32_t* seen) const {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < SAC_SLOT_GRANULE; ++i)
      mask |= (load_relaxed(doorbells + i) != seen[i] ? 1u : 0u) << i;
    return mask;
  }
  uint32_t mask(Look look) const { return look; }
  void report(WaitSite site, uint32_t late, uint64_t expected, uint64_t observed,
              uint64_t waited_ns) {
    failed_ = true;
    *crash_ = {0, rank_, late, 0, expected, observed, tick_, waited_ns};
    store_release(&crash_->site, static_cast<uint32_t>(site));
  }

 private:
  ThreadTeam& team_;
  const uint32_t rank_;
  CrashRecord* crash_;
  uint64_t tick_ = 0;
  bool failed_ = false;
};

class ThreadMachine : public Machine {
 public:
  static constexpr uint32_t kMembers = 3;

  ThreadMachine(const Limits& limits, const std::vector<uint32_t>& eos_ids, const RingView& ring)
      : Machine(&control_) {
    LifeState image = {};
    image.scheduler.limits = limits;
    Layout measure(nullptr);
    lay_out(image, measure);
    memory_ = aligned_bytes(measure.bytes());
    Layout hand_out(memory_.get());
    life_.state = lay_out(image, hand_out);
    *life_.state = image;
    life_.ring = ring;
    life_.control = &control_;
    for (size_t i = 0; i < eos_ids.size(); ++i) life_.eos_ids[i] = eos_ids[i];
  }
  ~ThreadMachine() override {
    permit(kStop);
    reap();
  }

 protected:
  void launch(bool overlapped) override {
    for (uint32_t rank = 0; rank < kMembers; ++rank)
      threads_.emplace_back([this, rank] {
        ThreadCrew crew(team_, rank, &control_.crash);
        serve_scans(team_.board, crew);
      });
    threads_.emplace_back([this, overlapped] {
      ThreadCrew crew(team_, kMembers, &control_.crash);
      if (overlapped) {
        lead<true>(life_, team_.board, crew);
      } else {
        lead<false>(life_, team_.board, crew);
      }
    });
  }
  void reap() override {
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  LifeOutcome collect() override {
    const LifeState& st = *life_.state;
    const DecisionLog& log = st.scheduler.log;
    return {
        {log.words, log.words + log.used}, log.dropped, {st.tick_ns, st.tick_ns + st.num_tick_ns}};
  }

 private:
  Control control_ = {};
  ThreadTeam team_{kMembers};
  AlignedBytes memory_;
  Life life_ = {};
  std::vector<std::thread> threads_;
};

/// A ring and a machine that serves it.
struct ThreadRig {
  static constexpr const char* kName = "threads";
  TestRing ring;
  ThreadMachine machine;
  ThreadRig(const Limits& limits, const std::vector<uint32_t>& eos_ids, const RingShape& shape)
      : ring(shape), machine(limits, eos_ids, ring.view) {}
};

}  // namespace saccade::test
