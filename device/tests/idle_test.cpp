// What the step engine waits for: the two sums of sched/idle.hpp, under a test clock.
#include <doctest/doctest.h>

#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

constexpr uint64_t kUs = 1000;
constexpr uint64_t kStepNs = 1000 * kUs;
constexpr uint64_t kGapNs = 10 * kUs;

/// A device whose steps take kStepNs, and whose host takes kGapNs from one tick to the next.
struct Clocked : Bench {
  explicit Clocked(bool overlapped = true) : Bench(shape_of(overlapped)) {
    device.step.during = [this] { device.now_ns += kStepNs; };
  }
  static DeviceShape shape_of(bool overlapped) {
    DeviceShape shape;
    shape.overlapped = overlapped;
    return shape;
  }
  uint32_t tick() {
    device.now_ns += kGapNs;
    return device.tick();
  }
  const sac_device_stats& stats() const { return *ring.view.stats; }
};

TEST_CASE("the time between the steps of a running request is the host's") {
  for (const bool overlapped : {false, true}) {
    Clocked c(overlapped);
    Ticket t = c.front.submit(ask_of(4, 5));
    for (uint32_t i = 0; i < 5; ++i) {
      CHECK(c.tick() == 1);
      c.front.read(t);
    }
    REQUIRE(t.complete());
    CHECK(c.stats().step_ns == 5 * kStepNs);
    // The first step began in the tick that accepted the request: its arrival is known only then.
    CHECK(c.stats().host_wait_ns == 4 * kGapNs);
    CHECK(c.stats().reader_wait_ns == 0);
  }
}

TEST_CASE("time without work is in neither sum") {
  Clocked c;
  for (uint32_t i = 0; i < 3; ++i) {
    Ticket t = c.front.submit(ask_of(4, 1, i));
    CHECK(c.tick() == 1);
    c.front.read(t);
    REQUIRE(t.complete());
    c.device.now_ns += 1000 * kStepNs;
    CHECK(c.tick() == 0);
  }
  CHECK(c.stats().host_wait_ns == 0);
  CHECK(c.stats().reader_wait_ns == 0);
}

TEST_CASE("nothing is waited for between a request that ended and the next one") {
  Clocked c;
  for (uint32_t i = 0; i < 3; ++i) {
    Ticket t = c.front.submit(ask_of(4, 1, i));
    CHECK(c.tick() == 1);  // no tick without work in between
    c.front.read(t);
    REQUIRE(t.complete());
    c.device.now_ns += 1000 * kStepNs;
  }
  CHECK(c.stats().host_wait_ns == 0);
}

TEST_CASE("a host that wakes up late after a step is waited for") {
  constexpr uint64_t kLateNs = 300 * kUs;
  Clocked c;
  c.device.step.during = [&c] {
    c.device.now_ns += kStepNs;
    c.device.step.done = c.device.now_ns;
    c.device.now_ns += kLateNs;
  };
  c.front.submit(ask_of(4, 10));
  for (uint32_t i = 0; i < 3; ++i) CHECK(c.tick() == 1);
  CHECK(c.stats().step_ns == 3 * kStepNs);
  CHECK(c.stats().host_wait_ns == 2 * (kLateNs + kGapNs));
  // An impossible end is not believed.
  c.device.step.during = [&c] { c.device.now_ns += kStepNs; };
  for (const uint64_t wrong : {uint64_t{1}, UINT64_MAX}) {
    const uint64_t before_ns = c.stats().step_ns;
    c.device.step.done = wrong;
    CHECK(c.tick() == 1);
    CHECK(c.stats().step_ns == before_ns + kStepNs);
  }
}

TEST_CASE("while every request is held for its reader, the reader is waited for") {
  Clocked c;
  Ticket t = c.front.submit(ask_of(4, 100));
  uint64_t launches = 0;
  while (c.tick() != 0) ++launches;  // no reader: the output ring fills
  CHECK(launches == SAC_MIN_OUT_RING_WORDS);
  CHECK(c.stats().host_wait_ns == (launches - 1) * kGapNs);
  for (uint32_t i = 0; i < 7; ++i) CHECK(c.tick() == 0);
  // From the end of the last step: seven ticks without a step, after the one that ended the loop.
  CHECK(c.stats().reader_wait_ns == 7 * kGapNs + kGapNs);
  c.front.read(t);
  CHECK(c.tick() == 1);
  CHECK(c.stats().reader_wait_ns == 9 * kGapNs);
  CHECK(c.stats().host_wait_ns == (launches - 1) * kGapNs);
  CHECK(c.tick() == 1);
  CHECK(c.stats().host_wait_ns == launches * kGapNs);
}

TEST_CASE("a request that arrives while another is held runs on the host's time") {
  Clocked c;
  c.front.submit(ask_of(4, 100));
  while (c.tick() != 0) {
  }
  const sac_device_stats before = c.stats();
  Ticket t = c.front.submit(ask_of(4, 2, 1));
  CHECK(c.tick() == 1);
  CHECK(c.tick() == 1);
  c.front.read(t);
  CHECK(t.complete());
  CHECK(c.stats().host_wait_ns - before.host_wait_ns == kGapNs);
  CHECK(c.stats().reader_wait_ns - before.reader_wait_ns == kGapNs);
}

}  // namespace
}  // namespace saccade::test
