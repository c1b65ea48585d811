// What a device says about itself in the ring before it is ready.
#include <doctest/doctest.h>
#include <unistd.h>

#include <memory>

#include "capi/saccade_device.h"
#include "tests/test_ring.hpp"

namespace saccade::test {
namespace {

struct DeviceDeleter {
  void operator()(sac_device* d) const { sac_device_destroy(d); }
};

sac_device_config device_config(uint32_t kind) {
  sac_device_config c = {};
  c.kind = kind;
  c.max_num_seqs = 2;
  c.max_num_batched_tokens = 16;
  c.max_model_len = 64;
  c.block_size = 16;
  c.num_blocks = 8;
  c.num_threads = 1;
  return c;
}

sac_model_config model_config(uint32_t kv_dtype = SAC_KV_DTYPE_AUTO) {
  sac_model_config m = {};
  m.num_layers = 3;
  m.hidden_size = 32;
  m.intermediate_size = 64;
  m.num_heads = 4;
  m.num_kv_heads = 2;
  m.head_dim = m.rotary_dim = 8;
  m.vocab_size = 99;
  m.dtype = SAC_DTYPE_BF16;
  m.kv_dtype = kv_dtype;
  m.tied_embeddings = 1;
  m.rms_norm_eps = 1e-5f;
  return m;
}

/// Joins the ring and leaves it.
void attach(TestRing& ring, uint32_t kind, uint32_t kv_dtype = SAC_KV_DTYPE_AUTO) {
  const sac_device_config config = device_config(kind);
  const sac_model_config model = model_config(kv_dtype);
  sac_device* raw = nullptr;
  const bool cpu = kind == SAC_DEVICE_CPU;
  REQUIRE(sac_device_create(&config, cpu ? &model : nullptr, model.vocab_size, &raw) == 0);
  const std::unique_ptr<sac_device, DeviceDeleter> device(raw);
  REQUIRE(sac_device_attach(raw, ring.region(), ring.region_bytes()) == 0);
}

TEST_CASE("the process behind a device can be recognised") {
  TestRing ring(RingShape{});
  attach(ring, SAC_DEVICE_NULL);
  const sac_device_line& line = *ring.view.device;
  CHECK(line.pid == static_cast<uint32_t>(getpid()));
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto ticks_per_s = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  const uint64_t now_ticks = static_cast<uint64_t>(now.tv_sec + 1) * ticks_per_s;
  CHECK(line.process_start_ticks > 0);
  CHECK(line.process_start_ticks <= now_ticks);
  CHECK(line.process_start_ticks + 600 * ticks_per_s > now_ticks);  // this test is not that slow
}

TEST_CASE("the bytes of a KV block are those of all layers, K and V") {
  TestRing ring(RingShape{});
  attach(ring, SAC_DEVICE_CPU);
  CHECK(ring.view.device->kv_block_bytes == 3 * 2 * 16 * 2 * 8 * 2);
  TestRing fp8(RingShape{});
  attach(fp8, SAC_DEVICE_CPU, SAC_KV_DTYPE_FP8);
  CHECK(fp8.view.device->kv_block_bytes == ring.view.device->kv_block_bytes / 2);
  TestRing other(RingShape{});
  attach(other, SAC_DEVICE_NULL);
  CHECK(other.view.device->kv_block_bytes == 0);
}

}  // namespace
}  // namespace saccade::test
