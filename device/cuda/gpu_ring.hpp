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
  /// Holds a copy of `image` at first. Throws too where the GPU cannot be reached so, or where a
  /// kernel that runs would not see a NIC's writes in their order.
  GpuRing(const void* image, size_t bytes);
  ~GpuRing();
  unsigned char* data() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The device's line and statistics of a ring that the host cannot read, shown in one that it can:
/// to the supervisor, which waits for phase READY.
class RingMirror {
 public:
  RingMirror(const RingView& on_gpu, const RingView& on_host);
  ~RingMirror();
  /// Says what the host knows of the device's life, before that begins.
  void introduce(const sac_device_line& told);
  /// Copies both lines now; waits for the copies and for no kernel.
  void update();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace saccade
