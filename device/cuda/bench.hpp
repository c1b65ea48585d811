// Latencies of a machine over the null step, as a frontend on the host sees them.
#pragma once
#include <algorithm>

#include "cuda/machine.hpp"
#include "tests/test_device.hpp"

namespace saccade::test {

/// Nanoseconds, in order: the first three of requests by the host's clock, the others of steps by
/// the clock of the thread that runs the tick. Where that is the host, results are complete when
/// its wait returns; only token_ns includes the time from the GPU to that point.
struct Latencies {
  std::vector<double> claim_ns;        // doorbell rung right behind another's end -> the status
                                       // names the ticket
  std::vector<double> idle_claim_ns;   // the same, of a device that has had nothing to do
  std::vector<double> first_token_ns;  // doorbell rung -> the status counts a token
  std::vector<double> token_ns;        // between two tokens of a request, as the statuses count
  std::vector<double> gap_ns;          // from the results of a step to the launch of the next
  std::vector<double> publish_ns;      // from the results of a step to when they are published
  std::vector<double> tick_ns;         // of ticks that ran a step
};

inline constexpr uint32_t kBenchTokens = 4;
/// How long a device is left idle: kPauseNs, and up to kPauseSpreadNs more, so that a doorbell
/// arrives anywhere in an idle tick.
inline constexpr uint64_t kPauseNs = 100 * 1000, kPauseSpreadNs = 20 * 1000;
/// Of a batch, which takes a fraction of a second.
inline constexpr uint64_t kBatchBudgetNs = 5'000'000'000;

inline DeviceShape bench_device() {
  DeviceShape shape;
  shape.num_seats = 64;
  shape.max_num_batched_tokens = 512;
  shape.num_blocks = 1024;
  shape.log_words = 0;
  return shape;
}
inline RingShape bench_ring() {
  RingShape shape;
  shape.num_slots = SAC_MAX_SLOTS;
  shape.arena_bytes = SAC_MAX_SLOTS * 1024;
  return shape;
}

/// Waits until the slot's status satisfies `seen`; throws after a second.
template <class Seen>
uint64_t await_status(const TestRing& ring, uint32_t slot, Seen seen) {
  constexpr uint64_t kBudgetNs = 1000 * 1000 * 1000;
  const uint64_t begin_ns = monotonic_ns();
  for (;;) {
    const bool is = seen(ring.status_word(slot));
    const uint64_t now_ns = monotonic_ns();
    if (is) return now_ns;
    if (now_ns - begin_ns > kBudgetNs) throw std::runtime_error("no answer within a second");
  }
}

inline void wait_until(uint64_t ns) {
  while (monotonic_ns() < ns) {
  }
}

/// One request at a time against a machine that runs freely; every other one waits until the
/// machine has had nothing to do for a while. `made(rig)` is called before it starts.
template <class Rig, class Made>
Latencies measure(uint32_t num_requests, Made made) {
  const DeviceShape shape = bench_device();
  Rig rig(shape, bench_ring());
  made(rig);
  rig.machine.start(true);
  TestFrontend front(rig.ring, 0);
  front.join();
  rig.machine.run_ticks(2);
  rig.machine.run_freely();
  Latencies l;
  for (uint32_t i = 0; i < num_requests; ++i) {
    front.beat();
    Ticket t = front.prepare(ask_of(16, kBenchTokens, i), i * 61 % front.num_slots());
    const bool idle = i % 2 != 0;
    if (idle) wait_until(monotonic_ns() + kPauseNs + i * 7919 % kPauseSpreadNs);
    const uint64_t rung_ns = monotonic_ns();
    front.ring(t);
    front.kick();  // (c) sleeps when there is nothing to do
    const auto since = [&](uint64_t ns) { return static_cast<double>(ns - rung_ns); };
    (idle ? l.idle_claim_ns : l.claim_ns)
        .push_back(since(await_status(
            rig.ring, t.slot, [&](uint64_t word) { return sac_status_ticket(word) == t.ticket; })));
    const uint64_t first_ns = await_status(rig.ring, t.slot, [&](uint64_t word) {
      return sac_status_ticket(word) == t.ticket && sac_status_count(word) != 0;
    });
    const uint64_t last_ns = await_status(rig.ring, t.slot, [](uint64_t word) {
      return sac_status_state(word) == SAC_STATE_DECODE_COMPLETED;
    });
    l.first_token_ns.push_back(since(first_ns));
    l.token_ns.push_back(static_cast<double>(last_ns - first_ns) / (kBenchTokens - 1));
    front.read(t);
  }
  const LifeOutcome outcome = rig.machine.stop();
  for (size_t i = 0; i < outcome.times.size(); ++i) {
    const StepTimes& t = outcome.times[i];
    l.publish_ns.push_back(t.publish_ns);
    l.tick_ns.push_back(t.tick_ns);
    // A request's steps follow one another; before its first the device had no work.
    if (i % kBenchTokens != 0) l.gap_ns.push_back(t.gap_ns);
  }
  return l;
}

/// A device as it serves by default, with `seats` of them.
inline DeviceShape batch_device(uint32_t seats) {
  DeviceShape shape = bench_device();
  shape.num_seats = seats;
  shape.max_num_batched_tokens = std::max(shape.max_num_batched_tokens, seats);
  shape.num_blocks = seats * ceil_div(shape.max_model_len, shape.block_size);
  shape.scheduling = Policy::kGoodput;
  return shape;
}

/// `seats` requests at once that run to their full lengths: what ticks take with a batch running.
/// Only the times of steps are filled in. Throws if they do not end within kBatchBudgetNs.
template <class Rig>
Latencies measure_batch(uint32_t seats) {
  constexpr uint32_t kPrompt = 16;
  const DeviceShape shape = batch_device(seats);
  Rig rig(shape, bench_ring());
  rig.machine.start(true);
  TestFrontend front(rig.ring, 0);
  front.join();
  rig.machine.run_ticks(2);
  std::vector<Ticket> tickets;
  for (uint32_t i = 0; i < seats; ++i)
    tickets.push_back(front.submit(ask_of(kPrompt, shape.max_model_len - kPrompt, i)));
  rig.machine.run_freely();
  const uint64_t begin_ns = monotonic_ns();
  for (bool complete = false; !complete;) {
    if (monotonic_ns() - begin_ns > kBatchBudgetNs)
      throw std::runtime_error("a batch of " + std::to_string(seats) + " did not end");
    complete = true;
    front.beat();
    for (Ticket& t : tickets) {
      front.read(t);
      complete &= t.complete();
    }
    if (rig.machine.ended()) throw std::runtime_error(rig.machine.crash());
  }
  Latencies l;
  const LifeOutcome outcome = rig.machine.stop();
  for (size_t i = 1; i < outcome.times.size(); ++i) {
    l.gap_ns.push_back(outcome.times[i].gap_ns);
    l.publish_ns.push_back(outcome.times[i].publish_ns);
    l.tick_ns.push_back(outcome.times[i].tick_ns);
  }
  return l;
}

/// "name": {"count": n, "p50": a, "p99": b} with the percentiles in microseconds.
inline std::string percentiles_json(const char* name, std::vector<double> ns) {
  std::sort(ns.begin(), ns.end());
  const auto at = [&](double p) {
    const auto rank = static_cast<size_t>(p * static_cast<double>(ns.size()));
    return ns.empty() ? 0.0 : ns[std::min(rank, ns.size() - 1)] * 1e-3;
  };
  char text[160];
  std::snprintf(text, sizeof(text), "\"%s\": {\"count\": %zu, \"p50\": %.3f, \"p99\": %.3f}", name,
                ns.size(), at(0.50), at(0.99));
  return text;
}

/// {"seats": n, ...} of measure_batch.
inline std::string batch_json(uint32_t seats, const Latencies& l) {
  return "{\"seats\": " + std::to_string(seats) + ", " +
         percentiles_json("step_to_publish_us", l.publish_ns) + ", " +
         percentiles_json("step_to_step_us", l.gap_ns) + ", " +
         percentiles_json("tick_with_step_us", l.tick_ns) + "}";
}

inline std::string latencies_json(const Latencies& l) {
  return percentiles_json("prompt_to_claim_us", l.claim_ns) + ",\n  " +
         percentiles_json("prompt_to_claim_idle_us", l.idle_claim_ns) + ",\n  " +
         percentiles_json("submit_to_first_token_us", l.first_token_ns) + ",\n  " +
         percentiles_json("token_to_token_us", l.token_ns) + ",\n  " +
         percentiles_json("step_to_publish_us", l.publish_ns) + ",\n  " +
         percentiles_json("step_to_step_us", l.gap_ns) + ",\n  " +
         percentiles_json("tick_with_step_us", l.tick_ns);
}

}  // namespace saccade::test
