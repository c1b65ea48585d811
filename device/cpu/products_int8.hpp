// Products of 8-bit activations with 8-bit panels, one row at a time, for any instruction set.
#pragma once
#include "cpu/quantize_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Adds a group's integer sums to 32 results: results += sums * (the row's scale * the outputs').
SAC_INLINE void add_group(const int32_t* sums, float row_scale, const float* scales,
                          float* results) {
  for (uint32_t v = 0; v < kPanelOutputs; v += kVecLanes) {
    float wide[kVecLanes];
    for (uint32_t j = 0; j < kVecLanes; ++j) wide[j] = static_cast<float>(sums[v + j]);
    const Vec scale = vec_mul(vec_set(row_scale), vec_load(scales + v));
    vec_store(results + v, vec_fma(vec_load(wide), scale, vec_load(results + v)));
  }
}

struct PlainInt8Products {
  /// The sums of steps [begin, end) of one row with 32 outputs.
  SAC_INLINE void sum_steps(const QuantizedRows& x, uint32_t row, const int8_t* panel,
                            uint32_t begin, uint32_t end, int32_t (&sums)[kPanelOutputs]) {
    int32_t parts[kQuadWeights] = {};  // by output and place in the quad
    for (uint32_t s = begin; s < end; ++s) {
      const int8_t* values = int8_row(x, row, s);
      const int8_t* weights = panel + s * kInt8StepWeights;
      for (uint32_t quad = 0; quad < kInt8Step / 4; ++quad) {
        int16_t value[4];
        for (uint32_t i = 0; i < 4; ++i) value[i] = values[quad * 4 + i];
        for (uint32_t i = 0; i < kQuadWeights; ++i) {
          parts[i] += static_cast<int16_t>(value[i % 4] * weights[quad * kQuadWeights + i]);
        }
      }
    }
    for (uint32_t j = 0; j < kPanelOutputs; ++j) {
      sums[j] = parts[4 * j] + parts[4 * j + 1] + parts[4 * j + 2] + parts[4 * j + 3];
    }
  }

  static void fill(const QuantizedRows& x, uint32_t first_row, uint32_t rows, const int8_t* panel,
                   float* tile) {
    const uint32_t steps = ceil_div(x.k, kInt8Step);
    const float* scales = int8_scales(panel, x.k);
    for (uint32_t r = 0; r < rows; ++r) {
      float* results = tile + size_t{r} * kPanelOutputs;
      for (uint32_t j = 0; j < kPanelOutputs; ++j) results[j] = 0.0f;
      for (uint32_t g = 0; g < ceil_div(x.k, kQuantGroup); ++g) {
        int32_t sums[kPanelOutputs];
        const uint32_t begin = g * kStepsPerGroup;
        sum_steps(x, first_row + r, panel, begin, min_u32(begin + kStepsPerGroup, steps), sums);
        add_group(sums, int8_row_scales(x, first_row + r)[g], scales + g * kPanelOutputs, results);
      }
    }
  }
};

}  // namespace SAC_ISA
}  // namespace saccade
