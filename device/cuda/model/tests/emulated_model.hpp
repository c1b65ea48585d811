// CudaModel's twin: the same layout, loader and sequence of kernels, on emulated blocks.
#pragma once
#include <cstdlib>
#include <memory>

#include "cuda/model/load.hpp"
#include "cuda/model/sequence.hpp"
#include "cuda/model/tests/emulated_block.hpp"

namespace saccade::test {

/// Zeroed memory, aligned as a GPU's.
class HostMemory {
 public:
  explicit HostMemory(size_t bytes) : data_(std::aligned_alloc(256, (bytes + 255) / 256 * 256)) {
    std::memset(data_, 0, (bytes + 255) / 256 * 256);
  }
  ~HostMemory() { std::free(data_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

class EmulatedModel {
 public:
  EmulatedModel(const sac_model_config& config, const ModelLimits& limits, const StepTables& tables)
      : need_(gpu_memory_need(config, limits)),
        weights_(need_.weights),
        kv_(need_.kv),
        workspace_(need_.workspace),
        view_(gpu::lay_out_model(config, limits, tables,
                                 {weights_.data(), kv_.data(), workspace_.data()}, need_)) {}

  std::string set_tensor(uint32_t role, uint32_t layer, uint32_t dtype, uint64_t rows,
                         uint64_t cols, const void* data, uint32_t expert = 0,
                         const float* scales = nullptr) {
    return loader_.set_tensor({role, layer, expert}, dtype, rows, cols, data, scales);
  }
  void fill_dummy(uint64_t seed) { loader_.fill_dummy(seed); }
  std::string set_rope(const float* cos, const float* sin, uint64_t count) {
    return loader_.set_rope(cos, sin, count);
  }
  std::string set_adapter_pair(uint32_t adapter, const sac_adapter_pair& pair) {
    return loader_.set_adapter_pair(adapter, pair);
  }
  std::string missing_tensor() const { return loader_.missing_tensor(); }
  void run(const GraphShape& shape, ProductWay way) {
    gpu::StepSequence<Queue>(queue_, view_, loader_.adapter_use(), shape, way).enqueue();
  }
  const gpu::ModelView& view() const { return view_; }

 private:
  struct Queue {
    Emulator emulator;
    std::vector<gpu::Half> staging_halves = std::vector<gpu::Half>(gpu::kStagingHalves);

    template <class Kernel>
    void launch(gpu::Grid grid, const typename Kernel::Args& args) {
      emulator.launch<Kernel>(grid, Kernel::kSharedBytes, args);
    }
    void copy_in(void* device, const void* host, size_t bytes) { std::memcpy(device, host, bytes); }
    gpu::Half* staging() { return staging_halves.data(); }
  };

  MemoryNeed need_;
  const HostMemory weights_;
  const HostMemory kv_;
  const HostMemory workspace_;
  const gpu::ModelView view_;
  Queue queue_;
  gpu::ModelLoader<Queue> loader_{view_, queue_};
};

/// What model_checks.hpp runs on.
template <ProductWay kWay>
struct EmulatedRigOf {
  static constexpr const char* kName = kWay == ProductWay::kMma ? "emulated mma" : "emulated wgmma";
  using Model = EmulatedModel;
  using Memory = HostMemory;
  static void run(Model& model, const GraphShape& shape) { model.run(shape, kWay); }
};
using EmulatedRig = EmulatedRigOf<ProductWay::kMma>;
using EmulatedWgmmaRig = EmulatedRigOf<ProductWay::kWgmma>;

}  // namespace saccade::test
