// A host on the path of each step: its own work, and the times when another process has its core.
#pragma once
#include <cmath>

#include "sim/saccade_sim.h"

namespace saccade::sim {

class HostModel {
 public:
  HostModel() = default;
  HostModel(const sac_sim_host& host, uint64_t seed) : host_(host), state_(seed) {}

  /// Nanoseconds between one step's results and the next launch.
  uint64_t delay_ns(uint32_t num_seqs) {
    if (host_.drives == 0) return 0;
    double seconds = host_.step_s + host_.seq_s * num_seqs;
    if (host_.stall_odds > 0 && uniform() < host_.stall_odds)
      seconds += -std::log1p(-uniform()) * host_.stall_s;
    return static_cast<uint64_t>(seconds * 1e9);
  }

 private:
  /// In [0, 1), by splitmix64.
  double uniform() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }

  sac_sim_host host_ = {};
  uint64_t state_ = 0;
};

}  // namespace saccade::sim
