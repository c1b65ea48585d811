// The rotation's workers on a GPU: a few blocks that copy KV between the tiers while steps run.
// They are launched once and stay until the tick ends them. Each direction has blocks of its own,
// in numbers of its own.
//
// Copy nodes of graphs are no alternative where the scheduler lives on the device: their addresses
// are fixed when a graph is instantiated, and of a device graph only kernel nodes can be changed
// from the device. For comparison, gpu_test --rotation also measures what the copy engines do when
// a host asks them.
#pragma once
#include <memory>

#include "cuda/rotation/lanes.hpp"

namespace saccade {

enum class RotationWay : uint32_t {
  kVector = 0,  // all threads, 16 bytes at a time, through registers
  kBulk = 1,    // one thread, bulk copies through shared memory; from sm_90 on
};

struct RotationSpec {
  Copies queues;  // whose rings the GPU reaches; of each, `ring` and `capacity` are used
  unsigned char* device_pool;
  unsigned char* host_pool;  // pinned
  uint64_t block_bytes;
  RotationWorkers workers;  // blocks of each direction, 1 .. kMaxRotationWorkers
  RotationWay way;
  bool host_ticks;  // the lanes are where a host's tick reaches them
};

class Rotation {
 public:
  /// Throws std::runtime_error naming a field outside its bounds, or the CUDA call that failed.
  explicit Rotation(const RotationSpec& spec);
  ~Rotation();
  Rotation(const Rotation&) = delete;
  Rotation& operator=(const Rotation&) = delete;

  RotationEngine engine() const;
  /// Launches the workers. Once.
  void start();
  /// Waits for workers that the tick has told to leave.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace saccade
