// What shared prefixes cost the scheduler, beside the same scheduler with the cache turned off, in
// one process, tick by tick in turn. The step only writes tokens. One JSON object per figure.
//
//   prefix_bench                              times
//   prefix_bench decode on|off SEATS TICKS    that work alone, for a counter of instructions
//   prefix_bench prompts on|off TOKENS TIMES  a prompt never seen, then the same TIMES - 1 times
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "host/host_env.hpp"
#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

constexpr uint32_t kBlockTokens = 16;

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

void report(const char* what, uint32_t size, const char* unit, double off, double on) {
  std::printf(
      "{\"what\": \"%s\", \"size\": %u, \"unit\": \"%s\", \"off\": %.3f, \"on\": %.3f, "
      "\"ratio\": %.3f}\n",
      what, size, unit, off, on, on / off);
}

/// A device and its frontend, with the cache on or off.
struct Side {
  TestRing ring;
  TestDevice device;
  TestFrontend front;
  HostEnv<true> env;

  Side(const RingShape& ring_shape, const DeviceShape& shape)
      : ring(ring_shape), device(ring, shape), front(ring, 0), env{device.s.report.ring} {
    front.join();
    tick();
  }
  uint32_t tick() { return saccade::tick(device.s, device.step.null, env); }
  double timed_tick_us() {
    front.beat();
    const uint64_t start_ns = monotonic_ns();
    tick();
    return static_cast<double>(monotonic_ns() - start_ns) / 1e3;
  }
  void finish(Ticket& t) {
    while (!t.complete()) {
      tick();
      front.read(t);
    }
    tick();
  }
};

struct Pair {
  std::unique_ptr<Side> off, on;
  Pair(const RingShape& ring, DeviceShape shape) {
    off = std::make_unique<Side>(ring, shape);
    shape.prefix_caching = true;
    on = std::make_unique<Side>(ring, shape);
  }
};

DeviceShape shape_of(uint32_t num_seats, uint32_t max_model_len, uint32_t num_blocks) {
  DeviceShape shape;
  shape.num_seats = num_seats;
  shape.max_num_batched_tokens = std::max(2 * num_seats, 512u);
  shape.max_model_len = max_model_len;
  shape.block_size = kBlockTokens;
  shape.num_blocks = num_blocks;
  shape.vocab_size = 151936;
  shape.log_words = 0;
  return shape;
}

RingShape decode_ring() {
  RingShape ring;
  ring.num_slots = SAC_MAX_SLOTS;
  ring.out_ring_words = 1024;
  ring.arena_bytes = uint64_t{SAC_MAX_SLOTS} * 256;
  return ring;
}

/// All requests decode, and have nothing to reuse.
void begin_decode(Side& side, uint32_t num_live) {
  for (uint32_t i = 0; i < num_live; ++i) side.front.submit(ask_of(2 + i % 30, 1500, i));
  for (uint32_t i = 0; i < 100; ++i) side.tick();
}

void bench_decode(uint32_t num_live) {
  Pair pair(decode_ring(), shape_of(num_live, 2048, num_live * 128));
  begin_decode(*pair.off, num_live);
  begin_decode(*pair.on, num_live);
  std::vector<double> off, on;
  for (uint32_t i = 0; i < 900; ++i) {
    off.push_back(pair.off->timed_tick_us());
    on.push_back(pair.on->timed_tick_us());
  }
  report("decode tick, requests", num_live, "us", median(off), median(on));
}

Ask prompt_of(uint32_t num_tokens, uint32_t salt) {
  Ask ask = ask_of(1, 1, salt);
  ask.prompt.resize(num_tokens);
  Random random(salt + 1);
  for (uint32_t& token : ask.prompt) token = random.in(0, 151935);
  return ask;
}

/// The time of all ticks from a request's doorbell to its first token; the step costs nothing.
double first_token_us(Side& side, const Ask& ask) {
  Ticket t = side.front.submit(ask);
  const uint64_t start_ns = monotonic_ns();
  while (sac_status_ticket(side.ring.status_word(t.slot)) != t.ticket ||
         sac_status_count(side.ring.status_word(t.slot)) == 0)
    side.tick();
  const uint64_t end_ns = monotonic_ns();
  side.finish(t);
  return static_cast<double>(end_ns - start_ns) / 1e3;
}

RingShape prompt_ring(uint32_t num_tokens) {
  RingShape ring;
  ring.arena_bytes = uint64_t{ring.num_slots} * (num_tokens + 64) * 4;
  return ring;
}
DeviceShape prompt_shape(uint32_t num_tokens, uint32_t num_blocks) {
  DeviceShape shape = shape_of(4, num_tokens + 16, num_blocks);
  shape.max_num_batched_tokens = num_tokens + 16;
  return shape;
}

/// Prompts that were never seen, and the same again, in a pool of `num_blocks`.
void bench_prompts(uint32_t num_tokens, uint32_t num_blocks, uint32_t repeats) {
  Pair pair(prompt_ring(num_tokens), prompt_shape(num_tokens, num_blocks));
  std::vector<double> off, cold, cached;
  for (uint32_t i = 0; i < repeats; ++i) {
    const Ask ask = prompt_of(num_tokens, i);
    off.push_back(first_token_us(*pair.off, ask));
    cold.push_back(first_token_us(*pair.on, ask));
    cached.push_back(first_token_us(*pair.on, ask));
  }
  report("prompt, never seen, tokens", num_tokens, "us", median(off), median(cold));
  report("prompt, cached, tokens", num_tokens, "us", median(off), median(cached));
  const double per_block_ns = 1e3 * median(cached) / (num_tokens / kBlockTokens);
  std::printf(
      "{\"what\": \"per cached block, blocks in the pool\", \"size\": %u, \"unit\": \"ns\", "
      "\"on\": %.1f}\n",
      num_blocks, per_block_ns);
}

/// One kind of work alone, as often as is asked.
int work(const std::string& kind, bool shares, uint32_t size, uint32_t times) {
  const bool decodes = kind == "decode";
  DeviceShape shape =
      decodes ? shape_of(size, 2048, size * 128) : prompt_shape(size, size / kBlockTokens * 4);
  shape.prefix_caching = shares;
  Side side(decodes ? decode_ring() : prompt_ring(size), shape);
  if (decodes) begin_decode(side, size);
  const Ask ask = prompt_of(decodes ? 1 : size, 1);
  for (uint32_t i = 0; i < times; ++i)
    if (decodes) {
      side.front.beat();
      side.tick();
    } else {
      first_token_us(side, ask);
    }
  return 0;
}

}  // namespace
}  // namespace saccade::test

int main(int argc, char** argv) {
  using namespace saccade::test;
  if (argc == 5)
    return work(argv[1], std::string(argv[2]) == "on",
                static_cast<uint32_t>(std::strtoul(argv[3], nullptr, 10)),
                static_cast<uint32_t>(std::strtoul(argv[4], nullptr, 10)));
  for (const uint32_t live : {1u, 16u, 64u, 256u, 1024u}) bench_decode(live);
  bench_prompts(512, 1u << 14, 400);
  bench_prompts(4096, 1u << 16, 200);
  bench_prompts(131072, 1u << 20, 20);
}
