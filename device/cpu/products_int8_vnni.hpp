// Products of 8-bit activations with 8-bit panels by vpdpbusd, which multiplies unsigned by signed
// bytes: activations are shifted up by 128, and 128 times the sum of the weights is subtracted
// again. All of it is exact in 32 bits.
#pragma once
#include "cpu/products_int8.hpp"

namespace saccade {
inline namespace SAC_ISA {

struct VnniInt8Products {
  static constexpr uint32_t kRows = 8;  // 16 sums, and 16 registers for their operands
  static constexpr uint32_t kPrefetchBytes = 4096;
  static constexpr int32_t kShift = 128;

  /// The integer sums of a group for R rows with 32 outputs.
  template <uint32_t R>
  SAC_INLINE void sum_group(const uint8_t (&x)[kRows][kQuantGroup], const int8_t* weights,
                            uint32_t steps, __m512i (&low)[R], __m512i (&high)[R]) {
    const __m512i ones = _mm512_set1_epi8(1);
    __m512i low_weights = _mm512_setzero_si512(), high_weights = low_weights;
    for (uint32_t r = 0; r < R; ++r) low[r] = high[r] = _mm512_setzero_si512();
    for (uint32_t quad = 0; quad < steps * (kInt8Step / 4); ++quad) {
      const int8_t* at = weights + quad * kQuadWeights;
      __builtin_prefetch(at + kPrefetchBytes);
      __builtin_prefetch(at + kPrefetchBytes + 64);
      const __m512i w0 = _mm512_loadu_si512(at), w1 = _mm512_loadu_si512(at + 64);
      low_weights = _mm512_dpbusd_epi32(low_weights, ones, w0);
      high_weights = _mm512_dpbusd_epi32(high_weights, ones, w1);
      for (uint32_t r = 0; r < R; ++r) {
        int32_t four;
        __builtin_memcpy(&four, x[r] + quad * 4, sizeof(four));
        const __m512i value = _mm512_set1_epi32(four);
        low[r] = _mm512_dpbusd_epi32(low[r], value, w0);
        high[r] = _mm512_dpbusd_epi32(high[r], value, w1);
      }
    }
    const __m512i shift = _mm512_set1_epi32(kShift);
    const __m512i low_shift = _mm512_mullo_epi32(low_weights, shift);
    const __m512i high_shift = _mm512_mullo_epi32(high_weights, shift);
    for (uint32_t r = 0; r < R; ++r) {
      low[r] = _mm512_sub_epi32(low[r], low_shift);
      high[r] = _mm512_sub_epi32(high[r], high_shift);
    }
  }

  template <uint32_t R>
  SAC_INLINE void fill_rows(const QuantizedRows& x, uint32_t row, const int8_t* panel,
                            float* tile) {
    const uint32_t steps = ceil_div(x.k, kInt8Step);
    const float* scales = int8_scales(panel, x.k);
    __m512 results[2 * R];
    for (__m512& result : results) result = _mm512_setzero_ps();
    for (uint32_t g = 0; g * kStepsPerGroup < steps; ++g) {
      const uint32_t begin = g * kStepsPerGroup;
      const uint32_t count = min_u32(kStepsPerGroup, steps - begin);
      alignas(64) uint8_t shifted[kRows][kQuantGroup];
      for (uint32_t r = 0; r < R; ++r)
        for (uint32_t s = 0; s < count; ++s)
          _mm512_store_si512(shifted[r] + s * kInt8Step,
                             _mm512_xor_si512(_mm512_loadu_si512(int8_row(x, row + r, begin + s)),
                                              _mm512_set1_epi8(static_cast<char>(kShift))));
      __m512i low[R], high[R];
      sum_group<R>(shifted, panel + size_t{begin} * kInt8StepWeights, count, low, high);
      const __m512 scale0 = _mm512_loadu_ps(scales + g * kPanelOutputs);
      const __m512 scale1 = _mm512_loadu_ps(scales + g * kPanelOutputs + 16);
      for (uint32_t r = 0; r < R; ++r) {
        const __m512 of_row = _mm512_set1_ps(int8_row_scales(x, row + r)[g]);
        results[2 * r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(low[r]), _mm512_mul_ps(of_row, scale0),
                                         results[2 * r]);
        results[2 * r + 1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(high[r]),
                                             _mm512_mul_ps(of_row, scale1), results[2 * r + 1]);
      }
    }
    for (uint32_t r = 0; r < R; ++r) {
      _mm512_storeu_ps(tile + size_t{r} * kPanelOutputs, results[2 * r]);
      _mm512_storeu_ps(tile + size_t{r} * kPanelOutputs + 16, results[2 * r + 1]);
    }
  }

  static void fill(const QuantizedRows& x, uint32_t first_row, uint32_t rows, const int8_t* panel,
                   float* tile) {
    uint32_t r = 0;
    for (; r + kRows <= rows; r += kRows)
      fill_rows<kRows>(x, first_row + r, panel, tile + size_t{r} * kPanelOutputs);
    for (; r + 4 <= rows; r += 4)
      fill_rows<4>(x, first_row + r, panel, tile + size_t{r} * kPanelOutputs);
    for (; r < rows; ++r) fill_rows<1>(x, first_row + r, panel, tile + size_t{r} * kPanelOutputs);
  }
};

}  // namespace SAC_ISA
}  // namespace saccade
