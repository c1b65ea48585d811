#include "cuda/cuda_memory.hpp"
#include "cuda/rotation/bulk_pipeline.hpp"
#include "cuda/rotation/rotation.hpp"
#include "platform/bulk_copy.cuh"
#include "platform/clock.hpp"

namespace saccade {
namespace {

constexpr uint32_t kVectorThreads = 512;
constexpr uint32_t kBulkThreads = 32;
constexpr uint32_t kUnroll = 8;  // loads that a thread has in flight
constexpr unsigned kNapNs = 500;
/// Of one load from host memory. Only a broken link takes longer; then the process must end.
constexpr uint64_t kLoadBudgetNs = 2000000000;

__device__ void nap() { __nanosleep(kNapNs); }

/// Past the first cache, as every load here: it does not see what steps, or workers of the other
/// lane, wrote on other processors.
__device__ uint4 load_device(const uint4* at) { return __ldcg(at); }
/// With a hint to the second cache to fetch 256 bytes at a time: fewer requests cross the bus to
/// the host.
__device__ uint4 load_host(const uint4* at) {
  uint4 v;
  asm volatile("ld.global.cg.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(__cvta_generic_to_global(at))
               : "memory");
  return v;
}

/// Through registers, by all threads of the block.
class VectorCopier {
 public:
  __device__ VectorCopier(uint64_t* order, bool is_down) : order_(order), is_down_(is_down) {}

  __device__ uint64_t await(const RotationWork& work, uint64_t done) {
    if (threadIdx.x == 0) *order_ = await_order(work, done, nap);
    __syncthreads();
    const uint64_t asked = *order_;
    __syncthreads();  // before the next order is written
    return asked;
  }
  __device__ void copy(unsigned char* to, const unsigned char* from, uint64_t bytes) const {
    if (is_down_) {
      move<load_device>(to, from, bytes);
    } else {
      move<load_host>(to, from, bytes);
    }
  }
  __device__ void publish(uint64_t* progress, uint64_t done) const {
    __syncthreads();  // SYNC: the bytes of all threads, before the release of one
    // SYNC: release, with RotationEngine::done.
    if (threadIdx.x == 0) store_release(progress, done);
  }

 private:
  template <uint4 (*kLoad)(const uint4*)>
  __device__ static void move(unsigned char* to, const unsigned char* from, uint64_t bytes) {
    auto* target = reinterpret_cast<uint4*>(to);
    const auto* source = reinterpret_cast<const uint4*>(from);
    const uint64_t count = bytes / sizeof(uint4);
    uint64_t i = threadIdx.x;
    for (; i + (kUnroll - 1) * kVectorThreads < count; i += kUnroll * kVectorThreads) {
      uint4 words[kUnroll];
#pragma unroll
      for (uint32_t u = 0; u < kUnroll; ++u) words[u] = kLoad(source + i + u * kVectorThreads);
#pragma unroll
      for (uint32_t u = 0; u < kUnroll; ++u) __stcs(target + i + u * kVectorThreads, words[u]);
    }
    for (; i < count; i += kVectorThreads) __stcs(target + i, kLoad(source + i));
  }

  uint64_t* order_;  // shared
  const bool is_down_;
};

}  // namespace

// Not in the unnamed namespace: they are unused below sm_90, which would be a warning there.
struct BulkShared {
  alignas(128) unsigned char stages[kBulkStages][kBulkStageBytes];
  uint64_t loaded[kBulkStages];
};

/// Through shared memory, by one thread. As a Bulk of bulk_pipeline.hpp and as a Copier.
class BulkCopier {
 public:
  __device__ explicit BulkCopier(BulkShared& shared) : shared_(shared) {
    for (uint64_t& barrier : shared_.loaded) bulk_barrier_init(&barrier);
    bulk_fence();
  }

  __device__ uint64_t await(const RotationWork& work, uint64_t done) const {
    return await_order(work, done, nap);
  }
  __device__ void copy(unsigned char* to, const unsigned char* from, uint64_t bytes) {
    bulk_fence();  // SYNC: what the order's acquire made visible, before the bulk loads
    pipeline_.copy(*this, to, from, bytes);
  }
  __device__ void publish(uint64_t* progress, uint64_t done) const {
    bulk_fence();  // SYNC: the bulk stores, before the release
    // SYNC: release, with RotationEngine::done.
    store_release(progress, done);
  }

  __device__ void load(uint32_t stage, const unsigned char* from, uint32_t bytes) {
    bulk_barrier_expect(&shared_.loaded[stage], bytes);
    bulk_load(shared_.stages[stage], from, bytes, &shared_.loaded[stage]);
  }
  __device__ void await_load(uint32_t stage, uint32_t parity) {
    const uint64_t begin_ns = monotonic_ns();
    while (!bulk_barrier_passed(&shared_.loaded[stage], parity))
      if (monotonic_ns() - begin_ns > kLoadBudgetNs) __trap();
  }
  __device__ void store(uint32_t stage, unsigned char* to, uint32_t bytes) const {
    bulk_store(to, shared_.stages[stage], bytes);
  }
  __device__ void await_read(uint32_t) const { bulk_await_read<kBulkStages - 1 - kBulkAhead>(); }
  __device__ void await_stores() const { bulk_await_stores(); }

 private:
  BulkShared& shared_;
  BulkPipeline pipeline_;
};

namespace {

__global__ void __launch_bounds__(kVectorThreads)
    vector_rotation_kernel(const RotationWork down, const RotationWork up) {
  __shared__ uint64_t order;
  const RotationWork work = work_of(down, up, blockIdx.x);
  VectorCopier copier(&order, work.is_down != 0);
  serve_lane(work, copier);
}

__global__ void __launch_bounds__(kBulkThreads)
    bulk_rotation_kernel(const RotationWork down, const RotationWork up) {
  extern __shared__ __align__(128) unsigned char memory[];
  if constexpr (kHasBulkCopy) {
    if (threadIdx.x != 0) return;
    BulkCopier copier(*reinterpret_cast<BulkShared*>(memory));
    serve_lane(work_of(down, up, blockIdx.x), copier);
  }
}

void check_workers(const char* lane, uint32_t workers) {
  if (workers == 0 || workers > kMaxRotationWorkers)
    throw std::runtime_error(std::string("rotation workers ") + lane + ": " +
                             std::to_string(workers) + " is outside 1 .. " +
                             std::to_string(kMaxRotationWorkers));
}

void check(const RotationSpec& spec) {
  check_workers("down", spec.workers.down);
  check_workers("up", spec.workers.up);
  if (spec.block_bytes == 0 || spec.block_bytes % kRotationUnitBytes != 0)
    throw std::runtime_error("a KV block of " + std::to_string(spec.block_bytes) +
                             " bytes is not a multiple of " + std::to_string(kRotationUnitBytes));
  int device = 0, major = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
          "cudaDeviceGetAttribute");
  if (spec.way == RotationWay::kBulk && major < 9)
    throw std::runtime_error("rotation by bulk copies needs a GPU of compute capability 9.0");
}

}  // namespace

struct Rotation::Impl {
  RotationSpec spec;
  DeviceMemory device_lanes;
  PinnedMemory pinned_lanes;
  Stream stream;

  explicit Impl(const RotationSpec& s)
      : spec(s),
        device_lanes(s.host_ticks ? 0 : sizeof(RotationLanes)),
        pinned_lanes(s.host_ticks ? sizeof(RotationLanes) : 0) {}
  /// Asking for its attributes loads a kernel, so that start() has nothing to load.
  void load() const {
    const bool bulk = spec.way == RotationWay::kBulk;
    const void* kernel = bulk ? reinterpret_cast<const void*>(bulk_rotation_kernel)
                              : reinterpret_cast<const void*>(vector_rotation_kernel);
    cudaFuncAttributes attributes;
    require(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
    if (bulk)
      require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(sizeof(BulkShared))),
              "cudaFuncSetAttribute");
  }
  RotationLanes* lanes() const {
    return spec.host_ticks ? pinned_lanes.as<RotationLanes>() : device_lanes.as<RotationLanes>();
  }
  RotationWork work(bool down) const {
    const CopyQueue& queue = down ? spec.queues.down : spec.queues.up;
    const uint32_t workers = down ? spec.workers.down : spec.workers.up;
    return {lanes(), queue.ring,       queue.capacity, down ? 1u : 0u,  0,
            workers, spec.device_pool, spec.host_pool, spec.block_bytes};
  }
};

Rotation::Rotation(const RotationSpec& spec) {
  check(spec);
  impl_ = std::make_unique<Impl>(spec);
  impl_->load();
}
Rotation::~Rotation() = default;

RotationEngine Rotation::engine() const { return {impl_->lanes(), impl_->spec.workers}; }

void Rotation::start() {
  const RotationWork down = impl_->work(true), up = impl_->work(false);
  const uint32_t blocks = impl_->spec.workers.total();
  if (impl_->spec.way == RotationWay::kVector) {
    vector_rotation_kernel<<<blocks, kVectorThreads, 0, impl_->stream.get()>>>(down, up);
  } else {
    bulk_rotation_kernel<<<blocks, kBulkThreads, sizeof(BulkShared), impl_->stream.get()>>>(down,
                                                                                            up);
  }
  require(cudaGetLastError(), "launch of the rotation's workers");
}

void Rotation::finish() { impl_->stream.wait(); }

}  // namespace saccade
