#include "cpu/tensor_roles.hpp"

namespace saccade {
namespace {

constexpr TensorKind kM = TensorKind::kMatrix;
constexpr TensorKind kV = TensorKind::kVector;

// In the order of SAC_TENSOR_*: name, kind, per layer, optional.
constexpr TensorRole kRoles[SAC_NUM_TENSOR_ROLES] = {
    {"embed", kM, false, false},    {"final_norm", kV, false, false},
    {"lm_head", kM, false, false},  {"input_norm", kV, true, false},
    {"post_norm", kV, true, false}, {"q", kM, true, false},
    {"k", kM, true, false},         {"v", kM, true, false},
    {"o", kM, true, false},         {"gate", kM, true, false},
    {"up", kM, true, false},        {"down", kM, true, false},
    {"q_bias", kV, true, true},     {"k_bias", kV, true, true},
    {"v_bias", kV, true, true},     {"o_bias", kV, true, true},
    {"gate_bias", kV, true, true},  {"up_bias", kV, true, true},
    {"down_bias", kV, true, true},  {"q_norm", kV, true, false},
    {"k_norm", kV, true, false},
};

std::string shape_text(uint64_t rows, uint64_t cols) {
  std::string text = "[";
  text += std::to_string(rows);
  text += "][";
  text += std::to_string(cols);
  text += "]";
  return text;
}

}  // namespace

const TensorRole& tensor_role(uint32_t role) { return kRoles[role]; }

TensorShape tensor_shape(const sac_model_config& c, uint32_t role) {
  const uint64_t hidden = c.hidden_size;
  const uint64_t q = uint64_t{c.num_heads} * c.head_dim;
  const uint64_t kv = uint64_t{c.num_kv_heads} * c.head_dim;
  switch (role) {
    case SAC_TENSOR_EMBED:
    case SAC_TENSOR_LM_HEAD:
      return {c.vocab_size, hidden};
    case SAC_TENSOR_Q:
      return {q, hidden};
    case SAC_TENSOR_K:
    case SAC_TENSOR_V:
      return {kv, hidden};
    case SAC_TENSOR_O:
      return {hidden, q};
    case SAC_TENSOR_GATE:
    case SAC_TENSOR_UP:
      return {c.intermediate_size, hidden};
    case SAC_TENSOR_DOWN:
      return {hidden, c.intermediate_size};
    case SAC_TENSOR_Q_BIAS:
      return {1, q};
    case SAC_TENSOR_K_BIAS:
    case SAC_TENSOR_V_BIAS:
      return {1, kv};
    case SAC_TENSOR_GATE_BIAS:
    case SAC_TENSOR_UP_BIAS:
      return {1, c.intermediate_size};
    case SAC_TENSOR_Q_NORM:
    case SAC_TENSOR_K_NORM:
      return {1, c.head_dim};
    default:  // norms and biases of the residual stream
      return {1, hidden};
  }
}

bool tensor_used(const sac_model_config& c, uint32_t role) {
  if (role == SAC_TENSOR_LM_HEAD) return c.tied_embeddings == 0;
  if (role == SAC_TENSOR_Q_NORM || role == SAC_TENSOR_K_NORM) return c.qk_norm != 0;
  return true;
}

std::string tensor_name(uint32_t role, uint32_t layer) {
  const TensorRole& r = kRoles[role];
  return r.per_layer ? std::string(r.name) + " of layer " + std::to_string(layer) : r.name;
}

std::string check_tensor(const sac_model_config& c, uint32_t role, uint32_t layer, uint32_t dtype,
                         uint64_t rows, uint64_t cols) {
  if (role >= SAC_NUM_TENSOR_ROLES) {
    return "tensor role is " + std::to_string(role) + ", outside 0 .. " +
           std::to_string(SAC_NUM_TENSOR_ROLES - 1);
  }
  const uint32_t last_layer = kRoles[role].per_layer ? c.num_layers - 1 : 0;
  if (layer > last_layer) {
    return std::string(kRoles[role].name) + ": layer is " + std::to_string(layer) +
           ", outside 0 .. " + std::to_string(last_layer);
  }
  const std::string name = tensor_name(role, layer);
  if (!tensor_used(c, role)) {
    return name + " was given, but " +
           (role == SAC_TENSOR_LM_HEAD ? "tied_embeddings is 1" : "qk_norm is 0");
  }
  if (dtype > SAC_DTYPE_F16)
    return name + ": dtype is " + std::to_string(dtype) + ", outside 0 .. 2";
  const TensorShape want = tensor_shape(c, role);
  if (rows != want.rows || cols != want.cols) {
    return name + " has shape " + shape_text(rows, cols) + ", expected " +
           shape_text(want.rows, want.cols);
  }
  return "";
}

}  // namespace saccade
