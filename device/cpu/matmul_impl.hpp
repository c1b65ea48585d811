// Matrix products: the walk over panels and rows, and what happens to a finished tile. The kernel
// set's Products<T> computes the tile.
#pragma once
#include "cpu/activations_impl.hpp"
#include "cpu/pack_impl.hpp"
#include "sample/exp.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// x * sigmoid(x).
SAC_INLINE float silu(float x) { return x / (1.0f + exp_fixed(-x)); }

#if defined(SAC_BF16_LANES)
/// x * sigmoid(x) within a share of 4e-07 + 8e-08 |x| of its value, for |x| <= 87: the power is
/// rounded before it is taken. An approximate reciprocal and a step of Newton's method take a
/// fraction of a division's time.
SAC_INLINE __m512 silu_lanes(__m512 x) {
  // 2^126 at most: beyond it the reciprocal would be a denormal.
  const __m512 power =
      _mm512_min_ps(_mm512_mul_ps(x, _mm512_set1_ps(-1.44269504f)), _mm512_set1_ps(126.0f));
  const __m512 d = _mm512_add_ps(_mm512_set1_ps(1.0f), exp2_lanes(power));
  const __m512 r = _mm512_rcp14_ps(d);
  const __m512 rest = _mm512_fnmadd_ps(d, r, _mm512_set1_ps(2.0f));
  return _mm512_mul_ps(_mm512_mul_ps(x, r), rest);
}
#endif

/// values = silu(values) * second, of one panel's outputs.
SAC_INLINE void gate(float* values, const float* second) {
#if defined(SAC_BF16_LANES)
  for (uint32_t i = 0; i < kPanelOutputs; i += 16) {
    const __m512 gated = silu_lanes(_mm512_loadu_ps(values + i));
    _mm512_storeu_ps(values + i, _mm512_mul_ps(gated, _mm512_loadu_ps(second + i)));
  }
#else
  for (uint32_t i = 0; i < kPanelOutputs; ++i) values[i] = silu(values[i]) * second[i];
#endif
}

SAC_INLINE void add_bias(float* values, const float* bias, uint32_t n) {
  if (bias == nullptr) return;
  for (uint32_t i = 0; i < n; ++i) values[i] += bias[i];
}

/// Adds the change of `n` outputs of one panel of the call, for the call's r-th row.
SAC_INLINE void add_delta(float* values, const Delta& delta, uint32_t r, uint32_t panel,
                          uint32_t n) {
  if (delta.places == nullptr || delta.places[r] == Delta::kNone) return;
  const float* add = delta.values + panel * kTilePanelFloats + delta.places[r] * kPanelOutputs;
  for (uint32_t i = 0; i < n; ++i) values[i] += add[i];
}

/// Finishes and writes `n` outputs of the call's r-th row and one of its panels; `second` is the
/// other product of kGated.
template <Epilogue kEpilogue>
SAC_INLINE void finish_outputs(const MatmulArgs& a, uint32_t r, uint32_t panel, uint32_t n,
                               float* values, float* second) {
  const uint32_t row = a.first_row + r;
  const uint32_t first = (a.first_panel + panel) * kPanelOutputs;
  if constexpr (kEpilogue == Epilogue::kScale) {
    for (uint32_t i = 0; i < n; ++i) values[i] *= a.scale;
    return store_activations(a.gated, row, first, values, n);
  }
  add_bias(values, a.bias == nullptr ? nullptr : a.bias + first, n);
  add_delta(values, a.delta, r, panel, n);
  if constexpr (kEpilogue == Epilogue::kGated) {
    add_bias(second, a.bias2 == nullptr ? nullptr : a.bias2 + first, n);
    add_delta(second, a.delta2, r, panel, n);
    gate(values, second);  // what lies beyond n is not stored
    store_activations(a.gated, row, first, values, n);
  } else {
    float* __restrict__ y = a.y + row * a.y_stride + first;
    for (uint32_t i = 0; i < n; ++i) {
      y[i] = kEpilogue == Epilogue::kAdd ? y[i] + values[i] : values[i];
    }
  }
}

template <Epilogue kEpilogue>
void finish_tile(const MatmulArgs& a) {
  const uint32_t first = a.first_panel * kPanelOutputs;
  const uint32_t count = min_u32(a.num_panels * kPanelOutputs, a.n - first);
  for (uint32_t r = 0; r < a.num_rows; ++r) {
    float* values = a.tiles + size_t{r} * kPanelOutputs;
    uint32_t p = 0;
    for (; p < count / kPanelOutputs; ++p, values += kTilePanelFloats) {
      finish_outputs<kEpilogue>(a, r, p, kPanelOutputs, values, values + kTileFloats);
    }
    if (const uint32_t rest = count % kPanelOutputs; rest != 0) {
      finish_outputs<kEpilogue>(a, r, p, rest, values, values + kTileFloats);
    }
  }
}

inline void finish(const MatmulArgs& a) {
  switch (a.epilogue) {
    case Epilogue::kStore:
      return finish_tile<Epilogue::kStore>(a);
    case Epilogue::kAdd:
      return finish_tile<Epilogue::kAdd>(a);
    case Epilogue::kGated:
      return finish_tile<Epilogue::kGated>(a);
    case Epilogue::kScale:
      return finish_tile<Epilogue::kScale>(a);
  }
}

/// All rows of one matrix's panels. A tile's height changes no result. `next` is for products that
/// prefetch, which take the whole call at once: what they multiply after it; null: not known.
template <class T>
void multiply_panels(const MatmulArgs& a, const T* panels, const T* next, float* tile) {
  using P = Products<T>;
  for (uint32_t p = 0; p < a.num_panels; p += P::kPanels) {
    const uint32_t count = min_u32(P::kPanels, a.num_panels - p);
    const T* at = panels + panel_begin<T>(a.x.k, a.first_panel + p);
    const uint32_t parts = ceil_div(a.num_rows, P::kRows);
    for (uint32_t i = 0; i < parts; ++i) {  // of nearly equal height
      const uint32_t begin = a.num_rows * i / parts;
      const uint32_t end = a.num_rows * (i + 1) / parts;
      const T* after = next != nullptr ? next : at + panel_begin<T>(a.x.k, count);
      P::fill(a.x, a.first_row + begin, end - begin, at, count, after,
              tile + p * kTilePanelFloats + size_t{begin} * kPanelOutputs);
    }
  }
}

inline void multiply_int8(const MatmulArgs& a) {
  const size_t panel_bytes = panel_elements(SAC_DTYPE_INT8, a.quantized.k);
  const void* matrices[2] = {a.panels, a.epilogue == Epilogue::kGated ? a.panels2 : nullptr};
  for (uint32_t m = 0; m < 2 && matrices[m] != nullptr; ++m) {
    const int8_t* panels = static_cast<const int8_t*>(matrices[m]) + a.first_panel * panel_bytes;
    for (uint32_t p = 0; p < a.num_panels; ++p) {
      Int8Products::fill(a.quantized, a.first_row, a.num_rows, panels + p * panel_bytes,
                         a.tiles + m * kTileFloats + p * kTilePanelFloats);
    }
  }
}

inline void multiply_fp8(const MatmulArgs& a) {
  const size_t first = a.first_panel * panel_elements(SAC_DTYPE_FP8, a.x.k);
  const void* matrices[2] = {a.panels, a.epilogue == Epilogue::kGated ? a.panels2 : nullptr};
  for (uint32_t m = 0; m < 2 && matrices[m] != nullptr; ++m) {
    Fp8Products::fill(a.x, a.first_row, a.num_rows,
                      static_cast<const uint8_t*>(matrices[m]) + first, a.num_panels,
                      a.tiles + m * kTileFloats);
  }
}

template <class T>
void multiply_typed(const MatmulArgs& a) {
  const T* panels = static_cast<const T*>(a.panels);
  const T* ahead = static_cast<const T*>(a.ahead);
  if (a.epilogue != Epilogue::kGated) return multiply_panels(a, panels, ahead, a.tiles);
  const T* panels2 = static_cast<const T*>(a.panels2);
  multiply_panels(a, panels, panels2 + panel_begin<T>(a.x.k, a.first_panel), a.tiles);
  multiply_panels(a, panels2, ahead, a.tiles + kTileFloats);
}

inline void multiply(const MatmulArgs& a) {
  switch (a.dtype) {
    case SAC_DTYPE_BF16:
      return multiply_typed<Bf16>(a);
    case SAC_DTYPE_F16:
      return multiply_typed<F16>(a);
    case SAC_DTYPE_INT8:
      return multiply_int8(a);
    case SAC_DTYPE_FP8:
      return multiply_fp8(a);
    default:
      return multiply_typed<float>(a);
  }
}

}  // namespace SAC_ISA
}  // namespace saccade
