// The null step with a duration: stands in for a device whose steps take that long.
#pragma once
#include <ctime>

#include "host/host_env.hpp"
#include "step/null_step.hpp"

namespace saccade {

struct TimedNullStep {
  NullStep null;
  uint64_t step_ns = 0;
  uint64_t launched_ns = 0;

  void launch(const StepBatch& batch) {
    launched_ns = step_ns == 0 ? 0 : monotonic_ns();
    null.launch(batch);
  }
  uint64_t done_ns() const { return step_ns == 0 ? 0 : launched_ns + step_ns; }
  void wait() const {
    if (step_ns == 0) return;
    const uint64_t end_ns = done_ns();
    const timespec until = {static_cast<time_t>(end_ns / 1000000000u),
                            static_cast<long>(end_ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  }
};

}  // namespace saccade
