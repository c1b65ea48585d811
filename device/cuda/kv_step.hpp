// A step for tests of the rotation on a GPU: the null step, over KV that reveals a block that is
// read too early or overwritten too soon. Position p of a request has one word in its block, which
// names the request, the position and the token; a row writes its own and reads all below it.
#pragma once
#include "cuda/cuda_memory.hpp"
#include "cuda/launch/step_kernels.hpp"

namespace saccade {

class KvStepKernels : public StepKernels {
 public:
  KvStepKernels(const StepTables& tables, uint32_t vocab_size, uint32_t block_size,
                uint32_t num_blocks);
  void enqueue(cudaStream_t stream, const GraphShape& shape) const override;

  unsigned char* pool() const { return pool_.as<unsigned char>(); }
  uint64_t block_bytes() const { return uint64_t{block_size_} * sizeof(uint64_t); }
  /// Words so far that were not the reader's own. Call only while no step runs.
  uint32_t wrong_words() const { return copy_back(wrong_.as<const uint32_t>(), 1)[0]; }

 private:
  const StepTables tables_;
  const uint32_t vocab_size_;
  const uint32_t block_size_;
  const DeviceMemory pool_;   // [num_blocks][block_size] words
  const DeviceMemory wrong_;  // one count
};

}  // namespace saccade
