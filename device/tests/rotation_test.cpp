// Rotation on the CPU device: real steps, real copies by real threads. Whatever goes down and comes
// back, and however small either tier is, each request yields the tokens that it yields alone.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "capi/saccade_device.h"
#include "cpu/copy_engine.hpp"
#include "cpu/stream_copy.hpp"
#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

struct DeviceDeleter {
  void operator()(sac_device* d) const { sac_device_destroy(d); }
};
using DevicePtr = std::unique_ptr<sac_device, DeviceDeleter>;

sac_model_config small_model(uint32_t kv_dtype = SAC_KV_DTYPE_AUTO) {
  sac_model_config m = {};
  m.num_layers = 2;
  m.hidden_size = 32;
  m.intermediate_size = 64;
  m.num_heads = 4;
  m.num_kv_heads = 2;
  m.head_dim = m.rotary_dim = 8;
  m.vocab_size = 997;
  m.dtype = SAC_DTYPE_BF16;
  m.kv_dtype = kv_dtype;
  m.tied_embeddings = 1;
  m.rms_norm_eps = 1e-5f;
  return m;
}

/// All requests fit, nothing is ever preempted.
sac_device_config roomy() {
  sac_device_config c = {};
  c.kind = SAC_DEVICE_CPU;
  c.max_num_seqs = 8;
  c.max_num_batched_tokens = 32;
  c.max_model_len = 128;
  c.block_size = 8;
  c.num_blocks = 8 * 16;
  c.num_threads = 2;
  return c;
}

sac_device_config tiers(uint32_t policy, uint32_t blocks, uint32_t host_blocks, uint32_t window) {
  sac_device_config c = roomy();
  c.num_blocks = blocks;
  c.num_host_blocks = host_blocks;
  c.eager_window = window;
  c.policy = {policy, 2400, 3.0f, 0.5f, 0.0f, 16, 0.0f, 60.0f, 5.0f, 0.1f};
  return c;
}

DevicePtr start(TestRing& ring, const sac_device_config& config, uint32_t kv_dtype) {
  const sac_model_config model = small_model(kv_dtype);
  sac_device* device = nullptr;
  const int created = sac_device_create(&config, &model, model.vocab_size, &device);
  CAPTURE(std::string(sac_last_error()));
  REQUIRE(created == 0);
  DevicePtr owned(device);
  const std::vector<float> rope(size_t{config.max_model_len} * model.rotary_dim / 2, 0.5f);
  REQUIRE(sac_device_fill_dummy(device, 1) == 0);
  REQUIRE(sac_device_set_rope(device, rope.data(), rope.data(), rope.size()) == 0);
  REQUIRE(sac_device_finish_load(device) == 0);
  REQUIRE(sac_device_attach(device, ring.region(), ring.region_bytes()) == 0);
  REQUIRE(sac_device_ready(device) == 0);
  return owned;
}

struct Yield {
  std::vector<std::vector<uint64_t>> words;
  sac_device_stats stats = {};
};

/// Twelve requests of many lengths through one device, invariants checked after every tick.
Yield yield_of(const sac_device_config& config, uint32_t kv_dtype) {
  TestRing ring(RingShape{});
  const DevicePtr device = start(ring, config, kv_dtype);
  TestFrontend front(ring, 0);
  front.join();
  REQUIRE(sac_device_tick(device.get()) >= 0);
  std::vector<Ticket> tickets;
  for (uint32_t i = 0; i < 12; ++i) {
    Ask ask = ask_of(1 + i * 9 % 70, 30 + i, i);
    ask.flags |= SAC_REQ_LOGPROBS;
    ask.num_top_logprobs = 2;
    tickets.push_back(front.submit(ask));
  }
  uint32_t ended = 0;
  for (uint32_t i = 0; ended < tickets.size(); ++i) {
    REQUIRE(i < 200000);
    front.beat();  // or a slow machine's device gives up the frontend
    if (sac_device_tick(device.get()) == 0) std::this_thread::yield();  // the copies' turn
    REQUIRE(sac_device_check(device.get()) == 0);
    ended = 0;
    for (Ticket& t : tickets) {
      front.read(t);
      ended += t.complete() ? 1 : 0;
    }
  }
  Yield y;
  for (const Ticket& t : tickets) y.words.push_back(t.words);
  std::memcpy(&y.stats, ring.view.stats, sizeof(y.stats));
  return y;
}

/// However KV moves between the tiers, or is computed again, no record changes.
void check_tiers(uint32_t kv_dtype) {
  const Yield alone = yield_of(roomy(), kv_dtype);
  CHECK(alone.stats.rotations + alone.stats.preemptions == 0);
  const Yield churned = yield_of(tiers(SAC_POLICY_CHURN, 128, 512, 8), kv_dtype);
  CHECK(churned.words == alone.words);
  CHECK(churned.stats.rotations > 100);
  CHECK(churned.stats.blocks_up == 0);  // no room was needed: all of it was still on the device
  CHECK(churned.stats.recomputed_tokens == 0);
  const Yield small_host = yield_of(tiers(SAC_POLICY_CHURN, 128, 9, 2), kv_dtype);
  CHECK(small_host.words == alone.words);
  CHECK(small_host.stats.rotations > 0);
  CHECK(small_host.stats.recomputed_tokens > 0);
  const Yield small_device = yield_of(tiers(SAC_POLICY_CHURN, 16, 512, 8), kv_dtype);
  CHECK(small_device.words == alone.words);
  CHECK(small_device.stats.rotations > 100);
  CHECK(small_device.stats.blocks_up > 0);
  const Yield squeezed = yield_of(tiers(SAC_POLICY_FCFS, 16, 512, 8), kv_dtype);
  CHECK(squeezed.words == alone.words);
  CHECK(squeezed.stats.rotations > 0);
  CHECK(squeezed.stats.blocks_down_eager > 0);
  const Yield recomputed = yield_of(tiers(SAC_POLICY_FCFS, 16, 0, 0), kv_dtype);
  CHECK(recomputed.words == alone.words);
  CHECK(recomputed.stats.recomputed_tokens > 0);
  CHECK(recomputed.stats.rotations == 0);
}

TEST_CASE("forced rotation, no rotation, and tiers of any size yield the same records") {
  check_tiers(SAC_KV_DTYPE_AUTO);
  check_tiers(SAC_KV_DTYPE_FP8);
}

TEST_CASE("a field out of bounds is refused by name") {
  const auto refused = [](sac_device_config c, const char* field) {
    const sac_model_config model = small_model();
    sac_device* device = nullptr;
    CHECK(sac_device_create(&c, &model, model.vocab_size, &device) == SAC_ERR_ARGUMENT);
    CHECK(std::string(sac_last_error()).find(field) != std::string::npos);
  };
  sac_device_config c = tiers(SAC_POLICY_LVF, 16, 1u << 29, 8);
  refused(c, "num_host_blocks");
  c = tiers(6, 16, 16, 8);
  refused(c, "policy");
  c = tiers(SAC_POLICY_LVF, 16, 16, 8);
  c.policy.alpha = -1;
  refused(c, "alpha");
  c = tiers(SAC_POLICY_LVF, 16, 16, 8);
  c.policy.slo_tbt_s = 0;
  refused(c, "slo_tbt_s");
  c = tiers(SAC_POLICY_LVF, 16, 16, 8);
  c.policy.beta_b = NAN;
  refused(c, "beta_b");
  const auto refused_model = [](const sac_model_config& model, const char* field) {
    const sac_device_config config = roomy();
    sac_device* device = nullptr;
    CHECK(sac_device_create(&config, &model, model.vocab_size, &device) == SAC_ERR_ARGUMENT);
    CHECK(std::string(sac_last_error()).find(field) != std::string::npos);
  };
  refused_model(small_model(2), "kv_dtype is 2, outside 0 .. 1");
  const float scales[] = {1, 1, 1, 0};
  sac_model_config model = small_model(SAC_KV_DTYPE_FP8);
  model.kv_scales = scales;
  refused_model(model, "kv_scales: the scale of V of layer 1");
  model.kv_dtype = SAC_KV_DTYPE_AUTO;
  refused_model(model, "kv_scales are given");
}

TEST_CASE("a streamed copy is a copy, up to its last byte and no further") {
  alignas(64) unsigned char from[4 * 64], to[5 * 64];
  for (size_t i = 0; i < sizeof(from); ++i) from[i] = static_cast<unsigned char>(i * 7 + 1);
  for (const size_t lines : {1u, 2u, 4u}) {
    std::memset(to, 0xee, sizeof(to));
    stream_copy(to, from, 64 * lines);
    CHECK(std::memcmp(to, from, 64 * lines) == 0);
    for (size_t i = 64 * lines; i < sizeof(to); ++i) CHECK(to[i] == 0xee);
  }
}

/// Both directions at once, over enough rounds that the rings wrap.
TEST_CASE("the engine makes every copy, in order, both ways") {
  constexpr uint32_t kBlocks = 8;
  constexpr size_t kBytes = 4096;
  AlignedBytes device = aligned_bytes(2 * kBlocks * kBytes);
  AlignedBytes host = aligned_bytes(2 * kBlocks * kBytes);
  BlockCopy rings[2][kBlocks];
  Copies copies = {};
  copies.down.ring = rings[0];
  copies.up.ring = rings[1];
  copies.down.reset(kBlocks);
  copies.up.reset(kBlocks);
  CopyEngine engine({device.get(), host.get(), kBytes}, copies);
  Random random(11);
  for (uint32_t round = 0; round < 300; ++round) {
    // Down: blocks of the lower half; up: of the upper half.
    std::memset(device.get(), static_cast<int>(round), kBlocks * kBytes);
    std::memset(host.get() + kBlocks * kBytes, static_cast<int>(round + 1), kBlocks * kBytes);
    const uint32_t downs = random.in(0, kBlocks), ups = random.in(0, kBlocks);
    for (uint32_t i = 0; i < downs; ++i) copies.down.ask({i, kBlocks - 1 - i}, true);
    for (uint32_t i = 0; i < ups; ++i) copies.up.ask({kBlocks + i, 2 * kBlocks - 1 - i}, true);
    engine.submit(copies.down, copies.up);
    while (engine.down_done() < copies.down.asked || engine.up_done() < copies.up.asked)
      std::this_thread::yield();
    copies.down.done = engine.down_done();
    copies.up.done = engine.up_done();
    REQUIRE(copies.down.done == copies.down.asked);
    REQUIRE(copies.up.done == copies.up.asked);
    for (uint32_t i = 0; i < downs; ++i)
      REQUIRE(std::memcmp(host.get() + (kBlocks - 1 - i) * kBytes, device.get() + i * kBytes,
                          kBytes) == 0);
    for (uint32_t i = 0; i < ups; ++i)
      REQUIRE(std::memcmp(device.get() + (kBlocks + i) * kBytes,
                          host.get() + (2 * kBlocks - 1 - i) * kBytes, kBytes) == 0);
  }
}

}  // namespace
}  // namespace saccade::test
