// Products of 8-bit activations with 8-bit panels by vpmaddubsw, which multiplies unsigned by
// signed bytes: each weight's sign moves to the activation that it meets. Quantized numbers are
// within +-127, so that two products fit the 16 bits of their sum.
#pragma once
#include "cpu/products_int8.hpp"

namespace saccade {
inline namespace SAC_ISA {

struct Avx2Int8Products {
  static constexpr uint32_t kParts = kPanelOutputs / 8;  // registers of a row's 32 sums
  static constexpr uint32_t kPrefetchBytes = 4096;

  /// The integer sums of a group for R rows with 32 outputs, [R][32].
  template <uint32_t R>
  SAC_INLINE void sum_group(const QuantizedRows& x, uint32_t row, const int8_t* panel,
                            uint32_t begin, uint32_t end, int32_t* sums) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i parts[R][kParts];
    for (uint32_t r = 0; r < R; ++r)
      for (uint32_t i = 0; i < kParts; ++i) parts[r][i] = _mm256_setzero_si256();
    for (uint32_t s = begin; s < end; ++s) {
      for (uint32_t quad = 0; quad < kInt8Step / 4; ++quad) {
        const int8_t* at = panel + size_t{s} * kInt8StepWeights + quad * kQuadWeights;
        __builtin_prefetch(at + kPrefetchBytes);
        __builtin_prefetch(at + kPrefetchBytes + 64);
        __m256i values[R];
        for (uint32_t r = 0; r < R; ++r) {
          int32_t four;
          __builtin_memcpy(&four, int8_row(x, row + r, s) + quad * 4, sizeof(four));
          values[r] = _mm256_set1_epi32(four);
        }
        for (uint32_t i = 0; i < kParts; ++i) {
          const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32 * i));
          const __m256i magnitude = _mm256_abs_epi8(w);
          for (uint32_t r = 0; r < R; ++r) {
            const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(values[r], w));
            parts[r][i] = _mm256_add_epi32(parts[r][i], _mm256_madd_epi16(pairs, ones));
          }
        }
      }
    }
    for (uint32_t r = 0; r < R; ++r)
      for (uint32_t i = 0; i < kParts; ++i)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + r * kPanelOutputs + 8 * i),
                            parts[r][i]);
  }

  template <uint32_t R>
  SAC_INLINE void fill_rows(const QuantizedRows& x, uint32_t row, const int8_t* panel,
                            float* tile) {
    const uint32_t steps = ceil_div(x.k, kInt8Step);
    const float* scales = int8_scales(panel, x.k);
    for (uint32_t i = 0; i < R * kPanelOutputs; ++i) tile[i] = 0.0f;
    for (uint32_t g = 0; g * kStepsPerGroup < steps; ++g) {
      const uint32_t begin = g * kStepsPerGroup;
      int32_t sums[R * kPanelOutputs];
      sum_group<R>(x, row, panel, begin, min_u32(begin + kStepsPerGroup, steps), sums);
      for (uint32_t r = 0; r < R; ++r)
        add_group(sums + r * kPanelOutputs, int8_row_scales(x, row + r)[g],
                  scales + g * kPanelOutputs, tile + r * kPanelOutputs);
    }
  }

  static void fill(const QuantizedRows& x, uint32_t first_row, uint32_t rows, const int8_t* panel,
                   float* tile) {
    uint32_t r = 0;
    for (; r + 2 <= rows; r += 2)
      fill_rows<2>(x, first_row + r, panel, tile + size_t{r} * kPanelOutputs);
    if (r < rows) fill_rows<1>(x, first_row + r, panel, tile + size_t{r} * kPanelOutputs);
  }
};

}  // namespace SAC_ISA
}  // namespace saccade
