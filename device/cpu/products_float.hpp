// Products of f32 activations with panels of any dtype: register tiles of rows x vectors of
// outputs. Each output is one chain of multiply-adds over k, ascending, from zero.
#pragma once
#include "cpu/activations_impl.hpp"
#include "cpu/pack_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Vectors of outputs in one row of a panel.
inline constexpr uint32_t kPanelVecs = kPanelOutputs / kVecLanes;

/// Vectors that a tile of this many rows keeps in registers at once.
constexpr uint32_t vecs_at_once(uint32_t rows) {
  uint32_t vecs = 8;
  while (vecs > 1 && rows * vecs > kTileAccumulators) vecs /= 2;
  return vecs;
}

/// One k: rows of x, a stride apart, times the weights w.
template <uint32_t kRows, uint32_t kVecs>
SAC_INLINE void multiply_one(const float* x, size_t x_stride, const Vec (&w)[kVecs],
                             Vec (&acc)[kRows][kVecs]) {
  for (uint32_t r = 0; r < kRows; ++r) {
    const Vec value = vec_set(x[r * x_stride]);
    for (uint32_t v = 0; v < kVecs; ++v) acc[r][v] = vec_fma(value, w[v], acc[r][v]);
  }
}

template <class T, uint32_t kRows, uint32_t kVecs>
SAC_INLINE void multiply_vecs(const float* x, size_t x_stride, const T* const (&at)[kVecs],
                              uint32_t k, Vec (&acc)[kRows][kVecs]) {
  for (uint32_t i = 0; i < k; ++i) {
    Vec w[kVecs];
    for (uint32_t v = 0; v < kVecs; ++v) w[v] = vec_load(at[v] + size_t{i} * kPanelOutputs);
    multiply_one(x + i, x_stride, w, acc);
  }
}

/// How many k ahead of its use a panel's row is prefetched.
inline constexpr uint32_t kPrefetchK = 32;

/// Prefetches the row of a panel that comes kPrefetchK further on: for tiles that take a part of
/// each row, whose strides the hardware does not predict.
SAC_INLINE void prefetch_panel(const Bf16* at) {
  const uint8_t* row = reinterpret_cast<const uint8_t*>(at + size_t{kPrefetchK} * kPanelOutputs);
  for (size_t line = 0; line < 2 * kPanelOutputs * sizeof(Bf16); line += 64) {
    __builtin_prefetch(row + line);
  }
}

/// bf16 panels hold pairs of k in one 32-bit word: a shift makes the vector of the first, a mask
/// that of the second. They are loaded one after the other: both at once would spill an
/// accumulator, and every sum would wait for its round trip through memory.
template <uint32_t kRows, uint32_t kVecs>
SAC_INLINE void multiply_vecs(const float* x, size_t x_stride, const Bf16* const (&at)[kVecs],
                              uint32_t k, Vec (&acc)[kRows][kVecs]) {
  for (uint32_t i = 0; i < k; i += 2) {
    if constexpr (kVecs < kPanelVecs) prefetch_panel(at[0] + size_t{i} * kPanelOutputs);
    Vec w[kVecs];
    for (uint32_t v = 0; v < kVecs; ++v) w[v] = vec_load_even(at[v] + size_t{i} * kPanelOutputs);
    multiply_one(x + i, x_stride, w, acc);
    if (i + 1 == k) return;
    asm volatile("" ::: "memory");  // or the compiler would keep what the first loads read
    for (uint32_t v = 0; v < kVecs; ++v) w[v] = vec_load_odd(at[v] + size_t{i} * kPanelOutputs);
    multiply_one(x + i + 1, x_stride, w, acc);
  }
}

template <class T>
struct FloatProducts {
  static constexpr uint32_t kRows = kMaxTileRows;
  static constexpr bool kTiledActivations = false;
  static constexpr bool kChunks = false;
  static constexpr uint32_t kPanels = kTilePanels;
  /// Elements that one k of one vector takes in a panel's row.
  static constexpr uint32_t kVecStep = PanelDtype<T>::value == SAC_DTYPE_BF16 ? 2 : 1;

  /// Vectors [first, first + kVecs) of the panels, stored into the tile.
  template <uint32_t kR, uint32_t kVecs>
  SAC_INLINE void fill_vecs(const float* x, uint32_t k, const T* panels, uint32_t first,
                            float* tile) {
    const T* at[kVecs];
    for (uint32_t v = 0; v < kVecs; ++v) {
      at[v] = panels + panel_begin<T>(k, (first + v) / kPanelVecs) +
              (first + v) % kPanelVecs * kVecLanes * kVecStep;
    }
    Vec acc[kR][kVecs];
    for (uint32_t r = 0; r < kR; ++r) {
      for (uint32_t v = 0; v < kVecs; ++v) acc[r][v] = vec_zero();
    }
    multiply_vecs(x, k, at, k, acc);
    for (uint32_t r = 0; r < kR; ++r) {
      for (uint32_t v = 0; v < kVecs; ++v) {
        vec_store(tile + (first + v) / kPanelVecs * kTilePanelFloats + r * kPanelOutputs +
                      (first + v) % kPanelVecs * kVecLanes,
                  acc[r][v]);
      }
    }
  }

  template <uint32_t kR>
  static void fill_rows(const float* x, uint32_t k, const T* panels, uint32_t num_panels,
                        float* tile) {
    constexpr uint32_t kVecs = vecs_at_once(kR);
    const uint32_t total = num_panels * kPanelVecs;
    uint32_t v = 0;
    for (; v + kVecs <= total; v += kVecs) fill_vecs<kR, kVecs>(x, k, panels, v, tile);
    if constexpr (kVecs > kPanelVecs) {
      for (; v < total; v += kPanelVecs) {
        fill_vecs<kR, kPanelVecs>(x, k, panels, v, tile);
      }
    }
  }

  /// Calls the instance of fill_rows for a number of rows in [1, kRows].
  template <uint32_t kR = kRows>
  SAC_INLINE void choose_rows(uint32_t rows, const float* x, uint32_t k, const T* panels,
                              uint32_t num_panels, float* tile) {
    if constexpr (kR > 0) {
      if (rows == kR) {
        fill_rows<kR>(x, k, panels, num_panels, tile);
      } else {
        choose_rows<kR - 1>(rows, x, k, panels, num_panels, tile);
      }
    }
  }

  static void fill(const Activations& x, uint32_t first_row, uint32_t rows, const T* panels,
                   uint32_t num_panels, const T*, float* tile) {
    choose_rows(rows, plain_row(x, first_row), x.k, panels, num_panels, tile);
  }
};

/// What a kernel set computes products of T with. Sets with bf16 instructions specialise it.
template <class T>
struct Products : FloatProducts<T> {};

}  // namespace SAC_ISA
}  // namespace saccade
