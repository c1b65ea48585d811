// Words that let one header compile for the host and for a CUDA device. Only this folder may test
// the compiler.
#pragma once
#include <cstddef>
#include <cstdint>

#include "abi/wire.h"

// A function that becomes part of its caller. Out of line it would begin by saving registers that
// belong to its caller, which the assembler counts as spills.
//
// A large function that the common tick does not call is apart: else each caller has a copy amid
// the instructions of that tick, of which a GPU's caches hold few. It calls none that is apart, and
// its callers are part of the kernel: else registers are saved there as well.
#if defined(__CUDACC__)
#define SAC_HD_INLINE SAC_HD __forceinline__
#define SAC_HD_APART SAC_HD inline __noinline__
#else
#define SAC_HD_INLINE SAC_HD inline
#define SAC_HD_APART SAC_HD inline
#endif

namespace saccade {

/// n / d rounded up; d > 0.
SAC_HD constexpr uint32_t ceil_div(uint32_t n, uint32_t d) { return (n + d - 1) / d; }
SAC_HD constexpr uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
SAC_HD constexpr uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }
SAC_HD constexpr uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
SAC_HD constexpr uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/// Prefetches the line at `at`, which is about to be read or written; any address is allowed.
SAC_HD inline void fetch_line(const void* at) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.L1 [%0];" ::"l"(at));
#else
  __builtin_prefetch(at);
#endif
}

}  // namespace saccade
