// Nothing allocates after start: no tick and no step, on any thread. Allocations are counted at the
// source (the malloc family, operator new through it, mmap, sbrk). Needs glibc; sanitizers bring
// their own malloc, so this test is built without them.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "capi/saccade_device.h"
#include "tests/test_device.hpp"

namespace {

std::atomic<bool> armed{false};
std::atomic<uint64_t> allocations{0};

void count() {
  if (armed.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

extern "C" {

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void* __sbrk(intptr_t);

void* malloc(size_t bytes) {
  count();
  return __libc_malloc(bytes);
}
void* calloc(size_t n, size_t bytes) {
  count();
  return __libc_calloc(n, bytes);
}
void* realloc(void* p, size_t bytes) {
  count();
  return __libc_realloc(p, bytes);
}
void* memalign(size_t align, size_t bytes) {
  count();
  return __libc_memalign(align, bytes);
}
void* aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }
int posix_memalign(void** out, size_t align, size_t bytes) {
  *out = memalign(align, bytes);
  return *out == nullptr ? ENOMEM : 0;
}
void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  count();
  const long p = syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
  return reinterpret_cast<void*>(p);
}
void* sbrk(intptr_t bytes) {
  count();
  return __sbrk(bytes);
}

}  // extern "C"

namespace saccade::test {
namespace {

struct DeviceDeleter {
  void operator()(sac_device* d) const { sac_device_destroy(d); }
};
using DevicePtr = std::unique_ptr<sac_device, DeviceDeleter>;

/// host_blocks != 0: a second tier, with everything rotated all the time.
sac_device_config device_config(uint32_t kind, uint32_t mode, uint32_t host_blocks) {
  sac_device_config c = {};
  c.kind = kind;
  c.mode = mode;
  c.max_num_seqs = 8;
  c.max_num_batched_tokens = 32;
  c.max_model_len = 128;
  c.block_size = 16;
  c.num_blocks = 12;  // requests are preempted and recomputed, too
  c.num_threads = 2;
  c.num_adapters = 2;
  c.max_adapter_rank = 8;
  if (host_blocks == 0) return c;
  c.num_host_blocks = host_blocks;
  c.eager_window = 4;
  c.policy = {SAC_POLICY_CHURN, 2400, 3.0f, 0.5f, 0.0f, 16, 0.5f, 60.0f, 5.0f, 0.1f};
  return c;
}

sac_model_config small_model() {
  sac_model_config m = {};
  m.num_layers = 2;
  m.hidden_size = 32;
  m.intermediate_size = 64;
  m.num_heads = 4;
  m.num_kv_heads = 2;
  m.head_dim = m.rotary_dim = 8;
  m.vocab_size = 997;
  m.dtype = SAC_DTYPE_BF16;
  m.tied_embeddings = 1;
  m.rms_norm_eps = 1e-5f;
  return m;
}

/// A device that is ready on the ring, through the control interface alone.
DevicePtr start(TestRing& ring, uint32_t kind, uint32_t mode, uint32_t host_blocks) {
  const sac_device_config config = device_config(kind, mode, host_blocks);
  const sac_model_config model = small_model();
  sac_device* device = nullptr;
  const bool cpu = kind == SAC_DEVICE_CPU;
  REQUIRE(sac_device_create(&config, cpu ? &model : nullptr, 997, &device) == 0);
  if (cpu) {
    const std::vector<float> rope(size_t{config.max_model_len} * model.rotary_dim / 2, 0.5f);
    REQUIRE(sac_device_fill_dummy(device, 1) == 0);
    const std::vector<float> ones(size_t{model.hidden_size} * 8, 1.0f);
    const sac_adapter_pair pair = {SAC_TENSOR_O,
                                   1,
                                   8,
                                   SAC_DTYPE_F32,
                                   SAC_DTYPE_F32,
                                   0.5f,
                                   uint64_t{model.num_heads} * model.head_dim,
                                   model.hidden_size,
                                   ones.data(),
                                   ones.data()};
    REQUIRE(sac_device_set_adapter_pair(device, 2, &pair) == 0);
    REQUIRE(sac_device_set_rope(device, rope.data(), rope.data(), rope.size()) == 0);
    REQUIRE(sac_device_finish_load(device) == 0);
  }
  for (uint32_t adapter = 1; adapter <= config.num_adapters; ++adapter)
    REQUIRE(sac_device_set_adapter(device, adapter, 100 + adapter, adapter) == 0);
  REQUIRE(sac_device_attach(device, ring.region(), ring.region_bytes()) == 0);
  REQUIRE(sac_device_ready(device) == 0);
  return DevicePtr(device);
}

/// Runs requests of every kind, with cancels and slow readers, for `ticks` ticks; returns the
/// number of allocations within them.
uint64_t allocations_of(uint32_t kind, uint32_t mode, uint32_t ticks, uint32_t host_blocks = 0) {
  TestRing ring(RingShape{});
  const DevicePtr device = start(ring, kind, mode, host_blocks);
  TestFrontend front(ring, 0);
  front.join();
  std::vector<Ticket> live;
  uint32_t submitted = 0;
  allocations.store(0);
  for (uint32_t i = 0; i < ticks; ++i) {
    while (live.size() < 20) {
      Ask ask = ask_of(1 + submitted * 13 % 90, 1 + submitted % 37, submitted);
      ask.flags = submitted % 8;
      ask.num_top_logprobs = submitted % 21;
      ask.logit_bias = {{3, 1.0f}};
      ask.stop_ids = {5};
      ask.adapter = submitted % 3;
      live.push_back(front.submit(ask));
      if (++submitted % 9 == 0) front.cancel(live.front());
    }
    front.beat();  // or a slow machine's device gives up the frontend
    armed.store(true);
    const int result = sac_device_tick(device.get());
    armed.store(false);
    REQUIRE(result >= 0);
    for (size_t t = i % 2; t < live.size(); t += 2) front.read(live[t]);
    std::erase_if(live, [](const Ticket& t) { return t.complete(); });
  }
  CHECK(submitted > (host_blocks == 0 ? 100u : 20u));  // waiting for copies is slower
  const sac_device_stats& stats = *ring.view.stats;
  CHECK((host_blocks == 0 ? stats.preemptions : stats.rotations) > 0);
  CHECK(sac_device_check(device.get()) == 0);
  return allocations.load();
}

TEST_CASE("the counter counts") {
  void* volatile kept[3];  // keeps the compiler from dropping a pair
  allocations.store(0);
  armed.store(true);
  kept[0] = operator new(100);
  kept[1] = aligned_alloc(128, 256);
  kept[2] = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  armed.store(false);
  CHECK(allocations.load() == 3);
  operator delete(kept[0]);
  std::free(kept[1]);
  munmap(kept[2], 4096);
}

TEST_CASE("thousands of ticks of the null step allocate nothing") {
  CHECK(allocations_of(SAC_DEVICE_NULL, SAC_MODE_OVERLAPPED, 5000) == 0);
  CHECK(allocations_of(SAC_DEVICE_NULL, SAC_MODE_SERIAL, 5000) == 0);
}

TEST_CASE("rotation allocates nothing, neither in the tick nor in the copies") {
  CHECK(allocations_of(SAC_DEVICE_NULL, SAC_MODE_OVERLAPPED, 5000, 64) == 0);
  CHECK(allocations_of(SAC_DEVICE_CPU, SAC_MODE_OVERLAPPED, 1500, 64) == 0);
}

TEST_CASE("ticks of the CPU step allocate nothing, on any thread") {
  CHECK(allocations_of(SAC_DEVICE_CPU, SAC_MODE_OVERLAPPED, 1500) == 0);
}

}  // namespace
}  // namespace saccade::test
