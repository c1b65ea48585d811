// Vectors of the AVX2 copy (AVX2, FMA, F16C).
#pragma once
#include <immintrin.h>

#include "cpu/dtype.hpp"

namespace saccade {
inline namespace SAC_ISA {

#define SAC_INLINE static inline __attribute__((always_inline))

using Vec = __m256;
inline constexpr uint32_t kVecLanes = 8;
inline constexpr uint32_t kTileAccumulators = 12;  // of 16 registers
inline constexpr uint32_t kMaxTileRows = 6;

SAC_INLINE Vec vec_zero() { return _mm256_setzero_ps(); }
SAC_INLINE Vec vec_set(float v) { return _mm256_set1_ps(v); }
SAC_INLINE void vec_store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
SAC_INLINE Vec vec_add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
SAC_INLINE Vec vec_mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
SAC_INLINE Vec vec_fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }

SAC_INLINE Vec vec_load(const float* p) { return _mm256_loadu_ps(p); }
SAC_INLINE Vec vec_load(const Bf16* p) {
  const __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
SAC_INLINE Vec vec_load(const F16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
/// By way of f16, whose exponents are larger by 8: denormals are exact. All ones stay NaN.
SAC_INLINE Vec vec_load(const Fp8* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  const __m128i high = _mm_unpacklo_epi8(_mm_setzero_si128(), bytes);
  const __m128i ones = _mm_set1_epi16(0x7f00);
  const __m128i nan = _mm_cmpeq_epi16(_mm_and_si128(high, ones), ones);
  const __m128i half = _mm_and_si128(_mm_srai_epi16(high, 1), _mm_set1_epi16(-0x4080));
  return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, nan)), _mm256_set1_ps(256.0f));
}

/// The halves of 32-bit words: elements 0, 2, 4 ... and 1, 3, 5 ...
SAC_INLINE Vec vec_load_even(const Bf16* p) {
  const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
}
SAC_INLINE Vec vec_load_odd(const Bf16* p) {
  const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

/// e4m3 in the top byte of each lane: its bits are those of a float 2^120 times smaller.
SAC_INLINE Vec vec_from_fp8(__m256i top) {
  const __m256i bits =
      _mm256_and_si256(_mm256_srai_epi32(top, 4), _mm256_set1_epi32(static_cast<int>(0x87f00000u)));
  return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120f));
}
/// Vector v of 32 outputs of a pair of k in an fp8 panel.
SAC_INLINE void vec_load_fp8(const uint8_t* line, uint32_t v, Vec& first, Vec& second) {
  const uint8_t* at = line + v % 2 * 32 + v / 2 * 8;
  const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
  const __m128i high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at + 16));
  const __m256i pairs = _mm256_cvtepu16_epi32(_mm_unpacklo_epi64(low, high));
  first = vec_from_fp8(_mm256_slli_epi32(pairs, 24));
  second = vec_from_fp8(_mm256_slli_epi32(pairs, 16));
}

/// Whether 16 elements of T cost less as even and odd ones: of bf16, two instructions for two
/// vectors instead of four.
template <class T>
inline constexpr bool kHalvesApart = false;
template <>
inline constexpr bool kHalvesApart<Bf16> = true;

/// Lane i with lane i + 8, then + 4, + 2, + 1: the one order of every horizontal sum.
SAC_INLINE float vec16_sum(const Vec (&v)[2]) {
  const __m256 a = _mm256_add_ps(v[0], v[1]);
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}

/// Vectors that score_group sums up at once: more would not fit into the registers.
inline constexpr uint32_t kScoreVectors = 4;

/// The sum of a's and b's halves of 128 bits, and of pairs within those.
SAC_INLINE Vec add_halves(Vec a, Vec b) {
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
SAC_INLINE Vec add_pairs(Vec a, Vec b) {
  return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
}
SAC_INLINE Vec add_neighbours(Vec a, Vec b) {
  return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

/// vec16_sum of four, out[i] of v[i]; kApart: of vectors with the even lanes, then the odd ones.
template <bool kApart>
SAC_INLINE void vec16_sums(const Vec (&v)[4][2], float* out) {
  __m128 sums;
  if constexpr (kApart) {
    Vec a[4];  // lanes + 8: even ones in the lower half, odd ones in the upper
    for (uint32_t i = 0; i < 4; ++i) a[i] = add_halves(v[i][0], v[i][1]);
    const Vec b = add_neighbours(add_pairs(a[0], a[1]), add_pairs(a[2], a[3]));  // + 4, + 2
    sums = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
  } else {
    Vec a[4];
    for (uint32_t i = 0; i < 4; ++i) a[i] = _mm256_add_ps(v[i][0], v[i][1]);
    // + 4: v[0], v[1] and v[2], v[3]; + 2: v[0], v[2] and v[1], v[3].
    const Vec b = add_pairs(add_halves(a[0], a[1]), add_halves(a[2], a[3]));
    const Vec c = add_neighbours(b, b);
    sums = _mm_unpacklo_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));
  }
  _mm_storeu_ps(out, sums);
}

}  // namespace SAC_ISA
}  // namespace saccade
