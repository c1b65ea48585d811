// A ring in the GPU's memory, for frontends whose NIC reaches it there (GPUDirect RDMA), and what
// the host still learns of it. No CUDA header is needed to use it. Everything throws
// std::runtime_error naming the call that failed.
#pragma once
#include <memory>

#include "ring/ring_view.hpp"

namespace saccade {

/// Memory of the GPU that a NIC may write while a kernel polls it.
class GpuRing {
 public:
  /// Starts as a copy of `image`. Also throws where the GPU cannot be reached this way, or where a
  /// running kernel would not see a NIC's writes in order.
  GpuRing(const void* image, size_t bytes);
  ~GpuRing();
  unsigned char* data() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Mirrors the device's line and statistics from a ring that the host cannot read to one that it
/// can: for the supervisor, which waits for phase READY.
class RingMirror {
 public:
  RingMirror(const RingView& on_gpu, const RingView& on_host);
  ~RingMirror();
  /// Publishes what the host knows of the device's life, before it begins.
  void introduce(const sac_device_line& told);
  /// Copies both lines now; waits for the copies, but for no kernel.
  void update();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace saccade
