// Binds one copy of the kernels together. Included by one file per instruction set, after SAC_ISA,
// the target pragma and that set's simd header.
#pragma once
#include "cpu/attention_impl.hpp"
#include "cpu/matmul_impl.hpp"
#include "cpu/pack_dispatch.hpp"
#include "cpu/rows_impl.hpp"
#include "sample/sampler.hpp"

namespace saccade {
inline namespace SAC_ISA {

inline uint32_t attention_rows(uint32_t dtype) {
  return dtype == SAC_DTYPE_BF16 ? Attention<Bf16>::kRows : Attention<float>::kRows;
}

inline size_t attention_scratch(uint32_t dtype, uint32_t head_dim, uint32_t group,
                                uint32_t num_kv_heads) {
  return dtype == SAC_DTYPE_BF16 ? Attention<Bf16>::scratch_floats(head_dim, group, num_kv_heads)
                                 : Attention<float>::scratch_floats(head_dim, group, num_kv_heads);
}

inline void attention(const AttentionArgs& a) {
  switch (a.kv.dtype) {
    case SAC_DTYPE_BF16:
      return Attention<Bf16>::run(a);
    case SAC_DTYPE_F16:
      return Attention<F16>::run(a);
    default:
      return Attention<float>::run(a);
  }
}

inline void merge_attention(const MergeArgs& a) {
  switch (a.kv_dtype) {
    case SAC_DTYPE_BF16:
      return Attention<Bf16>::merge(a);
    case SAC_DTYPE_F16:
      return Attention<F16>::merge(a);
    default:
      return Attention<float>::merge(a);
  }
}

constexpr Kernels make_kernels(const char* name) {
  Kernels k = {};
  k.name = name;
  k.bf16_activations = Products<Bf16>::kTiledActivations;
  k.quantize = quantize;
  k.multiply = multiply;
  k.finish = finish;
  k.attention_rows = attention_rows;
  k.attention_scratch_floats = attention_scratch;
  k.attention = attention;
  k.merge_attention = merge_attention;
  k.rms_norm = rms_norm;
  k.rotate = rotate;
  k.pack = pack;
  k.pack_dummy = pack_dummy;
  k.unpack_row = unpack_row;
  k.widen = widen;
  k.sample = sample_row;
  k.score = score_row;
  return k;
}

}  // namespace SAC_ISA
}  // namespace saccade
