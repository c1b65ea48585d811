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
    words[used++] = (tick << 8) | static_cast<uint64_t>(kind);
    words[used++] = (static_cast<uint64_t>(slot) << 32) | detail;
  }
};

}  // namespace saccade
