// Way (b) on a GPU: loop.hpp has the rules. Its kernel sets conditions and launches nothing.
#include "cuda/block_crew.cuh"
#include "cuda/launch/capture.hpp"
#include "cuda/launch/loop.hpp"

namespace saccade {
namespace {

struct GraphConditions {
  cudaGraphConditionalHandle again;
  cudaGraphConditionalHandle body;
  uint32_t size;

  __device__ void run(uint32_t graph) const {
    fence_seq_cst();  // SYNC: with the start of the step's kernels: they see batch and tables
    cudaGraphSetConditional(again, 1);
    cudaGraphSetConditional(body, graph);
  }
  __device__ void stop() const {
    cudaGraphSetConditional(again, 0);
    cudaGraphSetConditional(body, size);
  }
};

/// The leader's part, in the kernel itself: see SAC_HD_INLINE.
struct RoundLead {
  const Life& life;
  uint32_t own_bytes;
  GraphConditions conditions;
  __device__ __forceinline__ void operator()(TeamBoard& board, BlockLeader& crew) {
    Residence<BlockLeader> here(life, own_memory(), own_bytes, board, crew);
    lead_round(here, board, crew, conditions);
  }
};

__global__ void __launch_bounds__(kBlockThreads, 1)
    round_kernel(const Life* life, uint32_t own_bytes, const GraphConditions conditions) {
  run_block(&life->control->crash, RoundLead{*life, own_bytes, conditions});
}

/// A conditional node, after the given one if there is one. Returns its bodies.
cudaGraph_t* add_conditional(cudaGraph_t graph, const cudaGraphNode_t* after,
                             cudaGraphConditionalHandle handle, cudaGraphConditionalNodeType type,
                             uint32_t size) {
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = size;
  cudaGraphNode_t node = nullptr;
  require(cudaGraphAddNode(&node, graph, after, nullptr, after == nullptr ? 0 : 1, &params),
          "cudaGraphAddNode of a conditional");
  return params.conditional.phGraph_out;
}

class LoopLauncher : public Launcher {
 public:
  LoopLauncher(const SignalTarget& signal, uint32_t own_bytes)
      : signal_(signal), own_bytes_(own_bytes), life_(sizeof(Life)) {}

  void capture(const StepKernels& kernels, const std::vector<GraphShape>& shapes,
               const CaptureProgress& progress, CaptureReport& report) override {
    const CaptureMeter meter;
    cudaGraph_t raw = nullptr;
    require(cudaGraphCreate(&raw, 0), "cudaGraphCreate");
    graph_ = Graph(raw);
    GraphConditions conditions = {};
    conditions.size = static_cast<uint32_t>(shapes.size());
    require(cudaGraphConditionalHandleCreate(&conditions.again, raw, 1, cudaGraphCondAssignDefault),
            "cudaGraphConditionalHandleCreate of WHILE");
    cudaGraph_t body =
        add_conditional(raw, nullptr, conditions.again, cudaGraphCondTypeWhile, 1)[0];
    require(cudaGraphConditionalHandleCreate(&conditions.body, body, conditions.size,
                                             cudaGraphCondAssignDefault),
            "cudaGraphConditionalHandleCreate of SWITCH");
    const cudaGraphNode_t round = add_round(body, conditions);
    cudaGraph_t* bodies =
        add_conditional(body, &round, conditions.body, cudaGraphCondTypeSwitch, conditions.size);
    for (uint32_t i = 0; i < conditions.size; ++i) {
      capture_body(bodies[i], kernels, shapes[i]);
      progress(i + 1, conditions.size);
    }
    // The only instantiation that a graph with conditionals may have.
    executable_ = std::make_unique<Executable>(graph_, 0);
    require(cudaGraphUpload(executable_->get(), stream_.get()), "cudaGraphUpload");
    stream_.wait();
    report.num_shapes = conditions.size;
    report.num_executables = 1;
    meter.fill(report);
  }

  void load(const Life& life, bool) override {
    require(cudaMemcpy(life_.data(), &life, sizeof(life), cudaMemcpyHostToDevice), "cudaMemcpy");
    stream_.wait();
  }
  void start() override {
    require(cudaGraphLaunch(executable_->get(), stream_.get()), "cudaGraphLaunch");
  }
  void finish() override { stream_.wait(); }

 private:
  /// The scheduler's kernel. It reads its Life from memory, because that is not known yet.
  cudaGraphNode_t add_round(cudaGraph_t body, const GraphConditions& conditions) const {
    const Life* life = life_.as<const Life>();
    GraphConditions copy = conditions;
    uint32_t own_bytes = own_bytes_;
    void* arguments[] = {&life, &own_bytes, &copy};
    cudaKernelNodeParams params = {};
    params.func = reinterpret_cast<void*>(round_kernel);
    params.gridDim = dim3(1);
    params.blockDim = dim3(kBlockThreads);
    params.sharedMemBytes = own_bytes_;
    params.kernelParams = arguments;
    allow_own_memory(params.func);
    cudaGraphNode_t node = nullptr;
    require(cudaGraphAddKernelNode(&node, body, nullptr, 0, &params), "cudaGraphAddKernelNode");
    return node;
  }
  void capture_body(cudaGraph_t body, const StepKernels& kernels, const GraphShape& shape) const {
    require(cudaStreamBeginCaptureToGraph(stream_.get(), body, nullptr, nullptr, 0,
                                          cudaStreamCaptureModeThreadLocal),
            "cudaStreamBeginCaptureToGraph");
    cudaGraph_t captured = nullptr;  // the body itself, which the node owns
    try {
      kernels.enqueue(stream_.get(), shape);
      enqueue_signal(stream_.get(), signal_);
    } catch (...) {
      cudaStreamEndCapture(stream_.get(), &captured);
      throw;
    }
    require(cudaStreamEndCapture(stream_.get(), &captured), "cudaStreamEndCapture");
  }

  const SignalTarget signal_;
  const uint32_t own_bytes_;
  const Stream stream_;
  const DeviceMemory life_;
  Graph graph_;
  std::unique_ptr<Executable> executable_;
};

}  // namespace

std::unique_ptr<Launcher> make_loop_launcher(const SignalTarget& signal, uint32_t own_bytes) {
  return std::make_unique<LoopLauncher>(signal, own_bytes);
}

}  // namespace saccade
