// The course of things: ticks, steps and when they were. Nothing here reads a clock; a tick hands
// in what it read.
#pragma once
#include "kv/break_even.hpp"

namespace saccade {

/// What steps took of late.
struct StepCost {
  Pace decodes;  // steps that held decodes alone
  Pace prompts;  // rows of prompts: what they added to a step
};

struct Course {
  uint64_t tick;
  uint64_t tick_ns;       // when this tick began
  uint64_t step;          // number of the last launch
  uint64_t launch_ns;     // when it was launched
  uint64_t step_done_ns;  // when the results of the last committed launch stood
  uint64_t mean_step_ns;  // of recent ticks with a step, from their beginning to its results
  bool steady;            // this tick was decided by steady.hpp
  StepCost cost;

  SAC_HD void note_results(uint64_t done_ns) {
    const uint64_t took_ns = done_ns > tick_ns ? done_ns - tick_ns : 0;
    mean_step_ns = mean_step_ns == 0 ? took_ns : (7 * mean_step_ns + took_ns) / 8;
    step_done_ns = done_ns;
  }
};

}  // namespace saccade
