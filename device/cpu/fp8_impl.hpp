// Matrices in e4m3, and their packing: as they are stored, or from other types with one scale for
// each output and group of 128 of k. A group with a value that is infinite or not a number has the
// scale NaN and numbers 0, as in 8 bits: no panel holds e4m3's NaN, which products need not know.
#pragma once
#include "cpu/quantize_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

inline constexpr float kFp8Max = 448.0f;
/// Groups whose greatest magnitude is below this are zero: its inverse must be a float.
inline constexpr float kFp8Least = 1e-30f;

/// The position of weight k of an output in its panel. Each 16 bytes of a pair of k are 4 outputs
/// of the first 16 and 4 of the last: what unpacking by byte makes two vectors of bf16 pairs.
SAC_INLINE size_t fp8_slot(uint32_t output, uint32_t k) {
  const uint32_t at = output % 16 * 2 + k % 2;
  return size_t{k / 2} * kPairBytes + at / 8 * 16 + output / 16 * 8 + at % 8;
}
/// A panel's scales, [groups][32].
SAC_INLINE const float* fp8_scales(const uint8_t* panel, uint32_t k) {
  const size_t rounded = size_t{ceil_div(k, kPanelStep)} * kPanelStep;
  return reinterpret_cast<const float*>(panel + rounded * kPanelOutputs);
}

/// n <= 128 values of one group in e4m3; returns their scale.
SAC_INLINE float narrow_group(const float* values, uint32_t n, Fp8* out) {
  float top = 0.0f, doubt = 0.0f;
  for (uint32_t i = 0; i < n; ++i) {
    const float magnitude = __builtin_fabsf(values[i]);
    top = magnitude > top ? magnitude : top;
    doubt += values[i] * 0.0f;  // NaN for infinity and NaN
  }
  const bool sound = doubt == 0.0f && top >= kFp8Least;
  const float inverse = sound ? kFp8Max / top : 0.0f;
  for (uint32_t i = 0; i < n; ++i) from_float(sound ? values[i] * inverse : 0.0f, out[i]);
  return doubt == 0.0f ? top * (1.0f / kFp8Max) : doubt;
}

/// Packs one panel; read(output, begin, count, narrow) gives a group's elements, and its scale.
template <class Read>
void fill_fp8_panel(const PackArgs& a, Read&& read) {
  const size_t bytes = panel_elements(SAC_DTYPE_FP8, a.k);
  uint8_t* panel = static_cast<uint8_t*>(a.panels) + a.panel * bytes;
  for (size_t i = 0; i < bytes; ++i) panel[i] = 0;
  float* scales = const_cast<float*>(fp8_scales(panel, a.k));
  const uint32_t first = a.panel * kPanelOutputs;
  for (uint32_t j = 0; j < min_u32(kPanelOutputs, a.n - first); ++j) {
    for (uint32_t begin = 0; begin < a.k; begin += kQuantGroup) {
      const uint32_t count = min_u32(kQuantGroup, a.k - begin);
      Fp8 narrow[kQuantGroup];
      scales[begin / kQuantGroup * kPanelOutputs + j] = read(first + j, begin, count, narrow);
      for (uint32_t i = 0; i < count; ++i) panel[fp8_slot(j, begin + i)] = narrow[i].bits;
    }
  }
}

/// The same from values of another type; read(output, begin, count, floats) gives them.
template <class Read>
void pack_fp8(const PackArgs& a, Read&& read) {
  fill_fp8_panel(a, [&](uint32_t output, uint32_t begin, uint32_t count, Fp8* out) {
    float wide[kQuantGroup];
    read(output, begin, count, wide);
    return narrow_group(wide, count, out);
  });
}

SAC_INLINE float source_scale(const PackArgs& a, uint32_t output, uint32_t k) {
  return a.source_scales[size_t{output} * ceil_div(a.k, kQuantGroup) + k / kQuantGroup];
}

/// The same from e4m3 as it is stored.
inline void copy_fp8(const PackArgs& a) {
  fill_fp8_panel(a, [&a](uint32_t output, uint32_t begin, uint32_t count, Fp8* out) {
    const uint8_t* at = static_cast<const uint8_t*>(a.source) + size_t{output} * a.k + begin;
    bool sound = true;
    for (uint32_t i = 0; i < count; ++i) sound &= (at[i] & 0x7fu) != 0x7fu;
    for (uint32_t i = 0; i < count; ++i) out[i].bits = sound ? at[i] : 0;
    return sound ? source_scale(a, output, begin) : __builtin_nanf("");
  });
}

inline void unpack_fp8(const void* panels, uint32_t k, uint32_t row, float* out) {
  const uint8_t* panel =
      static_cast<const uint8_t*>(panels) + row / kPanelOutputs * panel_elements(SAC_DTYPE_FP8, k);
  const float* scales = fp8_scales(panel, k) + row % kPanelOutputs;
  for (uint32_t i = 0; i < k; ++i) {
    out[i] = to_float(Fp8{panel[fp8_slot(row % kPanelOutputs, i)]}) *
             scales[i / kQuantGroup * kPanelOutputs];
  }
}

}  // namespace SAC_ISA
}  // namespace saccade
