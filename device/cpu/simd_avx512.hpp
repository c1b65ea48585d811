// Vectors of the AVX-512 copy (F, BW, DQ, VL).
#pragma once
#include <immintrin.h>

#include "cpu/dtype.hpp"

namespace saccade {
inline namespace SAC_ISA {

#define SAC_INLINE static inline __attribute__((always_inline))

using Vec = __m512;
inline constexpr uint32_t kVecLanes = 16;
inline constexpr uint32_t kTileAccumulators = 28;  // of 32 registers
inline constexpr uint32_t kMaxTileRows = 14;

SAC_INLINE Vec vec_zero() { return _mm512_setzero_ps(); }
SAC_INLINE Vec vec_set(float v) { return _mm512_set1_ps(v); }
SAC_INLINE void vec_store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
SAC_INLINE Vec vec_add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
SAC_INLINE Vec vec_mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
SAC_INLINE Vec vec_fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }

SAC_INLINE Vec vec_load(const float* p) { return _mm512_loadu_ps(p); }
SAC_INLINE Vec vec_load(const Bf16* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
SAC_INLINE Vec vec_load(const F16* p) {
  const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_cvtph_ps(h);
}
/// By way of f16, whose exponents are larger by 8: denormals are exact. All ones stay NaN.
SAC_INLINE Vec vec_load(const Fp8* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8);
  const __m256i ones = _mm256_set1_epi16(0x7f00);
  const __m256i nan = _mm256_cmpeq_epi16(_mm256_and_si256(high, ones), ones);
  const __m256i half = _mm256_and_si256(_mm256_srai_epi16(high, 1), _mm256_set1_epi16(-0x4080));
  return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(half, nan)), _mm512_set1_ps(256.0f));
}

/// The halves of 32-bit words: elements 0, 2, 4 ... and 1, 3, 5 ...
SAC_INLINE Vec vec_load_even(const Bf16* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
SAC_INLINE Vec vec_load_odd(const Bf16* p) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), high));
}

/// e4m3 in the top byte of each lane: its bits are those of a float 2^120 times smaller.
SAC_INLINE Vec vec_from_fp8(__m512i top) {
  const __m512i bits =
      _mm512_and_si512(_mm512_srai_epi32(top, 4), _mm512_set1_epi32(static_cast<int>(0x87f00000u)));
  return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120f));
}
/// Vector v of 32 outputs of a pair of k in an fp8 panel.
SAC_INLINE void vec_load_fp8(const uint8_t* line, uint32_t v, Vec& first, Vec& second) {
  const __m512i places =
      _mm512_add_epi64(_mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6), _mm512_set1_epi64(v));
  const __m512i half = _mm512_permutexvar_epi64(places, _mm512_loadu_si512(line));
  const __m512i pairs = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(half));
  first = vec_from_fp8(_mm512_slli_epi32(pairs, 24));
  second = vec_from_fp8(_mm512_slli_epi32(pairs, 16));
}

/// 2^x within 2e-07 of its value, 1 at 0; at least 2^-126, so that no denormal slows what follows.
/// A polynomial of degree 5 (least squares at Chebyshev points, reweighted to even out the error;
/// exact at 0) for the fraction in [-0.5, 0.5].
SAC_INLINE __m512 exp2_lanes(__m512 x) {
  x = _mm512_max_ps(x, _mm512_set1_ps(-126.0f));
  const __m512 n = _mm512_roundscale_ps(x, 0);
  const __m512 r = _mm512_sub_ps(x, n);
  __m512 y = _mm512_set1_ps(0.00132647273f);
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.00967151299f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.0555073358f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.240222424f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.693147004f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(y, n);
}

/// Whether 16 elements of T cost less as even and odd ones: not here.
template <class T>
inline constexpr bool kHalvesApart = false;

/// Lane i with lane i + 8, then + 4, + 2, + 1: the one order of every horizontal sum.
SAC_INLINE float vec16_sum(const Vec (&v)[1]) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v[0]), _mm512_extractf32x8_ps(v[0], 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}

/// Vectors that score_group sums up at once.
inline constexpr uint32_t kScoreVectors = 16;

/// vec16_sum of 16 vectors, out[i] of v[i]: each step adds the halves of two vectors into one.
template <bool kApart>
SAC_INLINE void vec16_sums(const Vec (&v)[16][1], float* out) {
  static_assert(!kApart);
  Vec a[8], b[4], c[2];
  for (uint32_t i = 0; i < 8; ++i) {  // quarters: 0 1 of v[i], 0 1 of v[i + 8]
    a[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[i][0], v[i + 8][0], 0x44),
                         _mm512_shuffle_f32x4(v[i][0], v[i + 8][0], 0xee));
  }
  for (uint32_t i = 0; i < 4; ++i) {  // quarters: v[i], v[i + 8], v[i + 4], v[i + 12]
    b[i] = _mm512_add_ps(_mm512_shuffle_f32x4(a[i], a[i + 4], 0x88),
                         _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd));
  }
  for (uint32_t i = 0; i < 2; ++i) {  // pairs within quarters: from b[i], from b[i + 2]
    c[i] = _mm512_add_ps(_mm512_shuffle_ps(b[i], b[i + 2], 0x44),
                         _mm512_shuffle_ps(b[i], b[i + 2], 0xee));
  }
  // Within a quarter: c[0]'s first, c[1]'s first, c[0]'s second, c[1]'s second.
  const Vec low = _mm512_unpacklo_ps(c[0], c[1]);
  const Vec high = _mm512_unpackhi_ps(c[0], c[1]);
  const Vec d =
      _mm512_add_ps(_mm512_shuffle_ps(low, high, 0x44), _mm512_shuffle_ps(low, high, 0xee));
  // Quarters 1 and 2 change places: v[0 ..], v[4 ..], v[8 ..], v[12 ..].
  _mm512_storeu_ps(out, _mm512_shuffle_f32x4(d, d, 0xd8));
}

}  // namespace SAC_ISA
}  // namespace saccade
