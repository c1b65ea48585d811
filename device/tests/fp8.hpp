// What e4m3 means, from its definition: for tests of what computes with it.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace saccade::test {

/// The value of a code: a sign, 4 bits of exponent with bias 7, 3 of fraction; all ones are NaN.
inline double fp8_value(uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<double>::quiet_NaN();
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
  return code >= 128 ? -magnitude : magnitude;
}

/// The code of a number: the nearest of all, of two the even one. Beyond the greatest, that one.
inline uint8_t fp8_code(double x) {
  if (std::isnan(x)) return 0x7f;
  const double magnitude = std::min(std::abs(x), 448.0);
  uint8_t best = 0;
  for (uint8_t code = 1; code < 0x7f; ++code) {
    const double nearer = std::abs(fp8_value(best) - magnitude);
    const double distance = std::abs(fp8_value(code) - magnitude);
    if (distance < nearer || (distance == nearer && code % 2 == 0)) best = code;
  }
  return std::signbit(x) ? best | 0x80 : best;
}

}  // namespace saccade::test
