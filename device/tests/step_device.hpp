// A device plane whose tokens are computed: the scheduler over the real CPU step, and a second tier
// of KV memory. Its clock is the test's and its copies end when a seed says so, so that a run can
// be replayed tick by tick.
#pragma once
#include "cpu/copy_engine.hpp"
#include "tests/test_device.hpp"
#include "tests/test_model.hpp"

namespace saccade::test {

/// What is computed, and by which instructions.
struct Engine {
  const Kernels* kernels = nullptr;  // null: the best ones
  const TestModel* model = nullptr;
  uint32_t num_threads = 1;
  bool copy_threads = false;  // copies by the device's own engine: at no known tick
};

/// The bytes of both tiers.
struct KvBytes {
  CopyPools pools = {};
  void down(const BlockCopy& c) const { std::memcpy(host(c), device(c), pools.block_bytes); }
  void up(const BlockCopy& c) const { std::memcpy(device(c), host(c), pools.block_bytes); }

 private:
  unsigned char* device(const BlockCopy& c) const {
    return pools.device + c.device_block * pools.block_bytes;
  }
  unsigned char* host(const BlockCopy& c) const {
    return pools.host + c.host_block * pools.block_bytes;
  }
};

class StepDevice {
 public:
  StepDevice(TestRing& ring, const DeviceShape& device_shape, const Engine& engine);
  StepDevice(const StepDevice&) = delete;
  StepDevice& operator=(const StepDevice&) = delete;

  /// One tick; throws with the first invariant that it broke. Returns the sequences of its step.
  uint32_t tick();
  const sac_device_stats& stats() const { return s.report.stats; }

  const DeviceShape shape;
  Scheduler s = {};
  uint64_t now_ns = 1'000'000'000;

 private:
  template <class Copier>
  uint32_t tick_with(Copier& copier);
  template <bool kOverlapped, class Copier>
  uint32_t tick_in(Copier& copier);

  AlignedBytes memory_;
  AlignedBytes host_;
  KvBytes kv_;
  SeededCopies<KvBytes> copies_;
  std::unique_ptr<CpuStep> step_;
  std::unique_ptr<CopyEngine> threads_;  // ends before what it copies goes
};

}  // namespace saccade::test
