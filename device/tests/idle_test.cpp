// Whom the step engine waits for: the two sums of sched/idle.hpp, under clocks of the tests.
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>

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
    // The first step began in the tick that took the request up: only then is its arrival known.
    CHECK(c.stats().host_wait_ns == 4 * kGapNs);
    CHECK(c.stats().reader_wait_ns == 0);
  }
}

TEST_CASE("time without work is nobody's") {
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
  // An end that cannot be true is not believed.
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
  while (c.tick() != 0) ++launches;  // nobody reads: the output ring fills
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

// ---- under a clock of work done
// ------------------------------------------------------------------------------------------

constexpr uint32_t kBurst = 1024;
constexpr uint32_t kBursts = 50;

/// Moves with the work of this thread, so that whatever else this machine does is left out, and
/// over the rest of a step at once.
class WorkClock {
 public:
  uint64_t now_ns() const {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec) +
           skipped_ns_;
  }
  void advance_to(uint64_t ns) {
    const uint64_t now = now_ns();
    if (now < ns) skipped_ns_ += ns - now;
  }

 private:
  uint64_t skipped_ns_ = 0;
};

template <bool kOverlapped>
struct WorkEnv : TestEnv<kOverlapped> {
  const WorkClock& clock;
  uint64_t now_ns() const { return clock.now_ns(); }
};

/// A step of known length. What `during` does has happened when the scan beside the step begins.
struct LongStep {
  static constexpr uint64_t kLengthNs = 1000 * 1000 * kUs;
  NullStep null;
  WorkClock& clock;
  std::function<void()> during = {};
  uint64_t done = 0;
  void launch(const StepBatch& batch) {
    null.launch(batch);
    if (during) during();
    done = clock.now_ns() + kLengthNs;
  }
  void wait() const { clock.advance_to(done); }
  uint64_t done_ns() const { return done; }
};

/// Bursts of requests arrive when a step begins. Returns the least host wait of the ticks that take
/// one up: caches and interrupts can only add to it.
template <bool kOverlapped>
uint64_t least_wait_ns() {
  DeviceShape shape;
  shape.num_seats = 1;  // the bursts wait: what differs is when their descriptors are copied
  shape.max_model_len = shape.max_num_batched_tokens = 512;
  Bench b(shape, {2 * kBurst, 1, 512, 1 << 20});
  WorkClock clock;
  WorkEnv<kOverlapped> env{{b.device.now_ns}, clock};
  LongStep step{b.device.step.null, clock};
  const auto tick = [&] {
    b.front.beat();
    saccade::tick(b.device.s, step, env);
  };
  Ticket running = b.front.submit(ask_of(4, 500));
  tick();
  uint64_t least = UINT64_MAX;
  for (uint32_t i = 0; i < kBursts; ++i) {
    std::vector<Ticket> burst;
    step.during = [&] {
      for (uint32_t k = 0; k < kBurst; ++k) burst.push_back(b.front.submit(ask_of(4, 1, k)));
    };
    tick();
    step.during = nullptr;
    const uint64_t before_ns = b.device.s.stats.host_wait_ns;
    tick();
    least = std::min(least, b.device.s.stats.host_wait_ns - before_ns);
    REQUIRE(b.device.s.num_waiting == kBurst);
    for (Ticket& t : burst) b.front.cancel(t);
    tick();
    for (Ticket& t : burst) b.front.read(t);
  }
  b.front.read(running);
  CHECK(running.records() > kBursts);
  return least;
}

TEST_CASE("overlapping leaves the host less to do between two steps") {
  const uint64_t serial_ns = least_wait_ns<false>();
  const uint64_t overlapped_ns = least_wait_ns<true>();
  MESSAGE("least host wait with a burst of " << kBurst << " requests: serial " << serial_ns
                                             << " ns, overlapped " << overlapped_ns << " ns");
  CHECK(overlapped_ns > 0);
  CHECK(overlapped_ns < serial_ns);
}

}  // namespace
}  // namespace saccade::test
