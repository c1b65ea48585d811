// How the CPU step behaves over time: it allocates nothing after construction, returns at once from
// a launch, and uses no CPU time when idle.
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <new>
#include <vector>

#include "cpu/memory_region.hpp"
#include "tests/step_harness.hpp"

namespace {
std::atomic<uint64_t> allocations{0};
}  // namespace

// Replaces every C++ allocation function with one that counts.
void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, std::align_val_t align) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t unit = static_cast<std::size_t>(align);
  if (void* p = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

using namespace saccade;
using namespace saccade::test;

namespace {

sac_model_config small_config() {
  sac_model_config c = {};
  c.num_layers = 2;
  c.hidden_size = 64;
  c.intermediate_size = 128;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = c.rotary_dim = 16;
  c.vocab_size = 500;
  c.dtype = SAC_DTYPE_BF16;
  c.rms_norm_eps = 1e-5f;
  return c;
}

void make_ready(StepHarness& h, const sac_model_config& config) {
  h.step->fill_dummy(3);
  TestModel rope;
  rope.config = config;
  fill_rope(rope, h.options.max_len, 1e4);
  REQUIRE(h.step->set_rope(rope.cos.data(), rope.sin.data(), rope.cos.size()) == "");
}

/// Sampling with everything switched on.
SeatParams busy_params(uint32_t prompt_len) {
  SeatParams p = greedy(prompt_len);
  p.temperature = 0.9f;
  p.top_k = 50;
  p.top_p = 0.9f;
  p.min_p = 0.01f;
  p.repetition_penalty = 1.1f;
  p.frequency_penalty = 0.1f;
  p.presence_penalty = 0.1f;
  p.min_tokens = 3;
  p.num_logit_bias = 1;
  p.num_stop_ids = 1;
  p.flags = SAC_REQ_LOGPROBS | SAC_REQ_PROMPT_LOGPROBS;
  p.num_top_logprobs = 20;
  return p;
}

double process_cpu_s() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace

TEST_CASE("no step allocates") {
  HarnessOptions o;
  o.num_threads = 3;
  o.num_seats = 70;  // more samples than one tile of logits has rows
  o.max_rows = 300;
  StepHarness h(small_config(), o);
  make_ready(h, small_config());
  h.seqs.reserve(o.num_seats);
  const std::vector<uint32_t> prompt(100, 7);
  for (uint32_t s = 0; s < 70; ++s) h.seat_prompt(s, prompt, busy_params(3));
  const uint64_t before = allocations.load();
  for (uint32_t i = 0; i < 20; ++i) {
    h.add(0, i, 100, true, true);
    for (uint32_t s = 1; s < 70; ++s) h.add(s, 2 + i, 1, true, true);
    h.run();
  }
  CHECK(allocations.load() == before);
  CHECK(before > 0);  // the counter counts
}

TEST_CASE("launch returns at once; done and wait agree") {
  sac_model_config config = small_config();
  config.num_layers = 24;
  config.hidden_size = config.intermediate_size = 512;
  HarnessOptions o;
  o.num_threads = 2;
  StepHarness h(config, o);
  make_ready(h, config);
  h.seat_prompt(0, std::vector<uint32_t>(200, 1), greedy(200));
  const StepSeq seq = {0, 0, 200, 0, 1, 0};
  uint32_t seen_running = 0;
  for (uint64_t step = 1; step <= 5; ++step) {
    CHECK(h.step->done());
    h.step->launch({step, 1, 200, 1, 0, 0, &seq});
    seen_running += h.step->done() ? 0 : 1;
    h.step->wait();
    CHECK(h.step->done());
  }
  CHECK(seen_running > 0);
}

TEST_CASE("an idle step sleeps, and so does a thread that waits for it") {
  HarnessOptions o;
  o.num_threads = 4;
  StepHarness h(small_config(), o);
  make_ready(h, small_config());
  h.seat_prompt(0, {1, 2, 3}, greedy(3));
  h.add(0, 0, 3, true);
  h.run();
  const double before_s = process_cpu_s();
  const timespec pause = {0, 200 * 1000 * 1000};
  nanosleep(&pause, nullptr);
  CHECK(process_cpu_s() - before_s < 0.02);
}

TEST_CASE("many short steps with more threads than cores all end") {
  HarnessOptions o;
  o.num_threads = 8;
  StepHarness h(small_config(), o);
  make_ready(h, small_config());
  h.seat_prompt(0, {1, 2, 3}, greedy(3));
  h.add(0, 0, 3, true);
  h.run();
  const uint64_t first = h.sampled[0];
  for (uint32_t i = 0; i < 300; ++i) {
    h.add(0, 0, 3, true);
    h.run();
    REQUIRE(h.sampled[0] == first);
  }
}

TEST_CASE("a failed allocation gives a sentence, not a crash") {
  HarnessOptions o;
  o.max_len = 1u << 20;
  o.block_size = 128;
  o.num_seats = 1;
  sac_model_config config = small_config();
  config.num_layers = 1000;
  config.num_kv_heads = config.num_heads = 4096;
  config.head_dim = 1024;
  std::string what;
  try {
    StepHarness h(config, o);
  } catch (const std::exception& e) {
    what = e.what();
  }
  CHECK(what.find("bytes for the KV pool") != std::string::npos);
}

TEST_CASE("all of a region is resident before the first step, by however many threads") {
  constexpr size_t kBytes = size_t{197} << 20;  // parts of unequal size
  for (const uint32_t threads : {1u, 2u, 3u, 64u}) {
    CAPTURE(threads);
    const MemoryRegion region(kBytes, "the test", FirstTouch::kConstructor, threads);
    std::vector<unsigned char> pages(region.bytes() / 4096);
    REQUIRE(mincore(region.data(), region.bytes(), pages.data()) == 0);
    CHECK(std::all_of(pages.begin(), pages.end(), [](auto page) { return (page & 1) != 0; }));
  }
}
