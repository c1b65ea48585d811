// Reading without arithmetic: what memory alone takes.
#pragma once
#include <cstddef>
#include <cstdint>

#include "cpu/target.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// A cache line; the compiler makes it one vector or several.
using Line = uint64_t __attribute__((vector_size(64), may_alias));
/// Bytes are read in multiples of this many lines. Several sums, so that none waits for another.
inline constexpr size_t kReadLines = 8;

inline void read(const void* data, size_t bytes) {
  const auto* lines = static_cast<const Line*>(data);
  Line sums[kReadLines] = {};
  const size_t count = bytes / sizeof(Line);
  for (size_t i = 0; i + kReadLines <= count; i += kReadLines) {
    for (size_t j = 0; j < kReadLines; ++j) sums[j] ^= lines[i + j];
  }
  uint64_t all = 0;
  for (const Line& sum : sums) all ^= sum[0];
  asm volatile("" : : "r"(all));  // as if it were used
}

}  // namespace SAC_ISA
}  // namespace saccade
