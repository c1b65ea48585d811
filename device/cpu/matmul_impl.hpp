// Matrix products: the walk over panels and rows, and what happens to a finished tile. How a tile
// of products is computed is the business of the kernel set's Products<T>.
#pragma once
#include "cpu/activations_impl.hpp"
#include "cpu/pack_impl.hpp"
#include "sample/exp.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// x * sigmoid(x).
SAC_INLINE float silu(float x) { return x / (1.0f + exp_fixed(-x)); }

/// Outputs that are finished together: one panel's.
inline constexpr uint32_t kFinishOutputs = kPanelOutputs;

SAC_INLINE void add_bias(float* values, const float* bias, uint32_t n) {
  if (bias == nullptr) return;
  for (uint32_t i = 0; i < n; ++i) values[i] += bias[i];
}

/// Finishes and writes `n` outputs of one row from output `first` on; `second` is the other product
/// of kGated.
template <Epilogue kEpilogue>
SAC_INLINE void finish(const MatmulArgs& a, uint32_t row, uint32_t first, uint32_t n, float* values,
                       float* second) {
  add_bias(values, a.bias == nullptr ? nullptr : a.bias + first, n);
  if constexpr (kEpilogue == Epilogue::kGated) {
    add_bias(second, a.bias2 == nullptr ? nullptr : a.bias2 + first, n);
    for (uint32_t i = 0; i < n; ++i) values[i] = silu(values[i]) * second[i];
    store_activations(a.gated, row, first, values, n);
  } else {
    float* __restrict__ y = a.y + row * a.y_stride + first;
    for (uint32_t i = 0; i < n; ++i) {
      y[i] = kEpilogue == Epilogue::kAdd ? y[i] + values[i] : values[i];
    }
  }
}

/// A tile [rows][stride] of which `count` outputs from `first` on belong to the matrix.
template <Epilogue kEpilogue>
void finish_tile(const MatmulArgs& a, uint32_t first_row, uint32_t rows, uint32_t first,
                 uint32_t count, float* tile, float* tile2, uint32_t stride) {
  for (uint32_t r = 0; r < rows; ++r) {
    uint32_t i = 0;
    for (; i + kFinishOutputs <= count; i += kFinishOutputs) {
      finish<kEpilogue>(a, first_row + r, first + i, kFinishOutputs, tile + r * stride + i,
                        tile2 + r * stride + i);
    }
    if (i < count) {
      finish<kEpilogue>(a, first_row + r, first + i, count - i, tile + r * stride + i,
                        tile2 + r * stride + i);
    }
  }
}

/// One tile of panels x rows, from products to results.
template <class T>
void matmul_tile(const MatmulArgs& a, uint32_t first_panel, uint32_t num_panels, uint32_t first_row,
                 uint32_t rows) {
  using P = Products<T>;
  constexpr uint32_t kWidth = P::kPanels * kPanelOutputs;
  alignas(64) float tile[P::kRows * kWidth];
  alignas(64) float tile2[P::kRows * kWidth];
  const size_t begin = panel_begin<T>(a.x.k, first_panel);
  const T* panels = static_cast<const T*>(a.panels) + begin;
  const T* next = panels + panel_begin<T>(a.x.k, num_panels);
  if (a.epilogue == Epilogue::kGated) {
    const T* panels2 = static_cast<const T*>(a.panels2) + begin;
    P::fill(a.x, first_row, rows, panels, panels2, num_panels, tile);
    P::fill(a.x, first_row, rows, panels2, next, num_panels, tile2);
  } else {
    P::fill(a.x, first_row, rows, panels, next, num_panels, tile);
  }
  const uint32_t first = first_panel * kPanelOutputs;
  const uint32_t count = min_u32(num_panels * kPanelOutputs, a.n - first);
  switch (a.epilogue) {
    case Epilogue::kStore:
      return finish_tile<Epilogue::kStore>(a, first_row, rows, first, count, tile, tile2, kWidth);
    case Epilogue::kAdd:
      return finish_tile<Epilogue::kAdd>(a, first_row, rows, first, count, tile, tile2, kWidth);
    case Epilogue::kGated:
      return finish_tile<Epilogue::kGated>(a, first_row, rows, first, count, tile, tile2, kWidth);
  }
}

/// Where tile t of `tiles` begins: nearly equal heights, in whole units.
SAC_INLINE uint32_t tile_begin(uint32_t rows, uint32_t unit, uint32_t tiles, uint32_t t) {
  const uint32_t units = ceil_div(rows, unit);
  return min_u32(rows, static_cast<uint32_t>(uint64_t{units} * t / tiles) * unit);
}

/// A tile's height changes no result.
template <class T>
void matmul_typed(const MatmulArgs& a) {
  using P = Products<T>;
  const uint32_t tiles = ceil_div(a.num_rows, P::kRows);
  for (uint32_t p = 0; p < a.num_panels; p += P::kPanels) {
    const uint32_t panels = min_u32(P::kPanels, a.num_panels - p);
    for (uint32_t t = 0; t < tiles; ++t) {
      const uint32_t begin = tile_begin(a.num_rows, P::kRowUnit, tiles, t);
      const uint32_t end = tile_begin(a.num_rows, P::kRowUnit, tiles, t + 1);
      matmul_tile<T>(a, a.first_panel + p, panels, a.first_row + begin, end - begin);
    }
  }
}

inline void matmul(const MatmulArgs& a) {
  switch (a.dtype) {
    case SAC_DTYPE_BF16:
      return matmul_typed<Bf16>(a);
    case SAC_DTYPE_F16:
      return matmul_typed<F16>(a);
    default:
      return matmul_typed<float>(a);
  }
}

}  // namespace SAC_ISA
}  // namespace saccade
