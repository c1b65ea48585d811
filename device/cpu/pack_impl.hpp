// Packing of weights into panels, and back.
#pragma once
#include "cpu/kernels.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// The position of weight k of an output in its panel.
template <class T>
SAC_INLINE size_t panel_slot(uint32_t output, uint32_t k) {
  return size_t{k} * kPanelOutputs + output;
}
template <>
size_t panel_slot<Bf16>(uint32_t output, uint32_t k) {
  return size_t{k / 2} * (2 * kPanelOutputs) + output * 2 + k % 2;
}

template <class T>
struct PanelDtype {
  static constexpr uint32_t value = SAC_DTYPE_F32;
};
template <>
struct PanelDtype<Bf16> {
  static constexpr uint32_t value = SAC_DTYPE_BF16;
};
template <>
struct PanelDtype<F16> {
  static constexpr uint32_t value = SAC_DTYPE_F16;
};

/// Where a panel begins, in elements.
template <class T>
SAC_INLINE size_t panel_begin(uint32_t k, uint32_t panel) {
  return panel * panel_elements(PanelDtype<T>::value, k);
}

/// Prefetches the weights that are multiplied next into the second-level cache, some lines with
/// each step of k.
struct WeightsAhead {
  const char* at;
  uint32_t lines_per_step;
  __attribute__((always_inline)) void fetch() {
    for (uint32_t i = 0; i < lines_per_step; ++i) __builtin_prefetch(at + size_t{i} * 64, 0, 2);
    at += size_t{lines_per_step} * 64;
  }
};

template <class S>
SAC_INLINE float read_unaligned(const void* data, size_t index) {
  S value;
  __builtin_memcpy(&value, static_cast<const uint8_t*>(data) + index * sizeof(S), sizeof(S));
  return to_float(value);
}

/// Rows of a panel that are written together: they stay in the first-level cache.
inline constexpr uint32_t kPackRows = 128;

/// Writes weights of one output, from k = `first` on, into the panel.
template <class T>
SAC_INLINE void pack_column(const float* wide, uint32_t count, T* panel, uint32_t output,
                            uint32_t first) {
  T narrow[kPackRows];
  for (uint32_t i = 0; i < count; ++i) from_float(wide[i], narrow[i]);
  for (uint32_t i = 0; i < count; ++i) panel[panel_slot<T>(output, first + i)] = narrow[i];
}

/// Zeroes what rounding up the outputs or k adds to a panel.
template <class T>
void pad_panel(T* panel, uint32_t k, uint32_t outputs) {
  const uint32_t depth =
      static_cast<uint32_t>(panel_elements(PanelDtype<T>::value, k) / kPanelOutputs);
  for (uint32_t i = 0; i < depth; ++i) {
    for (uint32_t j = i < k ? outputs : 0; j < kPanelOutputs; ++j) {
      from_float(0.0f, panel[panel_slot<T>(j, i)]);
    }
  }
}

/// Packs one panel; read(output, begin, count, floats) gives up to kPackRows of an output's
/// weights.
template <class T, class Read>
void pack_typed(const PackArgs& a, Read&& read) {
  T* panel = static_cast<T*>(a.panels) + panel_begin<T>(a.k, a.panel);
  const uint32_t first = a.panel * kPanelOutputs;
  const uint32_t outputs = min_u32(kPanelOutputs, a.n - first);
  for (uint32_t begin = 0; begin < a.k; begin += kPackRows) {
    const uint32_t count = min_u32(kPackRows, a.k - begin);
    for (uint32_t j = 0; j < outputs; ++j) {
      float wide[kPackRows];
      read(first + j, begin, count, wide);
      pack_column(wide, count, panel, j, begin);
    }
  }
  pad_panel(panel, a.k, outputs);
}

/// Uniform in +-0.035 (standard deviation 0.02, the usual initialisation), a function of the key
/// and the element's place in the row-major matrix only.
SAC_INLINE float dummy_weight(uint32_t key0, uint32_t key1, uint32_t row, uint32_t column) {
  uint32_t h = (row * 0x9E3779B1u) ^ (column * 0x85EBCA77u) ^ key0;  // mixed by murmur3's finaliser
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = ((h ^ (h >> 13)) + key1) * 0xC2B2AE35u;
  h = h ^ (h >> 16);
  return (static_cast<float>(static_cast<int32_t>(h)) * 4.656612873e-10f) * 0.034641016f;
}

template <class T>
void unpack_typed(const void* panels, uint32_t k, uint32_t row, float* out) {
  const T* panel = static_cast<const T*>(panels) + panel_begin<T>(k, row / kPanelOutputs);
  for (uint32_t i = 0; i < k; ++i) out[i] = to_float(panel[panel_slot<T>(row % kPanelOutputs, i)]);
}

}  // namespace SAC_ISA
}  // namespace saccade
