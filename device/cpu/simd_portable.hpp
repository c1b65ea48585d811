// Vectors of the copy that runs anywhere: four lanes by the compiler's vector extension (SSE2,
// NEON).
#pragma once
#include "cpu/dtype.hpp"

namespace saccade {
inline namespace SAC_ISA {

#define SAC_INLINE static inline __attribute__((always_inline))

typedef float Vec __attribute__((vector_size(16)));
typedef uint32_t VecBits __attribute__((vector_size(16)));
typedef uint16_t VecHalves __attribute__((vector_size(8)));
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
/// Fused where the target has the instruction; elsewhere a library call per lane would be no use.
/// Either way it is the same throughout one build, which is what the order of a chain needs.
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
SAC_INLINE VecBits vec_load_halves(const void* p) {
  VecHalves h;
  __builtin_memcpy(&h, p, sizeof h);
  return __builtin_convertvector(h, VecBits);
}
SAC_INLINE Vec vec_load(const Bf16* p) { return __builtin_bit_cast(Vec, vec_load_halves(p) << 16); }
/// to_float of four.
SAC_INLINE Vec vec_load(const F16* p) {
  const VecBits h = vec_load_halves(p);
  const VecBits magnitude = h & 0x7fffu;
  const Vec scaled = __builtin_bit_cast(Vec, magnitude << 13) * 5.192296858534828e+33f;
  const VecBits special = (magnitude << 13) | 0x7f800000u;
  const VecBits is_special = __builtin_bit_cast(VecBits, magnitude >= 0x7c00u);
  const VecBits bits = (special & is_special) | (__builtin_bit_cast(VecBits, scaled) & ~is_special);
  return __builtin_bit_cast(Vec, bits | ((h & 0x8000u) << 16));
}
/// What every code of fp8 is: looking four up is fewer instructions than computing them.
struct Fp8Values {
  float of[256] = {};
  constexpr Fp8Values() {
    for (uint32_t code = 0; code < 256; ++code)
      of[code] = to_float(Fp8{static_cast<uint8_t>(code)});
  }
};
inline constexpr Fp8Values kFp8Values;

SAC_INLINE Vec vec_load(const Fp8* p) {
  const float* of = kFp8Values.of;
  return Vec{of[p[0].bits], of[p[1].bits], of[p[2].bits], of[p[3].bits]};
}

/// The halves of 32-bit words: elements 0, 2, 4 ... and 1, 3, 5 ...
SAC_INLINE Vec vec_load_even(const Bf16* p) {
  VecBits w;
  __builtin_memcpy(&w, p, sizeof w);
  return __builtin_bit_cast(Vec, w << 16);
}
SAC_INLINE Vec vec_load_odd(const Bf16* p) {
  VecBits w;
  __builtin_memcpy(&w, p, sizeof w);
  return __builtin_bit_cast(Vec, w & VecBits{0xffff0000u, 0xffff0000u, 0xffff0000u, 0xffff0000u});
}

/// e4m3 in the top byte of each lane: its bits are those of a float 2^120 times smaller.
SAC_INLINE Vec vec_from_fp8(VecBits top) {
  const VecBits bits = ((top & 0x7f000000u) >> 4) | (top & 0x80000000u);
  return __builtin_bit_cast(Vec, bits) * 0x1p120f;
}
/// Vector v of 32 outputs of a pair of k in an fp8 panel.
SAC_INLINE void vec_load_fp8(const uint8_t* line, uint32_t v, Vec& first, Vec& second) {
  const VecBits pairs = vec_load_halves(line + v % 4 * 16 + v / 4 * 8);
  first = vec_from_fp8(pairs << 24);
  second = vec_from_fp8((pairs << 16) & 0xff000000u);
}

/// Whether 16 elements of T cost less as even and odd ones: not here.
template <class T>
inline constexpr bool kHalvesApart = false;

/// Lane i with lane i + 8, then + 4, + 2, + 1: the one order of every horizontal sum.
SAC_INLINE float vec16_sum(const Vec (&v)[4]) {
  const Vec b = (v[0] + v[2]) + (v[1] + v[3]);
  return (b[0] + b[2]) + (b[1] + b[3]);
}

/// Vectors that score_group sums up at once: more would not fit into the registers.
inline constexpr uint32_t kScoreVectors = 4;

template <bool kApart>
SAC_INLINE void vec16_sums(const Vec (&v)[kScoreVectors][16 / kVecLanes], float* out) {
  static_assert(!kApart);
  for (uint32_t i = 0; i < kScoreVectors; ++i) out[i] = vec16_sum(v[i]);
}

}  // namespace SAC_ISA
}  // namespace saccade
