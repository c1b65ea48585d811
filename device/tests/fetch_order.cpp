// In which order loads should be asked for: time to the first token of prompts that a store has,
// through the shipped tick, beside a simulated fetch plane that loads a chunk at a steady rate.
//
//   fetch_order [--requests N] [--seed N]
//
// Prompts have 1 to 32 chunks, short ones more often (as many of 1 as of 2 and 3 together, and so
// on); they arrive at random (Poisson), and nothing else delays them. All times are simulated.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>

#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

constexpr uint32_t kChunk = 16;
constexpr uint32_t kMostChunks = 32;
constexpr uint64_t kTickNs = 1'000'000;
constexpr uint32_t kTicksPerLoad = 5;

DeviceShape shape_of(bool first_come) {
  DeviceShape shape;
  shape.num_seats = 64;
  shape.max_model_len = kMostChunks * kChunk + 8;
  shape.max_num_batched_tokens = 512;
  shape.block_size = kChunk;
  shape.num_blocks = 64 * (kMostChunks + 1);
  shape.vocab_size = 1u << 30;
  shape.log_words = 0;
  shape.prefix_caching = true;
  shape.fetch = fetch_limits(kChunk);
  shape.fetch.num_entries = 256;
  shape.fetch.num_frames = 4;
  shape.fetch.always = 1;
  shape.fetch.late_ns = 3600'000'000'000;
  shape.fetch.first_come = first_come ? 1 : 0;
  shape.fetch_manner.ticks_per_load = kTicksPerLoad;
  shape.fetch_manner.known_odds = 1;
  shape.fetch_manner.stores = false;
  return shape;
}

/// Chunks of a prompt: 2^k to 2^(k+1) - 1, each k as likely as any other.
uint32_t draw_chunks(Random& random) {
  const uint32_t low = 1u << random.in(0, 4);
  return std::min(random.in(low, 2 * low - 1), kMostChunks);
}

struct Served {
  Ticket ticket;
  uint32_t chunks;
  uint64_t arrived_ns;
};

struct Times {
  std::vector<double> all_s, long_s;  // long: 16 chunks and more
};

/// `load`: of the fetch plane, as a share of what it can do.
Times run(bool first_come, double load, uint32_t num_requests, uint64_t seed) {
  RingShape ring;
  ring.num_slots = 512;
  ring.arena_bytes = ring.num_slots * 4096;
  Bench b(shape_of(first_come), ring);
  for (uint32_t i = 0; i < 100; ++i) b.device.now_ns += kTickNs, b.device.tick();
  Random random(seed);
  const double mean_chunks = (1 + 2.5 + 5.5 + 11.5 + 23.5) / 5;
  const double gap_ns = mean_chunks * kTicksPerLoad * kTickNs / load;
  double next_ns = static_cast<double>(b.device.now_ns);
  std::deque<Served> live;
  Times times;
  for (uint32_t asked = 0; asked < num_requests || !live.empty();) {
    while (asked < num_requests && next_ns <= static_cast<double>(b.device.now_ns)) {
      if (b.front.free_slot() == kNoSlot) throw std::runtime_error("the ring is full");
      const uint32_t chunks = draw_chunks(random);
      Ask ask;
      for (uint32_t i = 0; i < chunks * kChunk + 1; ++i) ask.prompt.push_back(asked * 1000 + i);
      live.push_back({b.front.submit(ask), chunks, static_cast<uint64_t>(next_ns)});
      next_ns -= gap_ns * std::log(1.0 - static_cast<double>(random.next() >> 11) / 0x1p53);
      ++asked;
    }
    b.device.now_ns += kTickNs;
    b.front.beat();
    b.device.tick();
    std::erase_if(live, [&](Served& s) {
      b.front.read(s.ticket);
      if (!s.ticket.complete()) return false;
      const double took_s = static_cast<double>(b.device.now_ns - s.arrived_ns) * 1e-9;
      times.all_s.push_back(took_s);
      if (s.chunks >= 16) times.long_s.push_back(took_s);
      return true;
    });
  }
  return times;
}

double quantile(std::vector<double> of, double q) {
  std::sort(of.begin(), of.end());
  return of[static_cast<size_t>(q * static_cast<double>(of.size() - 1))];
}
double mean(const std::vector<double>& of) {
  double sum = 0;
  for (double x : of) sum += x;
  return sum / static_cast<double>(of.size());
}

int main_with(uint32_t num_requests, uint64_t seed) {
  std::printf("simulated; TTFT in seconds, %u requests, seed %lu\n", num_requests, seed);
  std::printf("%-5s %-12s %8s %8s %8s %12s\n", "load", "order", "mean", "P50", "P99",
              "P99 of long");
  for (const double load : {0.5, 0.7, 0.9})
    for (const bool first_come : {true, false}) {
      const Times t = run(first_come, load, num_requests, seed);
      std::printf("%-5.1f %-12s %8.3f %8.3f %8.3f %12.3f\n", load,
                  first_come ? "first come" : "shortest", mean(t.all_s), quantile(t.all_s, 0.5),
                  quantile(t.all_s, 0.99), quantile(t.long_s, 0.99));
    }
  return 0;
}

}  // namespace
}  // namespace saccade::test

int main(int argc, char** argv) {
  uint64_t requests = 2000, seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--requests") == 0) requests = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
  }
  try {
    return saccade::test::main_with(static_cast<uint32_t>(requests), seed);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "fetch_order: %s\n", e.what());
    return 2;
  }
}
