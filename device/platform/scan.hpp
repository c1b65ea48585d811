// The scan of all doorbells: the one loop whose length is the number of slots and not of requests.
// This is the host's; a device divides it among its threads (team_scan.hpp).
#pragma once
#include "platform/atomics.hpp"

namespace saccade {

/// Writes to `changed` the slots whose doorbell differs from what was seen; returns how many. A
/// word that changes meanwhile is found now or by the next scan. The comparison reads without
/// ordering: it is a hint, every hit is read again with acquire before it is acted upon.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((no_sanitize_thread))
#elif defined(__clang__)
__attribute__((no_sanitize("thread")))
#endif
inline uint32_t
scan_changed(const uint32_t* doorbells, const uint32_t* seen, uint32_t num_slots,
             uint32_t* changed) {
  compiler_reload();
  uint32_t found = 0;
  constexpr uint32_t kGroup = SAC_SLOT_GRANULE;  // num_slots is a multiple
  for (uint32_t first = 0; first < num_slots; first += kGroup) {
    uint32_t differ = 0;
    for (uint32_t i = 0; i < kGroup; ++i) differ |= doorbells[first + i] ^ seen[first + i];
    if (differ == 0) continue;
    for (uint32_t slot = first; slot < first + kGroup; ++slot)
      if (load_relaxed(doorbells + slot) != seen[slot]) changed[found++] = slot;
  }
  return found;
}

}  // namespace saccade
