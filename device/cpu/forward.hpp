// The forward pass of a Llama-family decoder (Llama, Mistral, Qwen, Phi, Mixtral), as phases
// over workers.
#pragma once
#include "cpu/adapters.hpp"
#include "cpu/kv_pool.hpp"
#include "cpu/step_plan.hpp"
#include "cpu/weights.hpp"
#include "cpu/workspace.hpp"

namespace saccade {

/// Weights and rows of adapters, and where changes are computed.
struct AdapterContext {
  const AdapterWeights& weights;
  const AdapterPlan& plan;
  const AdapterSpace& space;
};

/// What a step reads and writes; all of it outlives every step.
struct ForwardContext {
  const sac_model_config& config;
  const Kernels& kernels;
  const Weights& weights;
  const KvPool& kv;
  const SeatTables& tables;
  const StepPlan& plan;
  Workspace& space;
  AdapterContext adapters;
};

/// Runs one step; called by every worker of the pool.
void run_forward(const ForwardContext& context, WorkerPool::Worker& worker);

}  // namespace saccade
