// What a step's last kernel tells the scheduler.
#pragma once
#include "platform/atomics.hpp"
#include "platform/clock.hpp"

namespace saccade {

/// Writer: the last kernel of each step. In device memory.
struct StepLine {
  SAC_ALIGNAS(128) uint64_t done;  // number of the last step whose results are complete
  uint64_t done_ns;                // when they did, by the device's clock
};

/// What the last kernel of a step does, after all others of its graph.
SAC_HD inline void signal_step(StepLine& line, uint64_t step) {
  store_relaxed(&line.done_ns, monotonic_ns());
  // SYNC: release, with the scheduler's acquire of done. The results were written by kernels before
  // this one, whose end orders them.
  store_release(&line.done, step);
}

}  // namespace saccade
