// Products of bf16 activations with bf16 panels by AMX tiles. Each output is a sum over steps of 32
// of k, ascending, from zero; within a step the hardware has one order for every row and column of
// a tile, so neither the height of a tile nor a row's place in it changes a result.
#pragma once
#include "cpu/activations_impl.hpp"
#include "cpu/pack_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Operand of ldtilecfg (Intel SDM, "Intel AMX").
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

/// Tiles 0 to 3 are the results of two blocks of rows by two halves of a panel, 4 and 5 the
/// activations of the two blocks, 6 and 7 the weights of the two halves.
SAC_INLINE void configure_tiles(uint32_t rows0, uint32_t rows1) {
  TileShapes shapes;
  const uint32_t rows[8] = {rows0, rows0, rows1, rows1, rows0, rows1, 16, 16};
  for (uint32_t t = 0; t < 8; ++t) {
    shapes.bytes_per_row[t] = 64;
    shapes.rows[t] = static_cast<uint8_t>(max_u32(rows[t], 1));
  }
  // g++ 12 assumes that the instruction reads eight bytes, and drops the stores of the others.
  asm volatile("" : : "m"(shapes));
  _tile_loadconfig(&shapes);
}

struct AmxProducts {
  static constexpr uint32_t kRows = kTileRows;
  static constexpr bool kTiledActivations = true;
  static constexpr bool kChunks = true;
  static constexpr uint32_t kPanels = kTilePanels;
  /// Steps of k per pass: this much of a panel stays in the first-level cache while all rows stream
  /// past it. Twice as much comes from the second level as often as the rows do, and that alone
  /// takes longer than the products; with half as much, the results are moved too often.
  static constexpr uint32_t kStepsAtOnce = 16;
  /// Bytes of activations that all panels of a call go past before the next steps of k: they stay
  /// in the second-level cache.
  static constexpr uint32_t kChunkBytes = 1u << 20;
  static constexpr size_t kPanelStepElements = size_t{kPanelStep} * kPanelOutputs;
  static constexpr size_t kResultBytes = kPanelOutputs * sizeof(float);
  static constexpr size_t kWeightBytes = 2 * kPanelOutputs * sizeof(Bf16);
  static constexpr size_t kRowBytes = kPanelStep * sizeof(Bf16);

  /// Two blocks of rows times the panel over `steps`, added to the tile when it is not the first.
  SAC_INLINE void multiply2(const Bf16* x0, const Bf16* x1, const Bf16* panel, uint32_t steps,
                            bool first, WeightsAhead& ahead, float* tile0, float* tile1) {
    if (first) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    } else {
      _tile_loadd(0, tile0, kResultBytes);
      _tile_loadd(1, tile0 + 16, kResultBytes);
      _tile_loadd(2, tile1, kResultBytes);
      _tile_loadd(3, tile1 + 16, kResultBytes);
    }
    for (uint32_t s = 0; s < steps; ++s) {
      const Bf16* weights = panel + s * kPanelStepElements;
      ahead.fetch();
      _tile_stream_loadd(4, x0 + s * kActivationTile, kRowBytes);
      _tile_loadd(6, weights, kWeightBytes);
      _tile_loadd(7, weights + kPanelOutputs, kWeightBytes);
      _tile_stream_loadd(5, x1 + s * kActivationTile, kRowBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, tile0, kResultBytes);
    _tile_stored(1, tile0 + 16, kResultBytes);
    _tile_stored(2, tile1, kResultBytes);
    _tile_stored(3, tile1 + 16, kResultBytes);
  }

  /// One block of rows. Its weights come from memory when a step decodes few sequences: they are
  /// prefetched ahead of the hardware's own prefetcher, which stops at each page. Behind them comes
  /// `next`.
  SAC_INLINE void multiply1(const Bf16* x0, const Bf16* panel, uint32_t steps, bool first,
                            const Bf16* next, float* tile0) {
    if (first) {
      _tile_zero(0);
      _tile_zero(1);
    } else {
      _tile_loadd(0, tile0, kResultBytes);
      _tile_loadd(1, tile0 + 16, kResultBytes);
    }
    for (uint32_t s = 0; s < steps; ++s) {
      const Bf16* weights = panel + s * kPanelStepElements;
      const uint32_t later = s + kPrefetchSteps;
      const char* ahead = reinterpret_cast<const char*>(
          later < steps ? panel + later * kPanelStepElements
                        : next + (later - steps) * kPanelStepElements);
      for (uint32_t line = 0; line < kPanelStepElements * sizeof(Bf16); line += 64) {
        __builtin_prefetch(ahead + line);
      }
      _tile_loadd(4, x0 + s * kActivationTile, kRowBytes);
      _tile_loadd(6, weights, kWeightBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, weights + kPanelOutputs, kWeightBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, tile0, kResultBytes);
    _tile_stored(1, tile0 + 16, kResultBytes);
  }

  /// Steps [begin, end) of one panel. Prefetches `next` along the way.
  static void fill_panel(const Activations& x, uint32_t first_row, uint32_t rows, const Bf16* panel,
                         uint32_t begin, uint32_t end, const Bf16* next, float* tile) {
    const uint32_t row_pairs = ceil_div(rows, 2 * kActivationRows);
    const uint32_t at_once = row_pairs > 1 ? kStepsAtOnce : end - begin;
    // Streaming them on demand would take a third of the time of 256 rows.
    WeightsAhead ahead = {reinterpret_cast<const char*>(next), ceil_div(kPanelStep, row_pairs)};
    uint32_t shape0 = 0, shape1 = 0;
    for (uint32_t s = begin; s < end; s += at_once) {
      const uint32_t count = min_u32(at_once, end - s);
      const Bf16* weights = panel + s * kPanelStepElements;
      for (uint32_t r = 0; r < rows;) {
        const uint32_t row = first_row + r;
        const uint32_t rows0 = min_u32(kActivationRows - row % kActivationRows, rows - r);
        const uint32_t rows1 = min_u32(kActivationRows, rows - r - rows0);
        if (rows0 != shape0 || rows1 != shape1) configure_tiles(rows0, rows1);
        shape0 = rows0;
        shape1 = rows1;
        const Bf16* x0 = tiled_at(x, row, s * kPanelStep);
        float* tile0 = tile + size_t{r} * kPanelOutputs;
        if (rows1 == 0) {
          const Bf16* after = s + count < end ? weights + count * kPanelStepElements : next;
          multiply1(x0, weights, count, s == 0, after, tile0);
        } else {
          multiply2(x0, tiled_at(x, row + rows0, s * kPanelStep), weights, count, s == 0, ahead,
                    tile0, tile0 + size_t{rows0} * kPanelOutputs);
        }
        r += rows0 + rows1;
      }
    }
    _tile_release();
  }

  /// Where k is large, all panels take some steps before the next ones, so that those of x are in a
  /// near cache.
  static void fill(const Activations& x, uint32_t first_row, uint32_t rows, const Bf16* panels,
                   uint32_t num_panels, const Bf16* next, float* tile) {
    const uint32_t steps = ceil_div(x.k, kPanelStep);
    const uint32_t fit = kChunkBytes / static_cast<uint32_t>(rows * kRowBytes);
    const uint32_t chunk = max_u32(fit / kStepsAtOnce, 1) * kStepsAtOnce;
    for (uint32_t begin = 0; begin < steps; begin += chunk) {
      const uint32_t end = min_u32(begin + chunk, steps);
      for (uint32_t p = 0; p < num_panels; ++p) {
        const Bf16* panel = panels + panel_begin<Bf16>(x.k, p);
        const Bf16* after =
            p + 1 < num_panels ? panels + panel_begin<Bf16>(x.k, p + 1) + begin * kPanelStepElements
            : end < steps      ? panels + end * kPanelStepElements
                               : next;
        fill_panel(x, first_row, rows, panel, begin, end, after, tile + p * kTilePanelFloats);
      }
    }
  }

 private:
  static constexpr uint32_t kPrefetchSteps = 4;
};

}  // namespace SAC_ISA
}  // namespace saccade
