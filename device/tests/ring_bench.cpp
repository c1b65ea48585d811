// Micro benchmark of the ring and the tick alone, over the null step. Prints one JSON line per
// figure on stdout and a table on stderr.
//
//   ring_bench [quick]
//
//   scan      one scan of all doorbells, with k of them changed
//   tick      one tick with n live requests, each of which gets a token
//   latency   from ringing a doorbell until the first token is visible, with a frontend thread and
//             a device thread that polls, or sleeps between requests
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>

#include "host/host_env.hpp"
#include "tests/test_device.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

bool quick = false;

struct Percentiles {
  double p50, p99, best;
};
Percentiles percentiles(std::vector<double>& samples) {
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples[samples.size() * 99 / 100], samples.front()};
}

void report(const char* name, const char* key, const std::string& value, const char* unit,
            std::vector<double> samples) {
  const size_t count = samples.size();
  const Percentiles p = percentiles(samples);
  std::printf(
      "{\"bench\":\"%s\",\"%s\":\"%s\",\"unit\":\"%s\",\"best\":%.4f,\"p50\":%.4f,\"p99\":%.4f,"
      "\"samples\":%zu}\n",
      name, key, value.c_str(), unit, p.best, p.p50, p.p99, count);
  std::fprintf(stderr, "%-8s %-8s %-10s  best %9.3f  p50 %9.3f  p99 %9.3f %s\n", name, key,
               value.c_str(), p.best, p.p50, p.p99, unit);
}

double elapsed_us(uint64_t start_ns) {
  return static_cast<double>(monotonic_ns() - start_ns) / 1e3;
}

// ---- scan
// ----------------------------------------------------------------------------------------

void bench_scan(uint32_t num_changed) {
  constexpr uint32_t kRepeats = 100;  // per sample: the clock is too coarse for one
  std::vector<uint32_t> memory[3];
  for (auto& words : memory) words.assign(SAC_MAX_SLOTS, 7);
  for (uint32_t i = 0; i < num_changed; ++i) memory[0][(i * 2654435761u) % SAC_MAX_SLOTS] = 8 + i;
  std::vector<double> samples;
  uint64_t found = 0;
  for (uint32_t i = 0; i < (quick ? 200 : 2000); ++i) {
    const uint64_t start = monotonic_ns();
    for (uint32_t r = 0; r < kRepeats; ++r)
      found += scan_changed(memory[0].data(), memory[1].data(), SAC_MAX_SLOTS, memory[2].data());
    samples.push_back(elapsed_us(start) / kRepeats);
  }
  if (found != samples.size() * kRepeats * num_changed) std::abort();
  report("scan", "changed", std::to_string(num_changed), "us", samples);
}

// ---- tick
// ----------------------------------------------------------------------------------------

DeviceShape wide_shape() {
  DeviceShape d;
  d.num_seats = SAC_MAX_SLOTS;
  d.max_num_batched_tokens = 2 * SAC_MAX_SLOTS;
  d.max_model_len = 2048;
  d.block_size = 16;
  d.num_blocks = SAC_MAX_SLOTS * 32;
  d.vocab_size = 151936;
  d.log_words = 0;
  return d;
}

/// A tick as sac_device_run runs it, without the checks that tests add.
struct PlainTicks {
  HostEnv<true> env;
  TestDevice& device;
  explicit PlainTicks(TestDevice& d) : env{d.s.report.ring}, device(d) {}
  uint32_t run() { return tick(device.s, device.step.null, env); }
};

void bench_tick(uint32_t num_live) {
  RingShape ring_shape;
  ring_shape.num_slots = SAC_MAX_SLOTS;
  ring_shape.out_ring_words = 512;
  ring_shape.arena_bytes = 4096 * 128;
  TestRing ring(ring_shape);
  TestDevice device(ring, wide_shape());
  TestFrontend front(ring, 0);
  PlainTicks ticks(device);
  front.join();
  ticks.run();
  for (uint32_t i = 0; i < num_live; ++i) front.submit(ask_of(2, 2000, i));
  for (uint32_t i = 0; i < 8; ++i) ticks.run();
  std::vector<double> samples;
  for (uint32_t i = 0; i < 400; ++i) {
    front.beat();
    const uint64_t start = monotonic_ns();
    const uint32_t num_seqs = ticks.run();
    samples.push_back(elapsed_us(start));
    if (num_seqs != num_live) std::abort();
  }
  report("tick", "live", std::to_string(num_live), "us", samples);
}

// ---- latency
// -------------------------------------------------------------------------------------

void device_loop(TestDevice& device, bool may_sleep, const std::atomic<bool>& stop) {
  PlainTicks ticks(device);
  while (!stop.load(std::memory_order_relaxed))
    if (ticks.run() == 0 && may_sleep) IdleWait::wait(device.s);
}

/// Time until the first token of one request is visible; then reads it to its end.
double first_token_us(TestRing& ring, TestFrontend& front, uint32_t salt) {
  Ticket t = front.prepare(ask_of(8, 1, salt), front.free_slot());
  const uint64_t start = monotonic_ns();
  front.ring(t);
  front.kick();
  while (true) {
    const uint64_t word = ring.status_word(t.slot);
    if (sac_status_ticket(word) == t.ticket && sac_status_count(word) != 0) break;
  }
  const double us = elapsed_us(start);
  while (!t.complete()) front.read(t);
  return us;
}

void bench_latency(bool may_sleep) {
  RingShape ring_shape;
  ring_shape.num_slots = SAC_MAX_SLOTS;
  ring_shape.arena_bytes = 4096 * 128;
  TestRing ring(ring_shape);
  DeviceShape shape = wide_shape();
  shape.num_seats = 256;
  TestDevice device(ring, shape);
  std::atomic<bool> stop{false};
  std::thread thread([&] { device_loop(device, may_sleep, stop); });
  TestFrontend front(ring, 0);
  front.join();
  front.kick();
  while (!front.acked()) std::this_thread::yield();
  std::vector<double> samples;
  for (uint32_t i = 0; i < (quick ? 500 : 20000) / (may_sleep ? 10 : 1); ++i) {
    front.beat();
    if (may_sleep) {
      while (load_relaxed(&ring.view.device->sleeping) == 0) std::this_thread::yield();
      // It says so before it is in the kernel. Wait, to measure a wake-up, not a near miss.
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    samples.push_back(first_token_us(ring, front, i));
  }
  stop.store(true);
  front.kick();
  thread.join();
  report("latency", "device", may_sleep ? "sleeping" : "spinning", "us", samples);
}

}  // namespace

int main(int argc, char** argv) {
  quick = argc > 1 && std::strcmp(argv[1], "quick") == 0;
  for (uint32_t changed : {0u, 1u, 16u, 256u, 4096u}) bench_scan(changed);
  for (uint32_t live : {1u, 64u, 512u, 4096u}) bench_tick(live);
  for (bool may_sleep : {false, true}) bench_latency(may_sleep);
  return 0;
}
