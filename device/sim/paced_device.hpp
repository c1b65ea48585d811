// An emulated device: steps and copies take as long as the cost model says, by the clock of the
// machine that it runs on. Frontends, ring, tokenizer and scheduler are the real ones.
//
// Where the tick runs on the device (sac_sim_host.drives is 0), it spins until a step ends, as a
// scheduler on the device would. Where a host drives the device, the tick does the host's work of
// each step by keeping its core busy, launches, and sleeps until the step's end wakes it, so that
// another process on the core delays both.
#pragma once
#include <ctime>

#include "host/host_env.hpp"
#include "kv/copies.hpp"
#include "sim/cost_model.hpp"
#include "sim/link_model.hpp"
#include "step/null_step.hpp"

namespace saccade::sim {

/// CPU time of the calling thread.
inline uint64_t thread_cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

/// The copy engine of kv/copies.hpp over a modelled link, by the clock; moves no bytes.
class PacedCopies {
 public:
  PacedCopies() = default;
  PacedCopies(const sac_sim_hardware& hardware, double block_bytes)
      : link_(hardware, block_bytes) {}

  void submit(const CopyQueue& down, const CopyQueue& up) {
    const uint64_t now_ns = monotonic_ns();
    link_.submit(Way::kDown, down.asked, now_ns);
    link_.submit(Way::kUp, up.asked, now_ns);
  }
  uint64_t down_done() { return link_.completed(Way::kDown, monotonic_ns()); }
  uint64_t up_done() { return link_.completed(Way::kUp, monotonic_ns()); }

 private:
  LinkModel link_;
};

class PacedStep {
 public:
  PacedStep() = default;
  PacedStep(const sac_sim_config& config, const NullStep& null)
      : cost_(config.hardware, config.model), host_(config.host), null_(null) {}

  void launch(const StepBatch& batch) {
    if (host_.drives != 0) work(batch.num_seqs);
    null_.launch(batch);
    end_ns_ = monotonic_ns() + cost_.ns(batch);
  }
  uint64_t done_ns() const { return end_ns_; }
  void wait() const {
    const uint64_t look_ns = host_.drives != 0 ? 0 : kLookNs;
    sleep_until(end_ns_ - look_ns);
    while (monotonic_ns() < end_ns_) {
    }
  }

 private:
  /// A sleeping thread wakes late; a spinning one does not.
  static constexpr uint64_t kLookNs = 100'000;

  /// The host's part of a step: CPU time, however long it takes to get it.
  void work(uint32_t num_seqs) const {
    const double seconds = host_.step_s + host_.seq_s * num_seqs;
    const uint64_t end_ns = thread_cpu_ns() + static_cast<uint64_t>(seconds * kNsPerS);
    while (thread_cpu_ns() < end_ns) {
    }
  }
  static void sleep_until(uint64_t ns) {
    const timespec until = {static_cast<time_t>(ns / 1000000000u),
                            static_cast<long>(ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  }

  CostModel cost_;
  sac_sim_host host_ = {};
  NullStep null_ = {};
  uint64_t end_ns_ = 0;
};

}  // namespace saccade::sim
