// Sleeping and waking across processes, on words of the ring region (shared futexes).
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace saccade {

/// Sleeps while *word == expected, at most timeout_ns; may return early. Whether the time ran out.
inline bool futex_wait(const uint32_t* word, uint32_t expected, uint64_t timeout_ns) {
  const timespec timeout = {static_cast<time_t>(timeout_ns / 1000000000u),
                            static_cast<long>(timeout_ns % 1000000000u)};
  return syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0) == -1 &&
         errno == ETIMEDOUT;
}

/// Wakes all sleepers on word; never blocks.
inline void futex_wake(const uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace saccade
