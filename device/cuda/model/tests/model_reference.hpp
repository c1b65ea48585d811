// The decoder of every family straight from its formulas, in double and position by position. For
// layers with experts it also says which choices were so close that rounding may flip them, and
// continues as if it had.
#pragma once
#include "cuda/model/tests/model_harness.hpp"
#include "tests/fp8.hpp"

namespace saccade::test {

using Vector = std::vector<double>;

/// One expert in place of another, at one position.
struct ExpertSwap {
  uint32_t layer;
  uint32_t out;  // picked
  uint32_t in;   // not picked
  double gap;    // of their router logits
};

class ModelReference {
 public:
  /// Choices whose router logits are nearer than max_gap count as close.
  ModelReference(const SmallModel& model, uint32_t prompt_len, double max_gap)
      : m_(model),
        c_(model.config),
        prompt_len_(prompt_len),
        max_gap_(max_gap),
        keys_(c_.num_layers),
        values_(c_.num_layers) {}

  /// Log probabilities of what follows `token` at the next position if these swaps, at most one a
  /// layer, are made. `close`: the other swaps that rounding could make then, in rising order of
  /// layers. Changes nothing until accept().
  Vector look(uint32_t token, const std::vector<ExpertSwap>& swaps,
              std::vector<ExpertSwap>* close = nullptr) {
    if (close != nullptr) close->clear();
    pending_keys_.clear();
    pending_values_.clear();
    Vector x = row(get(SAC_TENSOR_EMBED), token);
    for (uint32_t l = 0; l < c_.num_layers; ++l) layer(l, x, swaps, close);
    const uint32_t head = c_.tied_embeddings != 0 ? SAC_TENSOR_EMBED : SAC_TENSOR_LM_HEAD;
    return log_softmax(product(get(head), norm(x, get(SAC_TENSOR_FINAL_NORM))));
  }
  /// Adds the position that was last looked at to the context.
  void accept() {
    for (uint32_t l = 0; l < c_.num_layers; ++l) {
      keys_[l].push_back(pending_keys_[l]);
      values_[l].push_back(pending_values_[l]);
    }
  }

 private:
  using Matrix = std::vector<float>;

  const Matrix& get(uint32_t role, uint32_t l = 0, uint32_t expert = 0) const {
    return m_.tensors.at({role, l, expert});
  }
  Vector row(const Matrix& matrix, size_t index) const {
    const auto begin = matrix.begin() + static_cast<long>(index * c_.hidden_size);
    return Vector(begin, begin + c_.hidden_size);
  }
  static Vector product(const Matrix& w, const Vector& x) {
    Vector y(w.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) y[o] += static_cast<double>(w[o * x.size() + i]) * x[i];
    }
    return y;
  }
  static Vector log_softmax(const Vector& z) {
    const double best = *std::max_element(z.begin(), z.end());
    double sum = 0;
    for (double v : z) sum += std::exp(v - best);
    Vector out;
    for (double v : z) out.push_back(v - best - std::log(sum));
    return out;
  }
  static void add(Vector& x, const Vector& y, double factor = 1) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += factor * y[i];
  }
  Vector project(uint32_t role, uint32_t bias, uint32_t l, const Vector& x) const {
    Vector y = product(get(role, l), x);
    const auto found = m_.tensors.find({bias, l, 0});
    if (found != m_.tensors.end()) add(y, Vector(found->second.begin(), found->second.end()));
    return y;
  }
  Vector norm(const Vector& x, const Matrix& weight) const {
    double sum = 0;
    for (double v : x) sum += v * v;
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + c_.rms_norm_eps);
    Vector y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
    return y;
  }
  static Vector gated(Vector gate, const Vector& up) {
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    return gate;
  }

  size_t position() const { return keys_[0].size(); }

  /// Norms (if any) and rotates every head of a row.
  void prepare_heads(Vector& v, uint32_t norm_role, uint32_t l) const {
    const size_t half = c_.rotary_dim / 2;
    const bool second = position() < c_.rope_switch_len && prompt_len_ > c_.rope_switch_len;
    const size_t at = (position() + (second ? m_.max_len : 0)) * half;
    for (size_t h = 0; h < v.size() / c_.head_dim; ++h) {
      double* head = v.data() + h * c_.head_dim;
      if (c_.qk_norm != 0) {
        const Vector normed = norm(Vector(head, head + c_.head_dim), get(norm_role, l));
        std::copy(normed.begin(), normed.end(), head);
      }
      for (size_t i = 0; i < half; ++i) {
        const double cos = m_.cos[at + i], sin = m_.sin[at + i];
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

  Vector attend(uint32_t l, const Vector& q) const {
    const size_t dim = c_.head_dim, window = m_.windows[l];
    const size_t begin = window != 0 && position() + 1 > window ? position() + 1 - window : 0;
    const auto key = [&](size_t t) -> const Vector& {
      return t < position() ? keys_[l][t] : pending_keys_[l];
    };
    const auto value = [&](size_t t) -> const Vector& {
      return t < position() ? values_[l][t] : pending_values_[l];
    };
    Vector out(q.size(), 0.0);
    for (size_t h = 0; h < c_.num_heads; ++h) {
      const size_t shared = h / (c_.num_heads / c_.num_kv_heads) * dim;
      Vector weight;
      for (size_t t = begin; t <= position(); ++t) {
        double score = 0;
        for (size_t d = 0; d < dim; ++d) score += q[h * dim + d] * key(t)[shared + d];
        weight.push_back(score / std::sqrt(static_cast<double>(dim)));
      }
      const double best = *std::max_element(weight.begin(), weight.end());
      double total = 0;
      for (double& w : weight) total += w = std::exp(w - best);
      for (size_t t = begin; t <= position(); ++t) {
        for (size_t d = 0; d < dim; ++d) {
          out[h * dim + d] += weight[t - begin] / total * value(t)[shared + d];
        }
      }
    }
    return out;
  }

  /// The experts of a row, with `swaps` made.
  std::vector<uint32_t> pick(uint32_t l, const Vector& logits, const std::vector<ExpertSwap>& swaps,
                             std::vector<ExpertSwap>* close) const {
    std::vector<uint32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    const uint32_t count = c_.experts_per_token;
    std::vector<uint32_t> picks(order.begin(), order.begin() + count);
    for (const ExpertSwap& s : swaps) {
      if (s.layer == l) std::replace(picks.begin(), picks.end(), s.out, s.in);
    }
    const bool swapped =
        std::any_of(swaps.begin(), swaps.end(), [l](const ExpertSwap& s) { return s.layer == l; });
    if (close == nullptr || swapped) return picks;
    for (uint32_t i = 0; i < count; ++i) {
      for (size_t j = count; j < order.size(); ++j) {
        const double gap = logits[order[i]] - logits[order[j]];
        if (gap < max_gap_) close->push_back({l, order[i], order[j], gap});
      }
    }
    return picks;
  }

  void mix_experts(uint32_t l, const Vector& n, Vector& x, const std::vector<ExpertSwap>& swaps,
                   std::vector<ExpertSwap>* close) const {
    const Vector logits = product(get(SAC_TENSOR_ROUTER, l), n);
    const std::vector<uint32_t> picks = pick(l, logits, swaps, close);
    double all = 0, picked = 0;
    for (double z : logits) all += std::exp(z);
    for (uint32_t e : picks) picked += std::exp(logits[e]);
    for (uint32_t e : picks) {
      const Vector inner = gated(product(get(SAC_TENSOR_EXPERT_GATE, l, e), n),
                                 product(get(SAC_TENSOR_EXPERT_UP, l, e), n));
      add(x, product(get(SAC_TENSOR_EXPERT_DOWN, l, e), inner),
          std::exp(logits[e]) / (c_.norm_topk_prob != 0 ? picked : all));
    }
  }

  void layer(uint32_t l, Vector& x, const std::vector<ExpertSwap>& swaps,
             std::vector<ExpertSwap>* close) {
    const Vector n = norm(x, get(SAC_TENSOR_INPUT_NORM, l));
    Vector q = project(SAC_TENSOR_Q, SAC_TENSOR_Q_BIAS, l, n);
    pending_keys_.push_back(project(SAC_TENSOR_K, SAC_TENSOR_K_BIAS, l, n));
    pending_values_.push_back(project(SAC_TENSOR_V, SAC_TENSOR_V_BIAS, l, n));
    prepare_heads(q, SAC_TENSOR_Q_NORM, l);
    prepare_heads(pending_keys_[l], SAC_TENSOR_K_NORM, l);
    store(pending_keys_[l], l, 0);
    store(pending_values_[l], l, 1);
    add(x, project(SAC_TENSOR_O, SAC_TENSOR_O_BIAS, l, attend(l, q)));
    const Vector post = norm(x, get(SAC_TENSOR_POST_NORM, l));
    if (has_experts(c_, l)) return mix_experts(l, post, x, swaps, close);
    const Vector inner = gated(project(SAC_TENSOR_GATE, SAC_TENSOR_GATE_BIAS, l, post),
                               project(SAC_TENSOR_UP, SAC_TENSOR_UP_BIAS, l, post));
    add(x, project(SAC_TENSOR_DOWN, SAC_TENSOR_DOWN_BIAS, l, inner));
  }

  const SmallModel& m_;
  const sac_model_config& c_;
  const uint32_t prompt_len_;
  const double max_gap_;
  std::vector<std::vector<Vector>> keys_, values_;     // [layer][position]
  std::vector<Vector> pending_keys_, pending_values_;  // [layer]
};

}  // namespace saccade::test
