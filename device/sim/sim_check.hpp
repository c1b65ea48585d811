// Bounds of a simulated device and of what is run on it.
#pragma once
#include <string>

#include "sim/saccade_sim.h"

namespace saccade::sim {

/// Empty, or a sentence that names the field and the bound.
std::string check_sim_config(const sac_sim_config& c);

/// As above.
std::string check_sim_ring(const sac_sim_ring& ring);

/// As above; max_model_len: of the device that the requests are for.
std::string check_load(const sac_sim_load& load, uint32_t max_model_len);

}  // namespace saccade::sim
