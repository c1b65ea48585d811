// Where everything of a model is in device memory, and how tensors get there.
#pragma once
#include "cpu/tensor_roles.hpp"
#include "cuda/model/view.hpp"

namespace saccade::gpu {

/// Three pieces of memory, or null to measure; zeroed before the first step.
struct ModelMemory {
  void* weights;
  void* kv;
  void* workspace;
};

/// Hands out the memory. The configuration's arrays must outlive the view.
ModelView lay_out_model(const sac_model_config& config, const ModelLimits& limits,
                        const StepTables& tables, const ModelMemory& memory, MemoryNeed& need);

/// Where a matrix of a checkpoint goes: row r to row first + r of the view's, or, of a gated pair,
/// to gated_row(r, which).
struct MatrixPlace {
  MatrixView matrix;
  uint32_t first;
  bool gated;
  uint32_t which;
};
MatrixPlace place_of(const ModelView& model, const TensorPlace& at);
/// Where what adapters add to a matrix of a layer goes.
const AdaptedView& adapted_of(const LayerView& layer, uint32_t role);
/// Where a vector goes.
float* vector_of(const ModelView& model, const TensorPlace& at);

}  // namespace saccade::gpu
