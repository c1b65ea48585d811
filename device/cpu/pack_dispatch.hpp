// Packing by the dtypes of source and panel.
#pragma once
#include "cpu/fp8_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Packs one panel of any type; read(output, begin, count, floats) gives an output's weights.
template <class Read>
SAC_INLINE void pack_with(const PackArgs& a, Read&& read) {
  switch (a.dtype) {
    case SAC_DTYPE_BF16:
      return pack_typed<Bf16>(a, read);
    case SAC_DTYPE_F16:
      return pack_typed<F16>(a, read);
    case SAC_DTYPE_INT8:
      return pack_int8(a, read);
    case SAC_DTYPE_FP8:
      return pack_fp8(a, read);
    default:
      return pack_typed<float>(a, read);
  }
}

template <class S>
void pack_from(const PackArgs& a) {
  pack_with(a, [&a](uint32_t output, uint32_t begin, uint32_t count, float* out) {
    const size_t at = size_t{output} * a.k + begin;
    for (uint32_t i = 0; i < count; ++i) out[i] = read_unaligned<S>(a.source, at + i);
  });
}

/// From e4m3 into another type: every element times its scale.
inline void pack_scaled(const PackArgs& a) {
  static_assert(kPackRows == kQuantGroup);  // what is read at once has one scale
  pack_with(a, [&a](uint32_t output, uint32_t begin, uint32_t count, float* out) {
    const size_t at = size_t{output} * a.k + begin;
    const float scale = source_scale(a, output, begin);
    for (uint32_t i = 0; i < count; ++i) out[i] = read_unaligned<Fp8>(a.source, at + i) * scale;
  });
}

inline void pack(const PackArgs& a) {
  switch (a.source_dtype) {
    case SAC_DTYPE_BF16:
      return pack_from<Bf16>(a);
    case SAC_DTYPE_F16:
      return pack_from<F16>(a);
    case SAC_DTYPE_FP8:
      return a.dtype == SAC_DTYPE_FP8 ? copy_fp8(a) : pack_scaled(a);
    default:
      return pack_from<float>(a);
  }
}

inline void pack_dummy(uint64_t key, const PackArgs& a) {
  pack_with(a, [key](uint32_t output, uint32_t begin, uint32_t count, float* out) {
    const uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
    for (uint32_t i = 0; i < count; ++i) out[i] = dummy_weight(low, high, output, begin + i);
  });
}

template <class S>
void widen_typed(const void* source, uint32_t n, float* out) {
  for (uint32_t i = 0; i < n; ++i) out[i] = read_unaligned<S>(source, i);
}

inline void widen(const void* source, uint32_t dtype, uint32_t n, float* out) {
  switch (dtype) {
    case SAC_DTYPE_BF16:
      return widen_typed<Bf16>(source, n, out);
    case SAC_DTYPE_F16:
      return widen_typed<F16>(source, n, out);
    default:
      return widen_typed<float>(source, n, out);
  }
}

inline void unpack_row(const void* panels, uint32_t dtype, uint32_t k, uint32_t row, float* out) {
  switch (dtype) {
    case SAC_DTYPE_BF16:
      return unpack_typed<Bf16>(panels, k, row, out);
    case SAC_DTYPE_F16:
      return unpack_typed<F16>(panels, k, row, out);
    case SAC_DTYPE_INT8:
      return unpack_int8(panels, k, row, out);
    case SAC_DTYPE_FP8:
      return unpack_fp8(panels, k, row, out);
    default:
      return unpack_typed<float>(panels, k, row, out);
  }
}

}  // namespace SAC_ISA
}  // namespace saccade
