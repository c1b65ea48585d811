// Products of attention by vdpbf16ps, which treats its two factors alike: the same chain of them
// runs with lanes of the right side, or, where few of those are used, with rows of the left side in
// the lanes.
#pragma once
#include "cpu/attention_bf16.hpp"

namespace saccade {
inline namespace SAC_ISA {

struct DotTiles {
  static void open() {}
  static void close() {}

  template <uint32_t kTiles>
  static void multiply(const RowTiles& a, const Bf16* const (&b)[kTiles], uint32_t steps,
                       uint32_t lanes, float* const (&out)[kTiles]) {
    if (lanes <= kFewLanes) {
      for (uint32_t half = 0; half < 2; ++half) multiply_few(a, half, b[0], steps, lanes, out[0]);
      return;
    }
    // Sixteen sums in flight hide the latency of each, and leave registers for the operands.
    constexpr uint32_t kRows = 16 / kTiles;
    for (uint32_t row = 0; row < 32; row += kRows) {
      const auto* left = reinterpret_cast<const uint8_t*>(a.half[row / 16]) + row % 16 * a.stride;
      multiply_rows<kTiles, kRows>(left, a, b, steps, row, out);
    }
  }

 private:
  /// Of one row of a decode: the query heads of a kv head.
  static constexpr uint32_t kFewLanes = 4;

  SAC_INLINE __m512i broadcast_pair(const void* pair) {
    int32_t word;
    __builtin_memcpy(&word, pair, sizeof(word));
    return _mm512_set1_epi32(word);
  }

  template <uint32_t kTiles, uint32_t kRows>
  SAC_INLINE void multiply_rows(const uint8_t* left, const RowTiles& a,
                                const Bf16* const (&b)[kTiles], uint32_t steps, uint32_t row,
                                float* const (&out)[kTiles]) {
    __m512 sums[kRows][kTiles];
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t i = 0; i < kTiles; ++i) sums[r][i] = _mm512_setzero_ps();
    }
    for (uint32_t s = 0; s < steps; ++s) {
      const uint8_t* words = left + s * a.step * sizeof(Bf16);
      for (uint32_t pair = 0; pair < 16; ++pair) {
        __m512i right[kTiles];
        for (uint32_t i = 0; i < kTiles; ++i)
          right[i] = _mm512_loadu_si512(b[i] + s * kLaneStep + pair * 32);
        for (uint32_t r = 0; r < kRows; ++r) {
          const __m512i both = broadcast_pair(words + r * a.stride + pair * 4);
          for (uint32_t i = 0; i < kTiles; ++i)
            sums[r][i] = _mm512_dpbf16_ps(sums[r][i], (__m512bh)right[i], (__m512bh)both);
        }
      }
    }
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t i = 0; i < kTiles; ++i) _mm512_storeu_ps(out[i] + (row + r) * 16, sums[r][i]);
    }
  }

  /// One half of the rows, in lanes: the pairs of all rows are words of one vector.
  static void multiply_few(const RowTiles& a, uint32_t half, const Bf16* b, uint32_t steps,
                           uint32_t lanes, float* out) {
    if (lanes == 1) return multiply_lanes<1>(a, half, b, steps, out);
    if (lanes == 2) return multiply_lanes<2>(a, half, b, steps, out);
    multiply_lanes<kFewLanes>(a, half, b, steps, out);
  }

  template <uint32_t kLanes>
  SAC_INLINE void multiply_lanes(const RowTiles& a, uint32_t half, const Bf16* b, uint32_t steps,
                                 float* out) {
    __m512 sums[kFewLanes] = {_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps(),
                              _mm512_setzero_ps()};
    for (uint32_t s = 0; s < steps; ++s) {
      const auto* rows = reinterpret_cast<const uint8_t*>(a.half[half] + s * a.step);
      __m512i words[16];
      for (uint32_t r = 0; r < 16; ++r) words[r] = _mm512_loadu_si512(rows + r * a.stride);
      transpose_words(words);
      for (uint32_t pair = 0; pair < 16; ++pair) {
        const Bf16* lanes = b + s * kLaneStep + pair * 32;
        for (uint32_t i = 0; i < kLanes; ++i) {
          const __m512i both = broadcast_pair(lanes + 2 * i);
          sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)words[pair], (__m512bh)both);
        }
      }
    }
    store_lanes(sums, out + half * 256);
  }

  /// Lanes become rows of 16, zero beyond the few.
  SAC_INLINE void store_lanes(const __m512 (&v)[kFewLanes], float* out) {
    const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(v[0], v[1]));
    const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(v[0], v[1]));
    const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(v[2], v[3]));
    const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(v[2], v[3]));
    // Quarter q of by_row[r] is row 4 q + r.
    const __m512d by_row[4] = {_mm512_unpacklo_pd(low01, low23), _mm512_unpackhi_pd(low01, low23),
                               _mm512_unpacklo_pd(high01, high23),
                               _mm512_unpackhi_pd(high01, high23)};
    for (uint32_t r = 0; r < 4; ++r) {
      const __m512 rows = _mm512_castpd_ps(by_row[r]);
      store_quarter(out + r * 16, _mm512_extractf32x4_ps(rows, 0));
      store_quarter(out + (4 + r) * 16, _mm512_extractf32x4_ps(rows, 1));
      store_quarter(out + (8 + r) * 16, _mm512_extractf32x4_ps(rows, 2));
      store_quarter(out + (12 + r) * 16, _mm512_extractf32x4_ps(rows, 3));
    }
  }
  SAC_INLINE void store_quarter(float* out, __m128 quarter) {
    _mm512_storeu_ps(out, _mm512_zextps128_ps512(quarter));
  }
};

template <>
struct Attention<Bf16> : Bf16Attention<DotTiles, Bf16> {};

}  // namespace SAC_ISA
}  // namespace saccade
