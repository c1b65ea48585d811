// Attention by vdpbf16ps: that of prompts, and the choice between it and that of few queries.
#pragma once
#include "cpu/attention_bf16.hpp"
#include "cpu/attention_few.hpp"

namespace saccade {
inline namespace SAC_ISA {

struct DotTiles {
  static constexpr bool kValuesInPairs = false;

  static void open() {}
  static void close() {}

  template <uint32_t kTiles>
  static void multiply(const RowTiles& a, const Bf16* const (&b)[kTiles], uint32_t steps,
                       float* const (&out)[kTiles]) {
    // Sixteen sums in flight hide the latency of each, and leave registers for the operands.
    constexpr uint32_t kRows = 16 / kTiles;
    for (uint32_t row = 0; row < 32; row += kRows) {
      const auto* left = reinterpret_cast<const uint8_t*>(a.half[row / 16]) + row % 16 * a.stride;
      multiply_rows<kTiles, kRows>(left, a, b, steps, row, out);
    }
  }

 private:
  template <uint32_t kTiles, uint32_t kRows>
  SAC_INLINE void multiply_rows(const uint8_t* left, const RowTiles& a,
                                const Bf16* const (&b)[kTiles], uint32_t steps, uint32_t row,
                                float* const (&out)[kTiles]) {
    __m512 sums[kRows][kTiles];
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t i = 0; i < kTiles; ++i) sums[r][i] = _mm512_setzero_ps();
    }
    for (uint32_t s = 0; s < steps; ++s) {
      const uint8_t* words = left + s * a.step * sizeof(Bf16);
      for (uint32_t pair = 0; pair < 16; ++pair) {
        __m512i right[kTiles];
        for (uint32_t i = 0; i < kTiles; ++i)
          right[i] = _mm512_loadu_si512(b[i] + s * kLaneStep + pair * 32);
        for (uint32_t r = 0; r < kRows; ++r) {
          const __m512i both = broadcast_pair(words + r * a.stride + pair * 4);
          for (uint32_t i = 0; i < kTiles; ++i)
            sums[r][i] = _mm512_dpbf16_ps(sums[r][i], (__m512bh)right[i], (__m512bh)both);
        }
      }
    }
    for (uint32_t r = 0; r < kRows; ++r) {
      for (uint32_t i = 0; i < kTiles; ++i) _mm512_storeu_ps(out[i] + (row + r) * 16, sums[r][i]);
    }
  }
};

/// Attention over KV in `Kv`.
template <class Kv>
struct DotAttention {
  using Many = Bf16Attention<DotTiles, Kv>;
  static constexpr uint32_t kRows = Many::kRows;

  static constexpr size_t scratch_floats(uint32_t head_dim, uint32_t group, uint32_t num_kv_heads) {
    const size_t one_row = with_few(group, [&](auto few) {
      return decltype(few)::Type::scratch_floats(head_dim, num_kv_heads);
    });
    const size_t one_head = FewAttention<Kv, kMostQueries>::scratch_floats(head_dim, 1);
    const size_t many = Many::scratch_floats(head_dim, group, num_kv_heads);
    return most(most(one_row, one_head), many);
  }

  static void run(const AttentionArgs& a) {
    const uint32_t queries = a.num_rows * a.group;
    if (queries > kMostQueries) return Many::run(a);
    with_few(queries, [&a](auto few) { decltype(few)::Type::run(a); });
  }
  static void merge(const MergeArgs& a) { merge_bf16(a); }

 private:
  static constexpr size_t most(size_t a, size_t b) { return a > b ? a : b; }

  /// f(Named<the attention for that number of queries>).
  template <class F>
  static constexpr auto with_few(uint32_t queries, F&& f) {
    if (queries == 1) return f(Named<FewAttention<Kv, 1>>());
    if (queries == 2) return f(Named<FewAttention<Kv, 2>>());
    if (queries <= 4) return f(Named<FewAttention<Kv, 4>>());
    return f(Named<FewAttention<Kv, kMostQueries>>());
  }
};

template <>
struct Attention<Bf16> : DotAttention<Bf16> {};

}  // namespace SAC_ISA
}  // namespace saccade
