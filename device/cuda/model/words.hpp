// Words of the kernels. A kernel is a struct:
//
//   struct Kernel {
//     struct Args { ... };                        // plain data, copied to the device
//     static constexpr uint32_t kThreads, kBlocksPerSm, kSharedBytes;
//     template <class Block> SAC_DEVICE static void run(const Block& b, const Args& a);
//   };
//
// `Block` is what a thread knows of its block: device_block.cuh on a GPU, emulated_block.hpp on a
// CPU, which runs the same source thread by thread with every barrier, warp exchange, asynchronous
// copy and matrix fragment as the PTX ISA describes them.
#pragma once
#include "platform/hd.hpp"

#if defined(__CUDACC__)
#define SAC_DEVICE __device__ __forceinline__
#define SAC_UNROLL _Pragma("unroll")
#else
#define SAC_DEVICE inline
#define SAC_UNROLL
#endif

namespace saccade::gpu {

inline constexpr uint32_t kWarpThreads = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

/// A bf16 number's bits.
using Half = uint16_t;

SAC_HD inline float widen(Half bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}
/// Round to nearest, ties to even; NaN becomes the one that the GPU's own conversion gives.
SAC_HD inline Half narrow(float v) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, v);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<Half>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/// An e4m3 number's bits: a sign, 4 bits of exponent with bias 7, 3 of mantissa; all ones are NaN.
using Fp8Code = uint8_t;

/// Round to nearest, ties to even; beyond 448 becomes 448, infinities too, NaN stays NaN. The CPU's
/// conversion, bit for bit: a GPU has one of its own from sm_89 on only.
SAC_HD inline Fp8Code narrow_fp8(float v) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, v);
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Normal results: rebias the exponent by -120 and round off 20 bits.
  const uint32_t normal = (magnitude - 0x3c000000u + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  // Denormal results (below 2^-6): in floats from 2^14 on, the last bit is worth 2^-9.
  const float aligned = __builtin_bit_cast(float, magnitude) + 0x1p14f;
  const uint32_t denormal = __builtin_bit_cast(uint32_t, aligned) - 0x46800000u;
  const uint32_t code = min_u32(magnitude < 0x3c800000u ? denormal : normal, 0x7e);
  const uint32_t whole = magnitude > 0x7f800000u ? 0x7f : code;
  return static_cast<Fp8Code>(whole | (bits >> 24 & 0x80u));
}

/// Bytes 1 and 3 of four e4m3 numbers, moved to where bf16 has its sign, exponent and mantissa: a
/// pair of bf16 that are 2^-120 of them, denormal where they are in e4m3. NaN becomes 2^-120 480.
SAC_HD inline uint32_t spread_fp8(uint32_t word) {
  return ((word >> 4) & 0x07f007f0u) | (word & 0x80008000u);
}

/// Two e4m3 numbers in 16 bits: the first where bf16 has its sign and what spread_fp8 leaves, so
/// that a mask takes it out; the second in the bits between, four at 3..0, three at 14..12 and its
/// sign at 11, for two shifts and two masks.
SAC_HD inline uint16_t join_fp8(Fp8Code first, Fp8Code second) {
  const uint32_t f = first, s = second;
  return static_cast<uint16_t>((f & 0x80u) << 8 | (f & 0x7fu) << 4 | (s & 0x0fu) |
                               (s & 0x70u) << 8 | (s & 0x80u) << 4);
}
SAC_HD inline Fp8Code split_fp8(uint16_t joined, uint32_t which) {
  const uint32_t j = joined;
  return static_cast<Fp8Code>(which == 0 ? (j >> 8 & 0x80u) | (j >> 4 & 0x7fu)
                                         : (j >> 4 & 0x80u) | (j >> 8 & 0x70u) | (j & 0x0fu));
}
/// The first or second numbers of two joined pairs, as spread_fp8 leaves them.
SAC_HD inline uint32_t spread_first_fp8(uint32_t joined) { return joined & 0x87f087f0u; }
SAC_HD inline uint32_t spread_second_fp8(uint32_t joined) {
  return ((joined << 4) & 0x80f080f0u) | ((joined >> 4) & 0x07000700u);
}

SAC_HD constexpr uint32_t round_up(uint32_t n, uint32_t unit) { return ceil_div(n, unit) * unit; }
SAC_HD constexpr float infinity() { return __builtin_inff(); }
SAC_HD constexpr float max_f(float a, float b) { return a > b ? a : b; }

/// Two floats, moved at once.
struct alignas(8) Float2 {
  float v[2];
};
/// Four floats, moved at once.
struct alignas(16) Float4 {
  float v[4];
};
/// Two words, moved at once.
struct alignas(8) Word2 {
  uint32_t v[2];
};
/// Four words, moved at once.
struct alignas(16) Word4 {
  uint32_t v[4];
};
/// Four bf16 numbers, moved at once.
struct alignas(8) Half4 {
  Half v[4];
};
/// Four e4m3 numbers, moved at once.
struct alignas(4) Fp8Code4 {
  Fp8Code v[4];
};

}  // namespace saccade::gpu
