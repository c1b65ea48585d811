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
/// Makes the compiler read memory again; orders nothing else.
SAC_HD inline void compiler_reload() { asm volatile("" ::: "memory"); }

#else

template <class T>
inline T load_acquire(const T* at) {
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
template <class T>
inline T load_relaxed(const T* at) {
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}
template <class T>
inline void store_release(T* at, T value) {
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
}
template <class T>
inline void store_relaxed(T* at, T value) {
  __atomic_store_n(at, value, __ATOMIC_RELAXED);
}
inline void fence_seq_cst() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void compiler_reload() { asm volatile("" ::: "memory"); }

#endif

/// Copies `count` 32-bit words that the other side may be writing: each word is untorn, the whole
/// is checked by the caller after the copy (what was checked is what is used).
SAC_HD inline void copy_words(uint32_t* to, const uint32_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = load_relaxed(from + i);
}

}  // namespace saccade
