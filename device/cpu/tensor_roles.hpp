// The tensors of a model by role: names, shapes, and which of them are required.
#pragma once
#include <string>

#include "capi/saccade_device.h"

namespace saccade {

enum class TensorKind : uint32_t { kMatrix, kVector };

struct TensorShape {
  uint64_t rows;  // 1 for vectors
  uint64_t cols;
};

struct TensorRole {
  const char* name;
  TensorKind kind;
  bool per_layer;
  bool optional;
  bool per_expert = false;
};

/// One tensor of a model.
struct TensorPlace {
  uint32_t role;
  uint32_t layer;   // 0 for roles outside of layers
  uint32_t expert;  // 0 for roles outside of experts
};

/// role < SAC_NUM_TENSOR_ROLES.
const TensorRole& tensor_role(uint32_t role);
TensorShape tensor_shape(const sac_model_config& config, uint32_t role);
/// Whether a layer has experts in place of one MLP.
bool has_experts(const sac_model_config& config, uint32_t layer);
/// Whether a model of this configuration has the tensor at all (lm_head, q and k norms; experts or
/// the MLP).
bool tensor_used(const sac_model_config& config, uint32_t role, uint32_t layer);
/// Of each layer that has the role; 1 where it is not an expert's.
uint32_t num_copies(const sac_model_config& config, uint32_t role);
/// Whether the matrices of a role are in e4m3 in memory.
bool kept_in_fp8(const sac_model_config& config, uint32_t role, uint32_t layer);
/// "q of layer 3", "final_norm", "expert_up of layer 3, expert 5".
std::string tensor_name(const TensorPlace& place);
/// Empty, or what is wrong with a tensor that is given: role, layer, expert, dtype, shape or
/// scales.
std::string check_tensor(const sac_model_config& config, const TensorPlace& place, uint32_t dtype,
                         uint64_t rows, uint64_t cols, const float* scales);

}  // namespace saccade
