// Whose blocks routers are told of: the adapter of the request that filled them, also when events
// were lost, and when its number means another adapter by then.
#include <doctest/doctest.h>

#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

constexpr uint32_t kBlock = 4;
constexpr uint32_t kPrompt = 21;
constexpr uint32_t kAnswer = 23;
constexpr uint32_t kBlocks = 10;  // full ones of both, some steps before the end

DeviceShape told_shape() {
  DeviceShape shape;
  shape.max_model_len = 64;
  shape.block_size = kBlock;
  shape.num_blocks = 128;
  shape.num_host_blocks = 128;
  shape.eager_window = 16;
  shape.prefix_caching = true;
  shape.fetch = fetch_limits(4 * kBlock);
  shape.fetch_manner.stores = false;
  shape.num_events = 256;
  shape.adapter_keys = {7, 8, 7};  // the first and the last hold the same
  return shape;
}

struct RoutedBench : Bench {
  explicit RoutedBench(const DeviceShape& shape = told_shape()) : Bench(shape) { pass(10); }

  void pass(uint32_t ticks) {
    for (uint32_t i = 0; i < ticks; ++i) {
      device.now_ns += 20'000'000;
      front.beat();
      device.tick();
    }
  }
  /// Serves a prompt to its end; returns what of it was computed.
  uint64_t serve(uint32_t adapter, uint64_t cache_salt = 0) {
    const uint64_t before = device.s.report.stats.prefill_tokens;
    Ask ask = ask_of(kPrompt, kAnswer);
    ask.flags |= SAC_REQ_IGNORE_EOS;
    ask.adapter = adapter;
    ask.cache_salt = cache_salt;
    Ticket t = front.submit(ask);
    for (uint32_t i = 0; i < 1000 && !t.complete(); ++i) {
      pass(1);
      front.read(t);
    }
    CHECK(t.words == expect(t.ask, device.shape).words);
    pass(50);  // copies to host memory, and their events
    return device.s.report.stats.prefill_tokens - before;
  }
  const std::map<uint64_t, RoutedBlock>& blocks(uint32_t tier) const {
    return device.plane->routers.blocks[tier];
  }
  /// Blocks of a tier that are told as this adapter's, under this salt.
  uint32_t told(uint64_t name, uint64_t salt, uint32_t tier = kDeviceTier) const {
    uint32_t count = 0;
    for (const auto& [key, b] : blocks(tier)) count += b.adapter == name && b.salt == salt ? 1 : 0;
    return count;
  }
  /// Another reader begins, and is told the whole table.
  void tell_anew() {
    const uint64_t cleared = device.plane->routers.num_cleared;
    device.plane->join();
    pass(50);
    REQUIRE(device.plane->routers.num_cleared == cleared + 1);
  }
  void give_number_to(uint32_t adapter, uint64_t key, uint64_t name) {
    device.s.inbox.adapter_keys[adapter - 1] = key;
    device.s.inbox.adapter_names[adapter - 1] = name;
  }
};

TEST_CASE("a block is told as its adapter's, in each tier, with the salt that its request named") {
  RoutedBench b;
  for (const uint64_t salt : {0u, 9u})
    for (const uint32_t adapter : {0u, 2u, 1u}) CHECK(b.serve(adapter, salt) == kPrompt);
  const auto check_all = [&b] {
    for (const uint32_t tier : {kDeviceTier, kHostTier}) {
      CHECK(b.blocks(tier).size() == 6 * kBlocks);
      for (const uint64_t salt : {0u, 9u})
        for (const uint32_t adapter : {0u, 1u, 2u})
          CHECK(b.told(adapter_name(adapter), salt, tier) == kBlocks);
    }
  };
  check_all();
  b.tell_anew();
  check_all();
}

TEST_CASE("blocks that two adapters share are told as the first one's, whichever filled them") {
  RoutedBench b;
  CHECK(b.serve(3) == kPrompt);
  CHECK(b.serve(1) == 1);
  CHECK(b.told(adapter_name(3), 0) == 0);
  CHECK(b.told(adapter_name(1), 0) == b.blocks(kDeviceTier).size());
  CHECK(b.blocks(kDeviceTier).size() == kBlocks + kBlocks - kPrompt / kBlock);
}

TEST_CASE("after lost events blocks are told as their adapters'") {
  DeviceShape shape = told_shape();
  shape.num_events = 4;
  shape.fetch_manner.events_odds = 20;
  RoutedBench b(shape);
  for (const uint32_t adapter : {1u, 0u, 2u}) b.serve(adapter);
  b.pass(2000);
  CHECK(b.device.s.kv.store.events.dropped != 0);
  CHECK(b.device.plane->routers.num_cleared != 0);
  for (const uint32_t tier : {kDeviceTier, kHostTier})
    for (const uint32_t adapter : {0u, 1u, 2u})
      CHECK(b.told(adapter_name(adapter), 0, tier) == kBlocks);
}

// No adapter comes or goes while a device runs. If one ever does, blocks that are there must not be
// told as those of the one that has its number now.
TEST_CASE("a number that means another adapter by now gives no block another name") {
  RoutedBench b;
  b.serve(2);
  b.give_number_to(2, 99, 0xbeef);
  CHECK(b.serve(2) == kPrompt);  // nothing is shared
  const auto check_both = [&b](uint32_t old) {
    for (const uint32_t tier : {kDeviceTier, kHostTier}) {
      CHECK(b.told(adapter_name(2), 0, tier) == old);
      CHECK(b.told(0xbeef, 0, tier) == kBlocks);
      CHECK(b.blocks(tier).size() == old + kBlocks);
    }
  };
  check_both(kBlocks);
  b.tell_anew();
  check_both(kBlocks);
  // The old adapter comes back under another number: its blocks are found, and keep their name.
  b.give_number_to(1, 8, adapter_name(2));
  CHECK(b.serve(1) == 1);
  check_both(kBlocks + kBlocks - kPrompt / kBlock);
}

}  // namespace
}  // namespace saccade::test
