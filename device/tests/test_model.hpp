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

/// An adapter's change of one matrix: y += scaling * B (A x).
struct TestPair {
  uint32_t rank = 0;
  float scaling = 0;
  std::vector<float> a, b;  // [rank][in], [out][rank]
};
using TestAdapter = std::map<std::pair<uint32_t, uint32_t>, TestPair>;  // by role and layer

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
  std::vector<TestAdapter> adapters;

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

/// A random change of one matrix, exact in the model's dtype, about as large as the matrix itself.
inline TestPair random_pair(const sac_model_config& c, uint32_t role, uint32_t rank, Rng& rng) {
  std::normal_distribution<float> normal;
  const TensorShape shape = tensor_shape(c, role);
  TestPair pair = {rank, 0.3f + 0.1f * static_cast<float>(rng() % 10), {}, {}};
  const auto fill = [&](std::vector<float>& values, size_t count, float scale) {
    values.resize(count);
    for (float& v : values) v = through_dtype(scale * normal(rng), c.dtype);
  };
  fill(pair.a, rank * shape.cols, 1.0f / std::sqrt(static_cast<float>(shape.cols)));
  fill(pair.b, rank * shape.rows, 1.0f / std::sqrt(static_cast<float>(rank)));
  return pair;
}

/// Changes most of the matrices that can be changed; the ranks differ, up to `max_rank`.
inline TestAdapter random_adapter(const sac_model_config& c, uint32_t max_rank, uint32_t seed) {
  Rng rng(seed);
  TestAdapter adapter;
  for (uint32_t l = 0; l < c.num_layers; ++l) {
    for (uint32_t role = kFirstAdapted; role < kFirstAdapted + kNumAdapted; ++role) {
      if (!tensor_used(c, role, l) || rng() % 4 == 0) continue;
      adapter[{role, l}] = random_pair(c, role, 1 + rng() % max_rank, rng);
    }
  }
  return adapter;
}

inline AdapterLimits limits_of(const std::vector<TestAdapter>& adapters) {
  return {static_cast<uint32_t>(adapters.size()), adapters.empty() ? 0u : SAC_MAX_ADAPTER_RANK};
}

/// The model with an adapter's changes in its own matrices; 0: as it is.
inline TestModel merged(const TestModel& m, uint32_t adapter) {
  TestModel all = m;
  if (adapter == 0) return all;
  for (const auto& [key, pair] : m.adapters[adapter - 1]) {
    const TensorShape shape = tensor_shape(m.config, key.first);
    std::vector<float>& w = all.tensors.at(key);
    for (size_t o = 0; o < shape.rows; ++o) {
      for (size_t i = 0; i < shape.cols; ++i) {
        double sum = 0;
        for (size_t r = 0; r < pair.rank; ++r) {
          sum += double{pair.b[o * pair.rank + r]} * pair.a[r * shape.cols + i];
        }
        w[o * shape.cols + i] += static_cast<float>(pair.scaling * sum);
      }
    }
  }
  return all;
}

inline sac_adapter_pair pair_of(const sac_model_config& c, uint32_t role, uint32_t layer,
                                const TestPair& pair) {
  const TensorShape shape = tensor_shape(c, role);
  return {role,         layer,      pair.rank,  SAC_DTYPE_F32, SAC_DTYPE_F32,
          pair.scaling, shape.cols, shape.rows, pair.a.data(), pair.b.data()};
}

inline std::string load_adapters(const TestModel& m, CpuStep& step) {
  for (uint32_t i = 0; i < m.adapters.size(); ++i) {
    for (const auto& [key, pair] : m.adapters[i]) {
      const std::string wrong =
          step.set_adapter_pair(i + 1, pair_of(m.config, key.first, key.second, pair));
      if (!wrong.empty()) return wrong;
    }
  }
  return "";
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
  std::string wrong = load_adapters(m, step);
  if (!wrong.empty()) return wrong;
  wrong = step.set_rope(m.cos.data(), m.sin.data(), m.cos.size());
  return wrong.empty() ? step.missing_tensor() : wrong;
}

}  // namespace saccade::test
