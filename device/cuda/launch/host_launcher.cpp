// Way (c) on a GPU: host_loop.hpp has the life, this has its link to the device. Host code only:
// the tick that it instantiates is the host's.
#include <thread>

#include "cuda/launch/capture.hpp"
#include "cuda/launch/host_loop.hpp"

namespace saccade {
namespace {

class HostLauncher : public Launcher {
 public:
  explicit HostLauncher(const HostLink& link)
      : link_(link), writer_(link.limits, copy_of(link)), upload_(writer_.max_words() * 4) {}
  ~HostLauncher() override {
    if (thread_.joinable()) thread_.join();
  }

  void capture(const StepKernels& kernels, const std::vector<GraphShape>& shapes,
               const CaptureProgress& progress, CaptureReport& report) override {
    const CaptureMeter meter;
    const auto* upload = upload_.as<const uint32_t>();
    for (const GraphShape& shape : shapes) {
      const Graph graph = capture_graph(stream_, [&](cudaStream_t stream) {
        enqueue_patches(stream, upload, link_.copy_words);
        kernels.enqueue(stream, shape);
      });
      executables_.emplace_back(graph, 0);
      require(cudaGraphUpload(executables_.back().get(), stream_.get()), "cudaGraphUpload");
      progress(static_cast<uint32_t>(executables_.size()), static_cast<uint32_t>(shapes.size()));
    }
    stream_.wait();
    report.num_shapes = report.num_executables = static_cast<uint32_t>(shapes.size());
    meter.fill(report);
  }

  void load(const Life& life, bool overlapped) override {
    life_ = life;
    overlapped_ = overlapped;
  }
  void start() override {
    thread_ = std::thread([this] {
      HostStep<HostLauncher> step(*life_.state, life_.shapes, writer_, link_.upload_words, *this);
      try {
        live_on_host(life_, overlapped_, step);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "the scheduler on the host ended: %s\n", e.what());
        end_life(life_);
      }
    });
  }
  void finish() override { thread_.join(); }

  /// The link, as host_loop.hpp asks for it.
  void start(uint32_t graph, size_t words) {
    require(cudaMemcpyAsync(upload_.data(), link_.upload_words, words * sizeof(uint32_t),
                            cudaMemcpyHostToDevice, stream_.get()),
            "cudaMemcpyAsync");
    require(cudaGraphLaunch(executables_[graph].get(), stream_.get()), "cudaGraphLaunch");
  }
  void wait() { stream_.wait(); }

 private:
  static TableCopy copy_of(const HostLink& link) {
    Layout at(link.copy_words);
    return lay_out(link.limits, at);
  }

  const HostLink link_;
  PatchWriter writer_;
  const DeviceMemory upload_;
  const Stream stream_;
  std::vector<Executable> executables_;
  Life life_ = {};
  bool overlapped_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Launcher> make_host_launcher(const HostLink& link) {
  return std::make_unique<HostLauncher>(link);
}

}  // namespace saccade
