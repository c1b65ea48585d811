// e4m3 by its definition, and matrices in it as model files have them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "capi/saccade_device.h"

namespace saccade::test {

/// A sign, 4 bits of exponent with bias 7, 3 of mantissa; all ones are NaN, and nothing is
/// infinite.
inline float naive_fp8(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if ((bits & 127) == 127) return __builtin_nanf("");
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa / 8.0, -6) : std::ldexp(1 + mantissa / 8.0, exponent - 7);
  return static_cast<float>((bits & 128) != 0 ? -magnitude : magnitude);
}

/// A nearest e4m3.
inline uint8_t nearest_fp8(float value) {
  static const std::vector<float> magnitudes = [] {
    std::vector<float> rising;
    for (uint8_t bits = 0; bits < 127; ++bits) rising.push_back(naive_fp8(bits));
    return rising;
  }();
  const float magnitude = std::abs(value);
  const auto above = std::lower_bound(magnitudes.begin() + 1, magnitudes.end() - 1, magnitude);
  const bool lower = magnitude - above[-1] < *above - magnitude;
  const auto bits = static_cast<uint8_t>(above - magnitudes.begin() - (lower ? 1 : 0));
  return value < 0 ? bits | 128 : bits;
}

/// A matrix [n][k] in e4m3 with a scale for each row and SAC_SCALE_GROUP of k.
struct Fp8Matrix {
  std::vector<uint8_t> bytes;
  std::vector<float> scales;
};

/// Brings values into e4m3, and replaces them with what it holds. No scale is a power of two.
inline Fp8Matrix into_fp8(float* values, size_t n, size_t k) {
  Fp8Matrix m;
  for (size_t row = 0; row < n; ++row) {
    for (size_t begin = 0; begin < k; begin += SAC_SCALE_GROUP) {
      float* group = values + row * k + begin;
      const size_t count = std::min<size_t>(SAC_SCALE_GROUP, k - begin);
      float top = 1e-6f;
      for (size_t i = 0; i < count; ++i) top = std::max(top, std::abs(group[i]));
      const float scale = top / 430.0f;
      m.scales.push_back(scale);
      for (size_t i = 0; i < count; ++i) {
        m.bytes.push_back(nearest_fp8(group[i] / scale));
        group[i] = naive_fp8(m.bytes.back()) * scale;
      }
    }
  }
  return m;
}

}  // namespace saccade::test
