#include "cuda/plane.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "capi/config_check.hpp"
#include "cuda/cuda_memory.hpp"
#include "cuda/gpu_ring.hpp"
#include "host/process.hpp"
#include "ring/introduction.hpp"

namespace saccade {
namespace {

/// How often the host looks at the heartbeat while it sleeps.
constexpr std::chrono::milliseconds kWatchInterval{50};
/// How often it looks at a ring in the GPU's memory, for the supervisor.
constexpr std::chrono::seconds kMirrorInterval{1};
/// Longer than every budget of the device, so that its own record says what hangs.
constexpr std::chrono::seconds kHungAfter{20};

/// A model's steps.
class ModelKernels : public StepKernels {
 public:
  ModelKernels(const sac_model_config& config, const ModelLimits& limits, const StepTables& tables,
               ProductWay way)
      : model(config, limits, tables), way_(way) {}
  void enqueue(cudaStream_t stream, const GraphShape& shape) const override {
    model.enqueue(stream, shape, way_);
  }
  CudaModel model;

 private:
  const ProductWay way_;
};

CudaDeviceSpec spec_of(const sac_device_config& c, const sac_model_config* model,
                       uint32_t vocab_size) {
  CudaDeviceSpec spec;
  spec.limits = limits_of(c, vocab_size);
  if (model != nullptr) spec.limits.rope_switch_len = model->rope_switch_len;
  spec.eos_ids.assign(c.eos_ids, c.eos_ids + c.num_eos_ids);
  spec.way = static_cast<LaunchWay>(c.cuda_launch);
  spec.rotation_way = static_cast<RotationWay>(c.cuda_rotation);
  spec.rotation_workers = rotation_workers(c.cuda_rotation_blocks);
  return spec;
}

/// One line that is overwritten, on a terminal; nothing elsewhere.
void show_progress(uint32_t done, uint32_t total) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r  capturing steps %u/%u%s", done, total, done == total ? "\r" : "");
}

}  // namespace

sac_cuda_info gpu_info() {
  sac_cuda_info info = {};
  int device = 0, driver = 0;
  cudaDeviceProp p;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  require(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties");
  size_t free = 0, total = 0;
  require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  info.free_bytes = free;
  info.total_bytes = total;
  info.compute_capability = static_cast<uint32_t>(10 * p.major + p.minor);
  info.num_multiprocessors = static_cast<uint32_t>(p.multiProcessorCount);
  info.driver_version = static_cast<uint32_t>(driver);
  std::snprintf(info.name, sizeof(info.name), "%.*s", static_cast<int>(sizeof(info.name)) - 1,
                p.name);
  return info;
}

ModelLimits model_limits(const sac_device_config& c) {
  return {c.max_num_seqs, c.max_num_batched_tokens, c.max_model_len,   c.block_size,
          c.num_blocks,   c.num_adapters,           c.max_adapter_rank};
}

std::string check_cuda_config(const sac_device_config& c, const sac_model_config* model,
                              uint32_t vocab_size) {
  if (c.fetch.num_frames != 0 || c.fetch.num_events != 0) return "fetch: a GPU has no fetch plane";
  if (c.kind == SAC_DEVICE_NULL) return "";
  if (c.kind != SAC_DEVICE_CUDA) return "kind is neither SAC_DEVICE_CUDA nor SAC_DEVICE_NULL";
  if (model == nullptr) return "model is null, but kind is SAC_DEVICE_CUDA";
  std::string wrong = check_model_config(*model);
  if (wrong.empty()) wrong = check_gpu_model(*model, model_limits(c));
  if (wrong.empty() && model->quantization == SAC_QUANTIZATION_FP8 &&
      static_cast<ProductWay>(c.cuda_products) != ProductWay::kWgmma)
    wrong = "quantization is fp8 (2), but only products by wgmma read weights in fp8";
  if (wrong.empty() && model->vocab_size != vocab_size)
    wrong = "vocab_size differs from the model's";
  if (wrong.empty() && c.embedding_size != 0 && c.embedding_size != model->hidden_size)
    wrong = "embedding_size differs from the model's hidden_size";
  return wrong;
}

CudaPlane::CudaPlane(const sac_device_config& config, const sac_model_config* model,
                     uint32_t vocab_size)
    : config_(config), vocab_size_(vocab_size), machine_(spec_of(config, model, vocab_size)) {
  const StepTables tables = machine_.step_tables();
  if (config.kind == SAC_DEVICE_NULL) {
    kernels_ =
        std::make_unique<NullKernels>(tables, vocab_size, uint64_t{config.null_step_us} * 1000);
    prepare();
    return;
  }
  auto kernels = std::make_unique<ModelKernels>(*model, model_limits(config), tables,
                                                static_cast<ProductWay>(config.cuda_products));
  model_ = &kernels->model;
  kernels_ = std::move(kernels);
}
CudaPlane::~CudaPlane() = default;

std::string CudaPlane::set_vocab(const uint32_t* offsets, const uint8_t* bytes,
                                 uint32_t num_tokens) {
  if (num_tokens != vocab_size_) return "num_tokens differs from the vocabulary's";
  TokenTables tokens;
  const std::string wrong = tokens.build(offsets, bytes, num_tokens);
  if (wrong.empty()) machine_.set_tokens(std::move(tokens));
  return wrong;
}

void CudaPlane::prepare() {
  DeviceBlocks kv;
  if (model_ != nullptr) kv = {model_->kv_memory(), model_->kv_block_bytes()};
  const CaptureReport report = machine_.prepare(std::move(kernels_), kv, show_progress);
  std::fprintf(stderr, "  steps captured: %s\n", report.sentence().c_str());
  prepared_ = true;
}

sac_device_line CudaPlane::told(const RingView& view) const {
  const ProcessId self = own_process();
  sac_device_line line = {};
  line.vocab_hash = machine_.tokens().hash();
  line.grammar_words = machine_.grammar_words();
  line.embedding_size = machine_.embedding_size(view);
  line.num_adapters = config_.num_adapters;
  line.kv_block_bytes = model_ == nullptr ? 0 : uint64_t{model_->kv_block_bytes()};
  line.process_start_ticks = self.start_ticks;
  line.pid = self.pid;
  return line;
}

std::string CudaPlane::attach(void* region, uint64_t region_bytes) {
  RingView view;
  if (const char* wrong = open_ring(region, region_bytes, &view)) return wrong;
  region_ = std::make_unique<RegisteredMemory>(region, region_bytes);
  introduce(told(view), view.device);
  publish_roof({}, view.roof);
  const bool host_ticks = config_.cuda_launch == SAC_CUDA_LAUNCH_HOST;
  machine_.attach(host_ticks ? view : moved(view, region_->offset()));
  return "";
}

std::string CudaPlane::attach(void* region, uint64_t region_bytes, unsigned char* on_gpu) {
  if (config_.cuda_launch == SAC_CUDA_LAUNCH_HOST)
    return "cuda_launch is SAC_CUDA_LAUNCH_HOST: a host does not tick on a ring in the GPU's "
           "memory";
  RingView view;
  if (const char* wrong = open_ring(region, region_bytes, &view)) return wrong;
  const RingView there = moved(view, on_gpu - static_cast<unsigned char*>(region));
  mirror_ = std::make_unique<RingMirror>(there, view);
  mirror_->introduce(told(view));
  machine_.attach(there);
  return "";
}

std::string CudaPlane::run() {
  machine_.start(config_.mode == SAC_MODE_OVERLAPPED);
  machine_.run_freely();
  const std::string wrong = watch();
  if (wrong.empty()) outcome_ = machine_.stop();
  return wrong;
}

/// Sleeps until `stop`, or until the device's heartbeat stops or its life ends.
std::string CudaPlane::watch() {
  uint64_t beat = machine_.heartbeat();
  auto moved_at = std::chrono::steady_clock::now();
  auto mirrored_at = moved_at;
  while (!stop_.load(std::memory_order_relaxed)) {
    std::this_thread::sleep_for(kWatchInterval);
    if (machine_.ended()) {
      const std::string crash = machine_.crash();
      return "the scheduler on the GPU ended by itself: " + (crash.empty() ? "no record" : crash);
    }
    const auto now = std::chrono::steady_clock::now();
    if (machine_.heartbeat() != beat || config_.cuda_launch == SAC_CUDA_LAUNCH_HOST) moved_at = now;
    beat = machine_.heartbeat();
    if (mirror_ != nullptr && now - mirrored_at >= kMirrorInterval) {
      const Watchdog watchdog("copying the ring's page", kHungAfter,
                              [this] { return machine_.crash(); });
      mirror_->update();
      mirrored_at = now;
    }
    if (now - moved_at > kHungAfter) {
      std::fprintf(stderr, "the scheduler on the GPU hangs: %s\n", machine_.crash().c_str());
      std::_Exit(kExitHung);  // nothing else ends a kernel
    }
  }
  return "";
}

uint64_t CudaPlane::decisions(uint64_t* words, uint64_t capacity) const {
  const std::vector<uint64_t>& log = outcome_.decisions;
  const size_t count = std::min<size_t>(log.size(), capacity);
  if (count != 0) std::memcpy(words, log.data(), count * sizeof(uint64_t));
  return log.size() + outcome_.decisions_dropped;
}

}  // namespace saccade
