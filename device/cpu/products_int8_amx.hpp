// Products of 8-bit activations with 8-bit panels by AMX tiles.
#pragma once
#include "cpu/products_amx.hpp"
#include "cpu/products_int8.hpp"

namespace saccade {
inline namespace SAC_ISA {

struct AmxInt8Products {
  static constexpr size_t kRowBytes = kInt8Step;
  static constexpr size_t kWeightBytes = kQuadWeights;
  static constexpr size_t kSumBytes = kPanelOutputs * sizeof(int32_t);
  static constexpr uint32_t kPrefetchBytes = 4096;

  /// The integer sums of a group, [32 rows][32 outputs], for two blocks of rows.
  SAC_INLINE void sum_group(const int8_t* x0, const int8_t* x1, bool two, const int8_t* weights,
                            uint32_t steps, int32_t* sums) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t s = 0; s < steps; ++s) {
      const int8_t* at = weights + s * kInt8StepWeights;
      _tile_loadd(6, at, kWeightBytes);
      _tile_loadd(7, at + kQuadWeights / 2, kWeightBytes);
      _tile_loadd(4, x0 + s * kActivationRows * kInt8Step, kRowBytes);
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      if (!two) continue;
      _tile_loadd(5, x1 + s * kActivationRows * kInt8Step, kRowBytes);
      _tile_dpbssd(2, 5, 6);
      _tile_dpbssd(3, 5, 7);
    }
    _tile_stored(0, sums, kSumBytes);
    _tile_stored(1, sums + 16, kSumBytes);
    if (!two) return;
    _tile_stored(2, sums + kActivationRows * kPanelOutputs, kSumBytes);
    _tile_stored(3, sums + kActivationRows * kPanelOutputs + 16, kSumBytes);
  }

  /// Adds the sums of `rows` rows to their results.
  SAC_INLINE void add_rows(const QuantizedRows& x, uint32_t row, uint32_t rows, uint32_t group,
                           const float* scales, const int32_t* sums, float* tile) {
    const __m512 low = _mm512_loadu_ps(scales), high = _mm512_loadu_ps(scales + 16);
    for (uint32_t r = 0; r < rows; ++r) {
      const __m512 scale = _mm512_set1_ps(int8_row_scales(x, row + r)[group]);
      const int32_t* sum = sums + r * kPanelOutputs;
      float* at = tile + size_t{r} * kPanelOutputs;
      const __m512 a = _mm512_cvtepi32_ps(_mm512_loadu_si512(sum));
      const __m512 b = _mm512_cvtepi32_ps(_mm512_loadu_si512(sum + 16));
      _mm512_storeu_ps(at, _mm512_fmadd_ps(a, _mm512_mul_ps(scale, low), _mm512_loadu_ps(at)));
      _mm512_storeu_ps(at + 16,
                       _mm512_fmadd_ps(b, _mm512_mul_ps(scale, high), _mm512_loadu_ps(at + 16)));
    }
  }

  static void fill(const QuantizedRows& x, uint32_t first_row, uint32_t rows, const int8_t* panel,
                   float* tile) {
    alignas(64) int32_t sums[2 * kActivationRows * kPanelOutputs];
    const uint32_t steps = ceil_div(x.k, kInt8Step);
    const float* scales = int8_scales(panel, x.k);
    for (uint32_t r = 0; r < rows;) {
      const uint32_t row = first_row + r;
      const uint32_t rows0 = min_u32(kActivationRows - row % kActivationRows, rows - r);
      const uint32_t rows1 = min_u32(kActivationRows, rows - r - rows0);
      configure_tiles(rows0, rows1);
      float* at = tile + size_t{r} * kPanelOutputs;
      for (uint32_t i = 0; i < rows0 + rows1; ++i) {
        for (uint32_t j = 0; j < kPanelOutputs; ++j) at[size_t{i} * kPanelOutputs + j] = 0.0f;
      }
      for (uint32_t g = 0; g * kStepsPerGroup < steps; ++g) {
        const uint32_t begin = g * kStepsPerGroup;
        const int8_t* weights = panel + size_t{begin} * kInt8StepWeights;
        prefetch(weights);
        sum_group(int8_row(x, row, begin), rows1 == 0 ? nullptr : int8_row(x, row + rows0, begin),
                  rows1 != 0, weights, min_u32(kStepsPerGroup, steps - begin), sums);
        add_rows(x, row, rows0, g, scales + g * kPanelOutputs, sums, at);
        add_rows(x, row + rows0, rows1, g, scales + g * kPanelOutputs,
                 sums + kActivationRows * kPanelOutputs, at + size_t{rows0} * kPanelOutputs);
      }
      r += rows0 + rows1;
    }
    _tile_release();
  }

  /// Prefetches what is read some groups later: with few rows, weights come from memory.
  SAC_INLINE void prefetch(const int8_t* weights) {
    const char* ahead = reinterpret_cast<const char*>(weights) + kPrefetchBytes;
    for (uint32_t i = 0; i < kStepsPerGroup * kInt8StepWeights; i += 64) {
      __builtin_prefetch(ahead + i);
    }
  }
};

}  // namespace SAC_ISA
}  // namespace saccade
