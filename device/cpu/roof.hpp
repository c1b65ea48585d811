// What this process's memory and arithmetic allow its steps: the packed weights read by the step's
// own workers, without a product; and products whose operands lie in the workers' caches.
//
// A step needs at least the larger of two times: its bytes at the first rate, and its operations at
// the second. Both are of this process and this moment: on virtual machines they move within
// seconds.
#pragma once
#include "cpu/weights.hpp"
#include "cpu/workspace.hpp"

namespace saccade {

struct Roof {
  /// Rows of a product are the powers of two up to kTileRows.
  static constexpr uint32_t kNumRows = SAC_ROOF_ROWS;

  uint64_t step_weight_bytes;  // of all matrices that a step of one row reads
  uint64_t
      row_flop;  // multiplications and additions with them, of a row with logits that is sampled
  double read_bytes_per_s;              // the fastest of several passes
  double product_flop_per_s[kNumRows];  // by the logarithm of the rows; 0: a step never has them
};
static_assert(kTileRows == 1u << (Roof::kNumRows - 1));

/// What to measure; all of it outlives the measurement.
struct RoofContext {
  const sac_model_config& config;
  const Kernels& kernels;
  const Weights& weights;
  Workspace& space;
  uint32_t max_rows;  // of a step
};

/// Bytes per second of the fastest of `passes` over the weights, of at most 2 GiB each.
double measure_reading(const RoofContext& context, WorkerPool& pool, uint32_t passes);

/// No step may be running, here and above, and all weights must be there. Takes some tens of
/// milliseconds, or three readings of the weights where that is more. Allocates nothing.
Roof measure_roof(const RoofContext& context, WorkerPool& pool);

}  // namespace saccade
