// What must hold of a machine, whatever threads it is made of. A Rig is a ring and the machine that
// serves it: Rig(device_shape, ring_shape), members ring and machine, kName.
#pragma once
#include <algorithm>
#include <memory>

#include "cuda/launch/window.hpp"
#include "cuda/machine.hpp"
#include "cuda/script.hpp"

namespace saccade::test {

/// Prints one line per check; counts what failed.
class Report {
 public:
  void check(bool ok, const std::string& line) {
    std::printf("%s  %s\n", ok ? "ok    " : "FAILED", line.c_str());
    std::fflush(stdout);
    failed_ += ok ? 0 : 1;
  }
  uint32_t failed() const { return failed_; }

 private:
  uint32_t failed_ = 0;
};

struct ScriptRun {
  std::vector<Scripted> requests;
  std::vector<uint64_t> decisions;
  uint64_t dropped = 0;
  std::string broken;      // a rule that the machine saw broken
  uint64_t steps[2] = {};  // of the specification: without adapters, with some
};

/// The specification: the serial tick on this thread, with every invariant checked.
inline ScriptRun run_reference(uint64_t seed) {
  DeviceShape shape = script_device(seed);
  shape.overlapped = false;
  TestRing ring(script_ring());
  TestDevice device(ring, shape);
  ScriptRun run;
  run.requests = play(seed, ring, [&](uint64_t ticks) {
    for (uint64_t i = 0; i < ticks; ++i)
      if (device.tick() != 0) ++run.steps[device.batch().num_adapter_seqs == 0 ? 0 : 1];
  });
  run.decisions = device.log();
  run.dropped = device.s.report.log.dropped;
  return run;
}

template <class Rig>
ScriptRun run_machine(uint64_t seed, bool overlapped) {
  const DeviceShape shape = script_device(seed);
  Rig rig(shape, script_ring());
  rig.machine.start(overlapped);
  ScriptRun run;
  run.requests = play(seed, rig.ring, [&](uint64_t ticks) { rig.machine.run_ticks(ticks); });
  LifeOutcome outcome = rig.machine.stop();
  run.decisions = std::move(outcome.decisions);
  run.dropped = outcome.decisions_dropped;
  run.broken = rig.machine.broken();
  return run;
}

inline bool equal_words(const ScriptRun& a, const ScriptRun& b) {
  return std::equal(a.requests.begin(), a.requests.end(), b.requests.begin(), b.requests.end(),
                    [](const Scripted& x, const Scripted& y) {
                      return x.ticket.words == y.ticket.words && x.ticket.finish == y.ticket.finish;
                    });
}

/// Requests that were not cancelled yielded what their own words alone say.
inline bool words_as_expected(uint64_t seed, const ScriptRun& run) {
  const DeviceShape shape = script_device(seed);
  return std::all_of(run.requests.begin(), run.requests.end(), [&](const Scripted& s) {
    if (s.cancelled) return true;
    const Expected e = expect(s.ticket.ask, shape);
    return s.ticket.words == e.words && s.ticket.finish == e.finish;
  });
}

/// The script's tokens and decisions are those of the specification.
template <class Rig>
void check_script(Report& report, uint64_t seed, bool overlapped) {
  const ScriptRun expected = run_reference(seed);
  const ScriptRun run = run_machine<Rig>(seed, overlapped);
  size_t words = 0;
  for (const Scripted& s : run.requests) words += s.ticket.words.size();
  const std::string name = std::string(Rig::kName) + ", seed " + std::to_string(seed) +
                           (overlapped ? ", overlapped: " : ", serial: ");
  report.check(equal_words(expected, run) && words_as_expected(seed, run),
               name + std::to_string(run.requests.size()) + " requests, " + std::to_string(words) +
                   " words of records as on the CPU");
  const uint64_t* steps = expected.steps;
  report.check(
      script_device(seed).adapter_keys.empty() ? steps[1] == 0 : std::min(steps[0], steps[1]) > 20,
      name + std::to_string(steps[1]) + " steps with adapters beside " + std::to_string(steps[0]) +
          " without");
  report.check(
      run.decisions == expected.decisions && run.decisions.size() > 200 &&
          run.dropped + expected.dropped == 0 && run.broken.empty(),
      name + std::to_string(run.decisions.size() / 2) + " decisions as on the CPU" + run.broken);
}

/// The same requests against a machine that is not kept in step with them: whatever a tick has read
/// of the ring and when, their tokens are what their own words say.
template <class Rig>
void check_free_run(Report& report, uint64_t seed) {
  const DeviceShape shape = script_device(seed);
  Rig rig(shape, script_ring());
  rig.machine.start(true);
  rig.machine.run_freely();
  ScriptRun run;
  run.requests = play(seed, rig.ring, [&](uint64_t ticks) {
    const uint64_t until = rig.machine.ticks_done() + ticks + 1;  // the first may be half over
    while (rig.machine.ticks_done() < until && !rig.machine.ended()) std::this_thread::yield();
  });
  rig.machine.stop();
  run.broken = rig.machine.broken();
  report.check(words_as_expected(seed, run) && run.requests.size() > 20 && run.broken.empty(),
               std::string(Rig::kName) + ", seed " + std::to_string(seed) +
                   ", running freely: " + std::to_string(run.requests.size()) +
                   " requests yield their tokens" + run.broken);
}

/// A life that is given no permit ends on its own, and says what it waited for.
template <class Rig>
void check_crash_record(Report& report) {
  const DeviceShape shape = script_device(1);
  Rig rig(shape, script_ring());
  rig.machine.start(true);
  rig.machine.run_ticks(5);
  const std::string crash = rig.machine.await_end();
  report.check(crash.find("\"tick permit\"") != std::string::npos &&
                   crash.find("expected 6, observed 5") != std::string::npos,
               std::string(Rig::kName) + ", a host that falls silent: " + crash);
}

template <class Rig>
void check_scripts(Report& report, uint64_t num_seeds) {
  for (uint64_t seed = 1; seed <= num_seeds; ++seed)
    for (const bool overlapped : {false, true}) check_script<Rig>(report, seed, overlapped);
}

/// A machine that has begun, and a frontend that it has acknowledged.
template <class Rig>
struct Started {
  const DeviceShape shape = script_device(2);
  Rig rig{shape, script_ring()};
  TestFrontend front{rig.ring, 0};
  Started() {
    rig.machine.start(true);
    front.join();
    rig.machine.run_ticks(1);
  }
};

/// Many steps in one go: the scheduler relaunches itself before the 120th launch, and no more than
/// once per window, except for graphs that were still busy.
template <class Rig>
void check_windows(Report& report) {
  constexpr uint32_t kTokens = 90;
  Started<Rig> started;
  auto& [shape, rig, front] = started;
  uint64_t steps = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    front.beat();
    Ask ask = ask_of(2, kTokens, i);
    Ticket t = front.submit(ask);
    while (!t.complete()) {
      rig.machine.run_ticks(30);
      front.beat();
      front.read(t);
    }
    steps += t.records();
  }
  const LifeOutcome outcome = rig.machine.stop();
  report.check(steps == 8 * kTokens && outcome.relaunches >= steps / kWindow &&
                   outcome.relaunches < steps / 4 && rig.machine.broken().empty(),
               std::string(Rig::kName) + ", windows: " + std::to_string(steps) + " steps, " +
                   std::to_string(outcome.relaunches) + " relaunches, no rule broken" +
                   rig.machine.broken());
}

/// A long prompt whose KV is all but there already: its first step names all its tokens at once. It
/// is there for the model, and for an adapter that holds what an earlier one does, and for no
/// other.
template <class Rig>
void check_cached_prompt(Report& report) {
  DeviceShape shape = script_device(2);
  shape.num_seats = 1;
  shape.max_model_len = 8192;
  shape.num_blocks = 2 * ceil_div(shape.max_model_len, shape.block_size);
  RingShape ring = script_ring();
  ring.arena_bytes = uint64_t{ring.num_slots} * shape.max_model_len * sizeof(uint32_t);
  Rig rig(shape, ring);
  rig.machine.start(true);
  TestFrontend front(rig.ring, 0);
  front.join();
  rig.machine.run_ticks(1);
  std::vector<std::vector<uint64_t>> words;
  bool own = true;
  for (const uint32_t adapter : {0u, 0u, 1u, 3u, 2u}) {
    Ask ask = ask_of(8000, 4, 1);
    ask.adapter = adapter;
    Ticket t = front.submit(ask);
    while (!t.complete() && !rig.machine.ended()) {
      rig.machine.run_ticks(1);
      front.beat();
      front.read(t);
    }
    words.push_back(t.words);
    own &= t.words == expect(ask, shape).words;
  }
  const uint64_t cached = rig.machine.stop().stats.prefix_hit_tokens / 2;
  report.check(own && words[0] == words[1] && !words[0].empty() && cached > 7900 && cached < 8000,
               std::string(Rig::kName) + ": a prompt with " + std::to_string(cached) +
                   " cached tokens yields the same, with an adapter too");
}

/// Where all steps are left alone, the scheduler is relaunched for each but the first.
template <class Rig>
void check_left_steps(Report& report) {
  constexpr uint32_t kTokens = 20;
  Started<Rig> started;
  auto& [shape, rig, front] = started;
  Ticket t = front.submit(ask_of(2, kTokens, 1));
  while (!t.complete()) {
    rig.machine.run_ticks(1);
    front.beat();
    front.read(t);
  }
  const LifeOutcome outcome = rig.machine.stop();
  report.check(
      t.records() == kTokens && outcome.relaunches + 2 >= kTokens && rig.machine.broken().empty(),
      std::string(Rig::kName) + ": " + std::to_string(t.records()) + " steps, " +
          std::to_string(outcome.relaunches) + " relaunches" + rig.machine.broken());
}

/// Few device blocks, many host blocks, and a policy that rotates whatever it can.
inline DeviceShape rotation_device(uint64_t seed) {
  DeviceShape shape = script_device(seed);
  shape.num_host_blocks = 40;
  shape.eager_window = 4;
  shape.scheduling = Policy::kChurn;
  shape.settings.b_xfer_blocks = 16;
  return shape;
}

/// least_up: blocks that must have come back; what is less shows nothing.
inline void report_rotation(Report& report, const char* name, uint64_t seed, const ScriptRun& run,
                            const sac_device_stats& stats, uint64_t least_up) {
  const uint64_t down = stats.blocks_down_eager + stats.blocks_down_urgent;
  report.check(words_as_expected(seed, run) && run.broken.empty() && down > 100 &&
                   stats.blocks_up > least_up,
               std::string(name) + ", rotation, seed " + std::to_string(seed) + ": " +
                   std::to_string(run.requests.size()) + " requests, " + std::to_string(down) +
                   " blocks down and " + std::to_string(stats.blocks_up) +
                   " up beside the steps; tokens and KV as they should be" + run.broken);
}

}  // namespace saccade::test
