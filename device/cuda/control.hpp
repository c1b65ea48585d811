// What the host and the persistent kernel tell each other outside the ring: in pinned memory, one
// writer per line, read and written by plain loads and stores only (not every bus supports
// read-modify-writes).
#pragma once
#include "platform/atomics.hpp"
#include "platform/wait_site.hpp"

namespace saccade {

inline constexpr uint64_t kStop = UINT64_MAX;      // leave after the running tick
inline constexpr uint64_t kRunFreely = kStop - 1;  // any number of ticks
inline constexpr uint32_t kLifeUnborn = 0, kLifeRuns = 1, kLifeLeft = 2;

/// Writer: host.
struct HostLine {
  SAC_ALIGNAS(128) uint64_t permit;  // ticks that may be done in total, kRunFreely, or kStop
};
/// Writer: device.
struct LifeLine {
  SAC_ALIGNAS(128) uint64_t ticks_done;
  uint64_t heartbeat;  // moves with every tick and while waiting for a permit
  uint32_t phase;      // kLife*
};
struct Control {
  HostLine host;
  LifeLine life;
  CrashRecord crash;
};
static_assert(sizeof(Control) == 3 * SAC_LINE_BYTES);

}  // namespace saccade
