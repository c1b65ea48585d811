// Drives a model on a GPU, real or emulated, the way the tick does: seats, block tables, histories
// and one batch, in memory that both sides reach. And random small models of every family.
//
// Rig: Model (as CudaModel), Memory(bytes) with data(), run(model, shape), kName.
#pragma once
#include <cstring>
#include <functional>
#include <numeric>

#include "cuda/model/shape.hpp"
#include "tests/naive_fp8.hpp"
#include "tests/step_harness.hpp"
#include "tests/test_grammar.hpp"

namespace saccade::test {

/// Tensors by place, exact in bf16, given to whatever takes them.
struct SmallModel {
  sac_model_config config = {};
  std::vector<uint32_t> windows;
  std::vector<uint32_t> sparse;
  std::vector<uint32_t> fp8_roles;
  std::vector<float> kv_scales;  // [num_layers][2], or none
  bool biases = false;
  uint32_t max_len = 0;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<float>> tensors;
  /// Of some matrices, the same values as files in e4m3 have them.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Fp8Matrix> in_fp8;
  std::vector<float> cos, sin;
  std::vector<TestAdapter> adapters;

  AdapterLimits adapter_limits() const {
    AdapterLimits limits = {static_cast<uint32_t>(adapters.size()), 0};
    for (const TestAdapter& adapter : adapters) {
      for (const auto& [key, pair] : adapter)
        limits.max_rank = std::max(limits.max_rank, pair.rank);
    }
    return limits;
  }

  /// The first error of `take`, a model or a step, or empty.
  template <class Take>
  std::string give(Take& take) const {
    for (const auto& [key, values] : tensors) {
      const auto [role, layer, expert] = key;
      const TensorShape shape = tensor_shape(config, role);
      const auto narrow = in_fp8.find(key);
      const std::string wrong =
          narrow == in_fp8.end()
              ? take.set_tensor(role, layer, SAC_DTYPE_F32, shape.rows, shape.cols, values.data(),
                                expert)
              : take.set_tensor(role, layer, SAC_DTYPE_FP8, shape.rows, shape.cols,
                                narrow->second.bytes.data(), expert, narrow->second.scales.data());
      if (!wrong.empty()) return wrong;
    }
    for (uint32_t i = 0; i < adapters.size(); ++i) {
      for (const auto& [key, pair] : adapters[i]) {
        const std::string wrong =
            take.set_adapter_pair(i + 1, pair_of(config, key.first, key.second, pair));
        if (!wrong.empty()) return wrong;
      }
    }
    const std::string wrong = take.set_rope(cos.data(), sin.data(), cos.size());
    return wrong.empty() ? take.missing_tensor() : wrong;
  }
};

inline void fill_small(SmallModel& m, uint32_t seed) {
  Rng rng(seed);
  std::normal_distribution<float> normal;
  for (uint32_t role = 0; role < SAC_NUM_TENSOR_ROLES; ++role) {
    const TensorRole& r = tensor_role(role);
    if (r.optional && !m.biases) continue;
    const TensorShape shape = tensor_shape(m.config, role);
    const bool norm = r.kind == TensorKind::kVector && !r.optional;
    const float scale =
        r.kind == TensorKind::kMatrix ? 1.0f / std::sqrt(static_cast<float>(shape.cols)) : 0.2f;
    for (uint32_t l = 0; l < (r.per_layer ? m.config.num_layers : 1); ++l) {
      if (!tensor_used(m.config, role, l)) continue;
      for (uint32_t e = 0; e < num_copies(m.config, role); ++e) {
        std::vector<float> values(shape.rows * shape.cols);
        for (float& v : values) {
          v = through_dtype((norm ? 1.0f : 0.0f) + scale * normal(rng), SAC_DTYPE_BF16);
        }
        m.tensors[{role, l, e}] = std::move(values);
      }
    }
  }
  // Any angles do: half of the rows beyond max_len are a second set.
  const size_t angles = (size_t{m.max_len} + m.config.rope_switch_len) * (m.config.rotary_dim / 2);
  for (size_t i = 0; i < angles; ++i) {
    const float angle = std::uniform_real_distribution<float>(-3.0f, 3.0f)(rng);
    m.cos.push_back(std::cos(angle));
    m.sin.push_back(std::sin(angle));
  }
}

/// A random configuration: dense or with experts, with every option of the families.
inline SmallModel random_small(uint32_t seed, uint32_t max_len) {
  Rng rng(seed);
  const auto pick = [&rng](std::initializer_list<uint32_t> values) {
    return *(values.begin() + rng() % values.size());
  };
  SmallModel m;
  m.max_len = max_len;
  sac_model_config& c = m.config;
  c.num_layers = pick({1, 2});
  c.num_kv_heads = pick({1, 2, 3});
  c.num_heads = c.num_kv_heads * pick({1, 2, 3, 5, 8});
  c.head_dim = pick({16, 32, 64, 80, 128});
  c.rotary_dim = rng() % 2 != 0 ? c.head_dim : c.head_dim / 4 * 2;
  c.hidden_size = pick({40, 64, 136, 520});
  c.intermediate_size = pick({24, 64, 100, 600});
  c.vocab_size = pick({33, 100, 259});
  c.dtype = SAC_DTYPE_BF16;
  c.qk_norm = pick({0, 1});
  c.tied_embeddings = pick({0, 1});
  c.rms_norm_eps = 1e-5f;
  m.biases = pick({0, 1}) != 0;
  for (uint32_t l = 0; l < c.num_layers; ++l) m.windows.push_back(pick({0, 0, 1, 5, 40, 270}));
  c.sliding_window = m.windows.data();
  if (rng() % 3 == 0) {
    c.num_experts = pick({4, 9, 32});
    c.experts_per_token = pick({1, 2, 4});
    c.moe_intermediate_size = pick({16, 72, 130});
    c.norm_topk_prob = pick({0, 1});
    for (uint32_t l = 0; l < c.num_layers; ++l) m.sparse.push_back(pick({1, 1, 0}));
    c.sparse_layers = m.sparse.data();
  }
  if (rng() % 4 == 0) c.rope_switch_len = 20;
  fill_small(m, seed);
  return m;
}

/// What is in e4m3.
enum class Kind { kBf16, kFp8Kv, kFp8Weights };

/// The layers' matrices come in e4m3, and most are to stay so.
inline void keep_fp8_weights(SmallModel& m, uint32_t seed) {
  Rng rng(seed);
  sac_model_config& c = m.config;
  c.quantization = SAC_QUANTIZATION_FP8;
  m.fp8_roles.assign(c.num_layers, 0);
  c.fp8_roles = m.fp8_roles.data();
  for (auto& [key, values] : m.tensors) {
    const auto [role, layer, expert] = key;
    if (tensor_role(role).kind != TensorKind::kMatrix || !tensor_role(role).per_layer) continue;
    if (expert == 0 && rng() % 8 != 0) m.fp8_roles[layer] |= 1u << role;
    const TensorShape shape = tensor_shape(c, role);
    m.in_fp8[key] = into_fp8(values.data(), shape.rows, shape.cols);
  }
}

/// One in three with FP8 KV has scales so large that nearly all codes are denormal.
inline SmallModel random_small(uint32_t seed, uint32_t max_len, Kind kind) {
  SmallModel m = random_small(seed, max_len);
  if (kind == Kind::kFp8Weights) keep_fp8_weights(m, seed);
  if (kind != Kind::kFp8Kv) return m;
  keep_fp8_kv(m, seed);
  if (seed % 3 == 0) {
    for (float& scale : m.kv_scales) scale = 24 + 8 * scale;
  }
  return m;
}

/// Adapters of low and of higher ranks, and behind them one that changes nothing.
inline void add_adapters(SmallModel& m, uint32_t seed) {
  constexpr uint32_t kRanks[] = {8, 70, 150};
  for (const uint32_t rank : kRanks) {
    const auto number = static_cast<uint32_t>(m.adapters.size());
    m.adapters.push_back(random_adapter(m.config, rank, seed * 10 + number));
  }
  m.adapters.emplace_back();
}
inline SmallModel without_adapters(const SmallModel& m) {
  SmallModel plain = m;
  plain.adapters.clear();
  return plain;
}
/// With an adapter's changes in its own matrices; 0: as it is.
inline SmallModel merged(const SmallModel& m, uint32_t adapter) {
  SmallModel all = m;
  if (adapter == 0) return all;
  for (const auto& [key, pair] : m.adapters[adapter - 1]) {
    std::vector<float>& w = all.tensors.at({key.first, key.second, 0});
    const TensorShape shape = tensor_shape(m.config, key.first);
    for (size_t o = 0; o < shape.rows; ++o) {
      for (size_t i = 0; i < shape.cols; ++i) {
        double sum = 0;
        for (size_t r = 0; r < pair.rank; ++r)
          sum += double{pair.b[o * pair.rank + r]} * pair.a[r * shape.cols + i];
        w[o * shape.cols + i] += static_cast<float>(pair.scaling * sum);
      }
    }
  }
  return all;
}

template <class Rig>
class ModelHarness {
 public:
  struct Options {
    uint32_t num_seats = 4;
    uint32_t max_rows = 256;
    uint32_t max_len = 256;
    uint32_t block_size = 16;
  };

  ModelHarness(const SmallModel& model, const Options& o)
      : options(o),
        params(take<SeatParams>(o.num_seats)),
        places(take<GrammarPlace>(o.num_seats)),
        vocab(take<TokenVocab>(1)),
        sampled(take<uint64_t>(size_t{o.num_seats} * kRecordWords)),
        prompt_records(take<uint64_t>(size_t{o.max_rows} * kRecordWords)),
        outputs{sampled, prompt_records,
                take<float>(size_t{o.num_seats} * model.config.hidden_size),
                model.config.hidden_size},
        batch_(take<StepBatch>(1)),
        seqs_(take<StepSeq>(o.num_seats)) {
    const uint32_t per_seq = ceil_div(o.max_len, o.block_size);
    const uint32_t num_blocks = o.num_seats * per_seq;
    auto* blocks = take<uint32_t>(num_blocks);
    // Scattered: block ids of a sequence are neither ordered nor adjacent.
    std::iota(blocks, blocks + num_blocks, 0u);
    Rng rng(7);
    std::shuffle(blocks, blocks + num_blocks, rng);
    bias = take<LogitBias>(size_t{o.num_seats} * SAC_MAX_LOGIT_BIAS);
    stops = take<uint32_t>(size_t{o.num_seats} * SAC_MAX_STOP_IDS);
    history_ = take<uint32_t>(size_t{o.num_seats} * o.max_len);
    automata_ = take<uint32_t>(size_t{o.num_seats} * kGrammarWords);
    share_tokens(tables_of(nested_vocabulary(model.config.vocab_size)).view());
    batch_->seqs = seqs_;
    const SeatTables seats = {o.num_seats,
                              o.max_len,
                              per_seq,
                              0,
                              params,
                              history_,
                              blocks,
                              bias,
                              stops,
                              nullptr,
                              {kGrammarWords, automata_, places, vocab}};
    const AdapterLimits adapters = model.adapter_limits();
    const ModelLimits limits = {o.num_seats,      o.max_rows, o.max_len,
                                o.block_size,     num_blocks, adapters.num_adapters,
                                adapters.max_rank};
    const std::string wrong = check_gpu_model(model.config, limits);
    if (!wrong.empty()) throw std::runtime_error(wrong);
    this->model = std::make_unique<typename Rig::Model>(model.config, limits,
                                                        StepTables{seats, batch_, outputs});
  }

  uint32_t* tokens(uint32_t seat) { return history_ + size_t{seat} * options.max_len; }
  void seat_prompt(uint32_t seat, const std::vector<uint32_t>& prompt, const SeatParams& p) {
    std::copy(prompt.begin(), prompt.end(), tokens(seat));
    params[seat] = p;
  }
  /// Words of nested_grammar() or shorter ones.
  void seat_grammar(uint32_t seat, const std::vector<uint32_t>& words) {
    params[seat].grammar_words = static_cast<uint32_t>(words.size());
    std::copy(words.begin(), words.end(), automata_ + size_t{seat} * kGrammarWords);
    places[seat] = {};
  }
  /// Whether the seat's grammar allows the token, which its place then follows. Behind a whole
  /// answer another one begins.
  bool follow(uint32_t seat, uint32_t token) {
    const Automaton a = {automata_ + size_t{seat} * kGrammarWords};
    const bool legal = is_legal(a, places[seat], *vocab, token);
    if (legal)
      take_bytes(a, places[seat], vocab->bytes + vocab->offsets[token], vocab->length(token));
    if (must_end(a, places[seat])) places[seat] = {};
    return legal;
  }
  /// Adds rows to the next batch.
  void add(uint32_t seat, uint32_t first_position, uint32_t num_rows, bool sample,
           bool prompt_logprobs = false) {
    seqs_[batch_->num_seqs++] = {seat,
                                 first_position,
                                 num_rows,
                                 batch_->num_rows,
                                 sample ? 1u : 0u,
                                 prompt_logprobs ? 1u : 0u};
    batch_->num_rows += num_rows;
    prefill_ |= num_rows > 1 || prompt_logprobs;
    adapters_ |= params[seat].adapter != 0;
  }
  /// Runs the batch through the smallest shape, or one that is larger by this many rows and
  /// sequences, or is for adapters too.
  void run(uint32_t more_rows = 0, uint32_t more_seqs = 0, bool with_adapters = false) {
    const GraphShape shape = {std::min(batch_->num_rows + more_rows, options.max_rows),
                              std::min(batch_->num_seqs + more_seqs, options.num_seats),
                              prefill_ || more_rows != more_seqs, adapters_ || with_adapters};
    Rig::run(*model, shape);
    batch_->num_seqs = batch_->num_rows = 0;
    prefill_ = adapters_ = false;
  }
  const uint64_t* sampled_record(uint32_t seq) const { return sampled + seq * kRecordWords; }
  const uint64_t* prompt_record(uint32_t row) const { return prompt_records + row * kRecordWords; }
  const float* embedding(uint32_t seq) const { return outputs.embedding(seq); }

 private:
  static constexpr uint32_t kGrammarWords = 64;

  void share_tokens(const TokenVocab& host) {
    const auto share = [this]<class T>(const T* from, size_t count) {
      T* to = take<T>(count);
      std::copy(from, from + count, to);
      return to;
    };
    const size_t words = ceil_div(host.num_tokens, 32);
    *vocab = {};
    vocab->num_tokens = host.num_tokens;
    vocab->offsets = share(host.offsets, host.num_tokens + size_t{1});
    vocab->bytes = share(host.bytes, host.offsets[host.num_tokens]);
    vocab->plain_masks = share(host.plain_masks, (SAC_GRAMMAR_PLAIN_BYTES + 1) * words);
  }
  template <class T>
  T* take(size_t count) {
    memory_.push_back(std::make_unique<typename Rig::Memory>(count * sizeof(T)));
    return static_cast<T*>(memory_.back()->data());
  }
  std::vector<std::unique_ptr<typename Rig::Memory>> memory_;

 public:
  const Options options;
  SeatParams* params;
  LogitBias* bias;
  uint32_t* stops;
  GrammarPlace* places;
  TokenVocab* vocab;
  uint64_t* sampled;
  uint64_t* prompt_records;
  StepOutputs outputs;
  std::unique_ptr<typename Rig::Model> model;

 private:
  uint32_t* history_;
  uint32_t* automata_;
  StepBatch* batch_;
  StepSeq* seqs_;
  bool prefill_ = false;
  bool adapters_ = false;
};

}  // namespace saccade::test
