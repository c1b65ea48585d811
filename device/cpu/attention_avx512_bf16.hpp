// Products of attention by vdpbf16ps, which treats its two factors alike: the same chain of them
// runs with lanes of the right side, or, where few of those are used, with rows of the left side in
// the lanes.
#pragma once
#include "cpu/attention_bf16.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// 16 rows of 32 elements, `stride` bytes apart, become a vector for each pair of elements: a word
/// of every row.
SAC_INLINE void load_pairs(const Bf16* row, size_t stride, __m512i (&words)[16]) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  for (uint32_t r = 0; r < 16; ++r) words[r] = _mm512_loadu_si512(bytes + r * stride);
  transpose_words(words);
}

/// The same of fp8, transposed before it is widened: pairs are half as long then.
SAC_INLINE void load_pairs(const Fp8* row, size_t stride, __m512i (&words)[16]) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  __m512i v[8], w[8];
  for (uint32_t r = 0; r < 8; ++r) {  // rows r and r + 8
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + r * stride));
    const auto* high = reinterpret_cast<const __m256i*>(bytes + (r + 8) * stride);
    v[r] = _mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_loadu_si256(high), 1);
  }
  // 8 by 8 pairs in each quarter.
  for (uint32_t i = 0; i < 8; i += 2) {
    w[i] = _mm512_unpacklo_epi16(v[i], v[i + 1]);
    w[i + 1] = _mm512_unpackhi_epi16(v[i], v[i + 1]);
  }
  for (uint32_t i = 0; i < 8; i += 4) {
    for (uint32_t j = 0; j < 2; ++j) {
      v[i + 2 * j] = _mm512_unpacklo_epi32(w[i + j], w[i + 2 + j]);
      v[i + 2 * j + 1] = _mm512_unpackhi_epi32(w[i + j], w[i + 2 + j]);
    }
  }
  for (uint32_t i = 0; i < 4; ++i) {
    w[2 * i] = _mm512_unpacklo_epi64(v[i], v[i + 4]);
    w[2 * i + 1] = _mm512_unpackhi_epi64(v[i], v[i + 4]);
  }
  for (uint32_t i = 0; i < 8; ++i) {  // quarters: pairs i and 8 + i of rows 0 .. 7, of rows 8 .. 15
    const __m512i both = _mm512_shuffle_i64x2(w[i], w[i], 0xd8);
    words[i] = widen_fp8(_mm512_castsi512_si256(both));
    words[8 + i] = widen_fp8(_mm512_extracti64x4_epi64(both, 1));
  }
}

/// f(0) .. f(kCount - 1), each compiled on its own: arrays that it indexes stay in registers.
template <uint32_t kCount, uint32_t kAt = 0, class F>
SAC_INLINE void repeat(F&& f) {
  if constexpr (kAt < kCount) {
    f(kAt);
    repeat<kCount, kAt + 1>(f);
  }
}

struct DotTiles {
  /// Of one row of a decode: the query heads of a kv head.
  static constexpr uint32_t kFewLanes = 8;
  static constexpr bool kValuesInPairs = false;

  static void open() {}
  static void close() {}

  template <uint32_t kTiles>
  static void multiply(const RowTiles& a, const Bf16* const (&b)[kTiles], uint32_t steps,
                       float* const (&out)[kTiles]) {
    // Sixteen sums in flight hide the latency of each, and leave registers for the operands.
    constexpr uint32_t kRows = 16 / kTiles;
    for (uint32_t row = 0; row < 32; row += kRows) {
      const auto* left = reinterpret_cast<const uint8_t*>(a.half[row / 16]) + row % 16 * a.stride;
      multiply_rows<kTiles, kRows>(left, a, b, steps, row, out);
    }
  }

  static uint32_t few_calls(uint32_t depth, uint32_t lanes) {
    const uint32_t steps = depth / kPanelStep, at_once = steps_at_once(lanes);
    const uint32_t passes = steps / at_once + steps % at_once;
    return 2 * kCallsPerStep * steps + kPanelStep / 2 * passes;
  }

  /// Rows in lanes: the pairs of all rows are words of one vector.
  template <class T, class A>
  static void multiply_few(const RowsOf<T>& a, const Bf16* b, uint32_t steps, uint32_t lanes,
                           A& ahead, float* out) {
    for (uint32_t half = 0; half < 2; ++half, out += 256) {
      if (lanes == 1) {
        multiply_lanes<1>(a, half, b, steps, ahead, out);
      } else if (lanes == 2) {
        multiply_lanes<2>(a, half, b, steps, ahead, out);
      } else if (lanes <= 4) {
        multiply_lanes<4>(a, half, b, steps, ahead, out);
      } else {
        multiply_lanes<kFewLanes>(a, half, b, steps, ahead, out);
      }
    }
  }

  /// Dimensions in lanes: a word is two positions of one dimension.
  template <class Kv>
  static void accumulate_few(const ValueRows<Kv>& v, const Bf16* weights, uint32_t lanes,
                             KvAhead<Kv>& ahead, float* out) {
    if (lanes == 1) return accumulate_lanes<1>(v, weights, ahead, out);
    if (lanes == 2) return accumulate_lanes<2>(v, weights, ahead, out);
    if (lanes <= 4) return accumulate_lanes<4>(v, weights, ahead, out);
    accumulate_lanes<kFewLanes>(v, weights, ahead, out);
  }

 private:
  /// Calls of fetch() for 32 dimensions of 16 rows of K, which take longer than those of two of V.
  static constexpr uint32_t kCallsPerStep = 2;
  /// V is prefetched into the first-level cache this many rows ahead.
  static constexpr uint32_t kRowsAhead = 16;

  /// Steps of dimensions whose sums fit the registers.
  static constexpr uint32_t steps_at_once(uint32_t lanes) {
    return lanes > 4 ? 1 : lanes > 2 ? 2 : 4;
  }

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

  /// Lines of 16 rows, where a step begins one.
  template <class T>
  SAC_INLINE void prefetch_step(const T* rows, size_t stride, size_t element) {
    if (rows == nullptr || element * sizeof(T) % 64 != 0) return;
    const auto* at = reinterpret_cast<const char*>(rows + element);
    for (uint32_t r = 0; r < 16; ++r) __builtin_prefetch(at + r * stride, 0, 2);
  }

  template <uint32_t kLanes, class T, class A>
  SAC_INLINE void multiply_lanes(const RowsOf<T>& a, uint32_t half, const Bf16* b, uint32_t steps,
                                 A& ahead, float* out) {
    A next = ahead;  // the stores might alias it
    __m512 sums[kLanes];
    for (__m512& lane : sums) lane = _mm512_setzero_ps();
    for (uint32_t s = 0; s < steps; ++s) {
      __m512i words[16];
      load_pairs(a.half[half] + s * a.step, a.stride, words);
      prefetch_step(a.ahead[half], a.stride, s * a.step);
      next.fetch(kCallsPerStep);
      for (uint32_t pair = 0; pair < 16; ++pair) {
        const Bf16* lanes = b + s * kLaneStep + pair * 32;
        for (uint32_t i = 0; i < kLanes; ++i) {
          const __m512i both = broadcast_pair(lanes + 2 * i);
          sums[i] = _mm512_dpbf16_ps(sums[i], (__m512bh)words[pair], (__m512bh)both);
        }
      }
    }
    store_lanes(sums, out);
    ahead = next;
  }

  /// Lanes become rows of 16, zero beyond them.
  template <uint32_t kLanes>
  SAC_INLINE void store_lanes(const __m512 (&v)[kLanes], float* out) {
    const __m512 zero = _mm512_setzero_ps();
    const auto lane = [&](uint32_t i) { return i < kLanes ? v[i] : zero; };
    store_four<true>(lane(0), lane(1), lane(2), lane(3), out);
    if constexpr (kLanes > 4) store_four<false>(lane(4), lane(5), lane(6), lane(7), out + 4);
  }

  /// Four of the lanes; the first four also zero the rest of each row.
  template <bool kFirst>
  SAC_INLINE void store_four(__m512 v0, __m512 v1, __m512 v2, __m512 v3, float* out) {
    const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(v0, v1));
    const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(v0, v1));
    const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(v2, v3));
    const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(v2, v3));
    // Quarter q of by_row[r] is row 4 q + r.
    const __m512d by_row[4] = {_mm512_unpacklo_pd(low01, low23), _mm512_unpackhi_pd(low01, low23),
                               _mm512_unpacklo_pd(high01, high23),
                               _mm512_unpackhi_pd(high01, high23)};
    for (uint32_t r = 0; r < 4; ++r) {
      const __m512 rows = _mm512_castpd_ps(by_row[r]);
      store_quarter<kFirst>(out + r * 16, _mm512_extractf32x4_ps(rows, 0));
      store_quarter<kFirst>(out + (4 + r) * 16, _mm512_extractf32x4_ps(rows, 1));
      store_quarter<kFirst>(out + (8 + r) * 16, _mm512_extractf32x4_ps(rows, 2));
      store_quarter<kFirst>(out + (12 + r) * 16, _mm512_extractf32x4_ps(rows, 3));
    }
  }

  template <bool kFirst>
  SAC_INLINE void store_quarter(float* out, __m128 quarter) {
    if constexpr (kFirst) {
      _mm512_storeu_ps(out, _mm512_zextps128_ps512(quarter));
    } else {
      _mm_storeu_ps(out, quarter);
    }
  }

  template <uint32_t kLanes, class Kv>
  static void accumulate_lanes(const ValueRows<Kv>& v, const Bf16* weights, KvAhead<Kv>& ahead,
                               float* out) {
    constexpr uint32_t kSteps = steps_at_once(kLanes);
    uint32_t d = 0;
    for (; d + kSteps * kPanelStep <= ceil_div(v.head_dim, kPanelStep) * kPanelStep;
         d += kSteps * kPanelStep) {
      accumulate_steps<kLanes, kSteps>(v, weights, d, ahead, out);
    }
    for (; d < v.head_dim; d += kPanelStep) accumulate_steps<kLanes, 1>(v, weights, d, ahead, out);
  }

  /// kSteps times 32 dimensions from d on, which are the lanes of two vectors: as unpacking leaves
  /// them, four of one and four of the other in turn.
  template <uint32_t kLanes, uint32_t kSteps, class Kv>
  static void accumulate_steps(const ValueRows<Kv>& v, const Bf16* weights, uint32_t d,
                               KvAhead<Kv>& ahead, float* out) {
    KvAhead<Kv> next = ahead;  // the stores might alias it
    __m512 low[kSteps][kLanes], high[kSteps][kLanes];
    __mmask32 mask[kSteps];
    repeat<kSteps>([&](uint32_t s) __attribute__((always_inline)) {
      for (uint32_t i = 0; i < kLanes; ++i) low[s][i] = high[s][i] = _mm512_setzero_ps();
      mask[s] = step_mask(v.head_dim - d - s * kPanelStep);
    });
    for (uint32_t p = v.begin; p < v.end; p += 2) {
      if (p + kRowsAhead < v.end) {
        prefetch_row<kSteps>(v.rows[p + kRowsAhead], d);
        prefetch_row<kSteps>(v.rows[p + kRowsAhead + 1], d);
      }
      next.fetch(1);
      const Bf16* pair = weights + p * 16;
      const Kv* const even_row = v.rows[p];
      const Kv* const odd_row = v.rows[p + 1];
      const __mmask32 has_even = v.sees(p) ? ~__mmask32{0} : 0;
      const __mmask32 has_odd = v.sees(p + 1) ? ~__mmask32{0} : 0;
      repeat<kSteps>([&](uint32_t s) __attribute__((always_inline)) {
        const uint32_t at = d + s * kPanelStep;
        const __m512i even = load_masked(even_row + at, mask[s] & has_even);
        const __m512i odd = load_masked(odd_row + at, mask[s] & has_odd);
        const __m512bh first = (__m512bh)_mm512_unpacklo_epi16(even, odd);
        const __m512bh second = (__m512bh)_mm512_unpackhi_epi16(even, odd);
        repeat<kLanes>([&](uint32_t i) __attribute__((always_inline)) {
          const __m512bh both = (__m512bh)broadcast_pair(pair + 2 * i);
          low[s][i] = _mm512_dpbf16_ps(low[s][i], first, both);
          high[s][i] = _mm512_dpbf16_ps(high[s][i], second, both);
        });
      });
    }
    repeat<kSteps>([&](uint32_t s) __attribute__((always_inline)) {
      __m512 first[kLanes], second[kLanes];
      repeat<kLanes>([&](uint32_t i) __attribute__((always_inline)) {
        join_quarters(low[s][i], high[s][i], first[i], second[i]);
      });
      store_lanes(first, out + (d + s * kPanelStep) * 16);
      store_lanes(second, out + (d + s * kPanelStep + 16) * 16);
    });
    ahead = next;
  }

  /// Quarters of four floats, of `low` and `high` in turn, become 32 lanes in order.
  SAC_INLINE void join_quarters(__m512 low, __m512 high, __m512& first, __m512& second) {
    const __m512i order = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
    first = _mm512_permutex2var_ps(low, order, high);
    second = _mm512_permutex2var_ps(low, _mm512_add_epi32(order, _mm512_set1_epi32(8)), high);
  }

  template <uint32_t kSteps, class Kv>
  SAC_INLINE void prefetch_row(const Kv* row, uint32_t d) {
    for (uint32_t i = 0; i < kSteps * kPanelStep; i += 64 / sizeof(Kv))
      __builtin_prefetch(row + d + i);
  }
};

template <>
struct Attention<Bf16> : Bf16Attention<DotTiles, Bf16> {};

}  // namespace SAC_ISA
}  // namespace saccade
