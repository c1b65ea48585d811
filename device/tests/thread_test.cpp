// A frontend and the device loop on two threads, over one region, as in two processes. Built with
// TSan in CI. What is timed here is only that nothing sleeps through a wake-up: bounds are seconds.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "host/host_env.hpp"
#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

/// The loop of sac_device_run, on a thread of its own.
class DeviceThread {
 public:
  DeviceThread(TestRing& ring, const DeviceShape& shape) : device_(ring, shape) {
    thread_ = std::thread([this] { loop(); });
  }
  ~DeviceThread() { stop(); }
  void stop() {
    stop_.store(true, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
  }
  /// Once stopped.
  const TestDevice& device() const { return device_; }

 private:
  void loop() {
    HostEnv<true> env{device_.s.ring};
    while (!stop_.load(std::memory_order_relaxed))
      if (tick(device_.s, device_.step, env) == 0) IdleWait::wait(device_.s);
  }

  TestDevice device_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// Sleeps until the device publishes, as a token reader does when nothing is new.
void wait_publish(TestRing& ring, TestFrontend& front, uint32_t seen) {
  store_relaxed(&front.line()->waiting, 1u);
  // SYNC: with notify_publish, which counts, fences, and reads `waiting`.
  fence_seq_cst();
  if (load_acquire(&ring.view.device->publish_count) == seen)
    futex_wait(&ring.view.device->publish_count, seen, 2'000'000'000);
  store_relaxed(&front.line()->waiting, 0u);
}

/// Reads a request to its end, asleep while nothing is new. Returns how often the sleep ran out.
uint32_t read_to_end(TestRing& ring, TestFrontend& front, Ticket& t) {
  uint32_t timeouts = 0;
  while (!t.complete() && timeouts < 5) {
    const uint32_t seen = load_acquire(&ring.view.device->publish_count);
    const size_t before = t.words.size();
    const uint32_t state = t.state;
    front.read(t);
    if (t.words.size() != before || t.state != state) continue;
    const uint64_t start = monotonic_ns();
    wait_publish(ring, front, seen);
    front.beat();
    if (monotonic_ns() - start > 1'900'000'000) ++timeouts;
  }
  return timeouts;
}

void join_and_wait(TestFrontend& front) {
  front.join();
  front.kick();
  for (int i = 0; i < 5000 && !front.acked(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(front.acked());
}

TEST_CASE("requests one by one: the device sleeps between them, the reader sleeps for each token") {
  TestRing ring(RingShape{});
  const DeviceShape shape;
  DeviceThread device(ring, shape);
  TestFrontend front(ring, 0);
  join_and_wait(front);
  std::vector<uint64_t> woken_ns;  // from ringing a sleeping device to the whole answer
  for (uint32_t i = 0; i < 200; ++i) {
    // Every fourth time the device is given the time to fall asleep.
    if (i % 4 == 0)
      for (int k = 0; k < 100 && load_relaxed(&ring.view.device->sleeping) == 0; ++k)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    const bool asleep = load_relaxed(&ring.view.device->sleeping) != 0;
    const uint64_t start = monotonic_ns();
    Ticket t = front.submit(ask_of(1 + i % 20, 1 + i % 30, i));
    front.kick();
    CHECK(read_to_end(ring, front, t) == 0);
    const uint64_t took_ns = monotonic_ns() - start;
    CHECK(took_ns < 5'000'000'000);
    if (asleep) woken_ns.push_back(took_ns);
    CHECK(t.words == expect(t.ask, shape).words);
  }
  // A kick that is lost costs the rest of the device's sleep. The median forgives a busy machine.
  REQUIRE(woken_ns.size() > 10);
  std::sort(woken_ns.begin(), woken_ns.end());
  CHECK(woken_ns[woken_ns.size() / 2] < IdleWait::kSleepNs / 2);
  device.stop();
  CHECK(check_invariants(device.device().s) == nullptr);
}

/// One frontend's life: `count` requests, several at a time, some cancelled.
void live(TestRing& ring, uint32_t index, uint32_t count, const DeviceShape& shape,
          std::atomic<uint32_t>& wrong) {
  TestFrontend front(ring, index);
  front.join();
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
  for (int i = 0; i < 5000 && load_relaxed(&ring.view.stats->blocks_used) != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  device.stop();
  CHECK(check_invariants(device.device().s) == nullptr);
  CHECK(device.device().idle());
}

TEST_CASE("an idle device uses next to no processor, and its heart beats") {
  TestRing ring(RingShape{});
  DeviceThread device(ring, {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  timespec before, after;
  const uint64_t beats = load_relaxed(&ring.view.device->heartbeat);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used_ms = static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
                         static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e6;
  CHECK(used_ms < 100);
  CHECK(load_relaxed(&ring.view.device->heartbeat) > beats);
}

}  // namespace
}  // namespace saccade::test
