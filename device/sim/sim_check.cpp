#include "sim/sim_check.hpp"

#include "abi/wire.h"

namespace saccade::sim {
namespace {

constexpr double kMaxRate = 1e18;  // bytes or FLOPs per second
constexpr double kMaxBytes = 1e15;
constexpr double kMaxFlops = 1e15;  // of one row
constexpr double kMaxSeconds = 10;  // of one overhead
constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxExperts = 4096;
constexpr uint64_t kMaxRequests = 10'000'000;
constexpr double kMaxTargetS = 86400;
constexpr uint64_t kMaxArrivalNs = uint64_t{1} << 60;
constexpr uint32_t kMaxBlockTokens = 1u << 24;

/// Collects the first violation. Not-a-number is out of every bound.
class RealBounds {
 public:
  void in(const char* field, double value, double low, double high) {
    if (!wrong_.empty() || (value >= low && value <= high)) return;
    wrong_ = std::string(field) + " is " + std::to_string(value) + ", outside " +
             std::to_string(low) + " .. " + std::to_string(high);
  }
  std::string first() const { return wrong_; }

 private:
  std::string wrong_;
};

std::string check_block_ids(const sac_sim_load& load) {
  if (load.num_block_ids == 0) return "";
  RealBounds b;
  b.in("block_tokens", load.block_tokens, 1, kMaxBlockTokens);
  for (uint64_t i = 0; i < load.num_block_ids; ++i)
    if (load.block_ids[i] >= SAC_SIM_BLOCK_IDS)
      return "block_ids[" + std::to_string(i) + "] is " + std::to_string(load.block_ids[i]) +
             ", outside 0 .. " + std::to_string(SAC_SIM_BLOCK_IDS - 1);
  return b.first();
}

std::string check_request(const sac_sim_request& r, const std::string& name,
                          uint32_t max_model_len) {
  const uint64_t total = uint64_t{r.prompt_len} + r.output_len;
  if (r.prompt_len == 0 || r.output_len == 0 || total > max_model_len)
    return name + " has " + std::to_string(r.prompt_len) + " + " + std::to_string(r.output_len) +
           " tokens, outside 1 + 1 .. max_model_len " + std::to_string(max_model_len);
  if (r.arrival_ns > kMaxArrivalNs) return name + " arrives too late to be counted";
  RealBounds b;
  b.in("slo_ttft_s", r.slo_ttft_s, 0, kMaxTargetS);
  b.in("slo_tbt_s", r.slo_tbt_s, 0, kMaxTargetS);
  return b.first().empty() ? "" : name + ": " + b.first();
}

/// Either none, or as many as its prompt has blocks, within the load's.
std::string check_ids_of(const sac_sim_load& load, const sac_sim_request& r,
                         const std::string& name) {
  if (r.num_block_ids == 0) return "";
  if (r.first_block_id > load.num_block_ids ||
      r.num_block_ids > load.num_block_ids - r.first_block_id)
    return name + " has first_block_id " + std::to_string(r.first_block_id) +
           " and num_block_ids " + std::to_string(r.num_block_ids) + ", outside the load's " +
           std::to_string(load.num_block_ids);
  const uint64_t blocks = (uint64_t{r.prompt_len} + load.block_tokens - 1) / load.block_tokens;
  if (r.num_block_ids == blocks) return "";
  return name + " has num_block_ids " + std::to_string(r.num_block_ids) + ", and its " +
         std::to_string(r.prompt_len) + " tokens are " + std::to_string(blocks) + " blocks of " +
         std::to_string(load.block_tokens);
}

}  // namespace

std::string check_sim_config(const sac_sim_config& c) {
  RealBounds b;
  const sac_sim_hardware& h = c.hardware;
  b.in("hbm_bytes_per_s", h.hbm_bytes_per_s, 1, kMaxRate);
  b.in("hbm_efficiency", h.hbm_efficiency, 1e-3, 1);
  b.in("flops_per_s", h.flops_per_s, 1, kMaxRate);
  b.in("flops_efficiency", h.flops_efficiency, 1e-3, 1);
  b.in("attention_efficiency", h.attention_efficiency, 1e-3, 1);
  b.in("step_overhead_s", h.step_overhead_s, 0, kMaxSeconds);
  b.in("layer_overhead_s", h.layer_overhead_s, 0, kMaxSeconds);
  b.in("link_bytes_per_s", h.link_bytes_per_s, 1, kMaxRate);
  b.in("link_both_bytes_per_s", h.link_both_bytes_per_s, 1, kMaxRate);
  const sac_sim_model& m = c.model;
  b.in("dense_weight_bytes", m.dense_weight_bytes, 1, kMaxBytes);
  b.in("expert_weight_bytes", m.expert_weight_bytes, 0, kMaxBytes);
  b.in("head_weight_bytes", m.head_weight_bytes, 0, kMaxBytes);
  b.in("row_flops", m.row_flops, 1, kMaxFlops);
  b.in("head_flops", m.head_flops, 0, kMaxFlops);
  b.in("attention_pair_flops", m.attention_pair_flops, 0, kMaxFlops);
  b.in("kv_token_bytes", m.kv_token_bytes, 1, kMaxBytes);
  b.in("num_layers", m.num_layers, 1, kMaxLayers);
  b.in("num_experts", m.num_experts, 0, kMaxExperts);
  if (m.num_experts != 0) b.in("experts_per_token", m.experts_per_token, 1, m.num_experts);
  b.in("host step_s", c.host.step_s, 0, kMaxSeconds);
  b.in("host seq_s", c.host.seq_s, 0, kMaxSeconds);
  b.in("host stall_odds", c.host.stall_odds, 0, 1);
  b.in("host stall_s", c.host.stall_s, 0, kMaxSeconds);
  b.in("host drives", c.host.drives, 0, 1);
  return b.first();
}

std::string check_sim_ring(const sac_sim_ring& ring) {
  RealBounds b;
  b.in("num_slots", ring.num_slots, SAC_SLOT_GRANULE, SAC_MAX_SLOTS);
  b.in("when_full", ring.when_full, SAC_SIM_QUEUE, SAC_SIM_REFUSE);
  if (b.first().empty() && ring.num_slots % SAC_SLOT_GRANULE != 0)
    return "num_slots is " + std::to_string(ring.num_slots) + ", not a multiple of " +
           std::to_string(SAC_SLOT_GRANULE);
  return b.first();
}

std::string check_load(const sac_sim_load& load, uint32_t max_model_len) {
  const uint64_t count = load.num_requests;
  if (count > kMaxRequests)
    return std::to_string(count) + " requests, more than " + std::to_string(kMaxRequests);
  std::string wrong = check_block_ids(load);
  for (uint64_t i = 0; wrong.empty() && i < count; ++i) {
    const sac_sim_request& r = load.requests[i];
    const std::string name = "request " + std::to_string(i);
    wrong = check_request(r, name, max_model_len);
    if (wrong.empty()) wrong = check_ids_of(load, r, name);
    if (wrong.empty() && i > 0 && r.arrival_ns < load.requests[i - 1].arrival_ns)
      wrong = name + " arrives before the one in front of it";
  }
  return wrong;
}

}  // namespace saccade::sim
