// What a step costs on a named accelerator: a roofline per part of the model.
//
//   products   max(weights read, FLOPs of all rows), experts by the number that the rows touch
//   attention  max(KV read and written, FLOPs of all pairs of row and position)
//   overhead   per step, and per layer
//
// Parts follow each other and do not overlap. A product is bound by memory or by arithmetic, with
// nothing in between. docs/plan.md says how far this is from measured servers.
#pragma once
#include <algorithm>
#include <cmath>

#include "sim/saccade_sim.h"
#include "step/step.hpp"

namespace saccade::sim {

inline constexpr double kNsPerS = 1e9;

/// What a batch asks of the model.
struct StepLoad {
  double rows = 0;
  double samples = 0;
  double context_tokens = 0;  // positions read by each sequence, summed
  double pairs = 0;           // of a row and a position that it looks at
};

inline StepLoad load_of(const StepBatch& batch) {
  StepLoad load;
  load.rows = batch.num_rows;
  load.samples = batch.num_samples;
  for (uint32_t i = 0; i < batch.num_seqs; ++i) {
    const StepSeq& q = batch.seqs[i];
    const double rows = q.num_rows;
    load.context_tokens += q.first_position + rows;
    load.pairs += rows * (q.first_position + (rows + 1) / 2);
  }
  return load;
}

class CostModel {
 public:
  CostModel() = default;
  CostModel(const sac_sim_hardware& hardware, const sac_sim_model& model)
      : h_(hardware), m_(model) {}

  double seconds(const StepLoad& load) const {
    return products_s(load) + attention_s(load) + overhead_s();
  }
  uint64_t ns(const StepBatch& batch) const {
    return static_cast<uint64_t>(seconds(load_of(batch)) * kNsPerS);
  }
  /// Bytes per second that kernels reach.
  double memory_rate() const { return h_.hbm_bytes_per_s * h_.hbm_efficiency; }

 private:
  double products_s(const StepLoad& load) const {
    double bytes = m_.dense_weight_bytes;
    if (m_.num_experts != 0) bytes += m_.expert_weight_bytes * experts_share(load.rows);
    if (load.samples > 0) bytes += m_.head_weight_bytes;
    const double flops = load.rows * m_.row_flops + load.samples * m_.head_flops;
    return std::max(bytes / memory_rate(), flops / (h_.flops_per_s * h_.flops_efficiency));
  }
  double attention_s(const StepLoad& load) const {
    const double bytes = (load.context_tokens + load.rows) * m_.kv_token_bytes;
    const double flops = load.pairs * m_.attention_pair_flops;
    return std::max(bytes / memory_rate(), flops / (h_.flops_per_s * h_.attention_efficiency));
  }
  double overhead_s() const { return h_.step_overhead_s + m_.num_layers * h_.layer_overhead_s; }
  /// Share of the experts that `rows` touch if the router spreads them evenly.
  double experts_share(double rows) const {
    const double missed = 1.0 - static_cast<double>(m_.experts_per_token) / m_.num_experts;
    return 1.0 - std::pow(missed, rows);
  }

  sac_sim_hardware h_ = {};
  sac_sim_model m_ = {};
};

}  // namespace saccade::sim
