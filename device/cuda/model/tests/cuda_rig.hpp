// What model_checks.hpp and the benchmark run on where there is a GPU.
#pragma once
#include <cuda_runtime_api.h>

#include <cstring>
#include <stdexcept>
#include <string>

#include "cuda/cuda_memory.hpp"
#include "cuda/model/model.hpp"

namespace saccade::test {

inline void require_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(error));
  }
}

/// Zeroed memory of the host that the GPU reads and writes at the same address.
class PinnedBytes {
 public:
  explicit PinnedBytes(size_t bytes) {
    require_cuda(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
                 "cudaHostAlloc");
    std::memset(data_, 0, bytes);
  }
  ~PinnedBytes() { cudaFreeHost(data_); }
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// Each step as a captured graph, as it is launched when serving.
template <ProductWay kWay>
struct CudaRigOf {
  static constexpr const char* kName = kWay == ProductWay::kMma ? "GPU, mma" : "GPU, wgmma";
  using Model = CudaModel;
  using Memory = PinnedBytes;

  static cudaGraphExec_t capture(const CudaModel& model, cudaStream_t stream,
                                 const GraphShape& shape) {
    cudaGraph_t graph = nullptr;
    require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                 "cudaStreamBeginCapture");
    model.enqueue(stream, shape, kWay);
    require_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t exec = nullptr;
    // Refused if any node were of a kind that a device may not launch.
    require_cuda(cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagDeviceLaunch),
                 "cudaGraphInstantiate for launch from the device");
    cudaGraphDestroy(graph);
    return exec;
  }
  static void run(Model& model, const GraphShape& shape) {
    cudaStream_t stream = nullptr;
    require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    const cudaGraphExec_t exec = capture(model, stream, shape);
    require_cuda(cudaGraphLaunch(exec, stream), "cudaGraphLaunch");
    require_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize after a step");
    cudaGraphExecDestroy(exec);
    cudaStreamDestroy(stream);
  }
};
using CudaRig = CudaRigOf<ProductWay::kMma>;
using CudaWgmmaRig = CudaRigOf<ProductWay::kWgmma>;

/// Whether this GPU has wgmma.
inline bool gpu_has_wgmma() {
  int device = 0, major = 0;
  require_cuda(cudaGetDevice(&device), "cudaGetDevice");
  require_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
               "cudaDeviceGetAttribute");
  return major == 9;
}

}  // namespace saccade::test
