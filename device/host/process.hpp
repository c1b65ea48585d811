// This process's identity, by which others on the same machine can find and recognise it.
#pragma once
#include <cstdint>

namespace saccade {

struct ProcessId {
  uint32_t pid;
  uint64_t start_ticks;  // field 22 of /proc/self/stat; 0 if it cannot be read
};

/// The calling process. Reads one file of /proc.
ProcessId own_process();

}  // namespace saccade
