#include "cuda/block_crew.cuh"
#include "cuda/persistent.cuh"

namespace saccade {
namespace {

template <bool kOverlapped>
__global__ void __launch_bounds__(kBlockThreads, 1) life_kernel(const Life life) {
  run_block(&life.control->crash,
            [&](ScanBoard& board, BlockCrew& crew) { lead<kOverlapped>(life, board, crew); });
}

__global__ void __launch_bounds__(kBlockThreads, 1) scan_bench_kernel(const ScanBench b) {
  run_block(b.crash, [&](ScanBoard& board, BlockCrew& crew) {
    for (uint32_t sample = 0; sample < b.num_samples && !crew.failed(); ++sample) {
      const uint64_t begin_ns = monotonic_ns();
      for (uint32_t i = 0; i < b.scans_per_sample; ++i)
        lead_scan(board, crew, b.doorbells, b.seen, b.num_slots, b.changed);
      b.sample_ns[sample] = monotonic_ns() - begin_ns;
    }
    if (!crew.failed()) dismiss(board, crew);
  });
}

}  // namespace

cudaError_t launch_life(const Life& life, bool overlapped, cudaStream_t stream) {
  if (overlapped) {
    life_kernel<true><<<1, kBlockThreads, 0, stream>>>(life);
  } else {
    life_kernel<false><<<1, kBlockThreads, 0, stream>>>(life);
  }
  return cudaGetLastError();
}

cudaError_t launch_scan_bench(const ScanBench& bench, cudaStream_t stream) {
  scan_bench_kernel<<<1, kBlockThreads, 0, stream>>>(bench);
  return cudaGetLastError();
}

}  // namespace saccade
