// Random small models for tests: the tensors that CpuStep is given, kept in float for the
// reference.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cpu/cpu_step.hpp"
#include "cpu/dtype.hpp"
#include "cpu/tensor_roles.hpp"
#include "tests/naive_fp8.hpp"

namespace saccade::test {

/// mt19937 whose values are uint32_t.
class Rng {
 public:
  using result_type = uint32_t;
  explicit Rng(uint32_t seed) : engine_(seed) {}
  static constexpr uint32_t min() { return 0; }
  static constexpr uint32_t max() { return 0xffffffffu; }
  uint32_t operator()() { return static_cast<uint32_t>(engine_()); }

 private:
  std::mt19937 engine_;
};

struct TestModel {
  sac_model_config config = {};
  std::vector<uint32_t> windows;
  std::vector<uint32_t> fp8_roles;
  std::vector<float> kv_scales;  // [num_layers][2], or none: what config points to
  bool biases = false;
  /// By role and layer; of experts one after another.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<float>> tensors;
  /// The matrices among them that are given in e4m3, with the same values.
  std::map<std::pair<uint32_t, uint32_t>, Fp8Matrix> in_fp8;
  std::vector<float> cos, sin;  // [max_len][rotary_dim / 2]

  const std::vector<float>& get(uint32_t role, uint32_t layer = 0) const {
    return tensors.at({role, layer});
  }
  bool has(uint32_t role, uint32_t layer) const { return tensors.count({role, layer}) != 0; }
};

/// A float as it is after storage in dtype.
inline float through_dtype(float v, uint32_t dtype) {
  if (dtype == SAC_DTYPE_BF16) {
    Bf16 b;
    from_float(v, b);
    return to_float(b);
  }
  if (dtype == SAC_DTYPE_F16) {
    F16 h;
    from_float(v, h);
    return to_float(h);
  }
  return v;
}

/// FP8 KV, with a scale for K and V of each layer.
template <class Model>
void keep_fp8_kv(Model& m, uint32_t seed) {
  Rng rng(seed);
  m.config.kv_dtype = SAC_KV_DTYPE_FP8;
  m.kv_scales.clear();
  for (uint32_t i = 0; i < 2 * m.config.num_layers; ++i)
    m.kv_scales.push_back(0.01f * static_cast<float>(1 + rng() % 200));
  m.config.kv_scales = m.kv_scales.data();
}

inline void fill_rope(TestModel& m, uint32_t max_len, double theta) {
  const uint32_t half = m.config.rotary_dim / 2;
  for (uint32_t p = 0; p < max_len; ++p) {
    for (uint32_t i = 0; i < half; ++i) {
      const double angle = p * std::pow(theta, -2.0 * i / m.config.rotary_dim);
      m.cos.push_back(static_cast<float>(std::cos(angle)));
      m.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

/// Random tensors, exact in the model's dtype, of a size that keeps activations near one.
inline void fill_tensors(TestModel& m, uint32_t seed) {
  Rng rng(seed);
  std::normal_distribution<float> normal;
  for (uint32_t role = 0; role < SAC_NUM_TENSOR_ROLES; ++role) {
    const TensorRole& r = tensor_role(role);
    if (!tensor_used(m.config, role, 0) || (r.optional && !m.biases)) continue;
    for (uint32_t l = 0; l < (r.per_layer ? m.config.num_layers : 1); ++l) {
      const TensorShape shape = tensor_shape(m.config, role);
      const bool norm = r.kind == TensorKind::kVector && !r.optional;
      const float scale =
          r.kind == TensorKind::kMatrix ? 1.0f / std::sqrt(static_cast<float>(shape.cols)) : 0.2f;
      std::vector<float> values(num_copies(m.config, role) * shape.rows * shape.cols);
      for (float& v : values) {
        v = through_dtype((norm ? 1.0f : 0.0f) + scale * normal(rng), m.config.dtype);
      }
      m.tensors[{role, l}] = std::move(values);
    }
  }
}

/// Gives every tensor to a step; the first error, or empty.
inline std::string load(const TestModel& m, CpuStep& step) {
  for (const auto& [key, matrix] : m.in_fp8) {
    const TensorShape shape = tensor_shape(m.config, key.first);
    const std::string wrong =
        step.set_tensor(key.first, key.second, SAC_DTYPE_FP8, shape.rows, shape.cols,
                        matrix.bytes.data(), 0, matrix.scales.data());
    if (!wrong.empty()) return wrong;
  }
  for (const auto& [key, values] : m.tensors) {
    if (m.in_fp8.count(key) != 0) continue;
    const TensorShape shape = tensor_shape(m.config, key.first);
    for (uint32_t copy = 0; copy < num_copies(m.config, key.first); ++copy) {
      const float* data = values.data() + copy * shape.rows * shape.cols;
      const std::string wrong =
          step.set_tensor(key.first, key.second, SAC_DTYPE_F32, shape.rows, shape.cols, data, copy);
      if (!wrong.empty()) return wrong;
    }
  }
  const std::string wrong = step.set_rope(m.cos.data(), m.sin.data(), m.cos.size());
  return wrong.empty() ? step.missing_tensor() : wrong;
}

}  // namespace saccade::test
