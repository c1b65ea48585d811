#include "cpu/adapter_check.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/tensor_roles.hpp"

namespace saccade {
namespace {

std::string outside(const std::string& what, uint64_t value, uint64_t low, uint64_t high) {
  return what + " is " + std::to_string(value) + ", outside " + std::to_string(low) + " .. " +
         std::to_string(high);
}

}  // namespace

std::string check_adapter_pair(const sac_model_config& config, const std::vector<bool>& has_experts,
                               const AdapterLimits& limits, uint32_t adapter,
                               const sac_adapter_pair& p) {
  if (adapter == 0 || adapter > limits.num_adapters) {
    return outside("adapter", adapter, 1, limits.num_adapters);
  }
  const std::string of = "adapter " + std::to_string(adapter) + ": ";
  if (p.role >= SAC_NUM_TENSOR_ROLES) {
    return of + outside("tensor role", p.role, 0, SAC_NUM_TENSOR_ROLES - 1);
  }
  const std::string role = tensor_role(p.role).name;
  if (p.role < kFirstAdapted || p.role >= kFirstAdapted + kNumAdapted) {
    return of + role + " takes no adapter; q, k, v, o, gate, up and down do";
  }
  if (p.layer >= config.num_layers) {
    return of + role + ": " + outside("layer", p.layer, 0, config.num_layers - 1);
  }
  const std::string name = of + tensor_name({p.role, p.layer, 0});
  if (p.role >= SAC_TENSOR_GATE && has_experts[p.layer]) {
    return name + " was given, but the layer has experts, which take no adapters";
  }
  if (p.rank == 0 || p.rank > limits.max_rank) {
    return name + ": " + outside("rank", p.rank, 1, limits.max_rank);
  }
  const TensorShape want = tensor_shape(config, p.role);
  if (p.in != want.cols || p.out != want.rows) {
    return name + ": in and out are " + std::to_string(p.in) + " and " + std::to_string(p.out) +
           ", expected " + std::to_string(want.cols) + " and " + std::to_string(want.rows);
  }
  if (p.a_dtype > SAC_DTYPE_F16 || p.b_dtype > SAC_DTYPE_F16) {
    return name + ": dtype is " + std::to_string(std::max(p.a_dtype, p.b_dtype)) +
           ", not one of 0, 1, 2";
  }
  if (!std::isfinite(p.scaling)) return name + ": scaling is not finite";
  if (p.a == nullptr || p.b == nullptr) {
    return name + ": " + (p.a == nullptr ? "a" : "b") + " is null";
  }
  return "";
}

}  // namespace saccade
