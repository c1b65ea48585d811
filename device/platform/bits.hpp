// Bit operations that compilers spell differently.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

/// Index of the lowest bit that is set; x != 0.
SAC_HD inline uint32_t lowest_bit(uint32_t x) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__ffs(static_cast<int>(x))) - 1;
#else
  return static_cast<uint32_t>(__builtin_ctz(x));
#endif
}

/// Bits that are set.
SAC_HD inline uint32_t popcount(uint32_t x) {
#if defined(__CUDA_ARCH__)
  return static_cast<uint32_t>(__popc(x));
#else
  return static_cast<uint32_t>(__builtin_popcount(x));
#endif
}

}  // namespace saccade
