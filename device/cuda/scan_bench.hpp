// How long the team's scan takes on a GPU, apart from everything else.
#pragma once
#include <cstdint>
#include <vector>

namespace saccade {

/// Mean time of a scan of `num_slots` quiet doorbells in pinned memory, per sample.
/// Returns num_samples times in nanoseconds.
std::vector<double> time_scans(uint32_t num_slots, uint32_t num_samples, uint32_t scans_per_sample);

}  // namespace saccade
