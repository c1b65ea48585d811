// The one clock of a device plane.
#pragma once
#include "platform/hd.hpp"

#if !defined(__CUDA_ARCH__)
#include <ctime>
#endif

namespace saccade {

/// Nanoseconds since an arbitrary start; never goes back. On a GPU the resolution is that of
/// %globaltimer, which differs between parts (about 1 us on many): good for time-outs and for
/// sums, too coarse for one short span.
SAC_HD inline uint64_t monotonic_ns() {
#if defined(__CUDA_ARCH__)
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
#else
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
#endif
}

}  // namespace saccade
