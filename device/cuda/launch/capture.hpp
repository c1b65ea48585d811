// Capturing steps as graphs: what the ways to launch them have in common.
#pragma once
#include <utility>

#include "cuda/cuda_memory.hpp"
#include "cuda/launch/launcher.hpp"

namespace saccade {

/// The last kernel of a step. Part of every captured step of ways (a) and (b).
void enqueue_signal(cudaStream_t stream, const SignalTarget& signal);

/// The first kernel of a step of way (c): applies an upload (patches.hpp) to the copy of the
/// tables.
void enqueue_patches(cudaStream_t stream, const uint32_t* upload, uint32_t* copy_words);

class Graph {
 public:
  Graph() = default;
  explicit Graph(cudaGraph_t graph) : graph_(graph) {}
  ~Graph() {
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  Graph& operator=(Graph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  cudaGraph_t get() const { return graph_; }

 private:
  cudaGraph_t graph_ = nullptr;
};

/// An executable graph. Must not be destroyed while it runs.
class Executable {
 public:
  /// flags: cudaGraphInstantiateFlag*.
  Executable(const Graph& graph, unsigned long long flags) {
    require(cudaGraphInstantiate(&exec_, graph.get(), flags), "cudaGraphInstantiate");
  }
  ~Executable() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  }
  Executable(Executable&& other) noexcept : exec_(std::exchange(other.exec_, nullptr)) {}
  Executable& operator=(Executable&&) = delete;
  cudaGraphExec_t get() const { return exec_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

/// What `enqueue(stream)` puts onto a stream, as a graph. An exception of `enqueue` ends the
/// capture and is passed on.
template <class Enqueue>
Graph capture_graph(const Stream& stream, Enqueue enqueue) {
  require(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    enqueue(stream.get());
  } catch (...) {
    cudaStreamEndCapture(stream.get(), &graph);
    Graph dropped(graph);
    throw;
  }
  require(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  return Graph(graph);
}

/// Measures what capturing takes.
class CaptureMeter {
 public:
  CaptureMeter() : begin_ns_(monotonic_ns()), free_bytes_(free_device_bytes()) {}
  void fill(CaptureReport& report) const {
    const size_t now = free_device_bytes();
    report.seconds = static_cast<double>(monotonic_ns() - begin_ns_) * 1e-9;
    report.device_bytes = free_bytes_ > now ? free_bytes_ - now : 0;
  }

 private:
  uint64_t begin_ns_;
  size_t free_bytes_;
};

}  // namespace saccade
