// Binds one copy of the kernels together. Included by one file per instruction set, after SAC_ISA,
// the target pragma and that set's simd header.
#pragma once
#include "cpu/attention_impl.hpp"
#include "cpu/matmul_impl.hpp"
#include "cpu/pack_dispatch.hpp"
#include "cpu/read_impl.hpp"
#include "cpu/rows_impl.hpp"
#include "sample/sampler.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// f(Named<an attention>), by how KV is kept. Fp8Bf16Attention is what each set does with kFp8Bf16.
template <class F>
auto with_attention(KvType type, F&& f) {
  switch (type) {
    case KvType::kBf16:
      return f(Named<Attention<Bf16>>());
    case KvType::kF16:
      return f(Named<Attention<F16>>());
    case KvType::kFp8:
      return f(Named<Attention<Fp8>>());
    case KvType::kFp8Bf16:
      return f(Named<Fp8Bf16Attention>());
    case KvType::kF32:
      break;
  }
  return f(Named<Attention<float>>());
}

inline uint32_t attention_rows(KvType type) {
  return with_attention(type, [](auto named) { return uint32_t{decltype(named)::Type::kRows}; });
}

inline size_t attention_scratch(KvType type, uint32_t head_dim, uint32_t group,
                                uint32_t num_kv_heads) {
  return with_attention(type, [&](auto named) {
    return decltype(named)::Type::scratch_floats(head_dim, group, num_kv_heads);
  });
}

inline void attention(const AttentionArgs& a) {
  with_attention(a.kv.type, [&a](auto named) { decltype(named)::Type::run(a); });
}

inline void merge_attention(const MergeArgs& a) {
  with_attention(a.kv_type, [&a](auto named) { decltype(named)::Type::merge(a); });
}

constexpr Kernels make_kernels(const char* name) {
  Kernels k = {};
  k.name = name;
  k.bf16_activations = Products<Bf16>::kTiledActivations;
  k.chunks_bf16 = Products<Bf16>::kChunks;
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
  k.read = read;
  k.widen = widen;
  k.sample = sample_row;
  k.score = score_row;
  return k;
}

}  // namespace SAC_ISA
}  // namespace saccade
