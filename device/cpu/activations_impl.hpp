// Rows of activations in the form that the products read.
#pragma once
#include "cpu/kernels.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Elements of a row block from one step of k to the next, in the tiled form.
inline constexpr size_t kActivationTile = size_t{kActivationRows} * kPanelStep;

SAC_INLINE const float* plain_row(const Activations& a, uint32_t row) {
  return static_cast<const float*>(a.data) + size_t{row} * a.k;
}

/// Element k of a row. Elements [32 * (k / 32), ... + 32) are contiguous.
SAC_INLINE Bf16* tiled_at(const Activations& a, uint32_t row, uint32_t k) {
  const size_t tile = size_t{row / kActivationRows} * ceil_div(a.k, kPanelStep) + k / kPanelStep;
  return static_cast<Bf16*>(a.data) + tile * kActivationTile + row % kActivationRows * kPanelStep +
         k % kPanelStep;
}

/// kPanelStep floats as bf16. Sets with vectors of bf16 define SAC_BF16_LANES: compilers define
/// __AVX512BF16__ for whole files only.
SAC_INLINE void narrow_step(const float* values, Bf16* out) {
#if defined(SAC_BF16_LANES)
  const __m512 low = _mm512_loadu_ps(values);
  const __m512 high = _mm512_loadu_ps(values + 16);
  _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low));
#else
  for (uint32_t i = 0; i < kPanelStep; ++i) from_float(values[i], out[i]);
#endif
}

/// Writes elements [column, column + n) of a row, wherever they fall in the tiles.
inline void store_rest(const Activations& to, uint32_t row, uint32_t column, const float* values,
                       uint32_t n) {
  float* plain = static_cast<float*>(to.data) + size_t{row} * to.k + column;
  for (uint32_t i = 0; i < n; ++i) {
    if (to.tiled) {
      from_float(values[i], *tiled_at(to, row, column + i));
    } else {
      plain[i] = values[i];
    }
  }
}

/// The same, but writes whole tile steps at once.
SAC_INLINE void store_activations(const Activations& to, uint32_t row, uint32_t column,
                                  const float* values, uint32_t n) {
  if (!to.tiled) {
    float* out = static_cast<float*>(to.data) + size_t{row} * to.k + column;
    for (uint32_t i = 0; i < n; ++i) out[i] = values[i];
    return;
  }
  uint32_t i = min_u32(n, (kPanelStep - column % kPanelStep) % kPanelStep);
  if (i > 0) store_rest(to, row, column, values, i);
  for (; i + kPanelStep <= n; i += kPanelStep) {
    narrow_step(values + i, tiled_at(to, row, column + i));
  }
  if (i < n) store_rest(to, row, column + i, values + i, n - i);
}

}  // namespace SAC_ISA
}  // namespace saccade
