// What the scheduler decided, in order: for tests that hold two modes or two devices equal, and for
// replay. Two words per entry: (tick << 8 | kind), (slot << 32 | detail).
#pragma once
#include "platform/hd.hpp"

namespace saccade {

enum class Decision : uint8_t {
  kAdmit = 1,      // detail: blocks reserved
  kResume = 2,     // detail: tokens to compute again
  kPreempt = 3,    // detail: blocks taken
  kRun = 4,        // detail: rows in this step
  kStall = 5,      // detail: records its reader has not taken
  kFinish = 6,     // detail: finish reason
  kRetire = 7,     // detail: blocks freed
  kRotateOut = 8,  // detail: blocks sent to host memory for it; kPreempt follows if some were lost
  kRotateIn = 9,   // detail: blocks fetched from host memory
  kCached = 10,    // detail: prompt tokens that were cached when it was admitted
  kLookup = 11,    // detail: prompt tokens that a store was asked for
  kLoad = 12,      // detail: tokens whose KV is to come from a store
  kLoaded = 13,    // detail: tokens whose KV came
  kPark = 14,      // gave up its seat; detail: blocks freed
  kReturn = 15,    // took one again; detail: tokens to compute again, but for what is cached
};

/// Stops when full; `dropped` then counts what is missing, so that a comparison cannot pass by it.
struct DecisionLog {
  uint64_t* words;
  uint64_t capacity;
  uint64_t used;
  uint64_t dropped;

  SAC_HD void reset(uint64_t words_available) {
    capacity = words_available;
    used = dropped = 0;
  }
  SAC_HD void add(uint64_t tick, Decision kind, uint32_t slot, uint32_t detail) {
    if (capacity == 0) return;
    if (used + 2 > capacity) {
      ++dropped;
      return;
    }
    put(0, tick, kind, slot, detail);
    keep(1);
  }
  /// There is room for this many entries, or no log is kept.
  SAC_HD bool has_room(uint64_t entries) const {
    return capacity == 0 || used + 2 * entries <= capacity;
  }
  /// Writes the n-th of several entries for which there is room, in any order; `keep` then adds
  /// all.
  SAC_HD void put(uint64_t n, uint64_t tick, Decision kind, uint32_t slot, uint32_t detail) const {
    if (capacity == 0) return;
    words[used + 2 * n] = (tick << 8) | static_cast<uint64_t>(kind);
    words[used + 2 * n + 1] = (static_cast<uint64_t>(slot) << 32) | detail;
  }
  SAC_HD void keep(uint64_t entries) { used += capacity == 0 ? 0 : 2 * entries; }
};

}  // namespace saccade
