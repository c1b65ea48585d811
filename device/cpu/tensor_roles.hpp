// The tensors of a model by role: names, shapes, and which of them must be there.
#pragma once
#include <string>

#include "host/saccade_device.h"

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
};

/// role < SAC_NUM_TENSOR_ROLES.
const TensorRole& tensor_role(uint32_t role);
TensorShape tensor_shape(const sac_model_config& config, uint32_t role);
/// Whether a model of this configuration has the tensor at all (lm_head, q and k norms).
bool tensor_used(const sac_model_config& config, uint32_t role);
/// "q of layer 3", "final_norm".
std::string tensor_name(uint32_t role, uint32_t layer);
/// Empty, or what is wrong with a tensor that is given: role, layer, dtype or shape.
std::string check_tensor(const sac_model_config& config, uint32_t role, uint32_t layer,
                         uint32_t dtype, uint64_t rows, uint64_t cols);

}  // namespace saccade
