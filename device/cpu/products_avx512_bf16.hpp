// Products of bf16 activations with bf16 panels by vdpbf16ps. Each output is one chain over pairs
// of k, ascending, from zero; the instruction rounds as it defines, denormals are zero.
#pragma once
#include "cpu/activations_impl.hpp"
#include "cpu/pack_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

struct Bf16Products {
  static constexpr uint32_t kRows = kTileRows;
  /// Rows whose sums fit the registers.
  static constexpr uint32_t kRowsAtOnce = 8;
  /// Up to this many rows, products take about as long as memory takes to bring the weights: each
  /// panel is fetched while all rows go past the one before it. With kRowsAtOnce or fewer, the
  /// processor's own prefetching does better.
  static constexpr uint32_t kMostRowsAhead = 4 * kRowsAtOnce;
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

  /// Fetches nothing.
  struct NoAhead {
    __attribute__((always_inline)) void fetch() {}
  };

  /// kR rows x kP panels; row[r] points at the row's first step of k.
  template <uint32_t kR, uint32_t kP, class A>
  SAC_INLINE void multiply(const Bf16* const (&row)[kR], uint32_t k, const Bf16* panels, A& ahead,
                           float* tile) {
    const size_t stride = panel_begin<Bf16>(k, 1);
    __m512 acc[kR][2 * kP];
    for (auto& r : acc) {
      for (__m512& a : r) a = _mm512_setzero_ps();
    }
    for (uint32_t step = 0; step < ceil_div(k, kPanelStep); ++step) {
      ahead.fetch();
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

  template <uint32_t kR, class A>
  static void fill_rows(const Activations& x, uint32_t first_row, const Bf16* panels,
                        uint32_t num_panels, A& ahead, float* tile) {
    const Bf16* row[kR];
    for (uint32_t r = 0; r < kR; ++r) row[r] = tiled_at(x, first_row + r, 0);
    constexpr uint32_t kP = kR <= 4 ? 2 : 1;
    uint32_t p = 0;
    for (; p + kP <= num_panels; p += kP) {
      multiply<kR, kP>(row, x.k, panels + panel_begin<Bf16>(x.k, p), ahead,
                       tile + p * kTilePanelFloats);
    }
    if constexpr (kP > 1) {
      for (; p < num_panels; ++p) {
        multiply<kR, 1>(row, x.k, panels + panel_begin<Bf16>(x.k, p), ahead,
                        tile + p * kTilePanelFloats);
      }
    }
  }

  /// Calls the instance of fill_rows for a number of rows in [1, kRowsAtOnce].
  template <class A, uint32_t kR = kRowsAtOnce>
  SAC_INLINE void choose_rows(uint32_t rows, const Activations& x, uint32_t first_row,
                              const Bf16* panels, uint32_t num_panels, A& ahead, float* tile) {
    if constexpr (kR > 0) {
      if (rows == kR) {
        fill_rows<kR>(x, first_row, panels, num_panels, ahead, tile);
      } else {
        choose_rows<A, kR - 1>(rows, x, first_row, panels, num_panels, ahead, tile);
      }
    }
  }

  /// All rows times some panels, in parts of nearly equal height.
  template <class A>
  static void fill_parts(const Activations& x, uint32_t first_row, uint32_t rows,
                         const Bf16* panels, uint32_t num_panels, A& ahead, float* tile) {
    const uint32_t parts = ceil_div(rows, kRowsAtOnce);
    for (uint32_t i = 0; i < parts; ++i) {
      const uint32_t begin = rows * i / parts, end = rows * (i + 1) / parts;
      choose_rows(end - begin, x, first_row + begin, panels, num_panels, ahead,
                  tile + size_t{begin} * kPanelOutputs);
    }
  }

  static void fill(const Activations& x, uint32_t first_row, uint32_t rows, const Bf16* panels,
                   uint32_t num_panels, const Bf16* next, float* tile) {
    if (rows <= kRowsAtOnce || rows > kMostRowsAhead) {
      NoAhead none;
      return fill_parts(x, first_row, rows, panels, num_panels, none, tile);
    }
    constexpr uint32_t kLines = kPanelStep * kPanelOutputs * sizeof(Bf16) / 64;
    for (uint32_t p = 0; p < num_panels; ++p) {
      const Bf16* panel = panels + panel_begin<Bf16>(x.k, p);
      const Bf16* after = p + 1 < num_panels ? panel + panel_begin<Bf16>(x.k, 1) : next;
      WeightsAhead ahead = {reinterpret_cast<const char*>(after),
                            ceil_div(kLines, ceil_div(rows, kRowsAtOnce))};
      fill_parts(x, first_row, rows, panel, 1, ahead, tile + p * kTilePanelFloats);
    }
  }
};

}  // namespace SAC_ISA
}  // namespace saccade
