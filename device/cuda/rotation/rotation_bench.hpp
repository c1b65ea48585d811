// Bandwidth of the rotation on a GPU against what the copy engines reach when the host asks them,
// in one piece (the peak of the link) and by blocks.
#pragma once
#include <string>

namespace saccade {

/// JSON: an array of {"way", "blocks_down", "blocks_up", "down_gb_s", "up_gb_s", "both_gb_s"}, one
/// for each way to copy and pair of numbers of thread blocks; "both" counts both directions
/// together.
std::string rotation_bench_json();

}  // namespace saccade
