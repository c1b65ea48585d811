// Is a prefix in host memory faster to fetch than to compute? Answered from what copies and steps
// took of late. What was never measured is taken to be free: the first prefix is fetched.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

/// Time per unit over recent units: each new measurement takes an eighth of the weight.
struct Pace {
  uint64_t ns;
  uint64_t units;  // scaled, so that few units fade smoothly

  static constexpr uint64_t kScale = 256;

  SAC_HD void note(uint64_t took_ns, uint64_t done) {
    ns += took_ns - ns / 8;
    units += done * kScale - units / 8;
  }
  /// 0 if nothing was measured.
  SAC_HD uint64_t cost_ns(uint64_t count) const {
    return units == 0 ? 0 : ns / units * count * kScale + ns % units * count * kScale / units;
  }
};

/// A tick sees copies at its start only. From this many ticks on, the time between two looks tells
/// what copies took even if none is left; below, only a queue that is not empty does.
inline constexpr uint32_t kLongCopyTicks = 8;

struct BreakEven {
  Pace copies;  // blocks up
  Pace rows;    // of steps with prompt rows
  uint64_t waited_ns;
  uint32_t waited_ticks;

  /// Copies up were in flight for `took_ns`, since the last tick; `done` of them were counted in
  /// this one. `more`: some are left.
  SAC_HD void note_copies(uint64_t took_ns, uint64_t done, bool more) {
    waited_ns += took_ns;
    ++waited_ticks;
    if (done == 0) return;
    if (more || waited_ticks >= kLongCopyTicks) copies.note(waited_ns, done);
    waited_ns = waited_ticks = 0;
  }
  /// A step with prompt rows took `took_ns`. The price of copies falls a little, so that a link
  /// that was slow once is tried again.
  SAC_HD void note_prompt_step(uint64_t took_ns, uint32_t num_rows) {
    rows.note(took_ns, num_rows);
    copies.ns -= copies.ns / 256;
  }

  /// `blocks` are asked for behind `queued` others, in place of computing `tokens`.
  SAC_HD bool fetching_pays(uint32_t queued, uint32_t blocks, uint32_t tokens) const {
    return rows.units == 0 || copies.cost_ns(uint64_t{queued} + blocks) <= rows.cost_ns(tokens);
  }
};

}  // namespace saccade
