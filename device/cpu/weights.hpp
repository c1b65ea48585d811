// The model's weights in the form that the kernels read.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cpu/kernels.hpp"
#include "cpu/memory_region.hpp"
#include "cpu/tensor_roles.hpp"
#include "cpu/worker_pool.hpp"
#include "platform/layout.hpp"

namespace saccade {

inline size_t element_bytes(uint32_t dtype) {
  if (dtype == SAC_DTYPE_INT8 || dtype == SAC_DTYPE_FP8) return 1;
  return dtype == SAC_DTYPE_F32 ? 4 : 2;
}

/// A weight matrix [n][k], packed in panels of the model's dtype.
struct Matrix {
  uint32_t n = 0;
  uint32_t k = 0;
  uint32_t dtype = 0;      // SAC_DTYPE_*
  void* panels = nullptr;  // [num_panels()] of panel_elements(dtype, k)
  uint32_t num_panels() const { return ceil_div(n, kPanelOutputs); }
  size_t panel_bytes() const { return panel_elements(dtype, k) * element_bytes(dtype); }
  size_t bytes() const { return num_panels() * panel_bytes(); }
};

/// One expert's gated MLP.
struct ExpertWeights {
  Matrix gate, up, down;
};

/// Vectors (norms, biases) stay in f32 whatever the model's dtype: they are small and exact that
/// way.
struct LayerWeights {
  Matrix q, k, v, o;
  Matrix gate, up, down;               // of layers without experts
  Matrix router;                       // of the others; n is 0 where there is none
  std::vector<ExpertWeights> experts;  // [num_experts]
  float* vectors[SAC_NUM_TENSOR_ROLES] =
      {};               // by role; null where the role is no vector of a layer
  uint32_t window = 0;  // positions; 0 = all

  /// A vector that was given, or null.
  const float* vector(uint32_t role) const { return given[role] ? vectors[role] : nullptr; }
  bool given[SAC_NUM_TENSOR_ROLES] = {};
};

/// All matrices and vectors of a model in one span, as the kernels read them.
struct PackedWeights {
  const void* data;
  size_t bytes;     // whole pages
  uint64_t layout;  // of what the bytes mean: equal where one model's span can replace another's
};

class Weights {
 public:
  /// Maps memory for the whole model; it becomes resident as it is packed, tensor by tensor: the
  /// process never holds both a large tensor's source and all of its packed form. `pool` does the
  /// conversions; it is not used before the first.
  /// Throws std::runtime_error when memory cannot be allocated.
  Weights(const sac_model_config& config, uint32_t max_model_len, const Kernels& kernels,
          WorkerPool& pool);

  /// Each returns an empty string or what is wrong, see CpuStep.
  std::string set_tensor(const TensorPlace& place, uint32_t dtype, uint64_t rows, uint64_t cols,
                         const void* data, const float* scales);
  void fill_dummy(uint64_t seed);
  std::string set_rope(const float* cos, const float* sin, uint64_t count);
  std::string missing_tensor() const;

  /// Complete once every tensor is set.
  PackedWeights packed() const { return {packed_, packed_bytes_, layout_}; }
  /// From now on weights are read from `data`, which a device packed with the same layout and which
  /// no longer changes; set_tensor then only checks and marks. Frees the memory that packing would
  /// have filled. Empty, or what is wrong.
  std::string adopt_packed(const void* data, size_t bytes);
  bool adopted() const { return !region_.has_value(); }

  const LayerWeights& layer(uint32_t index) const { return layers_[index]; }
  const Matrix& embed() const { return config_.tied_embeddings != 0 ? lm_head_ : embed_; }
  const Matrix& lm_head() const { return lm_head_; }
  const float* final_norm() const { return final_norm_; }
  /// Rotary factors of a position in a sequence with such a prompt, [rotary_dim / 2].
  const float* cos(uint32_t position, uint32_t prompt_len) const {
    return cos_ + rope_row(position, prompt_len) * half_rotary();
  }
  const float* sin(uint32_t position, uint32_t prompt_len) const {
    return sin_ + rope_row(position, prompt_len) * half_rotary();
  }

 private:
  uint32_t half_rotary() const { return config_.rotary_dim / 2; }
  size_t rope_row(uint32_t position, uint32_t prompt_len) const {
    const uint32_t switch_len = config_.rope_switch_len;
    const bool second = position < switch_len && prompt_len > switch_len;
    return size_t{position} + (second ? max_model_len_ : 0);
  }
  size_t rope_entries() const {
    return (size_t{max_model_len_} + config_.rope_switch_len) * half_rotary();
  }
  /// Places everything from `packed` on and returns the bytes; null only measures.
  size_t lay_out(void* packed);
  void lay_out_layer(Layout& layout, uint32_t layer);
  size_t lay_out_rope(Layout layout);
  float* take_vector(Layout& layout, uint32_t role, uint32_t layer);
  /// f(place) for each tensor that a model must have, until one returns false.
  template <class F>
  void for_each_needed(F&& f) const;
  uint32_t matrix_dtype(const TensorPlace& place) const;
  void take_matrix(Layout& layout, const TensorPlace& place, Matrix& matrix);
  void fold_into_layout(const TensorPlace& place, size_t end, uint32_t dtype);
  Matrix* matrix_of(const TensorPlace& place);
  float* vector_of(const TensorPlace& place);
  void pack_matrix(const Matrix& matrix, PackArgs args, const uint64_t* dummy_key);
  void fill_dummy_tensor(const TensorPlace& place, uint64_t seed);
  void mark(const TensorPlace& place);
  bool is_given(const TensorPlace& place) const;
  size_t expert_mark(const TensorPlace& place) const;

  const std::vector<uint32_t> sparse_layers_, fp8_roles_;  // what config_ points to
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
  bool model_given_[3] = {};         // of the roles without a layer
  std::vector<bool> experts_given_;  // [layer][expert][gate, up, down]
  bool rope_given_ = false;
  uint64_t layout_ = 0;  // of lay_out, which comes next
  const size_t packed_bytes_;
  std::optional<MemoryRegion> region_;  // none if the packed form is another's
  const void* packed_;
  MemoryRegion rope_region_;
};

}  // namespace saccade
