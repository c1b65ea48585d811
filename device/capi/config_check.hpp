// Bounds of what a device plane is created with.
#pragma once
#include <string>

#include "capi/saccade_device.h"
#include "sched/state.hpp"

namespace saccade {

/// Empty, or a sentence that names the field and the bound.
std::string check_device_config(const sac_device_config& c, uint32_t vocab_size);
std::string check_model_config(const sac_model_config& m);

/// The scheduler's limits of a checked configuration; the ring's part is set when it is attached.
Limits limits_of(const sac_device_config& c, uint32_t vocab_size);

}  // namespace saccade
