// Products of bf16 activations with bf16 panels by vdpbf16ps. Each output is one chain over pairs
// of k, ascending, from zero; the instruction rounds as it defines, denormals are zero.
#pragma once
#include "cpu/activations_impl.hpp"
#include "cpu/pack_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

struct Bf16Products {
  static constexpr uint32_t kRows = 8;
  static constexpr bool kTiledActivations = true;
  static constexpr bool kChunks = false;
  static constexpr uint32_t kPanels = kTilePanels;

  SAC_INLINE __m512bh load_weights(const Bf16* p) { return (__m512bh)_mm512_loadu_si512(p); }
  /// The pair of activations at p in all lanes.
  SAC_INLINE __m512bh load_pair(const Bf16* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
  }

  /// kR rows x kP panels; row[r] points at the row's first step of k.
  template <uint32_t kR, uint32_t kP>
  SAC_INLINE void multiply(const Bf16* const (&row)[kR], uint32_t k, const Bf16* panels,
                           float* tile) {
    const size_t stride = panel_begin<Bf16>(k, 1);
    __m512 acc[kR][2 * kP];
    for (auto& r : acc) {
      for (__m512& a : r) a = _mm512_setzero_ps();
    }
    for (uint32_t step = 0; step < ceil_div(k, kPanelStep); ++step) {
      for (uint32_t pair = 0; pair < kPanelStep / 2; ++pair) {
        const size_t at = size_t{step} * kPanelStep * kPanelOutputs + pair * 2 * kPanelOutputs;
        __m512bh w[2 * kP];
        for (uint32_t v = 0; v < 2 * kP; ++v) {
          w[v] = load_weights(panels + v / 2 * stride + at + v % 2 * kPanelOutputs);
        }
        for (uint32_t r = 0; r < kR; ++r) {
          const __m512bh value = load_pair(row[r] + step * kActivationTile + pair * 2);
          for (uint32_t v = 0; v < 2 * kP; ++v) {
            acc[r][v] = _mm512_dpbf16_ps(acc[r][v], value, w[v]);
          }
        }
      }
    }
    for (uint32_t r = 0; r < kR; ++r) {
      for (uint32_t v = 0; v < 2 * kP; ++v) {
        _mm512_storeu_ps(tile + v / 2 * kTilePanelFloats + r * kPanelOutputs + v % 2 * 16,
                         acc[r][v]);
      }
    }
  }

  template <uint32_t kR>
  static void fill_rows(const Activations& x, uint32_t first_row, const Bf16* panels,
                        uint32_t num_panels, float* tile) {
    const Bf16* row[kR];
    for (uint32_t r = 0; r < kR; ++r) row[r] = tiled_at(x, first_row + r, 0);
    constexpr uint32_t kP = kR <= 4 ? 2 : 1;
    uint32_t p = 0;
    for (; p + kP <= num_panels; p += kP) {
      multiply<kR, kP>(row, x.k, panels + panel_begin<Bf16>(x.k, p), tile + p * kTilePanelFloats);
    }
    if constexpr (kP > 1) {
      for (; p < num_panels; ++p) {
        multiply<kR, 1>(row, x.k, panels + panel_begin<Bf16>(x.k, p), tile + p * kTilePanelFloats);
      }
    }
  }

  /// Calls the instance of fill_rows for a number of rows in [1, kRows].
  template <uint32_t kR = kRows>
  SAC_INLINE void choose_rows(uint32_t rows, const Activations& x, uint32_t first_row,
                              const Bf16* panels, uint32_t num_panels, float* tile) {
    if constexpr (kR > 0) {
      if (rows == kR) {
        fill_rows<kR>(x, first_row, panels, num_panels, tile);
      } else {
        choose_rows<kR - 1>(rows, x, first_row, panels, num_panels, tile);
      }
    }
  }

  static void fill(const Activations& x, uint32_t first_row, uint32_t rows, const Bf16* panels,
                   uint32_t num_panels, const Bf16*, float* tile) {
    choose_rows(rows, x, first_row, panels, num_panels, tile);
  }
};

}  // namespace SAC_ISA
}  // namespace saccade
