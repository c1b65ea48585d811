// Which matrices adapters (LoRA) may change, and what a pair must satisfy: the same on all devices.
#pragma once
#include <string>
#include <vector>

#include "capi/saccade_device.h"

namespace saccade {

/// The matrices that adapters change, by role: q, k, v, o, gate, up, down.
inline constexpr uint32_t kFirstAdapted = SAC_TENSOR_Q;
inline constexpr uint32_t kNumAdapted = SAC_TENSOR_DOWN - SAC_TENSOR_Q + 1;
/// Most of them that have the same input.
inline constexpr uint32_t kMaxAdaptedTogether = 3;

struct AdapterLimits {
  uint32_t num_adapters = 0;
  uint32_t max_rank = 0;
};

/// Empty, or what is wrong with what an adapter is to add to one matrix; adapters are counted from
/// 1. has_experts: of each layer. The configuration's arrays are not read.
std::string check_adapter_pair(const sac_model_config& config, const std::vector<bool>& has_experts,
                               const AdapterLimits& limits, uint32_t adapter,
                               const sac_adapter_pair& pair);

}  // namespace saccade
