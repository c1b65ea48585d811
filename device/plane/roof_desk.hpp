// When a device plane measures its roof (cpu/roof.hpp): before it is ready, and then whenever a
// frontend has asked for it and there is nothing else to do.
#pragma once
#include "cpu/cpu_step.hpp"
#include "ring/ring_view.hpp"

namespace saccade {

class RoofDesk {
 public:
  /// Measures now. No step may be running. Allocates nothing.
  void measure(CpuStep& step, uint32_t num_threads);
  /// What was asked of an earlier life is not asked of this one.
  void join(const RingView& ring);
  /// Whether a frontend has asked since the last measurement, and that is not too recent: at most
  /// one part in kRestShare of the time goes to it, whatever frontends ask.
  bool is_asked(const RingView& ring, uint64_t now_ns) const;
  /// Measures, and tells frontends.
  void answer(const RingView& ring, CpuStep& step, uint32_t num_threads);

 private:
  static constexpr uint64_t kRestShare = 10;
  void note_asked(const RingView& ring);

  sac_device_roof roof_ = {};
  uint32_t asked_[SAC_MAX_FRONTENDS] = {};  // as last acted upon
  uint64_t rests_until_ns_ = 0;
};

}  // namespace saccade
