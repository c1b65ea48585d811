// Vectors of the copy that runs anywhere: four lanes by the compiler's vector extension (SSE2,
// NEON).
#pragma once
#include "cpu/dtype.hpp"

namespace saccade {
inline namespace SAC_ISA {

#define SAC_INLINE static inline __attribute__((always_inline))

typedef float Vec __attribute__((vector_size(16)));
typedef uint32_t VecBits __attribute__((vector_size(16)));
inline constexpr uint32_t kVecLanes = 4;
#if defined(__aarch64__)
inline constexpr uint32_t kTileAccumulators = 24;  // of 32 registers
#else
inline constexpr uint32_t kTileAccumulators = 12;  // of 16 registers
#endif
inline constexpr uint32_t kMaxTileRows = 6;

SAC_INLINE Vec vec_zero() { return Vec{0, 0, 0, 0}; }
SAC_INLINE Vec vec_set(float v) { return Vec{v, v, v, v}; }
SAC_INLINE void vec_store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof v); }
SAC_INLINE Vec vec_add(Vec a, Vec b) { return a + b; }
SAC_INLINE Vec vec_mul(Vec a, Vec b) { return a * b; }
/// Fused where the target has the instruction; a library call per lane would be no use elsewhere.
/// Either way it is one thing in one build, which is what the order of a chain needs.
SAC_INLINE Vec vec_fma(Vec a, Vec b, Vec c) {
#if defined(__FP_FAST_FMAF)
  return Vec{__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1]),
             __builtin_fmaf(a[2], b[2], c[2]), __builtin_fmaf(a[3], b[3], c[3])};
#else
  return a * b + c;
#endif
}

SAC_INLINE Vec vec_load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
SAC_INLINE Vec vec_load(const Bf16* p) {
  return Vec{to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
}
SAC_INLINE Vec vec_load(const F16* p) {
  return Vec{to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
}

/// 32-bit word i holds element i in its low half and element i + 16 of the panel row in its high
/// half.
SAC_INLINE void vec_load_words(const Bf16* p, Vec& low, Vec& high) {
  VecBits w;
  __builtin_memcpy(&w, p, sizeof w);
  low = __builtin_bit_cast(Vec, w << 16);
  high = __builtin_bit_cast(Vec, w & VecBits{0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u});
}

/// Lane i with lane i + 8, then + 4, + 2, + 1: the one order of every horizontal sum.
SAC_INLINE float vec16_sum(const Vec (&v)[4]) {
  const Vec b = (v[0] + v[2]) + (v[1] + v[3]);
  return (b[0] + b[2]) + (b[1] + b[3]);
}

}  // namespace SAC_ISA
}  // namespace saccade
