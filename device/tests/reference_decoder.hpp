// The decoder written straight from its formulas, in double and without any cache: for every
// position the logits over the vocabulary. K and V are rounded to FP8 where the model keeps them
// so.
#pragma once
#include "tests/fp8.hpp"
#include "tests/test_model.hpp"

namespace saccade::test {

using Vector = std::vector<double>;

class ReferenceDecoder {
 public:
  explicit ReferenceDecoder(const TestModel& model) : m_(model), c_(model.config) {}

  /// [position][vocab]
  std::vector<Vector> logits(const std::vector<uint32_t>& tokens) const {
    std::vector<Vector> x;
    for (uint32_t t : tokens) x.push_back(row(m_.get(SAC_TENSOR_EMBED), t, c_.hidden_size));
    for (uint32_t l = 0; l < c_.num_layers; ++l) layer(l, x);
    const uint32_t head = c_.tied_embeddings != 0 ? SAC_TENSOR_EMBED : SAC_TENSOR_LM_HEAD;
    std::vector<Vector> out;
    for (const Vector& v : x) {
      out.push_back(product(m_.get(head), norm(v, m_.get(SAC_TENSOR_FINAL_NORM)), nullptr));
    }
    return out;
  }

 private:
  static Vector row(const std::vector<float>& matrix, size_t index, size_t width) {
    return Vector(matrix.begin() + static_cast<long>(index * width),
                  matrix.begin() + static_cast<long>((index + 1) * width));
  }
  const std::vector<float>* maybe(uint32_t role, uint32_t l) const {
    return m_.has(role, l) ? &m_.get(role, l) : nullptr;
  }
  Vector product(const std::vector<float>& w, const Vector& x, const std::vector<float>* b) const {
    Vector y(w.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o) {
      y[o] = b == nullptr ? 0.0 : (*b)[o];
      for (size_t i = 0; i < x.size(); ++i) y[o] += static_cast<double>(w[o * x.size() + i]) * x[i];
    }
    return y;
  }
  Vector norm(const Vector& x, const std::vector<float>& weight) const {
    double sum = 0;
    for (double v : x) sum += v * v;
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + c_.rms_norm_eps);
    Vector y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
    return y;
  }
  Vector project(uint32_t role, uint32_t bias, uint32_t l, const Vector& x) const {
    return product(m_.get(role, l), x, maybe(bias, l));
  }

  /// Norms (if any) and rotates every head of a row.
  void prepare_heads(Vector& v, uint32_t norm_role, uint32_t l, size_t position) const {
    const size_t half = c_.rotary_dim / 2;
    for (size_t h = 0; h < v.size() / c_.head_dim; ++h) {
      double* head = v.data() + h * c_.head_dim;
      if (c_.qk_norm != 0) {
        const Vector normed = norm(Vector(head, head + c_.head_dim), m_.get(norm_role, l));
        std::copy(normed.begin(), normed.end(), head);
      }
      for (size_t i = 0; i < half; ++i) {
        const double cos = m_.cos[position * half + i], sin = m_.sin[position * half + i];
        const double a = head[i], b = head[i + half];
        head[i] = a * cos - b * sin;
        head[i + half] = b * cos + a * sin;
      }
    }
  }

  /// K (0) or V (1) as it is after storage.
  void store(Vector& row, uint32_t l, uint32_t of) const {
    if (c_.kv_dtype != SAC_KV_DTYPE_FP8) return;
    const double scale = c_.kv_scales == nullptr ? 1.0 : c_.kv_scales[2 * l + of];
    for (double& x : row) x = fp8_value(fp8_code(x / scale)) * scale;
  }

  Vector attend(const Vector& q, const std::vector<Vector>& k, const std::vector<Vector>& v,
                size_t position, uint32_t window) const {
    const size_t dim = c_.head_dim;
    const size_t begin = window != 0 && position + 1 > window ? position + 1 - window : 0;
    Vector out(q.size(), 0.0);
    for (size_t h = 0; h < c_.num_heads; ++h) {
      const size_t shared = h / (c_.num_heads / c_.num_kv_heads) * dim;
      Vector weight;
      double best = -1e300, total = 0;
      for (size_t t = begin; t <= position; ++t) {
        double score = 0;
        for (size_t d = 0; d < dim; ++d) score += q[h * dim + d] * k[t][shared + d];
        weight.push_back(score / std::sqrt(static_cast<double>(dim)));
        best = std::max(best, weight.back());
      }
      for (double& w : weight) total += w = std::exp(w - best);
      for (size_t t = begin; t <= position; ++t) {
        for (size_t d = 0; d < dim; ++d) {
          out[h * dim + d] += weight[t - begin] / total * v[t][shared + d];
        }
      }
    }
    return out;
  }

  void layer(uint32_t l, std::vector<Vector>& x) const {
    std::vector<Vector> q, k, v;
    for (size_t p = 0; p < x.size(); ++p) {
      const Vector n = norm(x[p], m_.get(SAC_TENSOR_INPUT_NORM, l));
      q.push_back(project(SAC_TENSOR_Q, SAC_TENSOR_Q_BIAS, l, n));
      k.push_back(project(SAC_TENSOR_K, SAC_TENSOR_K_BIAS, l, n));
      v.push_back(project(SAC_TENSOR_V, SAC_TENSOR_V_BIAS, l, n));
      prepare_heads(q[p], SAC_TENSOR_Q_NORM, l, p);
      prepare_heads(k[p], SAC_TENSOR_K_NORM, l, p);
      store(k[p], l, 0);
      store(v[p], l, 1);
    }
    const uint32_t window = m_.windows.empty() ? 0 : m_.windows[l];
    for (size_t p = 0; p < x.size(); ++p) {
      const Vector a = attend(q[p], k, v, p, window);
      add(x[p], project(SAC_TENSOR_O, SAC_TENSOR_O_BIAS, l, a));
      const Vector n = norm(x[p], m_.get(SAC_TENSOR_POST_NORM, l));
      Vector gate = project(SAC_TENSOR_GATE, SAC_TENSOR_GATE_BIAS, l, n);
      const Vector up = project(SAC_TENSOR_UP, SAC_TENSOR_UP_BIAS, l, n);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      add(x[p], project(SAC_TENSOR_DOWN, SAC_TENSOR_DOWN_BIAS, l, gate));
    }
  }
  static void add(Vector& x, const Vector& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  const TestModel& m_;
  const sac_model_config& c_;
};

/// log_softmax of one row.
inline Vector log_softmax(const Vector& z) {
  double best = -1e300, sum = 0;
  for (double v : z) best = std::max(best, v);
  for (double v : z) sum += std::exp(v - best);
  Vector out;
  for (double v : z) out.push_back(v - best - std::log(sum));
  return out;
}

}  // namespace saccade::test
