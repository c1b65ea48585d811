// A ring of stages in shared memory between one thread that has them filled by bulk copies and
// warpgroups that multiply what is in them. Each stage has two barriers: `full` (its bytes have
// arrived) and `empty` (every warp that multiplies has read it). The order is here; the barriers
// are a block's (device_block.cuh, emulated_block.hpp), or threads' (tests/ring_twin.hpp).
//
// A stage is filled in two parts, each with an arrival at `full`: the part that does not depend on
// earlier kernels (weights) fills a whole ring while those still run.
//
//   Filler: await_empty(stage, parity), fill_early(stage, step), fill(stage, step) (both begin;
//           `full` counts the bytes)
//   Reader: slice_steps, await_full(stage, parity), read(stage, step) (begins), await_other_reads()
//           (all but the newest are over), await_all_reads(), release(stage), close(step) (the
//           slice that began there: its reads are over)
#pragma once
#include "cuda/model/words.hpp"

namespace saccade::gpu {

/// The parity of the phase that a use of a stage ends; uses are counted from 0.
SAC_HD constexpr uint32_t phase_parity(uint32_t use) { return use % 2; }

/// The stage that is filled or read next.
template <uint32_t kStages>
struct StageCursor {
  uint32_t stage = 0;
  uint32_t use = 0;  // of the stage, counted from 0

  SAC_DEVICE void next() {
    if (++stage < kStages) return;
    stage = 0;
    ++use;
  }
  SAC_DEVICE uint32_t parity() const { return phase_parity(use); }
};

/// Fills the early parts of the first stages; returns how many.
template <uint32_t kStages, class Filler>
SAC_DEVICE uint32_t fill_early_stages(uint32_t steps, const Filler& filler) {
  const uint32_t early = min_u32(steps, kStages);
  for (uint32_t step = 0; step < early; ++step) filler.fill_early(step, step);
  return early;
}

/// Waits until the stage may be filled again.
template <uint32_t kStages, class Filler>
SAC_DEVICE void await_stage(const StageCursor<kStages>& at, Filler& filler) {
  if (at.use > 0) filler.await_empty(at.stage, phase_parity(at.use - 1));
}

/// Fills all that is left; the first `early` steps have their early parts.
template <uint32_t kStages, class Filler>
SAC_DEVICE void fill_stages(uint32_t steps, uint32_t early, Filler& filler) {
  StageCursor<kStages> at;
  for (uint32_t step = 0; step < steps; ++step, at.next()) {
    await_stage(at, filler);
    if (step >= early) filler.fill_early(at.stage, step);
    filler.fill(at.stage, step);
  }
}

// The same by two threads, where one could not request as fast as memory answers.
template <uint32_t kStages, class Filler>
SAC_DEVICE void fill_early_parts(uint32_t steps, uint32_t early, Filler& filler) {
  StageCursor<kStages> at;
  for (uint32_t step = 0; step < steps; ++step, at.next()) {
    if (step < early) continue;
    await_stage(at, filler);
    filler.fill_early(at.stage, step);
  }
}
template <uint32_t kStages, class Filler>
SAC_DEVICE void fill_late_parts(uint32_t steps, Filler& filler) {
  StageCursor<kStages> at;
  for (uint32_t step = 0; step < steps; ++step, at.next()) {
    await_stage(at, filler);
    filler.fill(at.stage, step);
  }
}

/// Within a slice, reads overlap by one step: a stage is released when the next step has begun and
/// its own reads are over, the slice's last one when all reads are over.
template <uint32_t kStages, class Reader>
SAC_DEVICE void read_stages(uint32_t steps, Reader& reader) {
  for (uint32_t step = 0; step < steps;) {
    const uint32_t first = step, end = min_u32(first + reader.slice_steps, steps);
    for (; step < end; ++step) {
      reader.await_full(step % kStages, phase_parity(step / kStages));
      reader.read(step % kStages, step);
      reader.await_other_reads();
      if (step > first) reader.release((step - 1) % kStages);
    }
    reader.await_all_reads();
    reader.release((end - 1) % kStages);
    reader.close(first);
  }
}

}  // namespace saccade::gpu
