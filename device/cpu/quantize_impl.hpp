// 8-bit weights and activations: symmetric, one scale for each group of 128 along k of an output's
// weights and of a row's activations. The sum of a group is an integer and exact, so every kernel
// set gives the same one; groups are added in f32, ascending.
#pragma once
#include "cpu/activations_impl.hpp"
#include "cpu/pack_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Weights of one k quad of 32 outputs, and of one step.
inline constexpr uint32_t kQuadWeights = 4 * kPanelOutputs;
inline constexpr uint32_t kInt8StepWeights = kInt8Step * kPanelOutputs;

/// The position of weight k of an output in its panel.
SAC_INLINE size_t int8_slot(uint32_t output, uint32_t k) {
  return size_t{k / 4} * kQuadWeights + output * 4 + k % 4;
}
/// A panel's scales, [groups][32].
SAC_INLINE const float* int8_scales(const int8_t* panel, uint32_t k) {
  return reinterpret_cast<const float*>(panel + ceil_div(k, kInt8Step) * kInt8StepWeights);
}

/// n <= 128 values of one group as 8-bit numbers; returns their scale, 0 when all are zero. A group
/// with a value that is infinite or not a number has the scale NaN and numbers 0: its products are
/// NaN, as those of the values themselves would be, and other groups and rows are untouched.
SAC_INLINE float quantize_group(const float* values, uint32_t n, int8_t* out) {
  float top = 0.0f, doubt = 0.0f;
  for (uint32_t i = 0; i < n; ++i) {
    const float magnitude = __builtin_fabsf(values[i]);
    top = magnitude > top ? magnitude : top;
    doubt += values[i] * 0.0f;  // NaN for infinity and NaN; zeros of either sign add up to zero
  }
  if (doubt != 0.0f) {
    for (uint32_t i = 0; i < n; ++i) out[i] = 0;
    return doubt;
  }
  const float scale = top * (1.0f / 127.0f);
  const float inverse = top > 0.0f ? 127.0f / top : 0.0f;
  for (uint32_t i = 0; i < n; ++i) {
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest, ties to even.
    out[i] = static_cast<int8_t>((values[i] * inverse + 12582912.0f) - 12582912.0f);
  }
  return scale;
}

/// Packs one panel; read(output, begin, count, floats) gives an output's weights.
template <class Read>
void pack_int8(const PackArgs& a, Read&& read) {
  int8_t* panel = static_cast<int8_t*>(a.panels) + a.panel * panel_elements(SAC_DTYPE_INT8, a.k);
  const size_t bytes = panel_elements(SAC_DTYPE_INT8, a.k);
  for (size_t i = 0; i < bytes; ++i) panel[i] = 0;
  float* scales = const_cast<float*>(int8_scales(panel, a.k));
  const uint32_t first = a.panel * kPanelOutputs;
  for (uint32_t j = 0; j < min_u32(kPanelOutputs, a.n - first); ++j) {
    for (uint32_t begin = 0; begin < a.k; begin += kQuantGroup) {
      const uint32_t count = min_u32(kQuantGroup, a.k - begin);
      float wide[kQuantGroup];
      int8_t narrow[kQuantGroup];
      read(first + j, begin, count, wide);
      scales[begin / kQuantGroup * kPanelOutputs + j] = quantize_group(wide, count, narrow);
      for (uint32_t i = 0; i < count; ++i) panel[int8_slot(j, begin + i)] = narrow[i];
    }
  }
}

inline void unpack_int8(const void* panels, uint32_t k, uint32_t row, float* out) {
  const int8_t* panel =
      static_cast<const int8_t*>(panels) + row / kPanelOutputs * panel_elements(SAC_DTYPE_INT8, k);
  const float* scales = int8_scales(panel, k) + row % kPanelOutputs;
  for (uint32_t i = 0; i < k; ++i) {
    out[i] = static_cast<float>(panel[int8_slot(row % kPanelOutputs, i)]) *
             scales[i / kQuantGroup * kPanelOutputs];
  }
}

/// Elements [step * 64, ... + 64) of a quantized row.
SAC_INLINE int8_t* int8_row(const QuantizedRows& q, uint32_t row, uint32_t step) {
  const size_t tile = size_t{row / kActivationRows} * ceil_div(q.k, kInt8Step) + step;
  return q.data + (tile * kActivationRows + row % kActivationRows) * kInt8Step;
}
SAC_INLINE float* int8_row_scales(const QuantizedRows& q, uint32_t row) {
  return q.scales + size_t{row} * ceil_div(q.k, kQuantGroup);
}

/// Row `row` of x in 8 bits.
inline void quantize(const Activations& x, uint32_t row, const QuantizedRows& out) {
  for (uint32_t begin = 0; begin < x.k; begin += kQuantGroup) {
    const uint32_t count = min_u32(kQuantGroup, x.k - begin);
    float wide[kQuantGroup];
    int8_t narrow[kQuantGroup] = {};
    for (uint32_t i = 0; i < count; i += kPanelStep) {
      const uint32_t n = min_u32(kPanelStep, count - i);
      if (x.tiled) {
        const Bf16* at = tiled_at(x, row, begin + i);
        for (uint32_t j = 0; j < n; ++j) wide[i + j] = to_float(at[j]);
      } else {
        const float* at = plain_row(x, row) + begin + i;
        for (uint32_t j = 0; j < n; ++j) wide[i + j] = at[j];
      }
    }
    int8_row_scales(out, row)[begin / kQuantGroup] = quantize_group(wide, count, narrow);
    for (uint32_t i = 0; i < ceil_div(count, kInt8Step) * kInt8Step; i += kInt8Step) {
      __builtin_memcpy(int8_row(out, row, (begin + i) / kInt8Step), narrow + i, kInt8Step);
    }
  }
}

}  // namespace SAC_ISA
}  // namespace saccade
