// exp for floats with one result everywhere: only multiplications, additions and integer operations
// in a fixed order, so every instruction set (and a GPU without contraction) gives the same bits,
// and a plain loop over it vectorises. Must be compiled with -ffp-contract=off.
#pragma once
#include "platform/hd.hpp"
#include "sample/isa.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// e^x within 2 ulp for x in [-87, 88]; 0 below, about e^88 above and for NaN.
/// Range reduction by ln 2 in two parts, then a polynomial of degree 6 (Cephes expf). Out of range
/// it computes nonsense and masks it away at the end: choosing earlier leaves branches in the loops
/// around it, and then they do not vectorise.
SAC_HD inline float exp_fixed(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it leaves round(x) in the low bits
  constexpr uint32_t kRoundBits = 0x4B400000u;
  const float shifted = x * 1.44269504f + kRound;
  const uint32_t n = __builtin_bit_cast(uint32_t, shifted) - kRoundBits;
  const float whole = shifted - kRound;
  const float r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = (y * (r * r) + r) + 1.0f;
  const float scaled = y * __builtin_bit_cast(float, (n + 127u) << 23);
  const uint32_t not_low = 0u - static_cast<uint32_t>(!(x < -87.0f));
  const uint32_t not_high = 0u - static_cast<uint32_t>(x <= 88.0f);
  const uint32_t top = __builtin_bit_cast(uint32_t, 1.65163626e38f);
  const uint32_t bits = (__builtin_bit_cast(uint32_t, scaled) & not_high) | (top & ~not_high);
  return __builtin_bit_cast(float, bits& not_low);
}

}  // namespace SAC_ISA
}  // namespace saccade
