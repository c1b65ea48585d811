// What single accesses cost one thread of the GPU: the figures that the scheduler's tick is made
// of.
#pragma once
#include <string>

namespace saccade {

/// Nanoseconds of each kind of access, mean of many that wait for one another, as a JSON object.
std::string access_ns_json();

}  // namespace saccade
