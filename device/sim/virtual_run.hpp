// A workload through the shipped tick, in virtual time: arrivals ring doorbells, steps move the
// clock, tokens are noted when a reader would see them.
#pragma once
#include <string>
#include <vector>

#include "host/pages.hpp"
#include "sched/tick.hpp"
#include "sim/virtual_ring.hpp"
#include "sim/virtual_step.hpp"

namespace saccade::sim {

/// Where a run writes; see sac_sim_run.
struct RunOutput {
  uint64_t* token_ns = nullptr;
  sac_sim_sample* samples = nullptr;
  uint64_t sample_capacity = 0;
  uint64_t sample_ns = 0;
};

class VirtualRun {
 public:
  /// All are checked already. What the load points to outlives the run.
  VirtualRun(const sac_device_config& device, const sac_sim_config& config,
             const sac_sim_ring& ring, const sac_sim_load& load, const RunOutput& out);
  VirtualRun(const VirtualRun&) = delete;
  VirtualRun& operator=(const VirtualRun&) = delete;

  /// Until everything has ended or the clock has reached limit_ns.
  sac_sim_result run(uint64_t limit_ns);
  /// One tick, and what follows from it. False: nothing is left to do.
  bool advance();
  const Scheduler& scheduler() const { return s_; }
  /// Since the start of the run.
  uint64_t now_ns() const { return clock_ns_ - kStartNs; }

 private:
  VirtualEnv env() { return {clock_ns_, rung_, ring_, load_}; }
  void submit_due();
  void collect();
  bool skip_idle_time();
  void sample();
  sac_sim_result result() const;

  /// Time that passes when requests wait and nothing is in flight: a policy may be waiting for it.
  static constexpr uint64_t kIdleNs = 1'000'000;
  /// The scheduler's clock starts here: a time of 0 may mean "never" to it.
  static constexpr uint64_t kStartNs = 1'000'000'000;

  Scheduler s_ = {};
  Pages memory_;
  VirtualRing ring_;
  uint64_t clock_ns_ = kStartNs;
  bool rung_ = false;
  LinkModel link_;
  VirtualCopies copies_;
  VirtualStep step_;
  sac_sim_load load_;
  bool refuses_;  // a request that finds every slot taken, instead of queueing it in front
  std::vector<uint64_t> first_token_;  // [num_requests]: index of its first token in token_ns
  std::vector<uint64_t> request_of_;   // [slots]: of the ticket in that slot
  std::vector<uint32_t> free_slots_;
  uint64_t next_request_ = 0;
  uint64_t num_ended_ = 0;
  uint64_t num_refused_ = 0;
  RunOutput out_;
  uint64_t num_samples_ = 0;
  uint64_t next_sample_ns_ = 0;
};

}  // namespace saccade::sim
