// Matrix products over packed panels: register tiles of rows x 32-output panels.
#pragma once
#include "cpu/kernels.hpp"
#include "sample/exp.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// A panel row of 32 outputs is read in units: one unit yields two vectors, of outputs
/// [u * kVecLanes, ...) and 16 further on.
inline constexpr uint32_t kUnitsPerPanel = 16 / kVecLanes;
inline constexpr uint32_t kTileWidth = kPanelOutputs * kMaxPanelsPerCall;

/// Offset of unit u in a panel row, in elements.
template <class T>
SAC_INLINE constexpr uint32_t unit_offset(uint32_t u) {
  return u * kVecLanes;
}
template <>
constexpr uint32_t unit_offset<Bf16>(uint32_t u) {
  return u * kVecLanes * 2;
}

SAC_INLINE void load_pair(const float* p, Vec& low, Vec& high) {
  low = vec_load(p);
  high = vec_load(p + 16);
}
SAC_INLINE void load_pair(const F16* p, Vec& low, Vec& high) {
  low = vec_load(p);
  high = vec_load(p + 16);
}
SAC_INLINE void load_pair(const Bf16* p, Vec& low, Vec& high) { vec_load_words(p, low, high); }

/// Units that a tile of this many rows keeps in registers at once.
constexpr uint32_t units_at_once(uint32_t rows) {
  uint32_t units = 4;
  while (units > 1 && rows * 2 * units > kTileAccumulators) units /= 2;
  return units;
}

/// kRows x kUnits outputs: each a chain of multiply-adds over k, ascending, from zero.
template <class T, uint32_t kRows, uint32_t kUnits>
SAC_INLINE void multiply_units(const float* x, size_t x_stride, const T* const (&unit)[kUnits],
                               uint32_t k, Vec (&acc)[kRows][2 * kUnits]) {
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t u = 0; u < 2 * kUnits; ++u) acc[r][u] = vec_zero();
  }
  for (uint32_t i = 0; i < k; ++i) {
    Vec w[2 * kUnits];
    for (uint32_t u = 0; u < kUnits; ++u) {
      load_pair(unit[u] + size_t{i} * kPanelOutputs, w[2 * u], w[2 * u + 1]);
    }
    for (uint32_t r = 0; r < kRows; ++r) {
      const Vec value = vec_set(x[r * x_stride + i]);
      for (uint32_t u = 0; u < 2 * kUnits; ++u) acc[r][u] = vec_fma(value, w[u], acc[r][u]);
    }
  }
}

/// Computes `kUnits` units from unit `first` on and stores them into the tile [kRows][kTileWidth].
template <class T, uint32_t kRows, uint32_t kUnits>
SAC_INLINE void fill_units(const float* x, size_t x_stride, const T* panels, uint32_t k,
                           uint32_t first, float* tile) {
  const T* unit[kUnits];
  for (uint32_t u = 0; u < kUnits; ++u) {
    const uint32_t panel = (first + u) / kUnitsPerPanel;
    unit[u] =
        panels + size_t{panel} * k * kPanelOutputs + unit_offset<T>((first + u) % kUnitsPerPanel);
  }
  Vec acc[kRows][2 * kUnits];
  multiply_units<T, kRows, kUnits>(x, x_stride, unit, k, acc);
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t u = 0; u < kUnits; ++u) {
      float* at = tile + r * kTileWidth + (first + u) / kUnitsPerPanel * kPanelOutputs +
                  (first + u) % kUnitsPerPanel * kVecLanes;
      vec_store(at, acc[r][2 * u]);
      vec_store(at + 16, acc[r][2 * u + 1]);
    }
  }
}

/// Fills a tile of kRows rows with `num_panels` panels of products.
template <class T, uint32_t kRows>
void fill_tile(const float* x, size_t x_stride, const T* panels, uint32_t k, uint32_t num_panels,
               float* tile) {
  constexpr uint32_t kUnits = units_at_once(kRows);
  const uint32_t total = num_panels * kUnitsPerPanel;
  uint32_t unit = 0;
  for (; unit + kUnits <= total; unit += kUnits) {
    fill_units<T, kRows, kUnits>(x, x_stride, panels, k, unit, tile);
  }
  if constexpr (kUnits > 1) {
    for (; unit < total; ++unit) fill_units<T, kRows, 1>(x, x_stride, panels, k, unit, tile);
  }
}

/// Calls the instance of fill_tile for a number of rows in [1, kMaxTileRows].
template <class T, uint32_t kRows = kMaxTileRows>
SAC_INLINE void fill_tile_rows(uint32_t rows, const float* x, size_t x_stride, const T* panels,
                               uint32_t k, uint32_t num_panels, float* tile) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      fill_tile<T, kRows>(x, x_stride, panels, k, num_panels, tile);
    } else {
      fill_tile_rows<T, kRows - 1>(rows, x, x_stride, panels, k, num_panels, tile);
    }
  }
}

/// x * sigmoid(x).
SAC_INLINE float silu(float x) { return x / (1.0f + exp_fixed(-x)); }

SAC_INLINE void add_bias_row(float* tile, const float* bias, uint32_t n) {
  if (bias == nullptr) return;
  for (uint32_t i = 0; i < n; ++i) tile[i] += bias[i];
}

/// Writes `n` outputs of one row; tile2 is the second product of kGated.
inline void write_row(Epilogue epilogue, const float* tile, const float* tile2, uint32_t n,
                      float* y) {
  switch (epilogue) {
    case Epilogue::kStore:
      for (uint32_t i = 0; i < n; ++i) y[i] = tile[i];
      return;
    case Epilogue::kAdd:
      for (uint32_t i = 0; i < n; ++i) y[i] += tile[i];
      return;
    case Epilogue::kGated:
      for (uint32_t i = 0; i < n; ++i) y[i] = silu(tile[i]) * tile2[i];
      return;
  }
}

template <class T>
void matmul_rows(const MatmulArgs& a, uint32_t first_row, uint32_t rows) {
  alignas(64) float tile[kMaxTileRows * kTileWidth];
  alignas(64) float tile2[kMaxTileRows * kTileWidth];
  const size_t skip = size_t{a.first_panel} * a.k * kPanelOutputs;
  const float* x = a.x + first_row * a.x_stride;
  const bool gated = a.epilogue == Epilogue::kGated;
  fill_tile_rows<T>(rows, x, a.x_stride, static_cast<const T*>(a.panels) + skip, a.k, a.num_panels,
                    tile);
  if (gated) {
    fill_tile_rows<T>(rows, x, a.x_stride, static_cast<const T*>(a.panels2) + skip, a.k,
                      a.num_panels, tile2);
  }
  const uint32_t first = a.first_panel * kPanelOutputs;
  const uint32_t count = min_u32(a.num_panels * kPanelOutputs, a.n - first);
  for (uint32_t r = 0; r < rows; ++r) {
    float* row = tile + r * kTileWidth;
    float* row2 = tile2 + r * kTileWidth;
    add_bias_row(row, a.bias == nullptr ? nullptr : a.bias + first, count);
    if (gated) add_bias_row(row2, a.bias2 == nullptr ? nullptr : a.bias2 + first, count);
    write_row(a.epilogue, row, row2, count, a.y + (first_row + r) * a.y_stride + first);
  }
}

/// Rows go in tiles of nearly equal height; a tile's height changes no result.
template <class T>
void matmul_typed(const MatmulArgs& a) {
  const uint32_t tiles = ceil_div(a.num_rows, kMaxTileRows);
  for (uint32_t t = 0; t < tiles; ++t) {
    const uint32_t begin = static_cast<uint32_t>(uint64_t{a.num_rows} * t / tiles);
    const uint32_t end = static_cast<uint32_t>(uint64_t{a.num_rows} * (t + 1) / tiles);
    matmul_rows<T>(a, begin, end - begin);
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
