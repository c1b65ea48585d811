#include "cpu/tensor_roles.hpp"

namespace saccade {
namespace {

constexpr TensorKind kM = TensorKind::kMatrix;
constexpr TensorKind kV = TensorKind::kVector;

// In the order of SAC_TENSOR_*: name, kind, per layer, optional, per expert.
constexpr TensorRole kRoles[SAC_NUM_TENSOR_ROLES] = {
    {"embed", kM, false, false},
    {"final_norm", kV, false, false},
    {"lm_head", kM, false, false},
    {"input_norm", kV, true, false},
    {"post_norm", kV, true, false},
    {"q", kM, true, false},
    {"k", kM, true, false},
    {"v", kM, true, false},
    {"o", kM, true, false},
    {"gate", kM, true, false},
    {"up", kM, true, false},
    {"down", kM, true, false},
    {"q_bias", kV, true, true},
    {"k_bias", kV, true, true},
    {"v_bias", kV, true, true},
    {"o_bias", kV, true, true},
    {"gate_bias", kV, true, true},
    {"up_bias", kV, true, true},
    {"down_bias", kV, true, true},
    {"q_norm", kV, true, false},
    {"k_norm", kV, true, false},
    {"router", kM, true, false},
    {"expert_gate", kM, true, false, true},
    {"expert_up", kM, true, false, true},
    {"expert_down", kM, true, false, true},
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
    case SAC_TENSOR_ROUTER:
      return {c.num_experts, hidden};
    case SAC_TENSOR_EXPERT_GATE:
    case SAC_TENSOR_EXPERT_UP:
      return {c.moe_intermediate_size, hidden};
    case SAC_TENSOR_EXPERT_DOWN:
      return {hidden, c.moe_intermediate_size};
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

bool has_experts(const sac_model_config& c, uint32_t layer) {
  return c.num_experts > 0 && (c.sparse_layers == nullptr || c.sparse_layers[layer] != 0);
}

bool tensor_used(const sac_model_config& c, uint32_t role, uint32_t layer) {
  switch (role) {
    case SAC_TENSOR_LM_HEAD:
      return c.tied_embeddings == 0;
    case SAC_TENSOR_Q_NORM:
    case SAC_TENSOR_K_NORM:
      return c.qk_norm != 0;
    case SAC_TENSOR_GATE:
    case SAC_TENSOR_UP:
    case SAC_TENSOR_DOWN:
    case SAC_TENSOR_GATE_BIAS:
    case SAC_TENSOR_UP_BIAS:
    case SAC_TENSOR_DOWN_BIAS:
      return !has_experts(c, layer);
    case SAC_TENSOR_ROUTER:
    case SAC_TENSOR_EXPERT_GATE:
    case SAC_TENSOR_EXPERT_UP:
    case SAC_TENSOR_EXPERT_DOWN:
      return has_experts(c, layer);
    default:
      return true;
  }
}

uint32_t num_copies(const sac_model_config& c, uint32_t role) {
  return kRoles[role].per_expert ? c.num_experts : 1;
}

namespace {

/// What is computed together with the role, and must be of the same type.
uint32_t partner(uint32_t role) {
  switch (role) {
    case SAC_TENSOR_GATE:
      return SAC_TENSOR_UP;
    case SAC_TENSOR_UP:
      return SAC_TENSOR_GATE;
    case SAC_TENSOR_EXPERT_GATE:
      return SAC_TENSOR_EXPERT_UP;
    case SAC_TENSOR_EXPERT_UP:
      return SAC_TENSOR_EXPERT_GATE;
    default:
      return role;
  }
}

}  // namespace

bool kept_in_fp8(const sac_model_config& c, uint32_t role, uint32_t layer) {
  if (c.quantization != SAC_QUANTIZATION_FP8 || kRoles[role].kind != kM) return false;
  // What a router picks depends on small differences.
  if (role == SAC_TENSOR_EMBED || role == SAC_TENSOR_ROUTER) return false;
  if (role == SAC_TENSOR_LM_HEAD && c.tied_embeddings != 0) return false;
  if (c.fp8_roles == nullptr) return kRoles[role].per_layer;
  const uint32_t bits = 1u << role | 1u << partner(role);
  return (c.fp8_roles[layer] & bits) == bits;
}

std::string tensor_name(const TensorPlace& at) {
  const TensorRole& r = kRoles[at.role];
  std::string name = r.name;
  if (r.per_layer) name += " of layer " + std::to_string(at.layer);
  if (r.per_expert) name += ", expert " + std::to_string(at.expert);
  return name;
}

namespace {

/// Why a model does not have the tensor.
const char* why_unused(const sac_model_config& c, const TensorPlace& at) {
  if (at.role == SAC_TENSOR_LM_HEAD) return "tied_embeddings is 1";
  if (at.role == SAC_TENSOR_Q_NORM || at.role == SAC_TENSOR_K_NORM) return "qk_norm is 0";
  return has_experts(c, at.layer) ? "the layer has experts" : "the layer has no experts";
}

/// What is wrong with the type of a tensor's elements, or with its having scales or none.
std::string check_dtype(const TensorPlace& at, uint32_t dtype, const float* scales) {
  if (dtype != SAC_DTYPE_FP8) {
    return scales == nullptr ? "" : "has scales, but its dtype is not fp8 (4)";
  }
  if (kRoles[at.role].kind != kM) return "is in fp8, which only matrices may be";
  return scales == nullptr ? "is in fp8 without scales" : "";
}

std::string outside(const char* what, uint64_t value, uint64_t last) {
  return std::string(what) + " is " + std::to_string(value) + ", outside 0 .. " +
         std::to_string(last);
}

}  // namespace

std::string check_tensor(const sac_model_config& c, const TensorPlace& at, uint32_t dtype,
                         uint64_t rows, uint64_t cols, const float* scales) {
  if (at.role >= SAC_NUM_TENSOR_ROLES) {
    return outside("tensor role", at.role, SAC_NUM_TENSOR_ROLES - 1);
  }
  const TensorRole& role = kRoles[at.role];
  const uint32_t last_layer = role.per_layer ? c.num_layers - 1 : 0;
  if (at.layer > last_layer) {
    return std::string(role.name) + ": " + outside("layer", at.layer, last_layer);
  }
  if (!tensor_used(c, at.role, at.layer)) {
    return tensor_name(at) + " was given, but " + why_unused(c, at);
  }
  const uint32_t last_expert = num_copies(c, at.role) - 1;
  if (at.expert > last_expert) {
    return std::string(role.name) + ": " + outside("expert", at.expert, last_expert);
  }
  const std::string name = tensor_name(at);
  if (dtype > SAC_DTYPE_F16 && dtype != SAC_DTYPE_FP8) {
    return name + ": dtype is " + std::to_string(dtype) + ", not one of 0, 1, 2, 4";
  }
  const std::string wrong = check_dtype(at, dtype, scales);
  if (!wrong.empty()) return name + " " + wrong;
  const TensorShape want = tensor_shape(c, at.role);
  if (rows != want.rows || cols != want.cols) {
    return name + " has shape " + shape_text(rows, cols) + ", expected " +
           shape_text(want.rows, want.cols);
  }
  return "";
}

}  // namespace saccade
