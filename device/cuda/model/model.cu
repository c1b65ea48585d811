#include <cstdio>
#include <stdexcept>

#include "cuda/model/device_block.cuh"
#include "cuda/model/load.hpp"
#include "cuda/model/model.hpp"
#include "cuda/model/sequence.hpp"

namespace saccade {
namespace {

void require(cudaError_t error, const std::string& call) {
  if (error != cudaSuccess) {
    throw std::runtime_error(call + ": " + cudaGetErrorName(error) + ", " +
                             cudaGetErrorString(error));
  }
}

/// Zeroed memory of the GPU.
class DeviceMemory {
 public:
  DeviceMemory(size_t bytes, const char* what) {
    const std::string call = "cudaMalloc of " + std::to_string(bytes) + " bytes for " + what;
    require(cudaMalloc(&data_, bytes), call);
    require(cudaMemset(data_, 0, bytes), "cudaMemset");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// Launches on a stream. A kernel may use more than 48 KiB of shared memory only once it has asked.
class StreamQueue {
 public:
  /// overlapping: a kernel may begin while the one before it, of this queue, still runs.
  StreamQueue(cudaStream_t stream, bool overlapping) : stream_(stream), overlapping_(overlapping) {}

  template <class Kernel>
  void launch(gpu::Grid grid, const typename Kernel::Args& args) {
    static const cudaError_t kAllowed =
        cudaFuncSetAttribute(gpu::entry<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(Kernel::kSharedBytes));
    require(kAllowed, "cudaFuncSetAttribute");
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(grid.x, grid.y, grid.z);
    config.blockDim = dim3(Kernel::kThreads);
    config.dynamicSmemBytes = Kernel::kSharedBytes;
    config.stream = stream_;
    config.attrs = &overlap;
    constexpr bool kEarly = !requires { Kernel::kBeginsAlone; };
    config.numAttrs = kEarly && overlapping_ && launched_ ? 1 : 0;
    require(cudaLaunchKernelEx(&config, gpu::entry<Kernel>, args),
            "launch of a kernel of the step");
    launched_ = true;
  }

 private:
  const cudaStream_t stream_;
  const bool overlapping_;
  bool launched_ = false;  // a kernel, that is: what was in the stream before is not overlapped
};

/// Loads through the default stream: copies and kernels in order, nothing concurrent with them.
class LoadQueue : public StreamQueue {
 public:
  LoadQueue()
      : StreamQueue(nullptr, false), staging_(gpu::kStagingHalves * sizeof(gpu::Half), "loading") {}
  gpu::Half* staging() const { return static_cast<gpu::Half*>(staging_.data()); }
  void copy_in(void* device, const void* host, size_t bytes) {
    require(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }

 private:
  DeviceMemory staging_;
};

/// The configuration with arrays that live as long as it.
struct OwnConfig {
  explicit OwnConfig(const sac_model_config& config) : value(config) {
    own(config.sliding_window, config.num_layers, windows, value.sliding_window);
    own(config.sparse_layers, config.num_layers, sparse, value.sparse_layers);
    own(config.fp8_roles, config.num_layers, fp8_roles, value.fp8_roles);
    own(config.kv_scales, 2 * config.num_layers, kv_scales, value.kv_scales);
  }
  template <class T>
  static void own(const T* from, uint32_t n, std::vector<T>& to, const T*& pointer) {
    if (from == nullptr) return;
    to.assign(from, from + n);
    pointer = to.data();
  }
  sac_model_config value;
  std::vector<uint32_t> windows;
  std::vector<uint32_t> sparse;
  std::vector<uint32_t> fp8_roles;
  std::vector<float> kv_scales;
};

/// Compute capability of the current device.
struct Capability {
  int major = 0;
  int minor = 0;
};
Capability capability() {
  int device = 0, major = 0, minor = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
          "cudaDeviceGetAttribute");
  require(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
          "cudaDeviceGetAttribute");
  return {major, minor};
}

void require_way(ProductWay way, const Capability& c) {
  if (way == ProductWay::kMma || (c.major == 9 && c.minor == 0)) return;
  throw std::runtime_error("products by wgmma need a GPU of compute capability 9.0, this one has " +
                           std::to_string(c.major) + "." + std::to_string(c.minor));
}

}  // namespace

struct CudaModel::Impl {
  const OwnConfig config;
  const MemoryNeed need;
  const DeviceMemory weights;
  const DeviceMemory kv;
  const DeviceMemory workspace;
  const gpu::ModelView view;
  LoadQueue queue;
  gpu::ModelLoader<LoadQueue> loader{view, queue};

  Impl(const sac_model_config& c, const ModelLimits& limits, const StepTables& tables)
      : config(c),
        need(gpu_memory_need(c, limits)),
        weights(need.weights, "weights"),
        kv(need.kv, "the KV pool"),
        workspace(need.workspace, "the workspace"),
        view(lay_out(limits, tables)) {}
  gpu::ModelView lay_out(const ModelLimits& limits, const StepTables& tables) const {
    MemoryNeed again = {};
    return gpu::lay_out_model(config.value, limits, tables,
                              {weights.data(), kv.data(), workspace.data()}, again);
  }
};

CudaModel::CudaModel(const sac_model_config& config, const ModelLimits& limits,
                     const StepTables& tables)
    : impl_(std::make_unique<Impl>(config, limits, tables)) {}
CudaModel::~CudaModel() = default;

std::string CudaModel::set_tensor(uint32_t role, uint32_t layer, uint32_t dtype, uint64_t rows,
                                  uint64_t cols, const void* data, uint32_t expert,
                                  const float* scales) {
  return impl_->loader.set_tensor({role, layer, expert}, dtype, rows, cols, data, scales);
}
void CudaModel::fill_dummy(uint64_t seed) {
  impl_->loader.fill_dummy(seed);
  require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}
std::string CudaModel::set_rope(const float* cos, const float* sin, uint64_t count) {
  return impl_->loader.set_rope(cos, sin, count);
}
std::string CudaModel::set_adapter_pair(uint32_t adapter, const sac_adapter_pair& pair) {
  return impl_->loader.set_adapter_pair(adapter, pair);
}
std::string CudaModel::missing_tensor() const { return impl_->loader.missing_tensor(); }

void CudaModel::enqueue(cudaStream_t stream, const GraphShape& shape, ProductWay way) const {
  const Capability c = capability();
  require_way(way, c);
  if (way == ProductWay::kMma && impl_->config.value.quantization == SAC_QUANTIZATION_FP8)
    throw std::runtime_error("products by mma do not read weights in fp8");
  StreamQueue queue(stream, c.major >= 9);
  gpu::StepSequence<StreamQueue>(queue, impl_->view, impl_->loader.adapter_use(), shape, way)
      .enqueue();
}

unsigned char* CudaModel::kv_memory() const { return impl_->view.kv.data; }
size_t CudaModel::kv_block_bytes() const { return impl_->view.kv.block_bytes; }

}  // namespace saccade
