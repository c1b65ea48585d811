// The step and the environment of a tick whose time is a number: a step moves the clock by what the
// cost model says, and everything else takes no time.
#pragma once
#include "kv/copies.hpp"
#include "sched/seatwise.hpp"
#include "sim/cost_model.hpp"
#include "sim/host_model.hpp"
#include "sim/link_model.hpp"
#include "sim/virtual_prompts.hpp"
#include "sim/virtual_ring.hpp"

namespace saccade::sim {

struct VirtualEnv : ReadsAlone, SeatsAlone {
  static constexpr bool kOverlap = false;  // same decisions, and no time to gain
  static constexpr bool kSteady = true;
  static constexpr bool kHostActs = true;
  const uint64_t& clock_ns;
  bool& rung;  // a doorbell has changed since the last reading
  const VirtualRing& ring;
  const sac_sim_load& load;

  VirtualEnv(const uint64_t& clock, bool& has_rung, const VirtualRing& of,
             const sac_sim_load& asked)
      : clock_ns(clock), rung(has_rung), ring(of), load(asked) {}
  uint64_t now_ns() const { return clock_ns; }
  void notify_publish() const {}
  void notify_fetch(const FetchView&) const {}
  uint32_t read_peers(const PeerReading& reading, uint32_t* changed) const {
    if (!rung) {
      read_lines_alone(reading);
      return 0;
    }
    rung = false;
    return read_peers_alone(reading, changed);
  }
  /// Prompts are made here, everything else is read.
  void fetch(Fetch* fetches, uint32_t count) const {
    for (Fetch* f = fetches; f != fetches + count; ++f) {
      uint64_t request = 0;
      if (ring.is_prompt(*f, request)) {
        f->most = write_prompt(load, request, f->to, f->words);
      } else {
        fetch_alone(f, 1);
      }
    }
  }
};

/// The copy engine of kv/copies.hpp over a modelled link; moves no bytes.
class VirtualCopies {
 public:
  VirtualCopies(LinkModel& link, const uint64_t& clock_ns) : link_(link), clock_ns_(clock_ns) {}

  void submit(const CopyQueue& down, const CopyQueue& up) const {
    link_.submit(Way::kDown, down.asked, clock_ns_);
    link_.submit(Way::kUp, up.asked, clock_ns_);
  }
  uint64_t down_done() const { return link_.completed(Way::kDown, clock_ns_); }
  uint64_t up_done() const { return link_.completed(Way::kUp, clock_ns_); }

 private:
  LinkModel& link_;
  const uint64_t& clock_ns_;
};

class VirtualStep {
 public:
  VirtualStep(const sac_sim_config& config, LinkModel& link, uint64_t& clock_ns)
      : cost_(config.hardware, config.model),
        host_(config.host, config.seed),
        link_(link),
        clock_ns_(clock_ns) {}

  /// Bytes that copies move during a step are read or written at the device too, in the memory that
  /// the step reads.
  void start(const SeatTables& tables, const StepOutputs& outputs, double block_bytes) {
    tables_ = tables;
    outputs_ = outputs;
    block_bytes_ = block_bytes;
  }

  void launch(const StepBatch& batch) {
    const uint64_t host_ns = host_.delay_ns(batch.num_seqs);
    host_ns_ += host_ns;
    clock_ns_ += host_ns;
    uint64_t step_ns = cost_.ns(batch);
    step_ns += beside_copies_ns(step_ns);
    busy_ns_ += step_ns;
    end_ns_ = clock_ns_ + step_ns;
    produce(batch);
  }
  void wait() { clock_ns_ = end_ns_; }
  uint64_t done_ns() const { return end_ns_; }

  uint64_t busy_ns() const { return busy_ns_; }
  uint64_t host_ns() const { return host_ns_; }

 private:
  /// An answer repeats the token that only its request has: nothing else is found in its place.
  void produce(const StepBatch& batch) const {
    for (uint32_t i = 0; i < batch.num_seqs; ++i) {
      if (batch.seqs[i].sample == 0) continue;
      const uint64_t request = tables_.params[batch.seqs[i].seat].seed;
      outputs_.sampled[size_t{i} * kRecordWords] = record_word(own_token(request), -1.0f);
    }
  }
  uint64_t beside_copies_ns(uint64_t step_ns) {
    link_.advance(clock_ns_);
    if (!link_.busy()) return 0;
    const double bytes = link_.moved_within(step_ns) * block_bytes_;
    return static_cast<uint64_t>(bytes / cost_.memory_rate() * kNsPerS);
  }

  CostModel cost_;
  HostModel host_;
  SeatTables tables_ = {};
  StepOutputs outputs_ = {};
  LinkModel& link_;
  uint64_t& clock_ns_;
  double block_bytes_ = 0;
  uint64_t end_ns_ = 0;
  uint64_t busy_ns_ = 0;
  uint64_t host_ns_ = 0;
};

}  // namespace saccade::sim
