// The CPU device's step: a Llama-family decoder, dense or with experts, on a pool of threads.
//
// A row's result depends on the tokens at positions up to its own and on its seat's parameters,
// never on the rest of the batch, the chunking of the prompt or the number of threads; see
// kernels.hpp. Everything is allocated by the constructor.
#pragma once
#include <string>

#include "cpu/forward.hpp"
#include "cpu/roof.hpp"

namespace saccade {

class CpuStep {
 public:
  /// The configuration has been checked (check_model_config). The tables' arrays and the outputs
  /// stay where they are for the life of the step; `kernels` picks an instruction set, null the
  /// best one; `adapters` bounds what set_adapter_pair may be given. Throws std::runtime_error
  /// naming the size that could not be allocated, or std::system_error.
  CpuStep(const sac_model_config& config, uint32_t max_num_seqs, uint32_t max_num_batched_tokens,
          uint32_t max_model_len, uint32_t block_size, uint32_t num_blocks, uint32_t num_threads,
          const SeatTables& tables, const StepOutputs& outputs, const Kernels* kernels = nullptr,
          const AdapterLimits& adapters = {});
  CpuStep(const CpuStep&) = delete;
  CpuStep& operator=(const CpuStep&) = delete;

  /// Converts and packs one tensor, see sac_device_set_tensor. Empty, or a sentence that names
  /// role, layer and shapes. Uses the workers: no step may be running.
  std::string set_tensor(uint32_t role, uint32_t layer, uint32_t dtype, uint64_t rows,
                         uint64_t cols, const void* data, uint32_t expert = 0,
                         const float* scales = nullptr) {
    return weights_.set_tensor({role, layer, expert}, dtype, rows, cols, data, scales);
  }
  /// An adapter's change of one matrix, see sac_device_set_adapter_pair. Empty, or what is wrong.
  /// No step may be running.
  std::string set_adapter_pair(uint32_t adapter, const sac_adapter_pair& pair) {
    return adapters_.set(adapter, pair);
  }
  /// Small random weights, norms of one, no biases; a function of the seed only.
  void fill_dummy(uint64_t seed) { weights_.fill_dummy(seed); }
  /// [max_model_len + rope_switch_len][rotary_dim / 2] factors each; count is the size of one.
  /// Empty, or what is wrong.
  std::string set_rope(const float* cos, const float* sin, uint64_t count) {
    return weights_.set_rope(cos, sin, count);
  }
  /// See Weights; a step may run on what was adopted once missing_tensor() is empty.
  PackedWeights packed_weights() const { return weights_.packed(); }
  std::string adopt_packed(const void* data, size_t bytes) {
    return weights_.adopt_packed(data, bytes);
  }
  bool adopted() const { return weights_.adopted(); }
  /// Empty when a step can run, else the name of the first missing tensor.
  std::string missing_tensor() const { return weights_.missing_tensor(); }

  /// What this process's memory and arithmetic allow a step, see roof.hpp. No step may be running.
  Roof measure_roof() { return saccade::measure_roof(roof_context(), pool_); }
  /// Its reading alone, bytes per second: once over the weights.
  double measure_reading() { return saccade::measure_reading(roof_context(), pool_, 1); }

  /// Bytes of one KV block of such a model.
  static size_t kv_block_bytes(const sac_model_config& config, uint32_t block_size) {
    return KvPool::block_bytes(config, block_size);
  }

  /// Starts a step and returns. The previous one must be done; the batch's arrays must stay until
  /// this one is.
  void launch(const StepBatch& batch);
  bool done() const { return pool_.done(); }
  /// Blocks until the step's outputs are complete; spins for some microseconds before it sleeps.
  void wait() const { pool_.wait(); }
  /// When the last step's outputs were complete, by monotonic_ns().
  uint64_t done_ns() const { return pool_.done_ns(); }

  /// The KV blocks, one after another, kv_block_bytes() each.
  unsigned char* kv_memory() const { return kv_.memory(); }

  const char* kernels_name() const { return kernels_.name; }

 private:
  RoofContext roof_context() { return {config_, kernels_, weights_, space_, max_rows_}; }

  const sac_model_config config_;
  const Kernels& kernels_;
  const uint32_t max_rows_;
  const SeatTables tables_;
  const StepOutputs outputs_;
  KvPool kv_;
  Workspace space_;
  StepPlan plan_;
  Weights weights_;
  AdapterWeights adapters_;
  AdapterSpace adapter_space_;
  AdapterPlan adapter_plan_;
  ForwardContext context_;
  WorkerPool pool_;  // last: its threads end before what they read is destroyed
};

}  // namespace saccade
