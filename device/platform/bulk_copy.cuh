// Bulk copies between global and shared memory, under names that say what they do. GPUs before
// sm_90 have none: there kHasBulkCopy is false and nothing here may be called.
#pragma once
#include <cstdint>

namespace saccade {

__device__ inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900

inline constexpr bool kHasBulkCopy = false;
__device__ inline void bulk_barrier_init(uint64_t*, uint32_t = 1) {}
__device__ inline void bulk_barrier_arrive(uint64_t*) {}
__device__ inline void bulk_barrier_expect(uint64_t*, uint32_t) {}
__device__ inline bool bulk_barrier_passed(uint64_t*, uint32_t) { return true; }
__device__ inline void bulk_load(void*, const void*, uint32_t, uint64_t*) {}
__device__ inline void bulk_store(void*, const void*, uint32_t) {}
template <int kPending>
__device__ void bulk_await_read() {}
__device__ inline void bulk_await_stores() {}
__device__ inline void bulk_fence() {}
__device__ inline void bulk_shared_fence() {}

#else

inline constexpr bool kHasBulkCopy = true;

/// `arrivals` a phase: by default one, of the thread that expects the bytes.
__device__ inline void bulk_barrier_init(uint64_t* barrier, uint32_t arrivals = 1) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
/// SYNC: release, with bulk_barrier_passed() in the threads that wait for the phase.
__device__ inline void bulk_barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ inline void bulk_barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
/// The phase of this parity is over: its bytes are in shared memory.
__device__ inline bool bulk_barrier_passed(uint64_t* barrier, uint32_t parity) {
  uint32_t passed;
  asm volatile(
      "{\n .reg .pred p;\n"
      " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      " selp.u32 %0, 1, 0, p;\n}"
      : "=r"(passed)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return passed != 0;
}
/// Starts a load; the barrier counts the bytes. Addresses and size are multiples of 16.
__device__ inline void bulk_load(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
/// Starts a store, as a group of its own.
__device__ inline void bulk_store(void* to, const void* from, uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
      "cp.async.bulk.commit_group;" ::"l"(__cvta_generic_to_global(to)),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}
/// Waits until all of this thread's stores but the last kPending have read their shared memory.
template <int kPending>
__device__ void bulk_await_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
/// Waits until all of this thread's stores are complete.
__device__ inline void bulk_await_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
/// Orders this thread's ordinary accesses against its bulk copies, both ways.
__device__ inline void bulk_fence() { asm volatile("fence.proxy.async;" ::: "memory"); }
/// The same for shared memory only.
__device__ inline void bulk_shared_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif

}  // namespace saccade
