// The model step on a GPU: weights, KV pool, workspace, and the kernels of one step put onto a
// stream. The counterpart of cpu/cpu_step.hpp; the same tensors go in, the same records come out.
//
// enqueue() makes kernel nodes only: it allocates nothing, waits for nothing and calls no host
// function, so that a step can be captured, instantiated for launch from the device, and be the
// body of a conditional node. Kernels launch nothing and are not cooperative.
//
// A row's result is a function of the tokens at positions up to its own and of its seat's
// parameters, as on the CPU, whatever else is in the batch, however the prompt was cut, and
// whichever graph shape ran it. How each kernel keeps that:
//   products    an output is a sum over k in fixed slices, their number set by matrix and way;
//               in a slice the matrix unit adds 16 k after 16 k, and the slices are added in
//               rising order, by one block or by the kernel that reads them. Rows are columns of
//               the matrix unit's operand and do not mix. The way a matrix is multiplied is
//               chosen once, for all shapes (ProductWay).
//   attention   the context is cut at multiples of kContextChunk, a chunk is walked in tiles that
//               begin at multiples of kContextTile, and chunks are folded in rising order; the same
//               code walks for one row and for many. What a row does not see has weight zero.
//   norms       one tree over a row, whose form follows from its width.
//   experts     a row's experts come from its own logits; their results are added in rising order.
//   adapters    a change is a sum of slices of k of a fixed size, added in rising order, of the
//               adapter's own rank; rows without one have no term for it.
//   sampling    sums are of integers, or lane by lane in the order of the CPU's sampler.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>

#include "cuda/model/shape.hpp"

namespace saccade {

class CudaModel {
 public:
  /// Allocates gpu_memory_need() on the current device and zeroes it. Both checks
  /// (check_model_config and check_gpu_model) have passed. Throws std::runtime_error naming the
  /// call and the size.
  CudaModel(const sac_model_config& config, const ModelLimits& limits, const StepTables& tables);
  ~CudaModel();
  CudaModel(const CudaModel&) = delete;
  CudaModel& operator=(const CudaModel&) = delete;

  /// Converts one tensor to bf16 and uploads it; see CpuStep. Empty, or what is wrong with it.
  std::string set_tensor(uint32_t role, uint32_t layer, uint32_t dtype, uint64_t rows,
                         uint64_t cols, const void* data, uint32_t expert = 0,
                         const float* scales = nullptr);
  /// The random weights of CpuStep::fill_dummy, bit for bit, made on the device.
  void fill_dummy(uint64_t seed);
  std::string set_rope(const float* cos, const float* sin, uint64_t count);
  /// Converts and uploads what an adapter, from 1 on, adds to one matrix. Empty, or what is wrong;
  /// see sac_device_set_adapter_pair.
  std::string set_adapter_pair(uint32_t adapter, const sac_adapter_pair& pair);
  /// Empty when a step can run, else the name of the first missing tensor.
  std::string missing_tensor() const;

  /// Puts one step onto the stream. Of adapters it computes the pairs given so far. shape.rows and
  /// shape.seqs are within the limits. Throws std::runtime_error when a launch is refused, or when
  /// the GPU lacks what the way needs.
  void enqueue(cudaStream_t stream, const GraphShape& shape, ProductWay way) const;

  /// The KV blocks, block b at kv_memory() + b * kv_block_bytes().
  unsigned char* kv_memory() const;
  size_t kv_block_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace saccade
