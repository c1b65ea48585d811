// The kernels of the device plane, as their launches. Each occupies one block of kBlockThreads.
#pragma once
#include <cuda_runtime_api.h>

#include "cuda/live.hpp"

namespace saccade {

/// Runs a life until the host's permit is kStop. All pointers must be valid on the device.
cudaError_t launch_life(const Life& life, bool overlapped, cudaStream_t stream);

/// What a benchmark of the team's scan is given. Doorbells are where a ring's would be.
struct ScanBench {
  const uint32_t* doorbells;  // [num_slots], pinned
  const uint32_t* seen;       // [num_slots], device
  uint32_t* changed;          // [num_slots], device
  uint32_t num_slots;
  uint32_t scans_per_sample;  // the clock is too coarse for one
  uint32_t num_samples;
  uint64_t* sample_ns;  // [num_samples], device
  CrashRecord* crash;   // pinned
};
cudaError_t launch_scan_bench(const ScanBench& bench, cudaStream_t stream);

}  // namespace saccade
