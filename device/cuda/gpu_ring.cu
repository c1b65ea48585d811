#include <cuda.h>

#include "cuda/cuda_memory.hpp"
#include "cuda/gpu_ring.hpp"
#include "ring/introduction.hpp"

namespace saccade {
namespace {

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

/// A kernel that polls cannot flush what a NIC has written, as a host between two kernels can.
void check_reachable() {
  if (attribute(cudaDevAttrGPUDirectRDMASupported) == 0)
    throw std::runtime_error("this GPU's memory cannot be reached by a NIC (GPUDirect RDMA)");
  if (attribute(cudaDevAttrGPUDirectRDMAWritesOrdering) < cudaGPUDirectRDMAWritesOrderingOwner)
    throw std::runtime_error(
        "a kernel that runs on this GPU does not see a NIC's writes in their order "
        "(cudaDevAttrGPUDirectRDMAWritesOrdering)");
}

/// Synchronous copies of this memory complete before their call returns, as a NIC's view of it
/// needs (CUDA's guide to GPUDirect RDMA).
void make_copies_synchronous(void* data) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  require(cudaGetDriverEntryPointByVersion("cuPointerSetAttribute", &found, 12000,
                                           cudaEnableDefault, &result),
          "cudaGetDriverEntryPointByVersion");
  if (result != cudaDriverEntryPointSuccess)
    throw std::runtime_error("the driver has no cuPointerSetAttribute");
  const auto set = reinterpret_cast<decltype(&cuPointerSetAttribute)>(found);
  const unsigned int on = 1;
  const CUresult code =
      set(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, reinterpret_cast<CUdeviceptr>(data));
  if (code != CUDA_SUCCESS)
    throw std::runtime_error("cuPointerSetAttribute: CUresult " + std::to_string(code));
}

}  // namespace

struct GpuRing::Impl {
  explicit Impl(size_t bytes) : memory((check_reachable(), bytes)) {}
  const DeviceMemory memory;
};

GpuRing::GpuRing(const void* image, size_t bytes) : impl_(std::make_unique<Impl>(bytes)) {
  make_copies_synchronous(data());
  require(cudaMemcpy(data(), image, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
}
GpuRing::~GpuRing() = default;
unsigned char* GpuRing::data() const { return impl_->memory.as<unsigned char>(); }

struct RingMirror::Impl {
  struct Lines {
    sac_device_line device;
    sac_device_stats stats;
  };
  const RingView on_gpu;
  const RingView on_host;
  const PinnedMemory buffer;
  const Stream stream;

  Impl(const RingView& gpu, const RingView& host)
      : on_gpu(gpu), on_host(host), buffer(sizeof(Lines)) {}
  Lines* lines() const { return buffer.as<Lines>(); }
  void copy(void* to, const void* from, size_t bytes) const {
    require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()), "cudaMemcpyAsync");
  }
  void fetch() const {
    copy(&lines()->device, on_gpu.device, sizeof(sac_device_line));
    copy(&lines()->stats, on_gpu.stats, sizeof(sac_device_stats));
    stream.wait();
  }
};

RingMirror::RingMirror(const RingView& on_gpu, const RingView& on_host)
    : impl_(std::make_unique<Impl>(on_gpu, on_host)) {}
RingMirror::~RingMirror() = default;

void RingMirror::introduce(const sac_device_line& told) {
  impl_->fetch();
  sac_device_line& line = impl_->lines()->device;
  saccade::introduce(told, &line);
  // Nothing else writes the line before the life begins, and no reader trusts it before READY.
  impl_->copy(impl_->on_gpu.device, &line, sizeof(line));
  impl_->stream.wait();
}

void RingMirror::update() {
  impl_->fetch();
  const auto show = [](void* to, const void* from, size_t bytes) {
    for (size_t i = 1; i < bytes / sizeof(uint64_t); ++i)
      store_relaxed(static_cast<uint64_t*>(to) + i, static_cast<const uint64_t*>(from)[i]);
    // SYNC: release, with the observer's acquire of epoch and phase, which are in the first word.
    store_release(static_cast<uint64_t*>(to), *static_cast<const uint64_t*>(from));
  };
  show(impl_->on_host.stats, &impl_->lines()->stats, sizeof(sac_device_stats));
  show(impl_->on_host.device, &impl_->lines()->device, sizeof(sac_device_line));
}

}  // namespace saccade
