// A device plane on a GPU as the C interface serves it: the machine, the model, the region.
#pragma once
#include <atomic>
#include <memory>
#include <string>

#include "cuda/cuda_device.hpp"
#include "cuda/model/model.hpp"
#include "cuda/saccade_cuda.h"

namespace saccade {

sac_cuda_info gpu_info();
ModelLimits model_limits(const sac_device_config& config);
/// Bounds beyond check_device_config's. Empty, or a sentence with the field and the bound.
std::string check_cuda_config(const sac_device_config& config, const sac_model_config* model,
                              uint32_t vocab_size);

class RegisteredMemory;
class RingMirror;

class CudaPlane {
 public:
  /// Checked configurations. SAC_DEVICE_NULL runs the null step on the GPU.
  CudaPlane(const sac_device_config& config, const sac_model_config* model, uint32_t vocab_size);
  ~CudaPlane();
  CudaPlane(const CudaPlane&) = delete;
  CudaPlane& operator=(const CudaPlane&) = delete;

  CudaModel* model() { return model_; }
  bool prepared() const { return prepared_; }
  bool attached() const { return region_ != nullptr || mirror_ != nullptr; }

  /// The bytes of every token, before attach. Empty, or what is wrong with them.
  std::string set_vocab(const uint32_t* offsets, const uint8_t* bytes, uint32_t num_tokens);
  /// Where keys of adapters are kept until a life begins, to be set before attach.
  AdapterKeys adapter_keys() { return machine_.adapter_keys(); }
  /// Captures the steps; reports on standard error how far it is and what it took.
  void prepare();
  /// Pins the region for the GPU. Empty, or why it does not fit.
  std::string attach(void* region, uint64_t region_bytes);
  /// The same with the ring in the GPU's memory, at `on_gpu`; `region`, with the same header, shows
  /// the host what the device says of itself.
  std::string attach(void* region, uint64_t region_bytes, unsigned char* on_gpu);
  /// Runs until `stop`. Empty, or how the life ended on its own.
  std::string run();
  /// Async-signal-safe.
  void stop() { stop_.store(true, std::memory_order_relaxed); }
  uint64_t decisions(uint64_t* words, uint64_t capacity) const;

 private:
  /// What frontends learn of the device with phase READY.
  sac_device_line told(const RingView& view) const;
  std::string watch();

  const sac_device_config config_;
  const uint32_t vocab_size_;
  CudaDevice machine_;
  std::unique_ptr<StepKernels> kernels_;  // until prepare
  CudaModel* model_ = nullptr;            // the kernels', if they are a model's
  std::unique_ptr<RegisteredMemory> region_;
  std::unique_ptr<RingMirror> mirror_;  // of a ring in the GPU's memory
  LifeOutcome outcome_;
  bool prepared_ = false;
  std::atomic<bool> stop_{false};
};

}  // namespace saccade

/// The opaque handle of the C interface.
struct sac_device {
  saccade::CudaPlane plane;
  sac_device(const sac_device_config& config, const sac_model_config* model, uint32_t vocab_size)
      : plane(config, model, vocab_size) {}
};
