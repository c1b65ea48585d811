// Conversions between float and the narrower storage types, one element at a time; plain loops over
// them vectorise.
#pragma once
#include "platform/hd.hpp"
#include "sample/isa.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Storage types as C++ types, so that overloads can tell bf16 and f16 apart.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
/// e4m3 without infinities: a sign, 4 bits of exponent with bias 7, 3 of mantissa; 448 at most, and
/// all ones are NaN.
struct Fp8 {
  uint8_t bits;
};

inline float to_float(float v) { return v; }
inline float to_float(Bf16 v) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(v.bits) << 16);
}
/// Scaling by 2^112 moves the exponent, denormals included; infinities and NaN are handled apart.
inline float to_float(F16 v) {
  const uint32_t magnitude = (v.bits & 0x7fffu);
  const uint32_t sign = (v.bits & 0x8000u) << 16;
  const float scaled = __builtin_bit_cast(float, magnitude << 13) * 5.192296858534828e+33f;
  uint32_t bits = __builtin_bit_cast(uint32_t, scaled);
  bits = magnitude >= 0x7c00u ? (magnitude << 13) | 0x7f800000u : bits;
  return __builtin_bit_cast(float, bits | sign);
}
/// Without denormal floats, which some processors compute slowly: 2^-9 n, for n < 8, is what is
/// left of 2^-6 (1 + n / 8) without its leading one.
constexpr float to_float(Fp8 v) {
  const uint32_t magnitude = v.bits & 0x7fu;
  const uint32_t sign = (v.bits & 0x80u) << 24;
  const bool denormal = magnitude < 8;
  const float scaled =
      __builtin_bit_cast(float, (magnitude << 20) + (denormal ? 0x3c800000u : 0x3c000000u));
  uint32_t bits = __builtin_bit_cast(uint32_t, scaled - (denormal ? 0x1p-6f : 0.0f));
  bits = magnitude == 0x7fu ? 0x7fc00000u : bits;
  return __builtin_bit_cast(float, bits | sign);
}

inline void from_float(float v, float& out) { out = v; }
/// Round to nearest, ties to even; NaN stays NaN.
inline void from_float(float v, Bf16& out) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, v);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x40u;
  out.bits = static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}
/// Round to nearest, ties to even; beyond 65520 becomes infinity, NaN stays NaN.
inline void from_float(float v, F16& out) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, v);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal results: rebias the exponent by -112 and round off 13 bits.
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Denormal results (below 2^-14): adding 0.5 aligns the mantissa so that the FPU rounds.
  const float aligned = __builtin_bit_cast(float, magnitude) + 0.5f;
  const uint32_t denormal = __builtin_bit_cast(uint32_t, aligned) - 0x3f000000u;
  uint32_t half = magnitude < 0x38800000u ? denormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  out.bits = static_cast<uint16_t>(half | sign);
}
/// Round to nearest, ties to even; beyond 448 becomes 448, infinities too, NaN stays NaN.
inline void from_float(float v, Fp8& out) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, v);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal results: rebias the exponent by -120 and round off 20 bits.
  const uint32_t normal = (magnitude - 0x3c000000u + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  // Denormal results (below 2^-6): in floats from 2^14 on, the last bit is worth 2^-9.
  const float aligned = __builtin_bit_cast(float, magnitude) + 0x1p14f;
  const uint32_t denormal = __builtin_bit_cast(uint32_t, aligned) - 0x46800000u;
  uint32_t narrow = magnitude < 0x3c800000u ? denormal : normal;
  narrow = narrow > 0x7eu ? 0x7eu : narrow;
  narrow = magnitude > 0x7f800000u ? 0x7fu : narrow;
  out.bits = static_cast<uint8_t>(narrow | ((bits >> 24) & 0x80u));
}

}  // namespace SAC_ISA
}  // namespace saccade
