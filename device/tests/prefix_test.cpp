// Shared prefixes: who computes what, and that it changes no token.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

/// Blocks of 8 tokens; KV memory behind them says when one is not what a request takes it for.
DeviceShape sharing_shape() {
  DeviceShape shape;
  shape.prefix_caching = true;
  shape.num_host_blocks = 64;
  shape.eager_window = 16;
  return shape;
}

void check_yield(const Ticket& t, const DeviceShape& shape) {
  const Expected e = expect(t.ask, shape);
  CHECK(t.words == e.words);
  CHECK(t.finish == e.finish);
}

uint32_t cached_tokens(const Bench& b, const Ticket& t) {
  return b.ring.view.status[t.slot].num_cached_tokens;
}

struct Cost {
  Bench& b;
  uint64_t before = b.device.s.report.stats.prefill_tokens;
  uint64_t computed() const { return b.device.s.report.stats.prefill_tokens - before; }
};

TEST_CASE("a prompt that came before is computed from its last block on") {
  Bench b(sharing_shape());
  Ticket first = b.front.submit(ask_of(40, 4));
  b.finish({&first});
  const Cost cost{b};
  Ask again = ask_of(40, 4);
  again.seed = 9;
  Ticket second = b.front.submit(again);
  b.device.tick();
  CHECK(cached_tokens(b, second) == 32);  // 40 are five blocks; the last token is computed
  b.finish({&second});
  CHECK(cost.computed() == 8);
  check_yield(first, b.device.shape);
  check_yield(second, b.device.shape);
  CHECK(b.device.s.report.stats.prefix_query_tokens == 80);
  CHECK(b.device.s.report.stats.prefix_hit_tokens == 32);
}

TEST_CASE("what a request produced is there for the next turn") {
  Bench b(sharing_shape());
  Ticket turn = b.front.submit(ask_of(20, 20));
  b.finish({&turn});
  Ask next = turn.ask;
  for (uint32_t token : turn.tokens()) next.prompt.push_back(token);
  next.prompt.push_back(5);
  const Cost cost{b};
  Ticket second = b.front.submit(next);
  b.finish({&second});
  // 39 of 40 tokens have KV: four blocks are full.
  CHECK(cost.computed() == next.prompt.size() - 32);
  check_yield(second, b.device.shape);
}

TEST_CASE("of requests in flight with the same prompt one computes it") {
  Bench b(sharing_shape());
  std::vector<Ticket> choices;
  for (uint32_t i = 0; i < 4; ++i) {
    Ask ask = ask_of(44, 12);
    ask.seed = i;
    choices.push_back(b.front.submit(ask));
  }
  const Cost cost{b};
  b.finish({&choices[0], &choices[1], &choices[2], &choices[3]});
  CHECK(cost.computed() == 44 + 3 * 4);  // five full blocks once, the last tokens by each
  for (const Ticket& t : choices) check_yield(t, b.device.shape);
}

/// A device whose steps hold a fifth of a prompt, after two ticks: one request fills the blocks of
/// a prompt, and another follows it.
struct Following {
  Bench b{[] {
    DeviceShape shape = sharing_shape();
    shape.max_num_batched_tokens = 16;
    return shape;
  }()};
  Ask ask = ask_of(80, 4);
  Ticket filler = submit(0);
  Ticket follower = submit(1);

  Following() {
    for (uint32_t i = 0; i < 2; ++i) b.device.tick();
  }
  Ticket submit(uint64_t seed) {
    ask.seed = seed;
    return b.front.submit(ask);
  }
};

TEST_CASE("a request does not wait for one that is gone, or held") {
  for (const bool cancelled : {true, false}) {
    CAPTURE(cancelled);
    Following f;
    auto& [b, ask, filler, follower] = f;
    if (cancelled) {
      b.front.cancel(filler);
    } else {
      preempt({b.device.s.kv, b.device.s.seats, b.device.s.course, b.device.s.report},
              b.device.s.seats.running[0]);
    }
    b.finish({&follower}, 60);
    check_yield(follower, b.device.shape);
    if (!cancelled) {
      b.finish({&filler}, 200);
      check_yield(filler, b.device.shape);
    }
  }
}

TEST_CASE("salts do not share, and neither do prompts that differ in their first token") {
  Bench b(sharing_shape());
  Ask ask = ask_of(40, 2);
  Ticket first = b.front.submit(ask);
  b.finish({&first});
  const Cost cost{b};
  ask.cache_salt = 77;
  Ticket salted = b.front.submit(ask);
  ask.cache_salt = 0;
  ask.prompt[0] ^= 1;
  Ticket other = b.front.submit(ask);
  b.finish({&salted, &other});
  CHECK(cost.computed() == 80);
  check_yield(salted, b.device.shape);
  check_yield(other, b.device.shape);
}

TEST_CASE("adapters share with none but their equals") {
  DeviceShape shape = sharing_shape();
  shape.adapter_keys = {7, 8, 7};  // the first and the last hold the same
  Bench b(shape);
  Ask ask = ask_of(40, 2);
  const auto cost_of = [&](uint32_t adapter) {
    const Cost cost{b};
    ask.adapter = adapter;
    Ticket t = b.front.submit(ask);
    b.finish({&t});
    check_yield(t, b.device.shape);
    return cost.computed();
  };
  for (const uint32_t adapter : {0u, 1u, 2u}) CHECK(cost_of(adapter) == 40);
  for (const uint32_t adapter : {0u, 1u, 2u, 3u}) CHECK(cost_of(adapter) < 40);
  ask.cache_salt = 9;
  for (const uint32_t adapter : {0u, 1u, 2u}) CHECK(cost_of(adapter) == 40);
}

TEST_CASE("after a reset an equal prompt computes everything again, and is shared again") {
  Bench b(sharing_shape());
  const Ask ask = ask_of(40, 4);
  const auto cost_of_one = [&] {
    const Cost cost{b};
    Ticket t = b.front.submit(ask);
    b.finish({&t});
    check_yield(t, b.device.shape);
    return cost.computed();
  };
  CHECK(cost_of_one() == 40);
  CHECK(cost_of_one() == 8);
  for (uint32_t round = 0; round < 2; ++round) {
    b.front.reset_prefixes();
    CHECK(cost_of_one() == 40);
    CHECK(cost_of_one() == 8);
  }
}

TEST_CASE("a reset does not disturb requests that run; their blocks are found no more") {
  Following f;
  auto& [b, ask, running, follower] = f;
  b.front.reset_prefixes();
  Ticket later = f.submit(2);
  b.finish({&running, &follower, &later}, 200);
  CHECK(b.ring.view.status[later.slot].num_cached_tokens == 0);
  CHECK(b.device.s.report.stats.prefill_tokens >= 80 + 80);
  for (const Ticket* t : {&running, &follower, &later}) check_yield(*t, b.device.shape);
}

TEST_CASE("logprobs of a prompt want all of it computed") {
  Bench b(sharing_shape());
  Ask ask = ask_of(40, 2);
  Ticket first = b.front.submit(ask);
  b.finish({&first});
  const Cost cost{b};
  ask.flags |= SAC_REQ_PROMPT_LOGPROBS;
  Ticket second = b.front.submit(ask);
  b.finish({&second});
  CHECK(cost.computed() == 40);
  check_yield(second, b.device.shape);
}

TEST_CASE("a preempted request comes back to the blocks that are still there") {
  DeviceShape shape = sharing_shape();
  shape.num_host_blocks = shape.eager_window = 0;
  Bench b(shape);
  Ticket t = b.front.submit(ask_of(40, 30));
  for (uint32_t i = 0; i < 10; ++i) b.device.tick();
  Scheduler& s = b.device.s;
  preempt({s.kv, s.seats, s.course, s.report}, s.seats.running[0]);
  const Cost cost{b};
  b.finish({&t});
  CHECK(cost.computed() <= 8);
  check_yield(t, b.device.shape);
}

TEST_CASE("what leaves is what was given back first, from its end") {
  DeviceShape shape = sharing_shape();
  shape.num_host_blocks = shape.eager_window = 0;
  shape.num_blocks = 12;
  shape.max_model_len = 96;
  Bench b(shape);
  const auto run = [&b](uint32_t salt) {
    const Cost cost{b};
    Ticket t = b.front.submit(ask_of(47, 1, salt));  // five blocks to share, six in all
    b.finish({&t});
    b.device.tick();
    return cost.computed();
  };
  CHECK(run(1) == 47);
  CHECK(run(2) == 47);
  CHECK(run(1) == 7);   // all five are there, and 1 is the more recent now
  CHECK(run(3) == 47);  // takes what is free, then the end of 2
  CHECK(run(1) == 7);
  CHECK(run(2) > 7);
}

TEST_CASE("blocks that were evicted from the device come back from host memory") {
  DeviceShape shape = sharing_shape();
  shape.num_blocks = 16;
  Bench b(shape);
  Ticket first = b.front.submit(ask_of(64, 8, 1));
  b.finish({&first});
  for (uint32_t salt = 2; salt < 6; ++salt) {  // push it out
    Ticket t = b.front.submit(ask_of(64, 8, salt));
    b.finish({&t});
  }
  const Cost cost{b};
  const uint64_t up = b.device.s.report.stats.blocks_up;
  Ask again = ask_of(64, 8, 1);
  again.seed = 3;
  Ticket second = b.front.submit(again);
  b.finish({&second});
  CHECK(cost.computed() == 8);
  CHECK(b.device.s.report.stats.blocks_up > up);
  check_yield(second, b.device.shape);
}

/// Tokens of a prompt that are computed the second time, when host memory alone has its blocks, by
/// a device whose steps take `row_ns` a row, over a link that needs 100 us for a block. `times`:
/// how often the prompt comes.
std::vector<uint64_t> computed_each_time(uint64_t row_ns, uint32_t times) {
  DeviceShape shape = sharing_shape();
  shape.num_blocks = 16;
  shape.copies.per_tick = 1;
  Bench b(shape);
  b.device.step.during = [&] { b.device.now_ns += row_ns * b.device.batch().num_rows; };
  const auto serve = [&](uint32_t salt) {
    const Cost cost{b};
    Ticket t = b.front.submit(ask_of(64, 8, salt));
    for (uint32_t i = 0; i < 1000 && !t.complete(); ++i) {
      b.device.tick();
      b.device.now_ns += 100'000;
      b.front.read(t);
    }
    check_yield(t, b.device.shape);
    for (uint32_t i = 0; i < 16; ++i) b.device.tick();  // what is copied ahead reaches host memory
    return cost.computed();
  };
  std::vector<uint64_t> computed;
  serve(1);
  for (uint32_t i = 0; i < times; ++i) {
    for (uint32_t salt = 2; salt < 6; ++salt) serve(salt + 4 * i);  // push it out
    computed.push_back(serve(1));
  }
  return computed;
}

TEST_CASE("what is computed sooner than it comes from host memory is computed") {
  // Eight tokens a block: at 1 us a row computing is faster; known once a prefix was fetched.
  const std::vector<uint64_t> fast = computed_each_time(1'000, 4);
  CHECK(fast[0] == 8);
  CHECK(fast[1] == 64);
  const std::vector<uint64_t> slow = computed_each_time(1'000'000, 4);
  CHECK(slow == std::vector<uint64_t>(4, 8));
}

TEST_CASE("a link that was slow once is tried again") {
  const std::vector<uint64_t> fast = computed_each_time(1'000, 300);
  CHECK(std::count(fast.begin() + 1, fast.end(), 8) > 0);
  CHECK(std::count(fast.begin() + 1, fast.end(), 64) > 250);
}

}  // namespace
}  // namespace saccade::test
