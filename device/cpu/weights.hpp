// The model's weights in the form that the kernels read.
#pragma once
#include <string>
#include <vector>

#include "cpu/kernels.hpp"
#include "cpu/memory_region.hpp"
#include "cpu/worker_pool.hpp"
#include "platform/layout.hpp"

namespace saccade {

/// A weight matrix [n][k], packed in panels of the model's dtype.
struct Matrix {
  uint32_t n = 0;
  uint32_t k = 0;
  uint32_t dtype = 0;      // SAC_DTYPE_*
  void* panels = nullptr;  // [num_panels()] of panel_elements(dtype, k)
  uint32_t num_panels() const { return ceil_div(n, kPanelOutputs); }
};

/// Vectors (norms, biases) stay in f32 whatever the model's dtype: they are small and exact that
/// way.
struct LayerWeights {
  Matrix q, k, v, o, gate, up, down;
  float* vectors[SAC_NUM_TENSOR_ROLES] =
      {};               // by role; null where the role is no vector of a layer
  uint32_t window = 0;  // positions; 0 = all

  /// A vector that was given, or null.
  const float* vector(uint32_t role) const { return given[role] ? vectors[role] : nullptr; }
  bool given[SAC_NUM_TENSOR_ROLES] = {};
};

class Weights {
 public:
  /// Allocates for the whole model. `pool` does the conversions; it is not used before the first.
  /// Throws std::runtime_error when memory cannot be had.
  Weights(const sac_model_config& config, uint32_t max_model_len, const Kernels& kernels,
          WorkerPool& pool);

  /// Each returns an empty string or what is wrong, see CpuStep.
  std::string set_tensor(uint32_t role, uint32_t layer, uint32_t dtype, uint64_t rows,
                         uint64_t cols, const void* data);
  void fill_dummy(uint64_t seed);
  std::string set_rope(const float* cos, const float* sin, uint64_t count);
  std::string missing_tensor() const;

  const LayerWeights& layer(uint32_t index) const { return layers_[index]; }
  const Matrix& embed() const { return config_.tied_embeddings != 0 ? lm_head_ : embed_; }
  const Matrix& lm_head() const { return lm_head_; }
  const float* final_norm() const { return final_norm_; }
  /// Rotary factors of a position, [rotary_dim / 2].
  const float* cos(uint32_t position) const { return cos_ + size_t{position} * half_rotary(); }
  const float* sin(uint32_t position) const { return sin_ + size_t{position} * half_rotary(); }

 private:
  uint32_t half_rotary() const { return config_.rotary_dim / 2; }
  size_t lay_out(Layout layout);
  void take_matrix(Layout& layout, uint32_t role, Matrix& matrix);
  Matrix* matrix_of(uint32_t role, uint32_t layer);
  float* vector_of(uint32_t role, uint32_t layer);
  void pack_matrix(const Matrix& matrix, PackArgs args, const uint64_t* dummy_key);
  void fill_dummy_tensor(uint32_t role, uint32_t layer, uint64_t seed);
  void mark(uint32_t role, uint32_t layer);
  bool is_given(uint32_t role, uint32_t layer) const;

  const sac_model_config config_;
  const uint32_t max_model_len_;
  const Kernels& kernels_;
  WorkerPool& pool_;
  std::vector<LayerWeights> layers_;
  Matrix embed_;    // only of untied models
  Matrix lm_head_;  // of tied models, the embedding too
  float* final_norm_ = nullptr;
  float* cos_ = nullptr;
  float* sin_ = nullptr;
  bool model_given_[3] = {};  // of the roles without a layer
  bool rope_given_ = false;
  MemoryRegion region_;
};

}  // namespace saccade
