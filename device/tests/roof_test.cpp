// The roof: what it counts, that it disturbs nothing, and when a device measures it.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "capi/saccade_device.h"
#include "host/huge_pages.hpp"
#include "plane/roof_desk.hpp"
#include "platform/clock.hpp"
#include "tests/bench_model.hpp"
#include "tests/test_device.hpp"
#include "tests/test_frontend.hpp"

namespace saccade::test {
namespace {

sac_model_config small_model(uint32_t quantization = SAC_QUANTIZATION_NONE) {
  sac_model_config m = {};
  m.num_layers = 2;
  m.hidden_size = 128;
  m.intermediate_size = 256;
  m.num_heads = 4;
  m.num_kv_heads = 2;
  m.head_dim = m.rotary_dim = 32;
  m.vocab_size = 997;
  m.dtype = SAC_DTYPE_BF16;
  m.quantization = quantization;
  m.tied_embeddings = 1;
  m.rms_norm_eps = 1e-5f;
  return m;
}

/// A step with random weights, whose batches have at most 64 rows.
struct RandomStep {
  explicit RandomStep(const sac_model_config& config, const Kernels* kernels = nullptr)
      : harness(config, {.max_rows = 64, .num_threads = 2, .kernels = kernels}) {
    harness.step->fill_dummy(1);
    const std::vector<float> rope(size_t{256} * config.rotary_dim / 2, 0.5f);
    CHECK(harness.step->set_rope(rope.data(), rope.data(), rope.size()) == "");
  }
  uint64_t draw(uint32_t position) {
    harness.params[0] = greedy(1);
    harness.add(0, position, 1, true);
    harness.run();
    return harness.sampled_record(0)[0];
  }
  StepHarness harness;
};

TEST_CASE("a roof says what a row reads and multiplies, and a rate for each number of rows") {
  for (const Kernels* kernels : available_kernels()) {
    for (uint32_t quantization : {SAC_QUANTIZATION_NONE, SAC_QUANTIZATION_INT8}) {
      CAPTURE(kernels->name);
      const sac_model_config config = small_model(quantization);
      const Roof roof = RandomStep(config, kernels).harness.step->measure_roof();
      CHECK(roof.row_flop == static_cast<uint64_t>(2 * num_weights(config)));
      CHECK(roof.read_bytes_per_s > 0);
      for (uint32_t i = 0; i < Roof::kNumRows; ++i) {
        CHECK((roof.product_flop_per_s[i] > 0) == (1u << i <= 64));
      }
    }
  }
}

TEST_CASE("weights of bf16 are two bytes each, where panels are full") {
  sac_model_config config = small_model();
  config.vocab_size = 1024;
  const Roof roof = RandomStep(config).harness.step->measure_roof();
  CHECK(roof.step_weight_bytes == static_cast<uint64_t>(weight_bytes(config)));
}

TEST_CASE("of experts, a row's count") {
  sac_model_config config = small_model();
  const Roof dense = RandomStep(config).harness.step->measure_roof();
  config.num_experts = 8;
  config.experts_per_token = 2;
  config.moe_intermediate_size = config.intermediate_size;
  const Roof sparse = RandomStep(config).harness.step->measure_roof();
  const uint64_t mlp = uint64_t{2} * 3 * config.hidden_size * config.intermediate_size;
  const uint64_t router = uint64_t{2} * config.hidden_size * config.num_experts;
  CHECK(sparse.row_flop == dense.row_flop + config.num_layers * (mlp + router));
}

TEST_CASE("a measurement changes no result of a step") {
  RandomStep one(small_model()), other(small_model());
  for (uint32_t position = 0; position < 5; ++position) {
    CHECK(one.draw(position) == other.draw(position));
    other.harness.step->measure_roof();
  }
}

TEST_CASE("huge pages are summed over mappings, and by share") {
  HugePageSum sum(0x400000, 0x600000);
  for (const char* line : {"00200000-00600000 rw-p 00000000 00:00 0", "Size: 4096 kB",
                           "AnonHugePages:      2048 kB", "00600000-00a00000 r--s 00 08:01 7 /a: b",
                           "AnonHugePages:         0 kB", "FilePmdMapped:      4096 kB",
                           "00a00000-00c00000 rw-p 00000000 00:00 0", "AnonHugePages:   2048 kB"}) {
    sum.add(line);
  }
  CHECK(sum.bytes() == (uint64_t{1} << 20) + (uint64_t{4} << 20));
}

TEST_CASE("what the kernel says of this process can be read") {
  const MemoryRegion region(size_t{8} << 20, "the test");
  CHECK(huge_page_bytes(region.data(), region.bytes()) <= region.bytes());
}

TEST_CASE("a desk rests after a measurement") {
  TestRing ring(RingShape{});
  RandomStep random(small_model());
  RoofDesk desk;
  const auto ask = [&] { ring.frontend_mut(0)->roofs_asked += 1; };
  ask();
  desk.join(ring.view);
  CHECK(ring.view.roof->generation == 0);
  CHECK(!desk.is_asked(ring.view, UINT64_MAX));  // an earlier life was
  ask();
  CHECK(desk.is_asked(ring.view, monotonic_ns()));
  const uint64_t start_ns = monotonic_ns();
  desk.answer(ring.view, *random.harness.step, 2);
  const uint64_t end_ns = monotonic_ns();
  const sac_device_roof& told = *ring.view.roof;
  CHECK(told.generation == 1);
  CHECK(told.num_threads == 2);
  CHECK(std::string(reinterpret_cast<const char*>(told.kernels)) ==
        random.harness.step->kernels_name());
  CHECK(told.packed_bytes > told.step_weight_bytes);
  CHECK(told.product_mflop_per_s[0] > 0);
  CHECK(!desk.is_asked(ring.view, UINT64_MAX));
  ask();
  CHECK(!desk.is_asked(ring.view, end_ns));
  CHECK(desk.is_asked(ring.view, end_ns + 11 * (end_ns - start_ns)));
}

struct DeviceDeleter {
  void operator()(sac_device* d) const { sac_device_destroy(d); }
};

/// Waits for a condition, at most two minutes: a measurement takes seconds under TSan where a CPU
/// is shared.
template <class F>
bool soon(F&& f) {
  for (int i = 0; i < 120000 && !f(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return f();
}

/// A device with random weights, not yet attached.
std::unique_ptr<sac_device, DeviceDeleter> loaded_device() {
  sac_device_config config = {};
  config.kind = SAC_DEVICE_CPU;
  config.mode = SAC_MODE_OVERLAPPED;
  config.max_num_seqs = 2;
  config.max_num_batched_tokens = 16;
  config.max_model_len = 256;
  config.block_size = 16;
  config.num_blocks = 32;
  config.num_threads = 2;
  const sac_model_config model = small_model();
  sac_device* raw = nullptr;
  REQUIRE(sac_device_create(&config, &model, model.vocab_size, &raw) == 0);
  std::unique_ptr<sac_device, DeviceDeleter> device(raw);
  CHECK(sac_device_measure_roof(raw) == SAC_ERR_STATE);  // no weights
  REQUIRE(sac_device_fill_dummy(raw, 1) == 0);
  const std::vector<float> rope(size_t{256} * model.rotary_dim / 2, 0.5f);
  REQUIRE(sac_device_set_rope(raw, rope.data(), rope.data(), rope.size()) == 0);
  REQUIRE(sac_device_finish_load(raw) == 0);
  return device;
}

TEST_CASE("a device measures before it is attached, and tells frontends") {
  TestRing ring(RingShape{});
  const auto device = loaded_device();
  REQUIRE(sac_device_measure_roof(device.get()) == 0);
  REQUIRE(sac_device_attach(device.get(), ring.region(), ring.region_bytes()) == 0);
  CHECK(sac_device_measure_roof(device.get()) == SAC_ERR_STATE);  // its ring is open
  CHECK(ring.view.roof->generation == 1);
  CHECK(ring.view.roof->read_bytes_per_s > 0);
}

// The device has not measured before, so it does not rest: this waits for no clock.
TEST_CASE("a device answers between requests, and not while one waits for its reader") {
  TestRing ring(RingShape{});
  const auto device = loaded_device();
  sac_device* const raw = device.get();
  REQUIRE(sac_device_attach(raw, ring.region(), ring.region_bytes()) == 0);
  const auto generation = [&] { return load_acquire(&ring.view.roof->generation); };

  TestFrontend front(ring, 0);
  front.join();
  std::thread loop([raw] { CHECK(sac_device_run(raw) == 0); });
  REQUIRE(soon([&] { return front.acked(); }));
  Ticket stalled = front.submit(ask_of(4, 200, 1));  // more than its output ring holds
  const auto num_paused = [&] { return load_relaxed(&ring.view.stats->num_paused); };
  REQUIRE(soon([&] { return num_paused() == 1; }));
  store_release(&ring.frontend_mut(0)->roofs_asked, 1u);
  const auto ticks = [&] { return load_relaxed(&ring.view.stats->ticks); };
  const uint64_t seen = ticks();
  CHECK(soon([&] { return ticks() > seen + 20; }));
  CHECK(generation() == 0);
  front.cancel(stalled);
  CHECK(soon([&] {
    front.beat();
    return generation() == 1;
  }));
  sac_device_stop(raw);
  loop.join();
}

}  // namespace
}  // namespace saccade::test
