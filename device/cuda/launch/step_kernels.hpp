// What steps are made of, as seen by the code that captures them: a model's kernels, or the null
// step's.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>

#include "cuda/model/shape.hpp"

namespace saccade {

class StepKernels {
 public:
  virtual ~StepKernels() = default;
  /// Puts one step of at most this shape onto a stream that may be capturing. It makes kernel,
  /// copy and memset nodes only, and its kernels launch nothing. What it reads and writes is fixed
  /// when it is made.
  virtual void enqueue(cudaStream_t stream, const GraphShape& shape) const = 0;
};

/// Steps that only write tokens, in one kernel that takes at least `step_ns`.
class NullKernels : public StepKernels {
 public:
  NullKernels(const StepTables& tables, uint32_t vocab_size, uint64_t step_ns)
      : tables_(tables), vocab_size_(vocab_size), step_ns_(step_ns) {}
  void enqueue(cudaStream_t stream, const GraphShape& shape) const override;

 private:
  StepTables tables_;
  uint32_t vocab_size_;
  uint64_t step_ns_;
};

}  // namespace saccade
