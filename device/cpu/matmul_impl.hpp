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

SAC_INLINE void add_bias(float* tile, const float* bias, uint32_t n) {
  if (bias == nullptr) return;
  for (uint32_t i = 0; i < n; ++i) tile[i] += bias[i];
}

/// Writes `count` outputs of one row from output `first` on; tile2 is the second product of kGated.
inline void write_row(const MatmulArgs& a, uint32_t row, uint32_t first, uint32_t count,
                      float* tile, float* tile2) {
  add_bias(tile, a.bias == nullptr ? nullptr : a.bias + first, count);
  float* y = a.epilogue == Epilogue::kGated ? nullptr : a.y + row * a.y_stride + first;
  switch (a.epilogue) {
    case Epilogue::kStore:
      for (uint32_t i = 0; i < count; ++i) y[i] = tile[i];
      return;
    case Epilogue::kAdd:
      for (uint32_t i = 0; i < count; ++i) y[i] += tile[i];
      return;
    case Epilogue::kGated:
      add_bias(tile2, a.bias2 == nullptr ? nullptr : a.bias2 + first, count);
      for (uint32_t i = 0; i < count; ++i) tile[i] = silu(tile[i]) * tile2[i];
      store_activations(a.gated, row, first, tile, count);
      return;
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
  P::fill(a.x, first_row, rows, static_cast<const T*>(a.panels) + begin, num_panels, tile);
  if (a.epilogue == Epilogue::kGated) {
    P::fill(a.x, first_row, rows, static_cast<const T*>(a.panels2) + begin, num_panels, tile2);
  }
  const uint32_t first = first_panel * kPanelOutputs;
  const uint32_t count = min_u32(num_panels * kPanelOutputs, a.n - first);
  for (uint32_t r = 0; r < rows; ++r) {
    write_row(a, first_row + r, first, count, tile + r * kWidth, tile2 + r * kWidth);
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
