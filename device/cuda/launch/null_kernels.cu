#include "cuda/cuda_memory.hpp"
#include "cuda/launch/step_kernels.hpp"
#include "platform/clock.hpp"
#include "step/null_step.hpp"

namespace saccade {
namespace {

constexpr uint32_t kThreads = 128;

// Without the 1 the compiler holds registers down for more blocks than there ever are, and spills.
__global__ void __launch_bounds__(kThreads, 1)
    null_step_kernel(const NullStep null, const StepBatch* batch, uint64_t step_ns) {
  const uint64_t begin_ns = monotonic_ns();
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i < batch->num_seqs) null.run_seq(*batch, i);
  // Bounded by its own clock: stands in for a model that takes this long.
  while (monotonic_ns() - begin_ns < step_ns) {
  }
}

}  // namespace

void NullKernels::enqueue(cudaStream_t stream, const GraphShape& shape) const {
  const NullStep null = {tables_.seats, tables_.outputs, vocab_size_};
  null_step_kernel<<<ceil_div(shape.seqs, kThreads), kThreads, 0, stream>>>(null, tables_.batch,
                                                                            step_ns_);
  require(cudaGetLastError(), "launch of the null step's kernel");
}

}  // namespace saccade
