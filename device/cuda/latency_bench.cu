#include <cstdio>
#include <vector>

#include "cuda/cuda_memory.hpp"
#include "cuda/latency_bench.hpp"
#include "platform/atomics.hpp"
#include "platform/clock.hpp"

namespace saccade {
namespace {

enum Access : uint32_t {
  kHostLoad,     // relaxed, system scope; each waits for the one before
  kHostAcquire,  // the same, acquiring
  kDeviceLoad,   // relaxed, system scope, of device memory: past the first cache
  kCachedLoad,   // plain, of a word that nothing has written since
  kSharedLoad,   // of the block's shared memory
  kHostStore,    // relaxed; nothing waits for it
  kFence,        // system scope, nothing pending
  kStoreFence,   // a store to host memory and a fence after it
  kStoresFence,  // forty stores and a fence
  kClock,        // of %globaltimer
  kNumAccesses,
};
constexpr const char* kNames[kNumAccesses] = {
    "host_load",    "host_load_acquire",    "device_load",
    "cached_load",  "shared_load",          "host_store",
    "system_fence", "host_store_and_fence", "forty_host_stores_and_fence",
    "clock"};
constexpr uint32_t kRepeats = 1000;
constexpr uint32_t kStores = 40;
constexpr size_t kWords = 1024;

struct Words {
  uint64_t* host;
  uint64_t* device;
  uint64_t* shared;
};

__device__ uint64_t plain_load(const uint64_t* at) {
  uint64_t word;
  asm volatile("ld.global.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
  return word;
}

/// One access. `word` is zero and carries what the next one waits for.
template <Access kAccess>
__device__ uint64_t access(const Words& w, uint64_t word) {
  if constexpr (kAccess == kHostLoad) return load_relaxed(w.host + word);
  if constexpr (kAccess == kHostAcquire) return load_acquire(w.host + word);
  if constexpr (kAccess == kDeviceLoad) return load_relaxed(w.device + word);
  if constexpr (kAccess == kCachedLoad) return plain_load(w.device + word);
  if constexpr (kAccess == kSharedLoad) return *const_cast<volatile uint64_t*>(w.shared + word);
  if constexpr (kAccess == kClock) return monotonic_ns() == 0 ? 1 : 0;
  if constexpr (kAccess == kHostStore || kAccess == kStoreFence) store_relaxed(w.host + 64, word);
  if constexpr (kAccess == kStoresFence)
    for (uint32_t i = 0; i < kStores; ++i) store_relaxed(w.host + 64 + i, word);
  if constexpr (kAccess == kFence || kAccess == kStoreFence || kAccess == kStoresFence)
    fence_release();
  return word;
}

template <Access kAccess>
__device__ void time_access(const Words& w, uint64_t* ns) {
  uint64_t word = access<kAccess>(w, 0);
  const uint64_t begin_ns = monotonic_ns();
  for (uint32_t i = 0; i < kRepeats; ++i) word = access<kAccess>(w, word);
  // The last word is waited for before the clock is read.
  ns[kAccess] = monotonic_ns() + word - begin_ns;
}

__global__ void latency_kernel(uint64_t* host, uint64_t* device, uint64_t* ns) {
  __shared__ uint64_t shared[1];
  shared[0] = 0;
  const Words w = {host, device, shared};
  time_access<kHostLoad>(w, ns);
  time_access<kHostAcquire>(w, ns);
  time_access<kDeviceLoad>(w, ns);
  time_access<kCachedLoad>(w, ns);
  time_access<kSharedLoad>(w, ns);
  time_access<kHostStore>(w, ns);
  time_access<kFence>(w, ns);
  time_access<kStoreFence>(w, ns);
  time_access<kStoresFence>(w, ns);
  time_access<kClock>(w, ns);
}

}  // namespace

std::string access_ns_json() {
  const PinnedMemory host(kWords * sizeof(uint64_t));
  const DeviceMemory device(kWords * sizeof(uint64_t));
  const DeviceMemory ns(kNumAccesses * sizeof(uint64_t));
  const Stream stream;
  latency_kernel<<<1, 1, 0, stream.get()>>>(host.as<uint64_t>(), device.as<uint64_t>(),
                                            ns.as<uint64_t>());
  require(cudaGetLastError(), "launch of the latency benchmark");
  stream.wait();
  std::string json = "{";
  const std::vector<uint64_t> sums = copy_back(ns.as<const uint64_t>(), kNumAccesses);
  for (uint32_t a = 0; a < kNumAccesses; ++a) {
    char text[80];
    std::snprintf(text, sizeof(text), "%s\"%s\": %.1f", a == 0 ? "" : ", ", kNames[a],
                  static_cast<double>(sums[a]) / kRepeats);
    json += text;
  }
  return json + "}";
}

}  // namespace saccade
