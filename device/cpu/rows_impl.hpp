// Row-wise kernels: RMS norm, rotation, KV write.
#pragma once
#include "cpu/activations_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Sum of squares in 16 lanes and a fixed tree.
SAC_INLINE float sum_of_squares(const float* x, uint32_t n) {
  constexpr uint32_t kVecs = 16 / kVecLanes;
  Vec lanes[kVecs];
  for (Vec& lane : lanes) lane = vec_zero();
  const auto add = [&lanes](const float* at) __attribute__((always_inline)) {
    for (uint32_t v = 0; v < kVecs; ++v) {
      const Vec value = vec_load(at + v * kVecLanes);
      lanes[v] = vec_add(lanes[v], vec_mul(value, value));
    }
  };
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) add(x + i);
  if (i < n) {
    float rest[16] = {};
    for (uint32_t j = 0; i + j < n; ++j) rest[j] = x[i + j];
    add(rest);
  }
  return vec16_sum(lanes);
}

/// 1 / rms(x).
SAC_INLINE float inverse_rms(const float* x, float eps, uint32_t n) {
  return 1.0f / __builtin_sqrtf(sum_of_squares(x, n) / static_cast<float>(n) + eps);
}

inline void rms_norm(const float* x, const float* weight, float eps, Activations out,
                     uint32_t row) {
  const float inverse = inverse_rms(x, eps, out.k);
  alignas(64) float step[kPanelStep];
  uint32_t i = 0;
  for (; i + kPanelStep <= out.k; i += kPanelStep) {
    for (uint32_t j = 0; j < kPanelStep; j += kVecLanes) {
      const Vec value = vec_mul(vec_load(x + i + j), vec_set(inverse));
      vec_store(step + j, vec_mul(vec_load(weight + i + j), value));
    }
    store_activations(out, row, i, step, kPanelStep);
  }
  for (uint32_t j = 0; i + j < out.k; ++j) step[j] = weight[i + j] * (x[i + j] * inverse);
  store_rest(out, row, i, step, out.k - i);
}

/// The same for one head, in place.
SAC_INLINE void norm_head(float* head, const float* weight, float eps, uint32_t n) {
  if (weight == nullptr) return;
  const float inverse = inverse_rms(head, eps, n);
  for (uint32_t i = 0; i < n; ++i) head[i] = weight[i] * (head[i] * inverse);
}

/// Rotates pairs (i, i + half) of one head by the position's angles ("rotate_half"); dimensions
/// from rotary_dim on stay.
SAC_INLINE void rotate_head(float* head, const float* cos, const float* sin, uint32_t half) {
  for (uint32_t i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

/// Divided by their scale: of all types but fp8 that is 1, and changes no bit.
template <class T>
SAC_INLINE void store_values(const float* values, float scale, uint32_t n, T* out) {
  for (uint32_t i = 0; i < n; ++i) from_float(values[i] / scale, out[i]);
}
template <>
void store_values<Bf16>(const float* values, float, uint32_t n, Bf16* out) {
  uint32_t i = 0;
  for (; i + kPanelStep <= n; i += kPanelStep) narrow_step(values + i, out + i);
  for (; i < n; ++i) from_float(values[i], out[i]);
}

template <class T>
void store_kv(const RotateArgs& a) {
  const uint32_t block = a.kv.block_table[a.position / a.kv.block_size];
  const size_t row = (a.position % a.kv.block_size) * a.kv.token_stride;
  uint8_t* base = a.kv.pool + block * a.kv.block_bytes;
  T* k = reinterpret_cast<T*>(base + a.kv.k_offset) + row;
  T* v = reinterpret_cast<T*>(base + a.kv.v_offset) + row;
  const uint32_t n = a.num_kv_heads * a.head_dim;
  store_values(a.k, a.kv.k_scale, n, k);
  store_values(a.v, a.kv.v_scale, n, v);
}

inline void rotate(const RotateArgs& a) {
  for (uint32_t h = 0; h < a.num_heads; ++h) {
    float* head = a.q + size_t{h} * a.head_dim;
    norm_head(head, a.q_norm, a.eps, a.head_dim);
    rotate_head(head, a.cos, a.sin, a.rotary_dim / 2);
  }
  for (uint32_t h = 0; h < a.num_kv_heads; ++h) {
    float* head = a.k + size_t{h} * a.head_dim;
    norm_head(head, a.k_norm, a.eps, a.head_dim);
    rotate_head(head, a.cos, a.sin, a.rotary_dim / 2);
  }
  switch (a.kv.type) {
    case KvType::kF32:
      return store_kv<float>(a);
    case KvType::kBf16:
      return store_kv<Bf16>(a);
    case KvType::kF16:
      return store_kv<F16>(a);
    case KvType::kFp8:
    case KvType::kFp8Bf16:
      return store_kv<Fp8>(a);
  }
}

}  // namespace SAC_ISA
}  // namespace saccade
