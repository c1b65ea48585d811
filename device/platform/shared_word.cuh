// Words of a block's shared memory that its threads watch. The names of atomics.hpp take any
// address; on these words that would cost each look the way of a general load.
#pragma once
#include "platform/bulk_copy.cuh"

namespace saccade {

__device__ inline uint32_t load_acquire_shared(const uint32_t* at) {
  uint32_t word;
  asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
               : "=r"(word)
               : "r"(shared_address(at))
               : "memory");
  return word;
}
__device__ inline uint32_t load_relaxed_shared(const uint32_t* at) {
  uint32_t word;
  asm volatile("ld.relaxed.cta.shared.u32 %0, [%1];"
               : "=r"(word)
               : "r"(shared_address(at))
               : "memory");
  return word;
}
__device__ inline void store_relaxed_shared(uint32_t* at, uint32_t word) {
  asm volatile("st.relaxed.cta.shared.u32 [%0], %1;" ::"r"(shared_address(at)), "r"(word)
               : "memory");
}
__device__ inline void add_release_shared(uint32_t* at, uint32_t more) {
  asm volatile("red.release.cta.shared.add.u32 [%0], %1;" ::"r"(shared_address(at)), "r"(more)
               : "memory");
}

}  // namespace saccade
