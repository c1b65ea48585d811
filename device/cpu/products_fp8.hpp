// Products of f32 activations with fp8 panels, for any instruction set. Each output is a sum over
// groups of 128 of k, ascending, from zero; a group is one chain of multiply-adds over k, from
// zero, with the weights as they are stored, times its scale.
#pragma once
#include "cpu/fp8_impl.hpp"
#include "cpu/products_float.hpp"

namespace saccade {
inline namespace SAC_ISA {

struct PlainFp8Products {
  static constexpr size_t kGroupFloats = size_t{kQuantGroup} * kPanelOutputs;

  /// Pairs of k as floats, [k][32]: rows of x share the work.
  SAC_INLINE void widen(const uint8_t* weights, uint32_t pairs, float* wide) {
    for (uint32_t pair = 0; pair < pairs; ++pair) {
      const uint8_t* line = weights + pair * kPairBytes;
      float* to = wide + size_t{pair} * 2 * kPanelOutputs;
      __builtin_prefetch(line + kPrefetchBytes);
      for (uint32_t v = 0; v < kPanelVecs; ++v) {
        Vec first, second;
        vec_load_fp8(line, v, first, second);
        vec_store(to + v * kVecLanes, first);
        vec_store(to + kPanelOutputs + v * kVecLanes, second);
      }
    }
  }

  /// Adds a group of n of k to the results of some rows, x_stride apart.
  template <uint32_t kR>
  static void add_rows(const float* x, size_t x_stride, uint32_t n, const float* wide,
                       const float* scales, float* tile) {
    constexpr uint32_t kVecs = min_u32(vecs_at_once(kR), kPanelVecs);
    for (uint32_t first = 0; first < kPanelVecs; first += kVecs) {
      const float* at[kVecs];
      for (uint32_t v = 0; v < kVecs; ++v) at[v] = wide + (first + v) * kVecLanes;
      Vec acc[kR][kVecs];
      for (uint32_t r = 0; r < kR; ++r) {
        for (uint32_t v = 0; v < kVecs; ++v) acc[r][v] = vec_zero();
      }
      multiply_vecs(x, x_stride, at, n, acc);
      for (uint32_t r = 0; r < kR; ++r) {
        for (uint32_t v = 0; v < kVecs; ++v) {
          float* to = tile + r * kPanelOutputs + (first + v) * kVecLanes;
          const Vec scale = vec_load(scales + (first + v) * kVecLanes);
          vec_store(to, vec_fma(acc[r][v], scale, vec_load(to)));
        }
      }
    }
  }

  /// Calls the instance of add_rows for a number of rows in [1, kMaxTileRows].
  template <uint32_t kR = kMaxTileRows>
  SAC_INLINE void choose_rows(uint32_t rows, const float* x, size_t x_stride, uint32_t n,
                              const float* wide, const float* scales, float* tile) {
    if constexpr (kR > 0) {
      if (rows == kR) {
        add_rows<kR>(x, x_stride, n, wide, scales, tile);
      } else {
        choose_rows<kR - 1>(rows, x, x_stride, n, wide, scales, tile);
      }
    }
  }

  static void fill_panel(const Activations& x, uint32_t first_row, uint32_t rows,
                         const uint8_t* panel, float* tile) {
    alignas(64) float wide[kGroupFloats];
    const float* scales = fp8_scales(panel, x.k);
    for (uint32_t i = 0; i < rows * kPanelOutputs; ++i) tile[i] = 0.0f;
    for (uint32_t begin = 0; begin < x.k; begin += kQuantGroup, scales += kPanelOutputs) {
      const uint32_t n = min_u32(kQuantGroup, x.k - begin);
      widen(panel + size_t{begin} * kPanelOutputs, ceil_div(n, 2), wide);
      for (uint32_t r = 0; r < rows; r += kMaxTileRows) {
        choose_rows(min_u32(kMaxTileRows, rows - r), plain_row(x, first_row + r) + begin, x.k, n,
                    wide, scales, tile + size_t{r} * kPanelOutputs);
      }
    }
  }

  static void fill(const Activations& x, uint32_t first_row, uint32_t rows, const uint8_t* panels,
                   uint32_t num_panels, float* tile) {
    for (uint32_t p = 0; p < num_panels; ++p) {
      fill_panel(x, first_row, rows, panels + p * panel_elements(SAC_DTYPE_FP8, x.k),
                 tile + p * kTilePanelFloats);
    }
  }

 private:
  static constexpr size_t kPrefetchBytes = 4096;
};

}  // namespace SAC_ISA
}  // namespace saccade
