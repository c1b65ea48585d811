// Products of bf16 activations with fp8 panels by vdpbf16ps, which takes every e4m3 value exactly.
// Each output is a sum over groups of 128 of k, ascending, from zero; a group is one chain over
// pairs of k, from zero, with the weights as they are stored, times its scale.
#pragma once
#include "cpu/products_avx512_bf16.hpp"
#include "cpu/products_fp8.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// 64 bytes of e4m3 as bf16. For normal values the low byte is the low nibble, shifted, and the
/// high byte follows from the high nibble; the eight magnitudes below 2^-6 have a table.
class Fp8Widener {
 public:
  __attribute__((always_inline)) Fp8Widener()
      : low_nibble_(all(0x0f)),
        high_nibble_(all(0xf0)),
        exponent_(all(0x78)),
        mantissa_(all(0x07)),
        high_bytes_(lanes(0x43424140'3f3e3d3cull, 0xc3c2c1c0'bfbebdbcull)),
        small_low_(lanes(0x60402000'c0800000ull, 0)),
        small_high_(lanes(0x00000000'ffffffc4ull, 0)) {}

  __attribute__((always_inline)) void widen(const uint8_t* line, __m512i& a, __m512i& b) const {
    const __m512i x = _mm512_loadu_si512(line);
    const __m512i places = _mm512_and_si512(_mm512_srli_epi16(x, 4), low_nibble_);
    const __m512i mantissa = _mm512_and_si512(x, mantissa_);
    const __mmask64 small = _mm512_testn_epi8_mask(x, exponent_);
    __m512i high = _mm512_shuffle_epi8(high_bytes_, places);
    __m512i low = _mm512_and_si512(_mm512_slli_epi16(x, 4), high_nibble_);
    low = _mm512_mask_shuffle_epi8(low, small, small_low_, mantissa);
    high = _mm512_mask_add_epi8(high, small, high, _mm512_shuffle_epi8(small_high_, mantissa));
    a = _mm512_unpacklo_epi8(low, high);
    b = _mm512_unpackhi_epi8(low, high);
  }

 private:
  SAC_INLINE __m512i all(uint32_t byte) { return _mm512_set1_epi8(static_cast<char>(byte)); }
  /// Sixteen bytes, the first in the lowest, in each lane.
  SAC_INLINE __m512i lanes(uint64_t first, uint64_t last) {
    return _mm512_broadcast_i32x4(
        _mm_set_epi64x(static_cast<int64_t>(last), static_cast<int64_t>(first)));
  }

  __m512i low_nibble_, high_nibble_, exponent_, mantissa_;
  __m512i high_bytes_;              // by sign and upper exponent bits: its bias is 120 more in bf16
  __m512i small_low_, small_high_;  // below 2^-6: the low byte; what the high byte differs by
};

struct Bf16Fp8Products {
  static constexpr uint32_t kRows = 8;
  static constexpr size_t kPrefetchBytes = 4096;
  static constexpr uint32_t kPairsPerStep = kPanelStep / 2;

  /// Weights that become bf16 as they are read: for few rows.
  struct Narrow {
    const uint8_t* panels;  // of the group
    size_t stride;          // from panel to panel
    Fp8Widener widener;
    __attribute__((always_inline)) void load(uint32_t panel, uint32_t pair, __m512bh& a,
                                             __m512bh& b) const {
      const uint8_t* line = panels + panel * stride + size_t{pair} * kPairBytes;
      __builtin_prefetch(line + kPrefetchBytes);
      __m512i low, high;
      widener.widen(line, low, high);
      a = (__m512bh)low;
      b = (__m512bh)high;
    }
  };

  /// The same of one panel, kept for the rows that come after.
  struct Kept {
    Narrow narrow;
    Bf16* wide;
    __attribute__((always_inline)) void load(uint32_t, uint32_t pair, __m512bh& a,
                                             __m512bh& b) const {
      narrow.load(0, pair, a, b);
      _mm512_store_si512(wide + size_t{pair} * kPairBytes, (__m512i)a);
      _mm512_store_si512(wide + size_t{pair} * kPairBytes + kPanelOutputs, (__m512i)b);
    }
  };

  /// Weights that are bf16 already, in the form of a bf16 panel: for many rows.
  struct Wide {
    const Bf16* weights;
    __attribute__((always_inline)) void load(uint32_t, uint32_t pair, __m512bh& a,
                                             __m512bh& b) const {
      a = Bf16Products::load_weights(weights + size_t{pair} * kPairBytes);
      b = Bf16Products::load_weights(weights + size_t{pair} * kPairBytes + kPanelOutputs);
    }
  };

  /// Adds a group's `steps` to the results of kR rows x kP panels; row[r] points at the row's first
  /// step of the group.
  template <uint32_t kR, uint32_t kP, class Weights>
  SAC_INLINE void add_group(const Bf16* const (&row)[kR], uint32_t steps, const Weights& weights,
                            const float* const (&scales)[kP], float* tile) {
    __m512 acc[kR][2 * kP];
    for (auto& r : acc) {
      for (__m512& a : r) a = _mm512_setzero_ps();
    }
    for (uint32_t step = 0; step < steps; ++step) {
      for (uint32_t pair = 0; pair < kPairsPerStep; ++pair) {
        __m512bh w[2 * kP];
        for (uint32_t p = 0; p < kP; ++p) {
          weights.load(p, step * kPairsPerStep + pair, w[2 * p], w[2 * p + 1]);
        }
        for (uint32_t r = 0; r < kR; ++r) {
          const __m512bh value =
              Bf16Products::load_pair(row[r] + step * kActivationTile + pair * 2);
          for (uint32_t v = 0; v < 2 * kP; ++v) {
            acc[r][v] = _mm512_dpbf16_ps(acc[r][v], value, w[v]);
          }
        }
      }
    }
    for (uint32_t r = 0; r < kR; ++r) {
      for (uint32_t v = 0; v < 2 * kP; ++v) {
        float* to = tile + v / 2 * kTilePanelFloats + r * kPanelOutputs + v % 2 * 16;
        const __m512 scale = _mm512_loadu_ps(scales[v / 2] + v % 2 * 16);
        _mm512_storeu_ps(to, _mm512_fmadd_ps(acc[r][v], scale, _mm512_loadu_ps(to)));
      }
    }
  }

  /// The whole of k for kR rows x kP panels.
  template <uint32_t kR, uint32_t kP>
  static void fill_narrow(const Activations& x, uint32_t first_row, const uint8_t* panels,
                          float* tile) {
    const size_t stride = panel_elements(SAC_DTYPE_FP8, x.k);
    const uint32_t steps = ceil_div(x.k, kPanelStep);
    const float* scales[kP];
    for (uint32_t p = 0; p < kP; ++p) {
      scales[p] = fp8_scales(panels + p * stride, x.k);
      clear(tile + p * kTilePanelFloats, kR);
    }
    const Fp8Widener widener;
    Narrow weights = {panels, stride, widener};
    for (uint32_t s = 0; s < steps; s += kGroupSteps) {
      const Bf16* row[kR];
      for (uint32_t r = 0; r < kR; ++r) row[r] = tiled_at(x, first_row + r, s * kPanelStep);
      add_group<kR, kP>(row, min_u32(kGroupSteps, steps - s), weights, scales, tile);
      weights.panels += size_t{kQuantGroup} * kPanelOutputs;
      for (const float*& of_panel : scales) of_panel += kPanelOutputs;
    }
  }

  /// Calls the instance of fill_narrow for a number of rows in [1, kRows].
  template <uint32_t kR = kRows>
  SAC_INLINE void choose_rows(uint32_t rows, const Activations& x, uint32_t first_row,
                              const uint8_t* panels, uint32_t num_panels, float* tile) {
    if constexpr (kR > 0) {
      if (rows != kR) return choose_rows<kR - 1>(rows, x, first_row, panels, num_panels, tile);
      constexpr uint32_t kP = kR <= 4 ? 2 : 1;
      const size_t stride = panel_elements(SAC_DTYPE_FP8, x.k);
      uint32_t p = 0;
      for (; p + kP <= num_panels; p += kP) {
        fill_narrow<kR, kP>(x, first_row, panels + p * stride, tile + p * kTilePanelFloats);
      }
      if (p < num_panels) {
        fill_narrow<kR, 1>(x, first_row, panels + p * stride, tile + p * kTilePanelFloats);
      }
    }
  }

  /// A group of one panel for kR rows.
  template <uint32_t kR, class Weights>
  static void add_rows(const Activations& x, uint32_t first_row, uint32_t step, uint32_t steps,
                       const Weights& weights, const float* const (&scales)[1], float* tile) {
    const Bf16* row[kR];
    for (uint32_t r = 0; r < kR; ++r) row[r] = tiled_at(x, first_row + r, step * kPanelStep);
    add_group<kR, 1>(row, steps, weights, scales, tile);
  }

  /// One panel for many rows: a group becomes bf16 once, in the first-level cache.
  static void fill_wide(const Activations& x, uint32_t first_row, uint32_t rows,
                        const uint8_t* panel, float* tile) {
    alignas(64) Bf16 wide[size_t{kQuantGroup} * kPanelOutputs];
    const Fp8Widener widener;
    const uint32_t steps = ceil_div(x.k, kPanelStep);
    const float* scales[1] = {fp8_scales(panel, x.k)};
    clear(tile, rows);
    for (uint32_t s = 0; s < steps; s += kGroupSteps, scales[0] += kPanelOutputs) {
      const uint32_t count = min_u32(kGroupSteps, steps - s);
      const uint8_t* weights = panel + size_t{s} * kPanelStep * kPanelOutputs;
      const Kept first = {{weights, 0, widener}, wide};
      add_rows<kRows>(x, first_row, s, count, first, scales, tile);
      for (uint32_t r = kRows; r < rows; r += kRows) {
        add_wide(min_u32(kRows, rows - r), x, first_row + r, s, count, {wide}, scales,
                 tile + size_t{r} * kPanelOutputs);
      }
    }
  }

  /// Calls the instance of add_group for a number of rows in [1, kRows].
  template <uint32_t kR = kRows>
  SAC_INLINE void add_wide(uint32_t rows, const Activations& x, uint32_t first_row, uint32_t step,
                           uint32_t steps, const Wide& weights, const float* const (&scales)[1],
                           float* tile) {
    if constexpr (kR > 0) {
      if (rows != kR) {
        return add_wide<kR - 1>(rows, x, first_row, step, steps, weights, scales, tile);
      }
      add_rows<kR>(x, first_row, step, steps, weights, scales, tile);
    }
  }

  static void fill(const Activations& x, uint32_t first_row, uint32_t rows, const uint8_t* panels,
                   uint32_t num_panels, float* tile) {
    if (!x.tiled) return PlainFp8Products::fill(x, first_row, rows, panels, num_panels, tile);
    if (rows <= kRows) return choose_rows(rows, x, first_row, panels, num_panels, tile);
    for (uint32_t p = 0; p < num_panels; ++p) {
      fill_wide(x, first_row, rows, panels + p * panel_elements(SAC_DTYPE_FP8, x.k),
                tile + p * kTilePanelFloats);
    }
  }

 private:
  static constexpr uint32_t kGroupSteps = kQuantGroup / kPanelStep;

  SAC_INLINE void clear(float* tile, uint32_t rows) {
    for (uint32_t i = 0; i < rows * kPanelOutputs; ++i) tile[i] = 0.0f;
  }
};

}  // namespace SAC_ISA
}  // namespace saccade
