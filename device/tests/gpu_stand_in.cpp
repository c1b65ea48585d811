// A library that stands in for libsaccade_cuda.so where there is no GPU, to run a server whose ring
// is not in its own file: the CPU's device plane behind the same functions, and memory that no file
// backs in place of the GPU's. It runs null steps only. tests/ucx.sh serves from it.
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>

#include "capi/last_error.hpp"
#include "cuda/saccade_cuda.h"
#include "host/futex.hpp"
#include "ring/ring_view.hpp"
#include "tests/test_ring.hpp"

namespace {

using saccade::fail;

/// A CPU's scheduler sleeps when it is idle and a GPU's does not: a thread must wake it.
constexpr timespec kWakeInterval = {0, 1000 * 1000};

struct Ring {
  saccade::test::AlignedBytes memory;
  std::atomic<bool> done{false};
  std::thread waker;

  explicit Ring(size_t bytes) : memory(saccade::test::aligned_bytes(bytes)) {}
  ~Ring() {
    done = true;
    if (waker.joinable()) waker.join();
  }
  void keep_awake(const saccade::RingView& view) {
    waker = std::thread([this, word = &view.wake->device_kick] {
      while (!done) {
        saccade::futex_wake(word);
        nanosleep(&kWakeInterval, nullptr);
      }
    });
  }
};

}  // namespace

extern "C" {

int sac_cuda_probe(sac_cuda_info* out) {
  *out = {};
  out->free_bytes = out->total_bytes = uint64_t{1} << 30;
  std::strcpy(out->name, "stand-in for a GPU");
  return 0;
}

int sac_cuda_memory_need(const sac_device_config*, const sac_model_config*, uint64_t*, uint64_t*) {
  return fail(SAC_ERR_ARGUMENT, "the stand-in for a GPU runs null steps only");
}

int sac_cuda_ring_create(const void* image, uint64_t bytes, sac_cuda_ring* out) {
  auto ring = std::make_unique<Ring>(bytes);
  std::memcpy(ring->memory.get(), image, bytes);
  *out = {ring->memory.get(), bytes, SAC_RING_MEMORY_HOST, 0, ring.get()};
  ring.release();
  return 0;
}

void sac_cuda_ring_destroy(sac_cuda_ring* ring) { delete static_cast<Ring*>(ring->owner); }

int sac_cuda_attach(sac_device* device, void*, uint64_t, const sac_cuda_ring* ring) {
  if (const int code = sac_device_attach(device, ring->base, ring->bytes)) return code;
  saccade::RingView view;
  saccade::open_ring(ring->base, ring->bytes, &view);
  static_cast<Ring*>(ring->owner)->keep_awake(view);
  return 0;
}

}  // extern "C"
