// Prefixes from a store: looked up, loaded, given up and stored behind, under a fetch plane that is
// fast, slow, lossy, dead or hostile. Whatever it does, each request yields what it yields alone,
// every step reads KV of its own tokens, and what is stored is that too.
#include <doctest/doctest.h>

#include "tests/world.hpp"

namespace saccade::test {
namespace {

constexpr uint32_t kChunk = 16;
/// A step takes as long as it has rows, so that computing has a price.
constexpr uint64_t kRowNs = 20'000'000;

DeviceShape fetching_shape() {
  DeviceShape shape;
  shape.max_model_len = 128;
  shape.block_size = 4;
  shape.num_blocks = 128;
  shape.prefix_caching = true;
  shape.fetch = fetch_limits(kChunk);
  return shape;
}

void check_yield(const Ticket& t, const DeviceShape& shape) {
  const Expected e = expect(t.ask, shape);
  CHECK(t.words == e.words);
  CHECK(t.finish == e.finish);
  CHECK(t.num_endings == 1);
}

/// A device whose plane has joined.
struct FetchBench : Bench {
  explicit FetchBench(const DeviceShape& shape, FakeFetchPlane::Chunks* chunks = nullptr)
      : Bench(shape, {}, chunks) {
    device.step.during = [this] { device.now_ns += device.batch().num_rows * kRowNs; };
    pass(10);
  }
  /// Ticks during which 20 ms pass each.
  void pass(uint32_t ticks) {
    for (uint32_t i = 0; i < ticks; ++i) {
      device.now_ns += 20'000'000;
      front.beat();
      device.tick();
    }
  }
  const sac_fetch_stats& stats() const { return device.s.report.fetch; }
  FakeFetchPlane& plane() { return *device.plane; }
  /// Prompt tokens of a request that were not computed, as its frontend was told.
  uint32_t cached(const Ticket& t) const { return ring.view.status[t.slot].num_cached_tokens; }
  FetchDesk& desk() { return device.s.fetch; }
  /// Serves a request to its end, and lets what is stored behind be stored.
  Ticket serve(const Ask& ask) {
    Ticket t = front.submit(ask);
    for (uint32_t i = 0; i < 10000 && !t.complete(); ++i) {
      pass(1);
      front.read(t);
    }
    check_yield(t, device.shape);
    pass(200);
    return t;
  }
};

TEST_CASE("what one device computed, another loads: whole chunks, and the rest is computed") {
  FakeFetchPlane::Chunks chunks;
  FetchBench one(fetching_shape(), &chunks);
  const Ask ask = ask_of(3 * kChunk + 5, 4);
  one.serve(ask);
  CHECK(chunks.size() == 3);
  CHECK(one.stats().stores[SAC_FETCH_DONE] == 3);

  FetchBench two(fetching_shape(), &chunks);
  const Ticket t = two.serve(ask);
  CHECK(two.stats().lookups[SAC_FETCH_DONE] == 1);
  CHECK(two.stats().loads[SAC_FETCH_DONE] == 3);
  CHECK(two.stats().fetched_tokens == 3 * kChunk);
  CHECK(two.cached(t) == 3 * kChunk);
  CHECK(two.ring.view.stats->prefill_tokens == 5);
  // What came from a store is not stored again, and is found here from now on.
  CHECK(two.plane().stores == 0);
  two.serve(ask);
  CHECK(two.plane().lookups == 1);
  CHECK(two.ring.view.stats->prefill_tokens == 10 - 4);  // the last block's tokens before the end
}

TEST_CASE("a chunk that is partly at hand is loaded; blocks at hand are not written again") {
  FakeFetchPlane::Chunks chunks;
  FetchBench one(fetching_shape(), &chunks);
  const Ask ask = ask_of(4 * kChunk + 1, 1);
  one.serve(ask);
  FetchBench two(fetching_shape(), &chunks);
  two.plane().manner.stores = false;
  Ask begin = ask;
  begin.prompt.resize(kChunk + 9);
  begin.prompt.back() ^= 1;
  two.serve(begin);
  const Ticket t = two.serve(ask);
  CHECK(two.cached(t) == 4 * kChunk);
  CHECK(two.stats().fetched_tokens == kChunk + 2 * kChunk + 8);
}

TEST_CASE("prompts of other tokens, or under another salt, find nothing") {
  FakeFetchPlane::Chunks chunks;
  FetchBench one(fetching_shape(), &chunks);
  Ask ask = ask_of(3 * kChunk + 5, 4);
  one.serve(ask);
  FetchBench two(fetching_shape(), &chunks);
  ask.cache_salt = 9;
  CHECK(two.cached(two.serve(ask)) == 0);
  ask.cache_salt = 0;
  ask.prompt[3] ^= 1;
  CHECK(two.cached(two.serve(ask)) == 0);
  CHECK(two.plane().lookups == 2);
  ask.prompt[3] ^= 1;
  ask.prompt[2 * kChunk] ^= 1;
  CHECK(two.cached(two.serve(ask)) == 2 * kChunk);
}

TEST_CASE("chunks that a store has lost are computed, and so is what follows them") {
  FakeFetchPlane::Chunks chunks;
  FetchBench one(fetching_shape(), &chunks);
  const Ask ask = ask_of(5 * kChunk + 1, 1);
  one.serve(ask);
  FetchBench two(fetching_shape(), &chunks);
  Ticket t = two.front.submit(ask);
  // The lookup finds all; then one is lost.
  while (two.desk().num_loading == 0) two.pass(1);
  chunks.erase({0, {ask.prompt.begin(), ask.prompt.begin() + 3 * kChunk}});
  for (uint32_t i = 0; i < 1000 && !t.complete(); ++i) {
    two.pass(1);
    two.front.read(t);
  }
  check_yield(t, two.device.shape);
  CHECK(two.stats().loads_given_up + two.stats().loads[SAC_FETCH_MISS] > 0);
  CHECK(two.cached(t) == 2 * kChunk);
}

TEST_CASE("a plane that does not answer costs a request the bound, and no token") {
  FakeFetchPlane::Chunks chunks;
  FetchBench one(fetching_shape(), &chunks);
  const Ask ask = ask_of(5 * kChunk + 1, 1);
  one.serve(ask);
  for (const bool in_lookup : {true, false}) {
    CAPTURE(in_lookup);
    FetchBench two(fetching_shape(), &chunks);
    Ticket t = two.front.submit(ask);
    two.device.tick();
    while (!in_lookup && two.desk().num_loading == 0) two.pass(1);
    two.plane().die(1'000'000);
    const uint64_t from_ns = two.device.now_ns;
    while (!t.complete()) {
      two.pass(1);
      two.front.read(t);
      REQUIRE(two.device.now_ns - from_ns < 10'000'000'000);
    }
    check_yield(t, two.device.shape);
    // Computing takes that long, in two steps; a tick takes 20 ms here.
    const uint64_t computing_ns = ask.prompt.size() * kRowNs + 2 * 20'000'000;
    CHECK(two.device.now_ns - from_ns <=
          two.device.shape.fetch.late_ns + computing_ns + 4 * 20'000'000);
  }
}

TEST_CASE("requests with the same prefix load it once") {
  FakeFetchPlane::Chunks chunks;
  FetchBench one(fetching_shape(), &chunks);
  one.serve(ask_of(4 * kChunk + 1, 1));
  DeviceShape shape = fetching_shape();
  shape.fetch_manner.per_tick = 1;
  shape.fetch.late_ns = 60'000'000'000;
  FetchBench two(shape, &chunks);
  std::vector<Ticket> tickets;
  for (uint32_t i = 0; i < 6; ++i) {
    Ask ask = ask_of(4 * kChunk + 1, 1);
    ask.prompt.push_back(i);
    ask.seed = i;
    tickets.push_back(two.front.submit(ask));
  }
  std::vector<Ticket*> all;
  for (Ticket& t : tickets) all.push_back(&t);
  for (uint32_t i = 0; i < 1000; ++i) {
    two.pass(1);
    for (Ticket* t : all) two.front.read(*t);
  }
  for (const Ticket& t : tickets) check_yield(t, two.device.shape);
  CHECK(two.plane().loads == 4);
  CHECK(two.ring.view.stats->prefill_tokens <= 6 * 2 + 4);
}

TEST_CASE("a cancelled load leaves nothing behind") {
  FakeFetchPlane::Chunks chunks;
  FetchBench one(fetching_shape(), &chunks);
  const Ask ask = ask_of(5 * kChunk + 1, 1);
  one.serve(ask);
  DeviceShape shape = fetching_shape();
  shape.fetch_manner.per_tick = 1;
  for (uint32_t after = 1; after < 20; ++after) {
    CAPTURE(after);
    FetchBench two(shape, &chunks);
    Ticket t = two.front.submit(ask);
    two.pass(after);
    two.front.cancel(t);
    two.pass(60);
    two.front.read(t);
    CHECK(t.complete());
    CHECK(two.device.idle());
    CHECK(two.desk().num_entries_used == 0);
    CHECK(two.desk().num_frames_in(FrameUse::kFree) == shape.fetch.num_frames);
  }
}

TEST_CASE("the shortest load goes first, but a long one is not put off for ever") {
  FakeFetchPlane::Chunks chunks;
  FetchBench one(fetching_shape(), &chunks);
  std::vector<Ask> shorts;
  const Ask longest = ask_of(7 * kChunk + 1, 1, 100);
  one.serve(longest);
  for (uint32_t i = 0; i < 6; ++i) {
    shorts.push_back(ask_of(kChunk + 1, 1, i));
    one.serve(shorts.back());
  }
  for (const uint32_t first_come : {0u, 1u}) {
    CAPTURE(first_come);
    DeviceShape shape = fetching_shape();
    shape.fetch.num_frames = 1;
    shape.fetch.late_ns = 60'000'000'000;
    shape.fetch.first_come = first_come;
    shape.fetch_manner.per_tick = 1;
    FetchBench two(shape, &chunks);
    two.serve(ask_of(40, 1, 500));  // what computing takes is known
    Ticket first = two.front.submit(longest);
    while (two.desk().num_loading == 0) two.pass(1);
    std::vector<Ticket> tickets;
    for (const Ask& ask : shorts) tickets.push_back(two.front.submit(ask));
    while (!first.complete()) {
      two.pass(1);
      two.front.read(first);
    }
    const uint64_t short_chunks = two.stats().fetched_tokens / kChunk - 7;
    CHECK((short_chunks >= 3) == (first_come == 0));
    // Each of them waited, and the long one did not wait for all.
    if (first_come == 0) CHECK(short_chunks <= shorts.size());
    for (uint32_t i = 0; i < 1000; ++i) {
      two.pass(1);
      for (Ticket& t : tickets) two.front.read(t);
    }
    check_yield(first, shape);
    for (const Ticket& t : tickets) check_yield(t, shape);
  }
}

TEST_CASE("beside a load, others run on; in the synchronous mode they do not") {
  FakeFetchPlane::Chunks chunks;
  FetchBench one(fetching_shape(), &chunks);
  const Ask ask = ask_of(5 * kChunk + 1, 1);
  one.serve(ask);
  for (const uint32_t synchronous : {0u, 1u}) {
    CAPTURE(synchronous);
    DeviceShape shape = fetching_shape();
    shape.fetch.synchronous = synchronous;
    shape.fetch.late_ns = 60'000'000'000;
    FetchBench two(shape, &chunks);
    Ticket runs = two.front.submit(ask_of(3, 100, 7));
    two.pass(5);
    Ticket loads = two.front.submit(ask);
    while (two.desk().num_loading == 0) two.pass(1);
    two.plane().die(40);
    const uint64_t steps = two.device.s.course.step;
    two.pass(20);
    REQUIRE(two.desk().num_loading == 1);
    CHECK((two.device.s.course.step == steps) == (synchronous == 1));
    for (uint32_t i = 0; i < 300; ++i) {
      two.pass(1);
      two.front.read(runs);
      two.front.read(loads);
    }
    check_yield(runs, shape);
    check_yield(loads, shape);
  }
}

TEST_CASE("a load takes no rows: the policy lets others in beside it") {
  FakeFetchPlane::Chunks chunks;
  FetchBench one(fetching_shape(), &chunks);
  const Ask ask = ask_of(5 * kChunk + 1, 1);
  one.serve(ask);
  DeviceShape shape = fetching_shape();
  shape.scheduling = Policy::kGoodput;
  shape.max_num_batched_tokens = 16;
  shape.fetch.late_ns = 60'000'000'000;
  FetchBench two(shape, &chunks);
  two.serve(ask_of(3, 2, 9));  // what a step takes is known
  Ticket loads = two.front.submit(ask);
  while (two.desk().num_loading == 0) two.pass(1);
  two.plane().die(60);
  Ticket beside = two.front.submit(ask_of(3, 2, 7));
  for (uint32_t i = 0; i < 20 && !beside.complete(); ++i) {
    two.pass(1);
    two.front.read(beside);
  }
  CHECK(two.desk().num_loading == 1);
  check_yield(beside, shape);
  for (uint32_t i = 0; i < 300; ++i) {
    two.pass(1);
    two.front.read(loads);
  }
  check_yield(loads, shape);
}

TEST_CASE("a plane that breaks the protocol is not heard, and the next one is") {
  FakeFetchPlane::Chunks chunks;
  FetchBench one(fetching_shape(), &chunks);
  const Ask ask = ask_of(5 * kChunk + 1, 1);
  one.serve(ask);
  DeviceShape shape = fetching_shape();
  shape.fetch_manner.lie_odds = 3;
  shape.fetch_manner.per_tick = 1;
  FetchBench two(shape, &chunks);
  for (uint32_t i = 0; i < 40; ++i) {
    Ask other = ask;
    other.prompt[(i * 7) % 60] = i;
    two.serve(other);
  }
  CHECK(two.stats().planes_broken > 3);
  CHECK(two.stats().planes_joined > two.stats().planes_broken);
  two.plane().manner.lie_odds = 0;
  two.pass(100);
  two.serve(ask);
  CHECK(two.stats().planes_broken < two.stats().planes_joined);
}

TEST_CASE("what is stored behind is dropped, and counted, where there is no room") {
  DeviceShape shape = fetching_shape();
  shape.num_blocks = 32;  // one request of full length
  shape.fetch_manner.stop_odds = 1;
  shape.fetch_manner.stop_ticks = 1000;
  FetchBench b(shape);
  b.plane().join();
  for (uint32_t i = 0; i < 8; ++i) b.serve(ask_of(5 * kChunk + 1, 1, i));
  CHECK(b.stats().stores[SAC_FETCH_DONE] == 0);
}

}  // namespace
}  // namespace saccade::test
