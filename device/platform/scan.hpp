// The scan of all doorbells: the one loop whose length is the number of slots and not of requests.
// This is the host's; a device divides it among its threads (cuda/team.hpp).
#pragma once
#include "platform/atomics.hpp"

namespace saccade {

/// Four doorbells at once: the width that every processor of the host's kind has.
using DoorbellLanes = uint32_t __attribute__((vector_size(16)));

/// A doorbell of one granule differs from what was seen. Written with lanes because compilers
/// vectorise the plain loop in some callers and not in others.
#if defined(__GNUC__) && !defined(__clang__)
__attribute__((no_sanitize_thread))
#elif defined(__clang__)
__attribute__((no_sanitize("thread")))
#endif
inline bool
granule_changed(const uint32_t* doorbells, const uint32_t* seen) {
  DoorbellLanes differ = {};
  for (uint32_t i = 0; i < SAC_SLOT_GRANULE; i += 4) {
    DoorbellLanes now, before;
    __builtin_memcpy(&now, doorbells + i, sizeof(now));
    __builtin_memcpy(&before, seen + i, sizeof(before));
    differ |= now ^ before;
  }
  uint64_t halves[2];
  __builtin_memcpy(halves, &differ, sizeof(halves));
  return (halves[0] | halves[1]) != 0;
}

/// Writes to `changed` the slots whose doorbell differs from what was seen; returns how many. A
/// word that changes during the scan is found now or by the next one. The comparison reads without
/// ordering: it is a hint, every hit is read again with acquire before it is acted upon.
inline uint32_t scan_changed(const uint32_t* doorbells, const uint32_t* seen, uint32_t num_slots,
                             uint32_t* changed) {
  compiler_reload();
  uint32_t found = 0;
  // num_slots is a multiple of the granule.
  for (uint32_t first = 0; first < num_slots; first += SAC_SLOT_GRANULE) {
    if (!granule_changed(doorbells + first, seen + first)) continue;
    for (uint32_t slot = first; slot < first + SAC_SLOT_GRANULE; ++slot)
      if (load_relaxed(doorbells + slot) != seen[slot]) changed[found++] = slot;
  }
  return found;
}

}  // namespace saccade
