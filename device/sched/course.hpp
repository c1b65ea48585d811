// The course of things: ticks, steps and when they were. Nothing here reads a clock; a tick hands
// in what it read.
#pragma once
#include "kv/break_even.hpp"

namespace saccade {

/// What a step of decodes takes by its rows: a line through the latest steps, each of which counts
/// for a sixteenth. Rows are scaled, so that small changes of their mean are not lost.
struct DecodeLine {
  int64_t rows;  // means
  int64_t ns;
  int64_t rows_rows;  // of the products of two deviations
  int64_t rows_ns;

  static constexpr int64_t kScale = 256;
  static constexpr int64_t kParts = 16;
  /// A row costs between this part of its even share of a step and all of it, whatever noise says.
  static constexpr int64_t kLeastPart = 32;

  SAC_HD void note(uint64_t took_ns, uint64_t num_rows) {
    const int64_t x = static_cast<int64_t>(num_rows) * kScale;
    const auto y = static_cast<int64_t>(took_ns);
    if (rows == 0) {
      rows = x;
      ns = y;
      return;
    }
    const int64_t dx = x - rows, dy = y - ns;
    rows += dx / kParts;
    ns += dy / kParts;
    if (dx * dx < kScale * kScale) return;  // which says nothing of the slope
    rows_rows += (dx * dx - rows_rows) / kParts;
    rows_ns += (dx * dy - rows_ns) / kParts;
  }
  SAC_HD bool known() const { return rows != 0; }
  /// What a row more adds; at least 1.
  SAC_HD uint64_t row_ns() const {
    const int64_t even = ns * kScale / rows;
    const int64_t told = rows_rows != 0 ? rows_ns * kScale / rows_rows : even;
    const int64_t least = even / kLeastPart > 0 ? even / kLeastPart : 1;
    return static_cast<uint64_t>(told < least ? least : told > even && even > 0 ? even : told);
  }
  /// What a step of so few takes; at least what its rows cost.
  SAC_HD uint64_t step_ns(uint32_t num_rows) const {
    const auto row = static_cast<int64_t>(row_ns());
    const int64_t away = static_cast<int64_t>(num_rows) * kScale - rows;
    const int64_t by_line = ns + away * row / kScale, by_rows = row * num_rows;
    return static_cast<uint64_t>(by_line > by_rows ? by_line : by_rows);
  }
};

/// What steps took of late.
struct StepCost {
  Pace decodes;     // steps that held decodes alone
  DecodeLine line;  // the same, by their rows
  Pace prompts;     // rows of prompts: what they added to a step
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
