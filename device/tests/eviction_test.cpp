// Which blocks leave first (kv/eviction.hpp), on streams whose best policy is known.
#include "kv/eviction.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "tests/random.hpp"

namespace saccade::test {
namespace {

/// An Eviction with memory of its own.
struct Policy {
  Eviction e = {};
  std::vector<uint32_t> buckets[kNumKeepRates];
  std::vector<ShadowEntry> entries[kNumKeepRates];
  std::vector<RecencyLinks> links[kNumKeepRates];

  explicit Policy(uint32_t num_blocks) {
    const uint32_t size = shadow_blocks(num_blocks);
    uint32_t num_buckets = 1;
    while (num_buckets < size) num_buckets *= 2;
    for (uint32_t i = 0; i < kNumKeepRates; ++i) {
      buckets[i].resize(num_buckets);
      entries[i].resize(size);
      links[i].resize(size);
      e.shadows[i].buckets.mask = num_buckets - 1;
      e.shadows[i].buckets.first = buckets[i].data();
      e.shadows[i].buckets.entries = entries[i].data();
      e.shadows[i].order.links = links[i].data();
    }
    reset(e, num_blocks);
  }
  /// A request of `count` blocks from key `first` on; the pool found `found` of them.
  void serve(uint64_t request, uint64_t first, uint32_t count, uint32_t found) {
    begin_request(e, request);
    for (uint32_t i = count; i > 0; --i) note_block(e, first + i - 1, i <= found);
    note_request(e);
  }
};

constexpr uint32_t kPool = 256;  // every block is in the sample
constexpr uint32_t kLength = 8;  // blocks of a request

TEST_CASE("a loop longer than the pool: new blocks are kept of few requests") {
  Policy p(kPool);
  for (uint64_t i = 0; i < 4000; ++i) p.serve(i, i % 100 * kLength, kLength, 0);
  CHECK(p.e.chosen != 0);
}

TEST_CASE("a loop that fits: all are kept") {
  Policy p(kPool);
  for (uint64_t i = 0; i < 4000; ++i) p.serve(i, i % 30 * kLength, kLength, i < 30 ? 0 : kLength);
  CHECK(p.e.chosen == 0);
}

TEST_CASE("chance decides nothing") {
  Random random(7);
  Policy p(kPool);
  for (uint64_t i = 0; i < 20000; ++i) {
    p.serve(i, uint64_t{random.in(0, 1000000)} * kLength, kLength, 0);
    REQUIRE(p.e.chosen == 0);
  }
}

TEST_CASE("a pool that finds less than least recently used returns to it, and may leave it again") {
  Policy p(kPool);
  for (uint64_t i = 0; i < 4000; ++i) p.serve(i, i % 100 * kLength, kLength, 0);
  REQUIRE(p.e.chosen != 0);
  for (uint64_t i = 0; i < 200; ++i) p.serve(i, i % 4 * kLength, kLength, 0);
  CHECK(p.e.held == 1);
  CHECK(p.e.chosen == 0);
  for (uint64_t i = 0; i < 4000; ++i) p.serve(i, i % 100 * kLength, kLength, kLength);
  CHECK(p.e.held == 0);
  CHECK(p.e.chosen != 0);
}

TEST_CASE("evidence and losses are those of a request, not of a block") {
  Gain few = {};
  few.add(500);  // one long request
  CHECK_FALSE(few.exceeds(kEvidence));
  Gain many = {};
  for (uint32_t i = 0; i < 50; ++i) many.add(10);
  CHECK(many.exceeds(kEvidence));
}

}  // namespace
}  // namespace saccade::test
