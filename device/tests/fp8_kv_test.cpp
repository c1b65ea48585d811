// FP8 KV, kernel by kernel: what is written, what is read, and attention over every code, against
// the definition of e4m3 and against sums in double.
#include <doctest/doctest.h>

#include <algorithm>

#include "cpu/kv_pool.hpp"
#include "tests/fp8.hpp"
#include "tests/test_model.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

constexpr uint32_t kBlockSize = 16;

/// One layer with FP8 KV in a pool of its own, and the block table of one sequence in it.
struct Fp8Layer {
  Fp8Layer(uint32_t dtype, uint32_t kv_heads, uint32_t head_dim, uint32_t positions,
           std::vector<float> of_kv = {})
      : scales(std::move(of_kv)),
        config(config_of(dtype, kv_heads, head_dim)),
        pool(config, kBlockSize, ceil_div(positions, kBlockSize)) {
    for (uint32_t i = ceil_div(positions, kBlockSize); i > 0; --i) table.push_back(i - 1);
  }
  sac_model_config config_of(uint32_t dtype, uint32_t kv_heads, uint32_t head_dim) const {
    sac_model_config c = {};
    c.num_layers = 1;
    c.num_kv_heads = kv_heads;
    c.head_dim = head_dim;
    c.dtype = dtype;
    c.kv_dtype = SAC_KV_DTYPE_FP8;
    c.kv_scales = scales.empty() ? nullptr : scales.data();
    return c;
  }
  KvView view(uint32_t head) const { return pool.view(0, head, table.data()); }
  /// The codes of K or V of one head at a position.
  uint8_t* codes(bool v, uint32_t head, uint32_t position) const {
    const KvView kv = view(head);
    return kv.pool + table[position / kBlockSize] * kv.block_bytes +
           (v ? kv.v_offset : kv.k_offset) + position % kBlockSize * kv.token_stride;
  }
  void write(const Kernels& k, uint32_t position, std::vector<float>& key,
             const std::vector<float>& value) const {
    RotateArgs r = {};
    r.k = key.data();
    r.v = value.data();
    r.num_kv_heads = config.num_kv_heads;
    r.head_dim = config.head_dim;
    r.position = position;
    r.kv = view(0);
    k.rotate(r);
  }

  std::vector<float> scales;
  sac_model_config config;
  KvPool pool;
  std::vector<uint32_t> table;
};

/// Attention of consecutive rows, all that one kv head has; `values` is what it wrote.
std::vector<float> attend(const Kernels& k, const Fp8Layer& layer, const std::vector<float>& q,
                          uint32_t head, uint32_t group, uint32_t num_rows, uint32_t first,
                          uint32_t window) {
  const sac_model_config& c = layer.config;
  std::vector<float> out(q.size());
  std::vector<float> memory(
      k.attention_scratch_floats(kv_type_of(c), c.head_dim, group, c.num_kv_heads) + 16);
  AttentionArgs a = {};
  a.scratch = memory.data();
  while (reinterpret_cast<uintptr_t>(a.scratch) % 64 != 0) ++a.scratch;
  a.q = q.data();
  a.row_stride = size_t{group} * c.head_dim;
  a.out = {out.data(), group * c.head_dim, false};
  a.num_rows = num_rows;
  a.first_position = first;
  a.num_kv_heads = 1;
  a.group = group;
  a.head_dim = c.head_dim;
  a.window = window;
  a.scale = 0.3f;
  a.kv = layer.view(head);
  k.attention(a);
  return out;
}

}  // namespace

TEST_CASE("what is written is the nearest code of value / scale, on every set") {
  std::vector<float> numbers = {0.0f,
                                -0.0f,
                                1e-30f,
                                -1e-30f,
                                0x1p-126f,
                                0x1p-149f,
                                1e30f,
                                -1e30f,
                                448.0f,
                                449.0f,
                                463.9f,
                                464.0f,
                                465.0f,
                                480.0f,
                                -480.0f,
                                std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()};
  for (uint32_t code = 0; code < 0x7e; ++code) {  // the middles, and what is beside them
    const double low = fp8_value(static_cast<uint8_t>(code));
    const double high = fp8_value(static_cast<uint8_t>(code + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    for (const float v : {static_cast<float>(low), std::nextafterf(middle, 0), middle,
                          std::nextafterf(middle, 1e9f)}) {
      numbers.push_back(v);
      numbers.push_back(-v);
    }
  }
  numbers.resize(numbers.size() / 16 * 16);
  const auto dim = static_cast<uint32_t>(numbers.size());
  for (const Kernels* k : available_kernels()) {
    CAPTURE(std::string(k->name));
    for (const std::vector<float>& scales : {std::vector<float>{}, {0.5f, 4.0f}, {0.3f, 1.7f}}) {
      const Fp8Layer layer(SAC_DTYPE_BF16, 1, dim, 1, scales);
      std::vector<float> key = numbers;
      layer.write(*k, 0, key, numbers);
      for (uint32_t i = 0; i < dim; ++i) {
        CAPTURE(numbers[i]);
        for (const bool v : {false, true}) {
          const float scale = scales.empty() ? 1.0f : scales[v ? 1 : 0];
          const uint8_t got = layer.codes(v, 0, 0)[i];
          if (std::isnan(numbers[i])) {
            CHECK((got & 0x7f) == 0x7f);
          } else {
            CHECK(uint32_t{got} == uint32_t{fp8_code(numbers[i] / scale)});
          }
        }
      }
    }
  }
}

TEST_CASE("every code is read as its value times the scale, on every set") {
  for (const Kernels* k : available_kernels()) {
    for (const uint32_t dtype : {SAC_DTYPE_F32, SAC_DTYPE_BF16}) {
      CAPTURE(std::string(k->name));
      CAPTURE(dtype);
      const Fp8Layer layer(dtype, 1, 256, 1, {1.0f, 0.5f});
      for (uint32_t i = 0; i < 256; ++i) {
        layer.codes(false, 0, 0)[i] = 0;
        layer.codes(true, 0, 0)[i] = static_cast<uint8_t>(i);
      }
      // Of one position the weight is 1: the result is V.
      for (const uint32_t group : {1u, 7u}) {
        const std::vector<float> q(size_t{group} * 256, 1.0f);
        const std::vector<float> out = attend(*k, layer, q, 0, group, 1, 0, 0);
        for (uint32_t i = 0; i < out.size(); ++i) {
          const double want = 0.5 * fp8_value(static_cast<uint8_t>(i % 256));
          CAPTURE(i);
          if (std::isnan(want)) {
            CHECK(std::isnan(out[i]));
          } else {
            CHECK(double{out[i]} == want);
          }
        }
      }
    }
  }
}

TEST_CASE("attention over FP8 KV is the softmax of its values, in double") {
  for (const Kernels* k : available_kernels()) {
    for (uint32_t seed = 1; seed <= 40; ++seed) {
      CAPTURE(std::string(k->name));
      CAPTURE(seed);
      Rng rng(seed);
      const uint32_t dtype = rng() % 3, kv_heads = 1 + rng() % 3, dim = 2 * (1 + rng() % 70);
      const uint32_t group = 1 + rng() % 9, positions = 700;
      const Fp8Layer layer(dtype, kv_heads, dim, positions, {0.25f, 3.0f});
      for (uint32_t p = 0; p < positions; ++p) {
        for (uint32_t i = 0; i < kv_heads * dim; ++i) {
          // Any V; K such that no score drowns all others.
          layer.codes(false, 0, p)[i] = static_cast<uint8_t>(rng() % 2 * 0x80 + rng() % 0x40);
          const auto code = static_cast<uint8_t>(rng());
          layer.codes(true, 0, p)[i] = (code & 0x7f) == 0x7f ? 0 : code;
        }
      }
      const uint32_t rows = 1 + rng() % std::min(20u, k->attention_rows(kv_type_of(layer.config)));
      const uint32_t first = rng() % (positions - rows), head = rng() % kv_heads;
      const uint32_t window = rng() % 2 == 0 ? 0 : 1 + rng() % 300;
      std::normal_distribution<float> normal;
      std::vector<float> q(size_t{rows} * group * dim);
      for (float& v : q) v = through_dtype(normal(rng), SAC_DTYPE_BF16);
      const std::vector<float> out = attend(*k, layer, q, head, group, rows, first, window);
      double error = 0;
      for (uint32_t i = 0; i < rows * group; ++i) {
        const uint32_t end = first + i / group + 1;
        const uint32_t begin = window != 0 && end > window ? end - window : 0;
        std::vector<double> weights;
        double best = -1e300, total = 0;
        for (uint32_t p = begin; p < end; ++p) {
          double score = 0;
          for (uint32_t d = 0; d < dim; ++d)
            score += q[i * dim + d] * fp8_value(layer.codes(false, head, p)[d]);
          weights.push_back(0.3 * 0.25 * score);
          best = std::max(best, weights.back());
        }
        for (double& w : weights) total += w = std::exp(w - best);
        for (uint32_t d = 0; d < dim; ++d) {
          double want = 0;
          for (uint32_t p = begin; p < end; ++p)
            want += weights[p - begin] / total * fp8_value(layer.codes(true, head, p)[d]);
          error = std::max(error, std::abs(out[i * dim + d] - 3.0 * want));
        }
      }
      // Values are up to 448 * 3. Models in bf16 round the weights to bf16, where a set has its
      // products.
      CHECK(error < (dtype == SAC_DTYPE_BF16 ? 1.0 : 2e-4));
    }
  }
}
