// A frontend and the device loop on two threads, over one region, as in two processes. Built with
// TSan in CI. No result depends on how fast the machine is: sleeps that a wake-up must end are far
// longer than a test, and sleeps that time out are counted.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "host/host_env.hpp"
#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

/// Length of sleeps that a wake-up must end: one times out only if its wake-up was lost.
constexpr uint64_t kLostNs = 60ull * 1000 * 1000 * 1000;

/// Polls until it holds, for a minute at most.
template <class Holds>
bool eventually(Holds holds) {
  const uint64_t start_ns = monotonic_ns();
  while (!holds()) {
    if (monotonic_ns() - start_ns > kLostNs) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

/// The loop of sac_device_run, on its own thread; without work it sleeps until it is woken.
class DeviceThread {
 public:
  DeviceThread(TestRing& ring, const DeviceShape& shape) : ring_(ring), device_(ring, shape) {
    thread_ = std::thread([this] { loop(); });
  }
  ~DeviceThread() { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    stop_.store(true, std::memory_order_relaxed);
    while (!ended_.load(std::memory_order_relaxed)) {
      __atomic_fetch_add(&ring_.view.wake->device_kick, 1u, __ATOMIC_RELAXED);
      futex_wake(&ring_.view.wake->device_kick);
      std::this_thread::yield();
    }
    thread_.join();
  }
  /// Once stopped.
  const TestDevice& device() const { return device_; }
  /// Once stopped: number of sleeps without work that no wake-up ended.
  uint32_t slept_through() const { return slept_through_; }

 private:
  void loop() {
    HostEnv<true> env{device_.s.report.ring};
    while (!stop_.load(std::memory_order_relaxed)) {
      if (tick(device_.s, device_.step, env) != 0) continue;
      const bool idle = device_.idle();
      // Longer than a reader waits for a token that a lost kick holds up: that test ends first.
      const WaitEnd end = IdleWait::wait(device_.s, 2 * kLostNs);
      slept_through_ += idle && end == WaitEnd::kTimeRanOut ? 1 : 0;
    }
    ended_.store(true, std::memory_order_relaxed);
  }

  TestRing& ring_;
  TestDevice device_;
  uint32_t slept_through_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

/// Sleeps until the device publishes, as a token reader does when nothing is new. True if it had to
/// be woken and was not.
bool wait_publish(TestRing& ring, TestFrontend& front, uint32_t seen) {
  store_relaxed(&front.line()->waiting, 1u);
  // SYNC: with notify_publish, which counts, fences, and reads `waiting`.
  fence_seq_cst();
  bool ran_out = false;
  if (load_acquire(&ring.view.device->publish_count) == seen) {
    ran_out = futex_wait(&ring.view.device->publish_count, seen, kLostNs);
  }
  store_relaxed(&front.line()->waiting, 0u);
  return ran_out;
}

/// Reads a request to its end, asleep while nothing is new. False: a sleep ran out.
bool read_to_end(TestRing& ring, TestFrontend& front, Ticket& t) {
  while (!t.complete()) {
    const uint32_t seen = load_acquire(&ring.view.device->publish_count);
    const size_t before = t.words.size();
    const uint32_t state = t.state;
    front.read(t);
    if (t.words.size() != before || t.state != state) continue;
    if (wait_publish(ring, front, seen)) return false;
    front.beat();
  }
  return true;
}

void join_and_wait(TestFrontend& front) {
  front.join();
  front.kick();
  REQUIRE(eventually([&] { return front.acked(); }));
}

TEST_CASE("requests one by one: the device sleeps between them, the reader sleeps for each token") {
  TestRing ring(RingShape{});
  const DeviceShape shape;
  DeviceThread device(ring, shape);
  TestFrontend front(ring, 0);
  join_and_wait(front);
  for (uint32_t i = 0; i < 200; ++i) {
    // Every fourth time the device has fallen asleep. A kick that is lost leaves it there.
    if (i % 4 == 0) {
      REQUIRE(eventually([&] { return load_relaxed(&ring.view.device->sleeping) != 0; }));
    }
    Ticket t = front.submit(ask_of(1 + i % 20, 1 + i % 30, i));
    front.kick();
    REQUIRE(read_to_end(ring, front, t));
    CHECK(t.words == expect(t.ask, shape).words);
  }
  device.stop();
  CHECK(device.slept_through() == 0);
  CHECK(check_invariants(device.device().s) == nullptr);
}

/// One frontend's life: `count` requests, several at a time, some cancelled.
void live(TestRing& ring, uint32_t index, uint32_t count, const DeviceShape& shape,
          std::atomic<uint32_t>& wrong) {
  TestFrontend front(ring, index);
  front.join();
  front.kick();
  while (!front.acked()) std::this_thread::yield();
  std::vector<Ticket> open;
  for (uint32_t submitted = 0; submitted < count || !open.empty();) {
    front.beat();
    while (submitted < count && open.size() < 6) {
      Ask ask = ask_of(1 + submitted % 60, 1 + submitted % 25, submitted + index);
      ask.flags |= submitted % 3 == 0 ? SAC_REQ_LOGPROBS | SAC_REQ_PROMPT_LOGPROBS : 0;
      ask.num_top_logprobs = submitted % 21;
      open.push_back(front.submit(ask));
      front.kick();
      if (++submitted % 7 == 0) front.cancel(open.back());
    }
    for (Ticket& t : open) {
      front.read(t);
      const Expected e = expect(t.ask, shape);
      const bool whole = t.complete() && t.finish != SAC_FINISH_CANCELLED;
      if (t.lost || t.words.size() > e.words.size() || (whole && t.words != e.words) ||
          !std::equal(t.words.begin(), t.words.end(), e.words.begin()))
        ++wrong;
    }
    std::erase_if(open, [](const Ticket& t) { return t.complete(); });
    std::this_thread::yield();
  }
}

TEST_CASE("three frontends at once, under pressure, and each gets its own tokens") {
  TestRing ring({96, 3});
  DeviceShape shape;
  shape.num_blocks = 20;
  DeviceThread device(ring, shape);
  std::atomic<uint32_t> wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t f = 0; f < 3; ++f)
    threads.emplace_back([&, f] { live(ring, f, 150, shape, wrong); });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  // One more tick after the last end retires its seat.
  CHECK(eventually([&] { return load_relaxed(&ring.view.stats->blocks_used) == 0; }));
  device.stop();
  CHECK(device.slept_through() == 0);
  CHECK(check_invariants(device.device().s) == nullptr);
  CHECK(device.device().idle());
}

TEST_CASE("an idle device sleeps its full time after each tick, and each tick beats its heart") {
  TestRing ring(RingShape{});
  TestDevice device(ring, {});
  HostEnv<true> env{device.s.report.ring};
  for (uint32_t i = 0; i < 5; ++i) {
    const uint64_t beats = load_relaxed(&ring.view.device->heartbeat);
    CHECK(tick(device.s, device.step, env) == 0);
    CHECK(load_relaxed(&ring.view.device->heartbeat) > beats);
    CHECK(IdleWait::wait(device.s) == WaitEnd::kTimeRanOut);
  }
}

TEST_CASE("the device does not sleep on a frontend that joins") {
  TestRing ring(RingShape{});
  TestDevice device(ring, {});
  TestFrontend front(ring, 0);
  device.tick();
  front.join();
  CHECK(IdleWait::wait(device.s, 10 * IdleWait::kSleepNs) == WaitEnd::kFrontend);
  device.tick();
  CHECK(front.acked());
  CHECK(IdleWait::wait(device.s) == WaitEnd::kTimeRanOut);
}

TEST_CASE("the device does not sleep on a rung doorbell") {
  Bench b;
  b.front.submit(ask_of(4, 2));
  CHECK(IdleWait::wait(b.device.s, kLostNs) == WaitEnd::kFrontend);
}

}  // namespace
}  // namespace saccade::test
