// Between the q/k/v products and attention: sums and biases, per-head norms, rotation, and the
// write of K and V into the pool. One warp per head; a head's sums are one tree.
#pragma once
#include "cuda/model/rows.hpp"
#include "cuda/model/sequence_shape.hpp"

namespace saccade::gpu {

struct RotateKernel {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kWarps = kThreads / kWarpThreads;
  static constexpr uint32_t kSharedBytes = kWarps * kDimLimit * sizeof(float);

  struct Args {
    const PlanCounts* counts;
    const PlanRow* rows;
    SeatTables seats;
    Partials qkv;  // [rows]: q heads, k heads, v heads
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
    size_t k_offset;  // halves from the start of a block to this layer's K
  };

  /// Grid: rows, ceil((heads + 2 kv heads) / kWarps).
  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t head = b.y() * kWarps + b.warp();
    if (b.x() >= a.counts->num_rows || head >= a.num_heads + 2 * a.num_kv_heads) return;
    const PlanRow row = a.rows[b.x()];
    float* values = reinterpret_cast<float*>(b.shared()) + b.warp() * kDimLimit;
    gather(b, a, head, values);
    const bool is_q = head < a.num_heads;
    const uint32_t kv_head = (head - a.num_heads) % a.num_kv_heads;  // of those that are not q
    if (head < a.num_heads + a.num_kv_heads) {
      norm_head(b, a, is_q ? a.q_norm : a.k_norm, values);
      rotate_head(b, a, row, values);
    }
    b.warp_sync();
    Half* out = is_q ? a.q + size_t{b.x()} * a.q_stride + head * a.head_dim
                     : kv_row(a, row, head >= a.num_heads + a.num_kv_heads, kv_head);
    for (uint32_t d = b.lane(); d < a.head_dim; d += kWarpThreads) out[d] = narrow(values[d]);
  }

 private:
  template <class Block>
  SAC_DEVICE static void gather(const Block& b, const Args& a, uint32_t head, float* values) {
    const float* from = a.qkv.row(b.x()) + head * a.head_dim;
    const float* bias = a.bias + head * a.head_dim;
    for (uint32_t d = b.lane(); d < a.head_dim; d += kWarpThreads) {
      float sum = from[d];
      for (uint32_t s = 1; s < a.qkv.slices; ++s) sum += from[s * a.qkv.plane + d];
      values[d] = sum + bias[d];
    }
  }

  template <class Block>
  SAC_DEVICE static void norm_head(const Block& b, const Args& a, const float* weight,
                                   float* values) {
    if (weight == nullptr) return;
    float squares = 0;  // each lane's own elements
    for (uint32_t d = b.lane(); d < a.head_dim; d += kWarpThreads) squares += values[d] * values[d];
    const float mean = warp_sum(b, squares) / static_cast<float>(a.head_dim);
    const float inverse = 1.0f / __builtin_sqrtf(mean + a.eps);
    for (uint32_t d = b.lane(); d < a.head_dim; d += kWarpThreads) {
      values[d] = weight[d] * (values[d] * inverse);
    }
  }

  /// Rotates pairs (i, i + half); dimensions from rotary_dim on stay.
  template <class Block>
  SAC_DEVICE static void rotate_head(const Block& b, const Args& a, const PlanRow& row,
                                     float* values) {
    const uint32_t half = a.rotary_dim / 2;
    const bool second =
        row.position < a.rope_switch_len && a.seats.params[row.seat].prompt_len > a.rope_switch_len;
    const size_t at = (size_t{row.position} + (second ? a.max_model_len : 0)) * half;
    b.warp_sync();
    for (uint32_t i = b.lane(); i < half; i += kWarpThreads) {
      const float c = a.cos[at + i], s = a.sin[at + i];
      const float x = values[i], y = values[i + half];
      values[i] = x * c - y * s;
      values[i + half] = y * c + x * s;
    }
  }

  SAC_DEVICE static Half* kv_row(const Args& a, const PlanRow& row, bool is_v, uint32_t head) {
    const uint32_t block = a.seats.block_table(row.seat)[row.position / a.kv.block_size];
    Half* data = reinterpret_cast<Half*>(a.kv.data + block * a.kv.block_bytes) + a.k_offset;
    return data + (is_v ? a.kv.plane : 0) +
           size_t{row.position % a.kv.block_size} * a.kv.token_stride + head * a.head_dim;
  }
};

}  // namespace saccade::gpu
