#include "plane/roof_desk.hpp"

#include <algorithm>
#include <cstring>

#include "host/huge_pages.hpp"
#include "platform/clock.hpp"
#include "ring/introduction.hpp"

namespace saccade {

void RoofDesk::measure(CpuStep& step, uint32_t num_threads) {
  const uint64_t start_ns = monotonic_ns();
  const Roof measured = step.measure_roof();
  const PackedWeights packed = step.packed_weights();
  sac_device_roof told = {};
  told.generation = roof_.generation + 1;
  told.num_threads = num_threads;
  const char* const name = step.kernels_name();
  std::memcpy(told.kernels, name, std::min(std::strlen(name), sizeof(told.kernels)));
  told.packed_bytes = packed.bytes;
  told.huge_page_bytes = huge_page_bytes(packed.data, packed.bytes);
  told.step_weight_bytes = measured.step_weight_bytes;
  told.row_flop = measured.row_flop;
  told.read_bytes_per_s = static_cast<uint64_t>(measured.read_bytes_per_s);
  for (uint32_t i = 0; i < SAC_ROOF_ROWS; ++i) {
    const double mflop = measured.product_flop_per_s[i] * 1e-6;
    told.product_mflop_per_s[i] = static_cast<uint32_t>(std::min(mflop, double{UINT32_MAX}));
  }
  roof_ = told;
  const uint64_t end_ns = monotonic_ns();
  rests_until_ns_ = end_ns + kRestShare * (end_ns - start_ns);
}

void RoofDesk::note_asked(const RingView& ring) {
  for (uint32_t f = 0; f < ring.num_frontends; ++f) {
    asked_[f] = load_relaxed(&ring.frontends[f].roofs_asked);
  }
}

void RoofDesk::join(const RingView& ring) {
  note_asked(ring);
  publish_roof(roof_, ring.roof);
}

bool RoofDesk::is_asked(const RingView& ring, uint64_t now_ns) const {
  if (now_ns < rests_until_ns_) return false;
  for (uint32_t f = 0; f < ring.num_frontends; ++f) {
    if (load_relaxed(&ring.frontends[f].roofs_asked) != asked_[f]) return true;
  }
  return false;
}

void RoofDesk::answer(const RingView& ring, CpuStep& step, uint32_t num_threads) {
  note_asked(ring);  // before it measures: what is asked meanwhile is asked again
  measure(step, num_threads);
  publish_roof(roof_, ring.roof);
}

}  // namespace saccade
