// What benchmarks of the rotation work on: two pools, orders to copy blocks between them, and
// workers that are asked as the tick asks them.
#pragma once
#include "cuda/cuda_memory.hpp"
#include "cuda/rotation/rotation.hpp"
#include "platform/clock.hpp"

namespace saccade {

/// Pools, and orders in a sequence that no prefetcher follows. Down uses one half of both pools, up
/// the other.
class Bed {
 public:
  static constexpr uint64_t kBlockBytes = 2 << 20;  // of a model of 8 billion parameters, 16 tokens
  static constexpr uint32_t kBlocks = 512;          // 1 GiB a direction, beyond every cache

  Bed()
      : device_(2 * kBlocks * kBlockBytes),
        host_(2 * kBlocks * kBlockBytes),
        rings_(2 * kBlocks * sizeof(BlockCopy)) {
    for (uint32_t i = 0; i < kBlocks; ++i) {
      const uint32_t block = i * 37 % kBlocks;
      ring(true)[i] = {block, block};
      ring(false)[i] = {kBlocks + block, kBlocks + block};
    }
  }
  BlockCopy* ring(bool down) const { return rings_.as<BlockCopy>() + (down ? 0 : kBlocks); }
  unsigned char* device() const { return device_.as<unsigned char>(); }
  unsigned char* host() const { return host_.as<unsigned char>(); }
  Copies queues() const {
    Copies c = {};
    c.down.ring = ring(true);
    c.up.ring = ring(false);
    c.down.capacity = c.up.capacity = kBlocks;
    return c;
  }

 private:
  const DeviceMemory device_;
  const PinnedMemory host_;
  const PinnedMemory rings_;
};

/// Workers over a bed, and the tick's part: it asks, and waits until they have done it. One thread
/// asks at a time.
class BedRotation {
 public:
  BedRotation(const Bed& bed, RotationWay way, RotationWorkers workers)
      : rotation_({bed.queues(), bed.device(), bed.host(), Bed::kBlockBytes, workers, way, true}),
        engine_(rotation_.engine()) {
    rotation_.start();
  }
  ~BedRotation() {
    engine_.stop();
    rotation_.finish();
  }
  BedRotation(const BedRotation&) = delete;
  BedRotation& operator=(const BedRotation&) = delete;

  /// At most Bed::kBlocks each.
  uint64_t run_ns(uint32_t down, uint32_t up) {
    asked_.down.asked += down;
    asked_.up.asked += up;
    const uint64_t begin_ns = monotonic_ns();
    engine_.submit(asked_.down, asked_.up);
    while (engine_.down_done() != asked_.down.asked || engine_.up_done() != asked_.up.asked)
      if (monotonic_ns() - begin_ns > kBudgetNs) throw std::runtime_error("copies do not end");
    return monotonic_ns() - begin_ns;
  }

 private:
  static constexpr uint64_t kBudgetNs = 10ull * 1000 * 1000 * 1000;

  Rotation rotation_;
  RotationEngine engine_;
  Copies asked_ = {};
};

}  // namespace saccade
