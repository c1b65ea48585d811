// The kernels one by one: any height and cut of a product gives the bytes of one row alone.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cpu/item_order.hpp"
#include "cpu/kv_pool.hpp"
#include "tests/test_model.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

/// e4m3's greatest magnitude.
constexpr float kFp8Top = 448.0f;

std::vector<float> random_floats(Rng& rng, size_t n, uint32_t dtype) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = through_dtype(normal(rng), dtype);
  return values;
}

/// Of three seeds one has FP8 KV, and then in turn with scales and without.
void keep_kv(sac_model_config& c, uint32_t seed) {
  static constexpr float kScales[] = {0.3f, 1.7f};
  if (seed % 3 != 0) return;
  c.kv_dtype = SAC_KV_DTYPE_FP8;
  if (seed % 2 == 0) c.kv_scales = kScales;
}

/// Random keys and values at all positions of one sequence.
void fill_kv(const Kernels& k, Rng& rng, const sac_model_config& c, const KvPool& pool,
             const std::vector<uint32_t>& table, uint32_t positions) {
  const uint32_t width = c.num_kv_heads * c.head_dim;
  for (uint32_t p = 0; p < positions; ++p) {
    std::vector<float> key = random_floats(rng, width, SAC_DTYPE_F32);
    const std::vector<float> value = random_floats(rng, width, SAC_DTYPE_F32);
    RotateArgs r = {};
    r.k = key.data();
    r.v = value.data();
    r.num_kv_heads = c.num_kv_heads;
    r.head_dim = c.head_dim;
    r.position = p;
    r.kv = pool.view(0, 0, table.data());
    k.rotate(r);
  }
}

/// A random product and its operands.
struct Case {
  /// large: with more activations than a near cache holds.
  Case(uint32_t seed, const Kernels& k, bool large = false) : rng(seed), kernels(k) {
    rows = large ? 180 + rng() % (kTileRows - 179) : 1 + rng() % 70;
    depth = large ? 3000 + rng() % 3000 : 1 + rng() % 300;
    outputs = 1 + rng() % (large ? 100 : 200);
    dtype = large ? SAC_DTYPE_BF16 : rng() % 5;
    epilogue = static_cast<Epilogue>(rng() % 3);
    // Products with fp8 panels read either form.
    const bool may_tile = dtype == SAC_DTYPE_BF16 || dtype == SAC_DTYPE_INT8 ||
                          (dtype == SAC_DTYPE_FP8 && rng() % 2 == 0);
    tiled = k.bf16_activations && may_tile;
    x.resize(size_t{rows} * depth);
    lay_out_x();
    if (dtype == SAC_DTYPE_INT8) quantize_x();
    y0 = random_floats(rng, size_t{rows} * outputs, SAC_DTYPE_F32);
    for (uint32_t i = 0; i < 2; ++i) {
      const bool narrow = dtype == SAC_DTYPE_INT8 || dtype == SAC_DTYPE_FP8;
      const uint32_t exact = narrow ? SAC_DTYPE_F32 : dtype;
      weights[i] = random_floats(rng, size_t{outputs} * depth, exact);
      biases[i] = random_floats(rng, outputs, SAC_DTYPE_F32);
      panels[i].resize(num_panels() * panel_elements(dtype, depth));
      for (uint32_t p = 0; p < num_panels(); ++p) {
        k.pack({weights[i].data(), SAC_DTYPE_F32, outputs, depth, dtype, p, panels[i].data()});
      }
      if (!narrow) continue;
      for (uint32_t o = 0; o < outputs; ++o) {  // from here on, the values of the 8 bits
        float* row = weights[i].data() + size_t{o} * depth;
        k.unpack_row(panels[i].data(), dtype, depth, o, row);
      }
    }
  }
  uint32_t num_panels() const { return ceil_div(outputs, kPanelOutputs); }

  /// Computes rows [begin, begin + count) of y, `panels_at_once` panels per call.
  void run(uint32_t begin, uint32_t count, uint32_t panels_at_once, std::vector<float>& y) const {
    for (uint32_t p = 0; p < num_panels(); p += panels_at_once) {
      MatmulArgs a = {};
      a.x = {const_cast<float*>(laid_out.data()), depth, tiled};
      a.quantized = quantized();
      a.first_row = begin;
      a.num_rows = count;
      a.n = outputs;
      a.dtype = dtype;
      a.panels = panels[0].data();
      a.panels2 = panels[1].data();
      a.bias = biases[0].data();
      a.bias2 = biases[1].data();
      a.first_panel = p;
      a.num_panels = min_u32(panels_at_once, num_panels() - p);
      a.epilogue = epilogue;
      a.y = y.data();
      a.y_stride = outputs;
      a.gated = {y.data(), outputs, false};
      a.tiles = tiles.data();
      kernels.multiply(a);
      kernels.finish(a);
    }
  }
  double want(uint32_t row, uint32_t output) const {
    double sums[2];
    for (uint32_t i = 0; i < 2; ++i) {
      sums[i] = biases[i][output];
      for (uint32_t d = 0; d < depth; ++d) {
        sums[i] += double{x[row * depth + d]} * double{weights[i][output * depth + d]};
      }
    }
    if (epilogue == Epilogue::kStore) return sums[0];
    if (epilogue == Epilogue::kAdd) return sums[0] + y0[row * outputs + output];
    return sums[0] / (1 + std::exp(-sums[0])) * sums[1];
  }

  /// Brings x into the form that the set reads: norms ones, with x as the norm's factors.
  void lay_out_x() {
    laid_out.resize(activation_bytes(rows, depth, tiled) / sizeof(float));
    const Activations to = {laid_out.data(), depth, tiled};
    for (uint32_t r = 0; r < rows; ++r) {
      float* row = x.data() + size_t{r} * depth;
      const std::vector<float> ones(depth, 1.0f);  // their mean square is exactly 1
      for (uint32_t i = 0; i < depth; ++i) row[i] = through_dtype(draw(), SAC_DTYPE_BF16);
      kernels.rms_norm(ones.data(), row, 1e-30f, to, r);
    }
  }
  QuantizedRows quantized() const {
    return {const_cast<int8_t*>(narrow.data()), const_cast<float*>(scales.data()), depth};
  }
  /// Replaces x with its 8-bit values: in groups of 128, the greatest magnitude is 127 steps.
  void quantize_x() {
    narrow.resize(quantized_bytes(rows, depth));
    scales.resize(rows * ceil_div(depth, kQuantGroup));
    for (uint32_t r = 0; r < rows; ++r) {
      kernels.quantize({laid_out.data(), depth, tiled}, r, quantized());
      for (uint32_t g = 0; g < depth; g += kQuantGroup) {
        float* x0 = x.data() + size_t{r} * depth + g;
        const uint32_t count = std::min(kQuantGroup, depth - g);
        float top = 0;
        for (uint32_t i = 0; i < count; ++i) top = std::max(top, std::abs(x0[i]));
        for (uint32_t i = 0; i < count && top > 0; ++i) {
          x0[i] = std::nearbyint(x0[i] * (127 / top)) * (top / 127);
        }
      }
    }
  }
  float draw() { return std::normal_distribution<float>()(rng); }

  Rng rng;
  const Kernels& kernels;
  uint32_t rows, depth, outputs, dtype;
  bool tiled;
  Epilogue epilogue;
  mutable std::vector<float> tiles = std::vector<float>(2 * kTileFloats);
  std::vector<int8_t> narrow;
  std::vector<float> scales;
  std::vector<float> x, laid_out, y0, weights[2], biases[2], panels[2];
};

}  // namespace

TEST_CASE("a row of a product has the same bytes at any height, cut and place") {
  for (const Kernels* k : available_kernels()) {
    for (uint32_t seed = 1; seed <= 80; ++seed) {
      CAPTURE(std::string(k->name));
      CAPTURE(seed);
      Case c(seed, *k);
      std::vector<float> whole = c.y0, single = c.y0, parts = c.y0;
      c.run(0, c.rows, kTilePanels, whole);
      for (uint32_t r = 0; r < c.rows; ++r) c.run(r, 1, 1 + r % kTilePanels, single);
      for (uint32_t r = 0; r < c.rows;) {
        const uint32_t count = min_u32(1 + c.rng() % 20, c.rows - r);
        c.run(r, count, 1, parts);
        r += count;
      }
      CHECK(whole == single);
      CHECK(whole == parts);
      double error = 0;
      for (uint32_t r = 0; r < c.rows; ++r) {
        for (uint32_t o = 0; o < c.outputs; ++o) {
          const double want = c.want(r, o);
          error =
              std::max(error, std::abs(whole[r * c.outputs + o] - want) / (20 + std::abs(want)));
        }
      }
      CHECK(error < 2e-5);  // single chains in f32; a wrong weight would be off by 1e-2
    }
  }
}

TEST_CASE("a row of a product has the same bytes where there is too much of x for a near cache") {
  for (const Kernels* k : available_kernels()) {
    for (uint32_t seed = 1; seed <= 6; ++seed) {
      CAPTURE(std::string(k->name));
      CAPTURE(seed);
      const Case c(seed, *k, true);
      std::vector<float> whole = c.y0, parts = c.y0;
      c.run(0, c.rows, kTilePanels, whole);
      const uint32_t cut = c.rows / 3;
      c.run(0, cut, 1, parts);
      c.run(cut, c.rows - cut, 3, parts);
      CHECK(whole == parts);
      for (uint32_t r = 0; r < c.rows; r += 29) {
        std::vector<float> single = c.y0;
        c.run(r, 1, 2, single);
        for (uint32_t o = 0; o < c.outputs; ++o) {
          const float got = whole[r * c.outputs + o];
          REQUIRE(got == single[r * c.outputs + o]);
          // One large factor of a gated pair spreads the other's error.
          if (c.epilogue == Epilogue::kGated) continue;
          REQUIRE(std::abs(got - c.want(r, o)) < 2e-5 * (20 + std::abs(c.want(r, o))));
        }
      }
    }
  }
}

TEST_CASE("SiLU is as near as its set says") {
  constexpr uint32_t kOutputs = kTilePanels * kPanelOutputs;
  for (const Kernels* k : available_kernels()) {
    CAPTURE(std::string(k->name));
    std::vector<float> tiles(2 * kTileFloats, 1.0f), y(kTileRows * kOutputs);
    const auto x = [](uint32_t i) {  // -87 to 87, dense
      return -87.0f + 174.0f * static_cast<float>(i) / (kTileRows * kOutputs - 1);
    };
    for (uint32_t i = 0; i < y.size(); ++i) {
      const uint32_t row = i / kOutputs, output = i % kOutputs;
      tiles[output / kPanelOutputs * kTilePanelFloats + row * kPanelOutputs +
            output % kPanelOutputs] = x(i);
    }
    MatmulArgs a = {};
    a.num_rows = kTileRows;
    a.n = kOutputs;
    a.num_panels = kTilePanels;
    a.epilogue = Epilogue::kGated;
    a.tiles = tiles.data();
    a.gated = {y.data(), kOutputs, false};
    k->finish(a);
    for (uint32_t i = 0; i < y.size(); ++i) {
      const double want = x(i) / (1 + std::exp(-double{x(i)}));
      const double share = 4e-7 + 8e-8 * std::abs(x(i));
      REQUIRE(std::abs(y[i] - want) <= share * std::abs(want));
    }
  }
}

TEST_CASE("a phase of products has each group times each block once, span by span") {
  Rng rng(5);
  for (uint32_t round = 0; round < 300; ++round) {
    const uint32_t groups = 1 + rng() % 40, blocks = 1 + rng() % 9;
    const ItemOrder order = {groups, blocks, 1 + static_cast<uint32_t>(rng() % 50)};
    std::vector<uint32_t> seen(groups * blocks);
    uint32_t span = 0, block = 0;  // of the item before
    for (uint32_t i = 0; i < order.count(); ++i) {
      const ItemOrder::Place at = order.place(i);
      REQUIRE(at.group < groups);
      REQUIRE(at.block < blocks);
      ++seen[at.group * blocks + at.block];
      const bool next_span = at.group / order.span == span + 1 && at.block == 0;
      CHECK((next_span || (at.group / order.span == span && at.block >= block)));
      span = at.group / order.span;
      block = at.block;
    }
    CHECK(seen == std::vector<uint32_t>(groups * blocks, 1));
  }
}

TEST_CASE("products with 8-bit weights have the same bytes on every set with fused multiply-add") {
  uint32_t compared = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    std::vector<float> first;
    for (const Kernels* k : available_kernels()) {
      if (k == portable_kernels()) continue;
      CAPTURE(std::string(k->name));
      CAPTURE(seed);
      Case c(seed, *k);
      if (c.dtype != SAC_DTYPE_INT8 || c.epilogue == Epilogue::kGated) continue;
      std::vector<float> y = c.y0;
      c.run(0, c.rows, kTilePanels, y);
      if (first.empty()) first = y;
      CHECK(y == first);
      ++compared;
    }
  }
  MESSAGE(compared << " products compared");
}

TEST_CASE("8 bits hold a weight within half a step of its group's greatest") {
  for (const Kernels* k : available_kernels()) {
    Rng rng(7);
    const uint32_t n = 40, depth = 300;
    const std::vector<float> values = random_floats(rng, size_t{n} * depth, SAC_DTYPE_F32);
    std::vector<uint8_t> panels(2 * panel_elements(SAC_DTYPE_INT8, depth));
    for (uint32_t p = 0; p < 2; ++p) {
      k->pack({values.data(), SAC_DTYPE_F32, n, depth, SAC_DTYPE_INT8, p, panels.data()});
    }
    std::vector<float> row(depth);
    for (uint32_t r = 0; r < n; ++r) {
      k->unpack_row(panels.data(), SAC_DTYPE_INT8, depth, r, row.data());
      for (uint32_t g = 0; g < depth; g += kQuantGroup) {
        float top = 0;
        for (uint32_t i = g; i < std::min(g + kQuantGroup, depth); ++i) {
          top = std::max(top, std::abs(values[r * depth + i]));
        }
        for (uint32_t i = g; i < std::min(g + kQuantGroup, depth); ++i) {
          CHECK(std::abs(row[i] - values[r * depth + i]) <= top / 127 * 0.5001f);
        }
      }
    }
  }
}

TEST_CASE("a value in 8 bits that is no number, or infinite, spoils its own group and no other") {
  constexpr uint32_t kDepth = 300, kRows = 3;
  for (const Kernels* k : available_kernels()) {
    CAPTURE(std::string(k->name));
    for (const float odd :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      CAPTURE(odd);
      Rng rng(11);
      std::vector<float> values = random_floats(rng, size_t{kRows} * kDepth, SAC_DTYPE_F32);
      values[kDepth + 200] = odd;  // row 1, group 1
      std::vector<uint8_t> panels(panel_elements(SAC_DTYPE_INT8, kDepth));
      k->pack({values.data(), SAC_DTYPE_F32, kRows, kDepth, SAC_DTYPE_INT8, 0, panels.data()});
      std::vector<int8_t> narrow(quantized_bytes(kRows, kDepth));
      std::vector<float> scales(kRows * ceil_div(kDepth, kQuantGroup));
      const QuantizedRows out = {narrow.data(), scales.data(), kDepth};
      for (uint32_t r = 0; r < kRows; ++r) {
        k->quantize({values.data(), kDepth, false}, r, out);
        std::vector<float> weights(kDepth);
        k->unpack_row(panels.data(), SAC_DTYPE_INT8, kDepth, r, weights.data());
        for (uint32_t i = 0; i < kDepth; ++i) {
          const bool spoilt = r == 1 && i / kQuantGroup == 1;
          CHECK(std::isnan(weights[i]) == spoilt);
          CHECK(std::isnan(scales[r * ceil_div(kDepth, kQuantGroup) + i / kQuantGroup]) == spoilt);
        }
      }
    }
  }
}

TEST_CASE("every e4m3 value is computed exactly, by products of any height") {
  constexpr uint32_t kOutputs = 70, kDepth = 200;
  std::vector<uint8_t> codes(size_t{kOutputs} * kDepth);
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(i * 37);
    if ((codes[i] & 127) == 127) codes[i] = 0;
  }
  std::vector<float> scales(size_t{kOutputs} * 2);
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.25f + 0.37f * static_cast<float>(i);
  for (const Kernels* k : available_kernels()) {
    std::vector<float> panels(ceil_div(kOutputs, kPanelOutputs) *
                              panel_elements(SAC_DTYPE_FP8, kDepth) / sizeof(float));
    for (uint32_t p = 0; p < ceil_div(kOutputs, kPanelOutputs); ++p) {
      k->pack({codes.data(), SAC_DTYPE_FP8, kOutputs, kDepth, SAC_DTYPE_FP8, p, panels.data(),
               scales.data()});
    }
    for (const bool tiled : {false, true}) {
      if (tiled && !k->bf16_activations) continue;
      // Row r picks the weights of k = r.
      std::vector<float> x(activation_bytes(kDepth, kDepth, tiled) / sizeof(float));
      const Activations to = {x.data(), kDepth, tiled};
      const std::vector<float> ones(kDepth, 1.0f);
      for (uint32_t r = 0; r < kDepth; ++r) {
        std::vector<float> one(kDepth);
        one[r] = 1.0f;
        k->rms_norm(ones.data(), one.data(), 1e-30f, to, r);
      }
      std::vector<float> tiles(2 * kTileFloats), y(size_t{kDepth} * kOutputs);
      for (const uint32_t height : {1u, 3u, 40u}) {
        for (uint32_t r = 0; r < kDepth; r += height) {
          MatmulArgs a = {};
          a.x = to;
          a.first_row = r;
          a.num_rows = min_u32(height, kDepth - r);
          a.n = kOutputs;
          a.dtype = SAC_DTYPE_FP8;
          a.panels = panels.data();
          a.num_panels = ceil_div(kOutputs, kPanelOutputs);
          a.y = y.data();
          a.y_stride = kOutputs;
          a.tiles = tiles.data();
          k->multiply(a);
          k->finish(a);
        }
        uint32_t wrong = 0;
        for (uint32_t r = 0; r < kDepth; ++r) {
          for (uint32_t o = 0; o < kOutputs; ++o) {
            const float value = naive_fp8(codes[o * kDepth + r]);
            wrong += y[r * kOutputs + o] != value * scales[o * 2 + r / kQuantGroup];
          }
        }
        CAPTURE(std::string(k->name));
        CAPTURE(tiled);
        CAPTURE(height);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE(
    "e4m3 holds a weight within half a step, and a value that is no number spoils its group") {
  constexpr uint32_t kOutputs = 40, kDepth = 300;
  for (const Kernels* k : available_kernels()) {
    CAPTURE(std::string(k->name));
    Rng rng(7);
    std::vector<float> values = random_floats(rng, size_t{kOutputs} * kDepth, SAC_DTYPE_F32);
    for (uint32_t i = 0; i < kQuantGroup; ++i) values[3 * kDepth + i] *= 1e-35f;  // becomes zero
    values[kDepth + 200] = __builtin_nanf("");                                    // row 1, group 1
    values[2 * kDepth + 5] = -__builtin_inff();
    std::vector<uint8_t> panels(2 * panel_elements(SAC_DTYPE_FP8, kDepth));
    for (uint32_t p = 0; p < 2; ++p) {
      k->pack({values.data(), SAC_DTYPE_F32, kOutputs, kDepth, SAC_DTYPE_FP8, p, panels.data()});
    }
    std::vector<float> row(kDepth);
    for (uint32_t r = 0; r < kOutputs; ++r) {
      k->unpack_row(panels.data(), SAC_DTYPE_FP8, kDepth, r, row.data());
      for (uint32_t i = 0; i < kDepth; ++i) {
        const uint32_t group = i / kQuantGroup;
        const bool spoilt = (r == 1 && group == 1) || (r == 2 && group == 0);
        REQUIRE(std::isnan(row[i]) == spoilt);
        if (spoilt) continue;
        const float value = values[r * kDepth + i];
        // A mantissa of 4 bits with its leading one; below 2^-6 of 448, steps of 2^-9.
        const float step = std::max(std::abs(value) / 8, 4.0f * 0x1p-9f / kFp8Top);
        CHECK(std::abs(row[i] - value) <= step * 0.5001f);
      }
    }
  }
}

TEST_CASE("e4m3 comes from a file as it is, or times its scale into any other type") {
  constexpr uint32_t kOutputs = 40, kDepth = 300, kGroups = 3;
  std::vector<uint8_t> source(size_t{kOutputs} * kDepth + 1);
  uint8_t* codes = source.data() + 1;  // data in a file may have any alignment
  std::vector<float> scales(size_t{kOutputs} * kGroups);
  Rng rng(3);
  for (size_t i = 0; i + 1 < source.size(); ++i) {
    codes[i] = static_cast<uint8_t>(rng());
    if ((codes[i] & 127) == 127) codes[i] = 0;
  }
  for (float& s : scales) s = 1e-4f + 1e-3f * static_cast<float>(rng() % 1000);
  codes[5 * kDepth + 140] = 255;  // NaN in row 5, group 1
  for (const Kernels* k : available_kernels()) {
    for (const uint32_t dtype : {SAC_DTYPE_F32, SAC_DTYPE_BF16, SAC_DTYPE_F16, SAC_DTYPE_FP8}) {
      CAPTURE(std::string(k->name));
      CAPTURE(dtype);
      std::vector<float> panels(2 * panel_elements(dtype, kDepth));
      for (uint32_t p = 0; p < 2; ++p) {
        k->pack({codes, SAC_DTYPE_FP8, kOutputs, kDepth, dtype, p, panels.data(), scales.data()});
      }
      std::vector<float> row(kDepth);
      uint32_t wrong = 0;
      for (uint32_t r = 0; r < kOutputs; ++r) {
        k->unpack_row(panels.data(), dtype, kDepth, r, row.data());
        for (uint32_t i = 0; i < kDepth; ++i) {
          const uint32_t group = i / kQuantGroup;
          const float value = naive_fp8(codes[r * kDepth + i]) * scales[r * kGroups + group];
          const bool spoilt = std::isnan(value) || (dtype == SAC_DTYPE_FP8 && r == 5 && group == 1);
          wrong += spoilt ? !std::isnan(row[i]) : row[i] != through_dtype(value, dtype);
        }
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("packing keeps every weight, from every source type, and a row comes back") {
  for (const Kernels* k : available_kernels()) {
    for (uint32_t seed = 1; seed <= 30; ++seed) {
      CAPTURE(std::string(k->name));
      CAPTURE(seed);
      Rng rng(seed);
      const uint32_t n = 1 + rng() % 100, depth = 1 + rng() % 300;
      const uint32_t source_dtype = seed % 3, dtype = seed / 3 % 3;
      const std::vector<float> values = random_floats(rng, size_t{n} * depth, source_dtype);
      std::vector<uint8_t> source(values.size() * 4 + 1);
      uint8_t* at = source.data() + 1;  // data in a file may have any alignment
      for (size_t i = 0; i < values.size(); ++i) {
        Bf16 b;
        F16 h;
        from_float(values[i], b);
        from_float(values[i], h);
        const uint16_t bits = source_dtype == SAC_DTYPE_BF16 ? b.bits : h.bits;
        if (source_dtype == SAC_DTYPE_F32) {
          __builtin_memcpy(at + i * 4, &values[i], 4);
        } else {
          __builtin_memcpy(at + i * 2, &bits, 2);
        }
      }
      std::vector<float> panels(ceil_div(n, kPanelOutputs) * panel_elements(dtype, depth));
      for (uint32_t p = 0; p < ceil_div(n, kPanelOutputs); ++p) {
        k->pack({at, source_dtype, n, depth, dtype, p, panels.data()});
      }
      std::vector<float> row(depth), want(depth);
      for (uint32_t r = 0; r < n; ++r) {
        k->unpack_row(panels.data(), dtype, depth, r, row.data());
        for (uint32_t i = 0; i < depth; ++i) {
          want[i] = through_dtype(values[r * depth + i], dtype);
        }
        REQUIRE(row == want);
      }
    }
  }
}

TEST_CASE("packed panels have the bytes of this kPackedVersion, on every set") {
  // When the packed format changes, change these numbers and bump kPackedVersion (cpu/weights.cpp):
  // a file of packed weights outlives the program that wrote it.
  constexpr uint64_t kWanted[5] = {0x318491d318934fa1u, 0x2105ed4f07fb8200u, 0x6da09b1dcf164f78u,
                                   0x9bf07d7e41c23787u, 0xdcd821b981141408u};  // by dtype
  constexpr uint32_t kOutputs = 70, kDepth = 200;
  Rng rng(5);
  std::vector<float> source(size_t{kOutputs} * kDepth);  // no distribution: std libraries differ
  for (float& v : source) v = static_cast<float>(static_cast<int32_t>(rng())) * 0x1p-31f;
  for (const Kernels* k : available_kernels()) {
    for (uint32_t dtype = SAC_DTYPE_F32; dtype <= SAC_DTYPE_FP8; ++dtype) {
      CAPTURE(std::string(k->name));
      CAPTURE(dtype);
      const size_t num_panels = ceil_div(kOutputs, kPanelOutputs);
      const size_t elements = num_panels * panel_elements(dtype, kDepth);
      std::vector<uint32_t> panels(elements, 0xababababu);  // room for four bytes each
      for (uint32_t p = 0; p < num_panels; ++p) {
        k->pack({source.data(), SAC_DTYPE_F32, kOutputs, kDepth, dtype, p, panels.data()});
      }
      const auto* bytes = reinterpret_cast<const uint8_t*>(panels.data());
      const size_t element_bytes[] = {4, 2, 2, 1, 1};
      uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
      for (size_t i = 0; i < elements * element_bytes[dtype]; ++i) {
        hash = (hash ^ bytes[i]) * 0x100000001b3ull;
      }
      CHECK(hash == kWanted[dtype]);
    }
  }
}

TEST_CASE("attention of a row has the same bytes alone and among its neighbours") {
  for (const Kernels* k : available_kernels()) {
    for (uint32_t seed = 1; seed <= 40; ++seed) {
      CAPTURE(std::string(k->name));
      CAPTURE(seed);
      Rng rng(seed);
      sac_model_config c = {};
      c.num_layers = 1;
      c.num_kv_heads = 1 + rng() % 3;
      c.head_dim = 2 * (1 + rng() % 70);
      c.dtype = rng() % 3;
      keep_kv(c, seed);
      const uint32_t group = 1 + rng() % 9, block_size = 8u << rng() % 4, positions = 700;
      const KvPool pool(c, block_size, ceil_div(positions, block_size));
      std::vector<uint32_t> table(ceil_div(positions, block_size));
      for (uint32_t i = 0; i < table.size(); ++i) {
        table[i] = static_cast<uint32_t>(table.size()) - 1 - i;
      }
      fill_kv(*k, rng, c, pool, table, positions);
      AttentionArgs a = {};
      a.num_rows = 1 + rng() % k->attention_rows(kv_type_of(c));
      a.num_kv_heads = 1;
      a.first_position = rng() % (positions - a.num_rows);
      a.group = group;
      a.head_dim = c.head_dim;
      a.window = rng() % 2 == 0 ? 0 : 1 + rng() % 100;
      a.scale = 0.3f;
      a.row_stride = size_t{group} * c.head_dim;
      a.kv = pool.view(0, rng() % c.num_kv_heads, table.data());
      const std::vector<float> q = random_floats(rng, a.num_rows * a.row_stride, SAC_DTYPE_F32);
      std::vector<float> together(q.size()), alone(q.size());
      const size_t scratch_floats =
          k->attention_scratch_floats(kv_type_of(c), c.head_dim, group, c.num_kv_heads);
      std::vector<float> memory(scratch_floats + 17);
      float* scratch = memory.data();
      while (reinterpret_cast<uintptr_t>(scratch) % 64 != 0) ++scratch;
      scratch[scratch_floats] = 42.0f;
      a.q = q.data();
      a.out = {together.data(), group * c.head_dim, false};
      a.scratch = scratch;
      k->attention(a);
      AttentionArgs one = a;
      one.num_rows = 1;
      for (uint32_t r = 0; r < a.num_rows; ++r) {
        one.q = q.data() + r * a.row_stride;
        one.out.data = alone.data();
        one.out_row = r;
        one.first_position = a.first_position + r;
        k->attention(one);
      }
      CHECK(together == alone);
      CHECK(scratch[scratch_floats] == 42.0f);
    }
  }
}

TEST_CASE("the kv heads of a row have the same bytes at once and one by one") {
  for (const Kernels* k : available_kernels()) {
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      CAPTURE(std::string(k->name));
      CAPTURE(seed);
      Rng rng(seed);
      sac_model_config c = {};
      c.num_layers = 1;
      c.num_kv_heads = 1 + rng() % 6;
      c.head_dim = 8 * (1 + rng() % 20);
      c.dtype = rng() % 3;
      keep_kv(c, seed);
      const uint32_t group = 1 + rng() % 5, block_size = 8u << rng() % 4, positions = 200;
      const KvPool pool(c, block_size, ceil_div(positions, block_size));
      std::vector<uint32_t> table(ceil_div(positions, block_size));
      for (uint32_t i = 0; i < table.size(); ++i) table[i] = i;
      fill_kv(*k, rng, c, pool, table, positions);
      AttentionArgs a = {};
      a.num_rows = 1;
      a.first_position = rng() % positions;
      a.num_kv_heads = c.num_kv_heads;
      a.group = group;
      a.head_dim = c.head_dim;
      a.scale = 0.3f;
      a.row_stride = size_t{c.num_kv_heads} * group * c.head_dim;
      const std::vector<float> q = random_floats(rng, a.row_stride, SAC_DTYPE_F32);
      std::vector<float> together(q.size()), alone(q.size());
      std::vector<float> memory(
          k->attention_scratch_floats(kv_type_of(c), c.head_dim, group, c.num_kv_heads) + 16);
      a.scratch = memory.data();
      while (reinterpret_cast<uintptr_t>(a.scratch) % 64 != 0) ++a.scratch;
      a.q = q.data();
      a.out = {together.data(), static_cast<uint32_t>(q.size()), false};
      a.kv = pool.view(0, 0, table.data());
      k->attention(a);
      a.out.data = alone.data();
      a.num_kv_heads = 1;
      for (uint32_t h = 0; h < c.num_kv_heads; ++h) {
        a.kv = pool.view(0, h, table.data());
        a.q = q.data() + size_t{h} * group * c.head_dim;
        a.out_column = h * group * c.head_dim;
        k->attention(a);
      }
      CHECK(together == alone);
    }
  }
}

TEST_CASE("a row has the same bytes at once and from parts of its context, however they are cut") {
  for (const Kernels* k : available_kernels()) {
    for (uint32_t seed = 1; seed <= 30; ++seed) {
      CAPTURE(std::string(k->name));
      CAPTURE(seed);
      Rng rng(seed);
      sac_model_config c = {};
      c.num_layers = 1;
      c.num_kv_heads = 1 + rng() % 10;
      c.head_dim = 2 * (1 + rng() % 70);
      c.dtype = rng() % 3;
      keep_kv(c, seed);
      const uint32_t group = 1 + rng() % 5, block_size = 8u << rng() % 4;
      const uint32_t positions = 1 + rng() % (4 * kAttentionRange);
      const KvPool pool(c, block_size, ceil_div(positions, block_size));
      std::vector<uint32_t> table(ceil_div(positions, block_size));
      for (uint32_t i = 0; i < table.size(); ++i) table[i] = i;
      fill_kv(*k, rng, c, pool, table, positions);
      const uint32_t num_heads = c.num_kv_heads * group, num_ranges = positions / kAttentionRange;
      AttentionArgs a = {};
      a.num_rows = 1;
      a.first_position = positions - 1;
      a.num_kv_heads = c.num_kv_heads;
      a.group = group;
      a.head_dim = c.head_dim;
      a.window = rng() % 2 == 0 ? 0 : 1 + rng() % positions;
      a.scale = 0.3f;
      a.row_stride = size_t{num_heads} * c.head_dim;
      const std::vector<float> q = random_floats(rng, a.row_stride, SAC_DTYPE_F32);
      a.q = q.data();
      std::vector<float> at_once(q.size()), merged(q.size());
      std::vector<float> memory(
          k->attention_scratch_floats(kv_type_of(c), c.head_dim, group, c.num_kv_heads) + 16);
      a.scratch = memory.data();
      while (reinterpret_cast<uintptr_t>(a.scratch) % 64 != 0) ++a.scratch;
      a.out = {at_once.data(), static_cast<uint32_t>(q.size()), false};
      a.kv = pool.view(0, 0, table.data());
      k->attention(a);

      const size_t head_part = attention_part_floats(c.head_dim);
      std::vector<float> parts((num_ranges + 1) * num_heads * head_part, __builtin_nanf(""));
      a.part_stride = num_heads * head_part;
      const uint32_t heads = 1 + rng() % c.num_kv_heads;
      for (uint32_t r = 0; r <= num_ranges; r = a.end_range) {
        a.first_range = r;
        a.end_range = r + 1 + rng() % 3;
        for (uint32_t h = 0; h < c.num_kv_heads; h += heads) {
          a.num_kv_heads = std::min(heads, c.num_kv_heads - h);
          a.kv = pool.view(0, h, table.data());
          a.q = q.data() + size_t{h} * group * c.head_dim;
          a.parts = parts.data() + h * group * head_part;
          k->attention(a);
        }
      }
      MergeArgs m = {};
      m.parts = parts.data();
      m.part_stride = a.part_stride;
      m.first_range = a.window == 0 ? 0 : (positions - a.window) / kAttentionRange;
      m.end_range = (positions - 1) / kAttentionRange + 1;
      m.num_heads = num_heads;
      m.head_dim = c.head_dim;
      m.kv_type = pool.type();
      m.v_scale = pool.v_scale(0);
      m.out = {merged.data(), static_cast<uint32_t>(q.size()), false};
      m.scratch = a.scratch;
      k->merge_attention(m);
      CHECK(at_once == merged);
    }
  }
}
