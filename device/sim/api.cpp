// The C interface of the simulator: argument checks, and nothing else.
#include <limits>

#include "capi/config_check.hpp"
#include "capi/last_error.hpp"
#include "sim/sim_check.hpp"
#include "sim/virtual_run.hpp"

namespace {

using saccade::fail;
using saccade::guarded;

/// What the simulator fixes: requests end by their length, and nothing is logged.
sac_device_config simulated(const sac_device_config& device) {
  sac_device_config c = device;
  c.num_eos_ids = 0;
  c.eos_ids = nullptr;
  c.log_decisions = 0;
  return c;
}

std::string check_run(const sac_device_config& device, const sac_sim_config& config,
                      const sac_sim_ring& ring, const sac_sim_load& load) {
  // The vocabulary is the simulator's own.
  std::string wrong = saccade::check_device_config(device, 1);
  if (wrong.empty()) wrong = saccade::sim::check_sim_config(config);
  if (wrong.empty()) wrong = saccade::sim::check_sim_ring(ring);
  if (wrong.empty()) wrong = saccade::sim::check_load(load, device.max_model_len);
  return wrong;
}

}  // namespace

extern "C" {

uint64_t sac_sim_abi(void) {
  uint64_t mixed = 0;
  for (const uint64_t bytes :
       {sizeof(sac_sim_config), sizeof(sac_sim_ring), sizeof(sac_sim_request), sizeof(sac_sim_load),
        sizeof(sac_sim_sample), sizeof(sac_sim_result)})
    mixed = mixed * 4093 + bytes;
  return mixed;
}

int sac_sim_run(const sac_device_config* device, const sac_sim_config* config,
                const sac_sim_ring* ring, const sac_sim_load* load, uint64_t limit_ns,
                uint64_t* token_ns, sac_sim_sample* samples, uint64_t sample_capacity,
                uint64_t sample_ns, sac_sim_result* result) {
  return guarded([&] {
    if (device == nullptr || config == nullptr || ring == nullptr || load == nullptr ||
        result == nullptr)
      return fail(SAC_ERR_ARGUMENT, "device, config, ring, load or result is null");
    if (load->num_requests != 0 && (load->requests == nullptr || token_ns == nullptr))
      return fail(SAC_ERR_ARGUMENT, "requests or token_ns is null");
    if (load->num_block_ids != 0 && load->block_ids == nullptr)
      return fail(SAC_ERR_ARGUMENT, "block_ids is null");
    if (sample_capacity != 0 && (samples == nullptr || sample_ns == 0))
      return fail(SAC_ERR_ARGUMENT, "samples is null, or sample_ns is 0");
    const sac_device_config c = simulated(*device);
    std::string wrong = check_run(c, *config, *ring, *load);
    if (!wrong.empty()) return fail(SAC_ERR_ARGUMENT, std::move(wrong));
    const saccade::sim::RunOutput out = {token_ns, samples, sample_capacity, sample_ns};
    saccade::sim::VirtualRun run(c, *config, *ring, *load, out);
    *result = run.run(limit_ns);
    return 0;
  });
}

double sac_sim_step_s(const sac_sim_config* config, double rows, double samples,
                      double context_tokens, double pairs) {
  double seconds = std::numeric_limits<double>::quiet_NaN();
  guarded([&] {
    if (config == nullptr) return fail(SAC_ERR_ARGUMENT, "config is null");
    std::string wrong = saccade::sim::check_sim_config(*config);
    if (!wrong.empty()) return fail(SAC_ERR_ARGUMENT, std::move(wrong));
    const saccade::sim::CostModel cost(config->hardware, config->model);
    seconds = cost.seconds({rows, samples, context_tokens, pairs});
    return 0;
  });
  return seconds;
}

}  // extern "C"
