// Products of attention by AMX tiles.
#pragma once
#include "cpu/attention_bf16.hpp"
#include "cpu/products_amx.hpp"

namespace saccade {
inline namespace SAC_ISA {

struct AmxTiles {
  static constexpr size_t kRowBytes = 64;  // of 16 words
  static constexpr bool kValuesInPairs = true;
  static constexpr size_t kHalfResults = 256;  // of 16 rows

  static void open() { configure_tiles(16, 16); }
  static void close() { _tile_release(); }

  template <uint32_t kTiles>
  static void multiply(const RowTiles& a, const Bf16* const (&b)[kTiles], uint32_t steps,
                       float* const (&out)[kTiles]) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t s = 0; s < steps; ++s) {
      _tile_loadd(4, a.half[0] + s * a.step, a.stride);
      _tile_loadd(6, b[0] + s * kLaneStep, kRowBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, a.half[1] + s * a.step, a.stride);
      _tile_dpbf16ps(1, 5, 6);
      if constexpr (kTiles == 1) {
        prefetch_half(a, 0, s);
        prefetch_half(a, 1, s);
      } else {
        _tile_loadd(7, b[1] + s * kLaneStep, kRowBytes);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_stored(0, out[0], kRowBytes);
    _tile_stored(1, out[0] + kHalfResults, kRowBytes);
    if constexpr (kTiles == 2) {
      _tile_stored(2, out[1], kRowBytes);
      _tile_stored(3, out[1] + kHalfResults, kRowBytes);
    }
  }

  static void prefetch_half(const RowTiles& a, uint32_t half, uint32_t step) {
    if (a.ahead[half] == nullptr) return;
    const auto* at = reinterpret_cast<const char*>(a.ahead[half] + step * a.step);
    for (uint32_t r = 0; r < 16; ++r) __builtin_prefetch(at + r * a.stride);
  }

  static void multiply_pairs(const Bf16* a, const Bf16* b, size_t stride, uint32_t steps,
                             float* out) {
    _tile_zero(0);
    _tile_zero(1);
    for (uint32_t s = 0; s < steps; ++s) {
      _tile_loadd(4, a + s * kPairStep, kRowBytes);
      _tile_loadd(6, b + s * kPairStep, kRowBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + stride + s * kPairStep, kRowBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, out, kRowBytes);
    _tile_stored(1, out + kHalfResults, kRowBytes);
  }
};

template <>
struct Attention<Bf16> : Bf16Attention<AmxTiles, Bf16> {};

}  // namespace SAC_ISA
}  // namespace saccade
