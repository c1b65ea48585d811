// Serial and overlapped mode decide alike and yield the same records, whenever requests and cancels
// arrive: between two ticks, or while a step runs.
#include <doctest/doctest.h>

#include "tests/world.hpp"

namespace saccade::test {
namespace {

struct Outcome {
  std::vector<uint64_t> decisions;
  uint64_t dropped = 0;
  uint64_t steady_ticks = 0;
  std::vector<std::vector<uint64_t>> words;
  std::vector<uint32_t> finishes;
};

Outcome outcome_of(uint64_t seed, WorldOptions options, bool overlapped) {
  options.device.overlapped = overlapped;
  World world(seed, options);
  world.run();
  Outcome o;
  o.decisions = world.device().log();
  o.dropped = world.device().s.report.log.dropped;
  o.steady_ticks = world.device().steady_ticks;
  for (const Ticket& t : world.tickets()) {
    o.words.push_back(t.words);
    o.finishes.push_back(t.finish);
  }
  return o;
}

/// Worlds in which most ticks are steady: room for nearly all, long answers, readers that keep up.
WorldOptions calm_options(uint64_t seed) {
  WorldOptions o = seed % 2 == 0 ? tiered_world_options(seed) : world_options(seed);
  Random r(seed * 1181783497276652981u + 5);
  o.device.num_seats = r.pick({1u, 3u, 33u, 100u});
  o.device.max_num_batched_tokens = o.device.num_seats + r.pick({0u, 64u});
  o.device.max_model_len = r.in(40, 120);
  const uint32_t one = ceil_div(o.device.max_model_len, o.device.block_size);
  o.device.num_blocks = one * r.in(2, 8);
  o.device.eos_ids.clear();
  if (seed % 4 == 3) o.device.scheduling = Policy::kGoodput;
  // Ahead of need there is nothing to copy where there is no second tier, whatever is asked for.
  if (o.device.num_host_blocks == 0) o.device.eager_window = 16;
  o.read_odds = r.pick({1u, 1u, 3u});
  o.records_max = 1000;
  o.cancel_odds = r.pick({0u, 400u});
  o.step_ms_max = r.pick({1u, 50u});
  const uint64_t words = o.device.max_model_len + 2 * 4 + 4;
  o.ring.arena_bytes = 3 * o.ring.num_slots * ((4 * words + 127) / 128 * 128);
  return o;
}

TEST_CASE("steady ticks decide as the general path does") {
  const Seeds seeds(quarter_under_asan(100));
  uint64_t steady[2] = {};  // by whether there is a second tier
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    CAPTURE(seed);
    const WorldOptions options = calm_options(seed);
    const Outcome general = outcome_of(seed, options, false);
    const Outcome quick = outcome_of(seed, options, true);
    CHECK(general.dropped == 0);
    CHECK(general.steady_ticks == 0);
    CHECK(general.decisions == quick.decisions);
    CHECK(general.words == quick.words);
    CHECK(general.finishes == quick.finishes);
    steady[options.device.num_host_blocks != 0 ? 1 : 0] += quick.steady_ticks;
  }
  CHECK(steady[0] + steady[1] > 5 * (seeds.last - seeds.first));
  if (seeds.first == seeds.last) return;  // a replayed world has one tier or two
  for (const uint64_t ticks : steady) CHECK(ticks > 3 * (seeds.last - seeds.first));
}

TEST_CASE("both modes give equal tokens and equal decision logs") {
  const Seeds seeds(quarter_under_asan(100));
  uint64_t compared = 0;
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    CAPTURE(seed);
    WorldOptions options = world_options(seed);
    if (seed % 2 == 0) options.during_odds = 1;  // half of the worlds act in every step
    const Outcome serial = outcome_of(seed, options, false);
    const Outcome overlapped = outcome_of(seed, options, true);
    CHECK(serial.dropped == 0);
    CHECK(overlapped.dropped == 0);
    CHECK(serial.decisions == overlapped.decisions);
    CHECK(serial.words == overlapped.words);
    CHECK(serial.finishes == overlapped.finishes);
    compared += serial.decisions.size() / 2;
  }
  MESSAGE("decisions compared: " << compared);
  if (seeds.first != seeds.last) CHECK(compared > 10000);
}

/// Several frontends ring in an order other than that of their slots, some during the step.
std::vector<uint64_t> log_of_crossing_arrivals(bool overlapped) {
  DeviceShape shape;
  shape.num_seats = 2;
  shape.overlapped = overlapped;
  TestRing ring({128, 4});
  TestDevice device(ring, shape);
  std::vector<TestFrontend> fronts;
  for (uint32_t f = 0; f < 4; ++f) fronts.emplace_back(ring, f);
  for (TestFrontend& f : fronts) f.join();
  device.tick();
  fronts[0].submit(ask_of(4, 30));
  uint32_t step = 0;
  device.step.during = [&] {
    if (++step > 6) return;
    for (uint32_t f : {3u, 2u}) {
      const Ticket t = fronts[f].submit(ask_of(4, 3, f));
      if (step % 3 == 0) fronts[f].cancel(t);
    }
  };
  for (uint32_t i = 0; i < 60; ++i) {
    if (i < 6)
      for (uint32_t f : {1u, 0u}) fronts[f].submit(ask_of(4, 3, f));
    device.tick();
  }
  return device.log();
}

TEST_CASE("arrivals of several frontends, during a step and after it, are ordered alike") {
  const std::vector<uint64_t> serial = log_of_crossing_arrivals(false);
  CHECK(serial == log_of_crossing_arrivals(true));
  CHECK(serial.size() > 100);
}

/// A step during which a burst arrives; `waiting` runs when the host begins to wait for its end.
struct BurstStep {
  NullStep null;
  std::function<void()> during;
  std::function<void()> waiting;
  void launch(const StepBatch& batch) {
    null.launch(batch);
    during();
  }
  void wait() const { waiting(); }
  uint64_t done_ns() const { return 0; }
};

/// Of `burst` requests that arrive while a step runs, how many are copied and checked before the
/// host waits for the step, which leaves less work between it and the next one.
template <bool kOverlapped>
uint32_t copied_beside_step(uint32_t burst) {
  Bench b;
  b.front.submit(ask_of(4, 20));
  std::vector<Ticket> arrived;
  uint32_t copied = 0;
  BurstStep step{b.device.step.null, {}, {}};
  step.during = [&] {
    while (arrived.size() < burst) arrived.push_back(b.front.submit(ask_of(4, 1)));
  };
  step.waiting = [&] {
    for (const Ticket& t : arrived) {
      copied += b.device.s.slots[t.slot].copied == t.ticket + 1 ? 1 : 0;
    }
  };
  TestEnv<kOverlapped> env{b.device.now_ns};
  CHECK(saccade::tick(b.device.s, step, env) == 1);
  return copied;
}

TEST_CASE("what arrives during a step is copied during that step, if overlapped") {
  CHECK(copied_beside_step<false>(16) == 0);
  CHECK(copied_beside_step<true>(16) == 16);
}

/// A request that is cancelled, or whose descriptor changes, after the scan during the step saw it.
TEST_CASE("what was copied during a step is not used for another ticket") {
  Bench b;
  const uint32_t slot = b.front.first_slot() + 5;
  Ticket running = b.front.submit(ask_of(4, 20));
  Ticket first;
  b.device.step.during = [&] {
    if (first.ticket == 0) first = b.front.submit_at(ask_of(6, 3, 1), slot);
  };
  b.device.tick();
  b.device.tick();
  REQUIRE(first.ticket == 1);
  // Rung again before the tick that would have accepted the first. That breaks the protocol, but
  // only the last ticket may run, with its own descriptor.
  Ticket second = b.front.submit_at(ask_of(9, 5, 2), slot);
  b.finish({&running, &second});
  CHECK(second.words == expect(second.ask, b.device.shape).words);
}

/// Takes readings made beside a step for its own, as across a bus.
struct FarEnv : TestEnv<true> {
  using TestEnv<true>::TestEnv;
  bool takes(const ReadAhead& ahead) const { return ahead.at_ns != 0; }
};

/// Ticks from a doorbell that is rung when the results of a request's last step stand to its claim;
/// `others`: another request runs on.
uint32_t ticks_to_claim(bool others) {
  Bench b;
  FarEnv env(b.device.now_ns);
  Ticket ending = b.front.submit(ask_of(4, 2)), other;
  if (others) other = b.front.submit(ask_of(4, 20));
  for (uint32_t tick = 0; tick < 2; ++tick) saccade::tick(b.device.s, b.device.step, env);
  b.front.read(ending);
  REQUIRE(ending.complete());
  const Ticket next = b.front.submit(ask_of(4, 1));
  uint32_t ticks = 0;
  while (b.device.s.slots[next.slot].ticket != next.ticket && ticks < 5) {
    saccade::tick(b.device.s, b.device.step, env);
    ++ticks;
  }
  return ticks;
}

TEST_CASE("a reading made beside the last step does not hide what rang after it") {
  CHECK(ticks_to_claim(false) == 1);
  // Between two steps no trip to the ring is made: the reading beside the next one finds it.
  CHECK(ticks_to_claim(true) == 2);
}

}  // namespace
}  // namespace saccade::test
