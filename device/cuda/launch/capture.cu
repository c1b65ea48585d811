#include "cuda/launch/capture.hpp"
#include "cuda/launch/patches.hpp"

namespace saccade {
namespace {

__global__ void __launch_bounds__(1) signal_kernel(const SignalTarget signal) {
  signal_step(*signal.line, signal.batch->step);
}

constexpr uint32_t kPatchThreads = 32;
constexpr uint32_t kPatchBlocks = 32;

/// A warp for each patch.
__global__ void __launch_bounds__(kPatchThreads)
    patch_kernel(const uint32_t* upload, uint32_t* copy_words) {
  for (uint32_t p = blockIdx.x; p < upload[0]; p += gridDim.x)
    apply_patch(upload, copy_words, p, threadIdx.x, kPatchThreads);
}

}  // namespace

void enqueue_patches(cudaStream_t stream, const uint32_t* upload, uint32_t* copy_words) {
  patch_kernel<<<kPatchBlocks, kPatchThreads, 0, stream>>>(upload, copy_words);
  require(cudaGetLastError(), "launch of the patch kernel");
}

void enqueue_signal(cudaStream_t stream, const SignalTarget& signal) {
  signal_kernel<<<1, 1, 0, stream>>>(signal);
  require(cudaGetLastError(), "launch of the signal's kernel");
}

}  // namespace saccade
