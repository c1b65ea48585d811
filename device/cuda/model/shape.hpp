// What the code that runs steps tells the model on a GPU: sizes that hold for life, where the tick
// leaves a step, and the shapes that steps are captured for. No CUDA in here.
#pragma once
#include <string>

#include "capi/saccade_device.h"
#include "step/step.hpp"

namespace saccade {

/// Sizes that hold for life.
struct ModelLimits {
  uint32_t max_num_seqs;
  uint32_t max_num_batched_tokens;  // rows of a step
  uint32_t max_model_len;           // tokens
  uint32_t block_size;              // tokens of a KV block: 8, 16, 32, 64 or 128
  uint32_t num_blocks;              // KV blocks in device memory
  uint32_t num_adapters = 0;        // that there is room for
  uint32_t max_adapter_rank = 0;    // of each pair
};

/// Which instructions compute the products with weights. Their sums may differ in the last bits, so
/// all steps of one life use the same.
enum class ProductWay : uint32_t {
  kMma = 0,    // mma.sync: every GPU
  kWgmma = 1,  // wgmma fed by bulk copies, and what has its bits: compute capability 9.0 alone
};

/// Where the tick leaves a step for the device, and where the step leaves its records. All of it is
/// device memory that stays where it is for life: addresses are captured into graphs. The step's
/// first kernel reads `batch` and what it points to; nothing else of a step comes from the host.
struct StepTables {
  SeatTables seats;
  const StepBatch* batch;  // one; its seqs too are device memory
  StepOutputs outputs;
};

/// What one captured graph serves: every batch of up to `rows` rows and `seqs` sequences. Without
/// has_prefill, only batches in which every sequence has one row and none asks for prompt records;
/// without has_adapters, only batches in which no sequence has an adapter. A smaller step through a
/// larger graph gives the same bits.
struct GraphShape {
  uint32_t rows;
  uint32_t seqs;
  bool has_prefill;
  bool has_adapters = false;
};

/// Bytes of device memory.
struct MemoryNeed {
  size_t weights;
  size_t kv;
  size_t workspace;  // activations, partial sums, logits: one set, shared by all shapes
  size_t total() const { return weights + kv + workspace; }
};

/// Empty, or why a GPU cannot run a model that check_model_config accepts: the field and its bound.
std::string check_gpu_model(const sac_model_config& config, const ModelLimits& limits);
MemoryNeed gpu_memory_need(const sac_model_config& config, const ModelLimits& limits);

}  // namespace saccade
