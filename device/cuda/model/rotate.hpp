// Between the q/k/v products and attention: sums, what adapters add, and biases, per-head norms,
// rotation, and the write of K and V into the pool. A warp has a few heads, whose loads are in
// flight together; a head's sums are one tree.
#pragma once
#include "cuda/model/rows.hpp"
#include "cuda/model/sequence_shape.hpp"

namespace saccade::gpu {

/// Kv: the element of the pool, Half or Fp8Code.
template <class Kv>
struct RotateKernel {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kWarps = kThreads / kWarpThreads;
  static constexpr uint32_t kHeads = 2;  // of a warp
  static constexpr uint32_t kSharedBytes = kWarps * kHeads * kDimLimit * sizeof(float);

  struct Args {
    const PlanCounts* counts;
    const PlanRow* rows;
    SeatTables seats;
    Partials qkv;   // [rows]: q heads, k heads, v heads
    Deltas deltas;  // likewise
    const float* bias;
    const float* q_norm;  // null: none
    const float* k_norm;
    const float* cos;  // [max_model_len + rope_switch_len][rotary_dim / 2]
    const float* sin;
    float eps;
    uint32_t num_heads;
    uint32_t num_kv_heads;
    uint32_t head_dim;
    uint32_t rotary_dim;
    uint32_t max_model_len;
    uint32_t rope_switch_len;
    Half* q;  // [rows][q_stride]
    uint32_t q_stride;
    KvMemory kv;
    size_t k_offset;     // elements from the start of a block to this layer's K
    KvScales kv_scales;  // of e4m3
  };

  static uint32_t blocks_of_row(uint32_t heads) { return ceil_div(heads, kWarps * kHeads); }

  /// Grid: rows, blocks_of_row(heads + 2 kv heads).
  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t first = (b.y() * kWarps + b.warp()) * kHeads;
    const uint32_t end = min_u32(first + kHeads, a.num_heads + 2 * a.num_kv_heads);
    // Rows that are not there have memory: whether this one is, is not waited for first.
    const uint32_t num_rows = a.counts->num_rows;
    const PlanRow row = a.rows[b.x()];
    const float* delta = a.deltas.row(b.x());
    const uint32_t d = b.lane() * 4;  // the lane's dimensions
    Float4 v[kHeads];
    SAC_UNROLL
    for (uint32_t h = 0; h < kHeads; ++h) {
      v[h] = first + h < end && d < a.head_dim
                 ? gather(a, b.x(), delta, (first + h) * a.head_dim + d)
                 : Float4{};
    }
    if (b.x() >= num_rows) return;
    SAC_UNROLL
    for (uint32_t h = 0; h < kHeads; ++h) {
      if (first + h < end) finish(b, a, row, first + h, h, d, v[h]);
    }
  }

 private:
  static_assert(kDimLimit == 4 * kWarpThreads, "a lane has four dimensions");

  SAC_DEVICE static Float4 gather(const Args& a, uint32_t row, const float* delta,
                                  uint32_t column) {
    Float4 sum = sum_slices(a.qkv, row, column);
    if (delta != nullptr) add4(sum, load4(delta + column));
    add4(sum, load4(a.bias + column));
    return sum;
  }

  /// The warp's h-th head.
  template <class Block>
  SAC_DEVICE static void finish(const Block& b, const Args& a, const PlanRow& row, uint32_t head,
                                uint32_t h, uint32_t d, Float4& v) {
    float* values = reinterpret_cast<float*>(b.shared()) + (b.warp() * kHeads + h) * kDimLimit;
    const bool is_q = head < a.num_heads;
    const uint32_t kv_head = (head - a.num_heads) % a.num_kv_heads;  // among k and v heads
    if (head < a.num_heads + a.num_kv_heads) {
      norm_head(b, a, is_q ? a.q_norm : a.k_norm, d, v);
      rotate_head(b, a, row, values, d, v);
    }
    if (d >= a.head_dim) return;
    Half* q = a.q + size_t{b.x()} * a.q_stride + head * a.head_dim;
    const bool is_v = head >= a.num_heads + a.num_kv_heads;
    if constexpr (sizeof(Kv) == sizeof(Half)) {
      store(is_q ? q + d : kv_row(a, row, is_v, kv_head) + d, v);
    } else if (is_q) {
      store(q + d, v);
    } else {
      store(kv_row(a, row, is_v, kv_head) + d, v, is_v ? a.kv_scales.v : a.kv_scales.k);
    }
  }
  SAC_DEVICE static void store(Half* to, const Float4& v) {
    *reinterpret_cast<Half4*>(to) = {
        {narrow(v.v[0]), narrow(v.v[1]), narrow(v.v[2]), narrow(v.v[3])}};
  }
  SAC_DEVICE static void store(Fp8Code* to, const Float4& v, float scale) {
    *reinterpret_cast<Fp8Code4*>(to) = {{narrow_fp8(v.v[0] / scale), narrow_fp8(v.v[1] / scale),
                                         narrow_fp8(v.v[2] / scale), narrow_fp8(v.v[3] / scale)}};
  }

  template <class Block>
  SAC_DEVICE static void norm_head(const Block& b, const Args& a, const float* weight, uint32_t d,
                                   Float4& v) {
    if (weight == nullptr) return;
    float squares = 0;  // each lane's own elements
    SAC_UNROLL
    for (uint32_t e = 0; e < 4; ++e) squares += v.v[e] * v.v[e];
    const float mean = warp_sum(b, squares) / static_cast<float>(a.head_dim);
    const float inverse = 1.0f / __builtin_sqrtf(mean + a.eps);
    if (d >= a.head_dim) return;
    const Float4 w = load4(weight + d);
    SAC_UNROLL
    for (uint32_t e = 0; e < 4; ++e) v.v[e] = w.v[e] * (v.v[e] * inverse);
  }

  /// Rotates pairs (i, i + half); dimensions from rotary_dim on stay.
  template <class Block>
  SAC_DEVICE static void rotate_head(const Block& b, const Args& a, const PlanRow& row,
                                     float* values, uint32_t d, Float4& v) {
    const uint32_t half = a.rotary_dim / 2;
    const bool second =
        row.position < a.rope_switch_len && a.seats.params[row.seat].prompt_len > a.rope_switch_len;
    const size_t at = (size_t{row.position} + (second ? a.max_model_len : 0)) * half;
    if (d < a.head_dim) store4(values + d, v);
    b.warp_sync();
    if (half % 4 == 0) {  // a lane's pairs are four in a row
      if (d >= a.rotary_dim) return;
      const bool low = d < half;
      const uint32_t pair = low ? d : d - half;
      const Float4 c = load4(a.cos + at + pair), s = load4(a.sin + at + pair);
      const Float4 other = load4(values + (low ? d + half : pair));
      SAC_UNROLL
      for (uint32_t e = 0; e < 4; ++e) rotate_one(low, c.v[e], s.v[e], other.v[e], v.v[e]);
      return;
    }
    SAC_UNROLL
    for (uint32_t e = 0; e < 4; ++e) {
      const uint32_t i = d + e;
      if (i >= a.rotary_dim) continue;
      const bool low = i < half;
      const uint32_t pair = low ? i : i - half;
      rotate_one(low, a.cos[at + pair], a.sin[at + pair], values[low ? i + half : pair], v.v[e]);
    }
  }
  SAC_DEVICE static void rotate_one(bool low, float cos, float sin, float other, float& v) {
    v = low ? v * cos - other * sin : v * cos + other * sin;
  }

  SAC_DEVICE static Kv* kv_row(const Args& a, const PlanRow& row, bool is_v, uint32_t head) {
    const uint32_t block = a.seats.block_table(row.seat)[row.position / a.kv.block_size];
    Kv* data = reinterpret_cast<Kv*>(a.kv.data + block * a.kv.block_bytes) + a.k_offset;
    return data + (is_v ? a.kv.plane : 0) +
           size_t{row.position % a.kv.block_size} * a.kv.token_stride + head * a.head_dim;
  }
};

}  // namespace saccade::gpu
