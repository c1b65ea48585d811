// Way (a) on a GPU: window.hpp has the rules. Compiled as relocatable device code, because it
// launches graphs from the device.
#include "cuda/block_crew.cuh"
#include "cuda/launch/capture.hpp"
#include "cuda/launch/window.hpp"

namespace saccade {
namespace {

/// Launches from the device; one thread uses it.
struct DeviceGraphs {
  const cudaGraphExec_t* executables;  // [shapes][kInstances]

  __device__ Fired fire(uint32_t graph, uint64_t step) const {
    // SYNC: a fence at system scope, with the start of the step's kernels: they see the batch and
    // the tables that this thread has written.
    fence_seq_cst();
    const cudaError_t error = cudaGraphLaunch(executables[graph * kInstances + step % kInstances],
                                              cudaStreamGraphFireAndForget);
    if (error == cudaSuccess) return {Fired::kLaunched, 0};
    if (error == cudaErrorInvalidValue) return {Fired::kBusy, static_cast<uint32_t>(error)};
    return {Fired::kFailed, static_cast<uint32_t>(error)};
  }
  __device__ uint32_t relaunch() const {
    fence_seq_cst();
    return static_cast<uint32_t>(
        cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch));
  }
};

/// The leader's part, in the kernel itself: see SAC_HD_INLINE.
template <bool kOverlapped>
struct WindowLead {
  const Life& life;
  uint32_t own_bytes;
  DeviceGraphs graphs;
  __device__ __forceinline__ void operator()(TeamBoard& board, BlockLeader& crew) {
    Residence<BlockLeader> here(life, own_memory(), own_bytes, board, crew);
    lead_window<kOverlapped>(here, board, crew, graphs);
  }
};

template <bool kOverlapped>
__global__ void __launch_bounds__(kBlockThreads, 1)
    window_kernel(const Life life, uint32_t own_bytes, const DeviceGraphs graphs) {
  run_block(&life.control->crash, WindowLead<kOverlapped>{life, own_bytes, graphs});
}

class WindowLauncher : public Launcher {
 public:
  WindowLauncher(const SignalTarget& signal, uint32_t own_bytes)
      : signal_(signal), own_bytes_(own_bytes) {}

  void capture(const StepKernels& kernels, const std::vector<GraphShape>& shapes,
               const CaptureProgress& progress, CaptureReport& report) override {
    const CaptureMeter meter;
    std::vector<cudaGraphExec_t> handles;
    for (const GraphShape& shape : shapes) {
      const Graph graph = capture_graph(stream_, [&](cudaStream_t stream) {
        kernels.enqueue(stream, shape);
        enqueue_signal(stream, signal_);
      });
      for (uint32_t i = 0; i < kInstances; ++i) handles.push_back(instantiate(graph));
      progress(static_cast<uint32_t>(handles.size()) / kInstances,
               static_cast<uint32_t>(shapes.size()));
    }
    handles_ = std::make_unique<DeviceMemory>(handles.size() * sizeof(handles[0]));
    require(cudaMemcpy(handles_->data(), handles.data(), handles.size() * sizeof(handles[0]),
                       cudaMemcpyHostToDevice),
            "cudaMemcpy");
    stream_.wait();
    report.num_shapes = static_cast<uint32_t>(shapes.size());
    report.num_executables = static_cast<uint32_t>(handles.size());
    meter.fill(report);
  }

  void load(const Life& life, bool overlapped) override {
    const DeviceGraphs graphs = {handles_->as<const cudaGraphExec_t>()};
    const auto kernel = overlapped ? window_kernel<true> : window_kernel<false>;
    allow_own_memory(reinterpret_cast<const void*>(kernel));
    const Graph graph = capture_graph(stream_, [&](cudaStream_t stream) {
      kernel<<<1, kBlockThreads, own_bytes_, stream>>>(life, own_bytes_, graphs);
      require(cudaGetLastError(), "capture of the scheduler's kernel");
    });
    // It launches itself, so it too must be a device graph.
    scheduler_ = instantiate(graph);
    stream_.wait();
  }
  void start() override { require(cudaGraphLaunch(scheduler_, stream_.get()), "cudaGraphLaunch"); }

  void finish() override { stream_.wait(); }

 private:
  /// For launch from the device; uploaded, as that requires.
  cudaGraphExec_t instantiate(const Graph& graph) {
    executables_.emplace_back(graph, cudaGraphInstantiateFlagDeviceLaunch);
    require(cudaGraphUpload(executables_.back().get(), stream_.get()), "cudaGraphUpload");
    return executables_.back().get();
  }

  const SignalTarget signal_;
  const uint32_t own_bytes_;
  const Stream stream_;
  std::vector<Executable> executables_;
  cudaGraphExec_t scheduler_ = nullptr;  // one of them
  std::unique_ptr<DeviceMemory> handles_;
};

}  // namespace

std::unique_ptr<Launcher> make_window_launcher(const SignalTarget& signal, uint32_t own_bytes) {
  return std::make_unique<WindowLauncher>(signal, own_bytes);
}

}  // namespace saccade
