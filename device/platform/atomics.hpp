// Every access to memory that another plane may touch goes through these names, which say what they
// order. Scope is the system: the other side may be a NIC, another processor, or another process.
#pragma once
#include "platform/hd.hpp"

#if defined(__CUDACC__)
#include <cuda/atomic>
#endif

namespace saccade {

#if defined(__CUDACC__)

template <class T>
SAC_HD inline T load_acquire(const T* at) {
  return cuda::atomic_ref<T, cuda::thread_scope_system>(*const_cast<T*>(at))
      .load(cuda::memory_order_acquire);
}
template <class T>
SAC_HD inline T load_relaxed(const T* at) {
  return cuda::atomic_ref<T, cuda::thread_scope_system>(*const_cast<T*>(at))
      .load(cuda::memory_order_relaxed);
}
template <class T>
SAC_HD inline void store_release(T* at, T value) {
  cuda::atomic_ref<T, cuda::thread_scope_system>(*at).store(value, cuda::memory_order_release);
}
template <class T>
SAC_HD inline void store_relaxed(T* at, T value) {
  cuda::atomic_ref<T, cuda::thread_scope_system>(*at).store(value, cuda::memory_order_relaxed);
}
/// Orders every access before it against every access after it, for all observers.
SAC_HD inline void fence_seq_cst() {
  cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_system);
}
/// With a relaxed load before it: that load acquires.
SAC_HD inline void fence_acquire() {
  cuda::atomic_thread_fence(cuda::memory_order_acquire, cuda::thread_scope_system);
}
/// With a relaxed store after it: that store releases.
SAC_HD inline void fence_release() {
  cuda::atomic_thread_fence(cuda::memory_order_release, cuda::thread_scope_system);
}
/// Makes the compiler read memory again; orders nothing else.
SAC_HD inline void compiler_reload() { asm volatile("" ::: "memory"); }
/// Raises a word that several threads of one block raise.
SAC_HD inline void raise_to(uint32_t* at, uint32_t value) {
  cuda::atomic_ref<uint32_t, cuda::thread_scope_block>(*at).fetch_max(value,
                                                                      cuda::memory_order_relaxed);
}

#else

/// What one thread has done under these names; kept where SACCADE_COUNT_ACCESSES is defined. On a
/// GPU a load is a trip across the bus, a fence or a release is one too, and a store is neither.
struct AccessCounts {
  uint64_t loads;   // relaxed only: a wait makes any number of loads that acquire
  uint64_t fences;  // of any kind, and stores that release
};
#if defined(SACCADE_COUNT_ACCESSES)
inline thread_local AccessCounts access_counts = {};
inline void count_load() { ++access_counts.loads; }
inline void count_fence() { ++access_counts.fences; }
#else
inline void count_load() {}
inline void count_fence() {}
#endif

template <class T>
inline T load_acquire(const T* at) {
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
template <class T>
inline T load_relaxed(const T* at) {
  count_load();
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}
template <class T>
inline void store_release(T* at, T value) {
  count_fence();
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
template <class T>
inline void store_relaxed(T* at, T value) {
  __atomic_store_n(at, value, __ATOMIC_RELAXED);
}
inline void fence_seq_cst() {
  count_fence();
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void fence_acquire() {
  count_fence();
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
}
inline void fence_release() {
  count_fence();
  __atomic_thread_fence(__ATOMIC_RELEASE);
}
inline void compiler_reload() { asm volatile("" ::: "memory"); }
inline void raise_to(uint32_t* at, uint32_t value) {
  uint32_t now = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (now < value &&
         !__atomic_compare_exchange_n(at, &now, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

#endif

}  // namespace saccade
