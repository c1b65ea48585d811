// The host's side of the persistent kernel: what it allocates, and the machine that it is. No CUDA
// header is needed to use it. Everything throws std::runtime_error naming the call that failed.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cuda/machine.hpp"

namespace saccade {

/// Name of the error that keeps kernels from running here (no driver, no GPU); empty if they can.
std::string cuda_error_name();
/// Name and compute capability of the GPU that is used, and the driver's version, as JSON.
std::string cuda_device_json();

/// Zeroed host memory that a GPU reaches under the same address: pinned, mapped, portable.
class PinnedMemory {
 public:
  explicit PinnedMemory(size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// A scheduler over the null step on a GPU. Everything is allocated here; from start to stop only
/// the kernel runs, and the host only reads and writes pinned memory.
class CudaDevice : public Machine {
 public:
  /// ring: a view of a region in pinned memory, with limits.num_slots slots.
  CudaDevice(const Limits& limits, const std::vector<uint32_t>& eos_ids, const RingView& ring);
  /// Stops the kernel. One that does not leave cannot be ended but with its process: then the
  /// crash record is printed and the process exits with kExitHung.
  ~CudaDevice() override;
  static constexpr int kExitHung = 4;

 protected:
  void launch(bool overlapped) override;
  void reap() override;
  LifeOutcome collect() override;

 private:
  struct Impl;
  explicit CudaDevice(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Mean time of a scan of `num_slots` quiet doorbells in pinned memory, per sample.
/// Returns num_samples times in nanoseconds.
std::vector<double> time_scans(uint32_t num_slots, uint32_t num_samples, uint32_t scans_per_sample);

}  // namespace saccade
