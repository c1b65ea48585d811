// Single kernels of the model on emulated blocks, against their formulas in double and against the
// CPU's code where that is the reference, at sizes that fit no tile.
#include <doctest/doctest.h>

#include "cpu/dtype.hpp"
#include "cuda/model/attention.hpp"
#include "cuda/model/narrow_product.hpp"
#include "cuda/model/rotate.hpp"
#include "cuda/model/sequence_shape.hpp"
#include "cuda/model/warpgroup_product.hpp"
#include "tests/emulated_kernels.hpp"
#include "tests/fp8.hpp"

using namespace saccade;
using namespace saccade::gpu;
using namespace saccade::test;

namespace {

/// Largest difference of a row of bf16 numbers from what it should be.
double difference(const Half* got, const std::vector<double>& want) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double off = std::abs(widen(got[i]) - want[i]);
    if (!(off <= worst)) worst = off;  // NaN too
  }
  return worst;
}

// ---- attention --------------------------------------------------------------------------------

struct AttentionShape {
  uint32_t kv_heads;
  uint32_t group;
  uint32_t head_dim;
  uint32_t window;
  uint32_t block_size;
};

/// Of e4m3: so large for V that many of its numbers are denormal.
constexpr KvScales kScales = {0.25f, 24.0f};

/// Numbers of K or V as they are stored, and their values.
inline void store_kv(float v, float, Half& out) { out = narrow(v); }
inline void store_kv(float v, float scale, Fp8Code& out) { out = narrow_fp8(v / scale); }
inline double stored_value(Half h, float) { return widen(h); }
inline double stored_value(Fp8Code code, float scale) { return fp8_value(code) * scale; }
/// What no position has written.
template <class Kv>
constexpr Kv unwritten() {
  return kIsFp8<Kv> ? 0x7f : kNan;
}

/// One sequence's paged KV of the second of two layers, and its queries.
template <class Kv>
class AttentionRig {
 public:
  AttentionRig(const AttentionShape& shape, uint32_t context, uint32_t seed)
      : shape_(shape), context_(context) {
    Rng rng(seed);
    const uint32_t width = shape.kv_heads * shape.head_dim;
    const uint32_t num_blocks = ceil_div(context, shape.block_size);
    kv_.block_size = shape.block_size;
    kv_.token_stride = width;
    kv_.plane = size_t{shape.block_size} * width;
    kv_.block_bytes = kv_.plane * sizeof(Kv) * 4;
    blocks_.resize(num_blocks);
    std::iota(blocks_.begin(), blocks_.end(), 0u);
    std::shuffle(blocks_.begin(), blocks_.end(), rng);
    // Memory that no position of the sequence has written is NaN: a read of it shows.
    pool_.assign(num_blocks * kv_.block_bytes / sizeof(Kv), unwritten<Kv>());
    kv_.data = reinterpret_cast<unsigned char*>(pool_.data());
    for (uint32_t p = 0; p < context; ++p) {
      for (const bool is_v : {false, true}) {
        Kv* row = kv_row(p, is_v);
        for (uint32_t i = 0; i < width; ++i) store_kv(normal(rng), scale_of(is_v), row[i]);
      }
    }
    q_ = random_halves(rng, size_t{context} * q_width());
  }

  /// Of each two tiles of positions the second gets the keys of the first, and its values negated.
  void cancel_values() {
    for (uint32_t p = 0; p < context_; ++p) {
      if (p / kContextTile % 2 == 0) continue;
      for (uint32_t i = 0; i < kv_.token_stride; ++i) {
        kv_row(p, false)[i] = kv_row(p - kContextTile, false)[i];
        kv_row(p, true)[i] = negated(kv_row(p - kContextTile, true)[i]);
      }
    }
    // Weights of many magnitudes: their sums are not exact.
    for (Half& q : q_) q = narrow(widen(q) * 4);
  }
  /// The second half of a head's dimensions gets the queries of the first, and its keys negated.
  void cancel_scores() {
    const uint32_t dim = shape_.head_dim;
    const auto second = [dim](size_t i) { return i % dim >= dim / 2; };
    for (uint32_t p = 0; p < context_; ++p) {
      Kv* k = kv_row(p, false);
      for (uint32_t i = 0; i < kv_.token_stride; ++i) {
        if (second(i)) k[i] = negated(k[i - dim / 2]);
      }
    }
    for (size_t i = 0; i < q_.size(); ++i) {  // of many magnitudes, likewise
      q_[i] = second(i) ? q_[i - dim / 2]
                        : narrow(std::ldexp(widen(q_[i]), static_cast<int>(i * 7919 % 20)));
    }
  }

  /// Rows [first, first + count) as the step cuts them: a single row by chunks, more by tiles.
  Halves run(uint32_t first, uint32_t count) const {
    const TestActivations out(count, q_width(), true);
    PlanCounts counts = {count, 0, 0, 0, 0};
    std::vector<ChunkItem> items;
    std::vector<RowTile> tiles;
    SplitRow split = {};
    if (count == 1) {
      for (uint32_t c = 0; c <= first / kContextChunk; ++c) items.push_back({0, 0, first, c});
      split = {0, 0, static_cast<uint32_t>(items.size())};
      counts.num_items = split.num_items;
      counts.num_split_rows = 1;
    } else {
      const uint32_t rows = tile_rows_of(shape_.group);
      for (uint32_t r = 0; r < count; r += rows) {
        tiles.push_back({0, r, std::min(rows, count - r), first + r});
      }
      counts.num_tiles = static_cast<uint32_t>(tiles.size());
    }
    Floats sums(items.size() * heads() * shape_.head_dim), scales(items.size() * heads() * 2);
    gpu::AttentionArgs a = {};
    a.plan.counts = &counts;
    a.plan.items = items.data();
    a.plan.split_rows = &split;
    a.plan.tiles = tiles.data();
    a.seats.block_tables = blocks_.data();
    a.seats.max_blocks_per_seq = static_cast<uint32_t>(blocks_.size());
    a.q = q_.data() + size_t{first} * q_width();
    a.q_stride = q_width();
    a.out = out.view();
    a.kv = kv_;
    a.k_offset = kv_.k_offset(1);
    a.num_heads = heads();
    a.num_kv_heads = shape_.kv_heads;
    a.head_dim = shape_.head_dim;
    a.window = shape_.window;
    a.scale = 1.44269504f / std::sqrt(static_cast<float>(shape_.head_dim)) * scale_of(false);
    a.v_scale = scale_of(true);
    a.item_sums = sums.data();
    a.item_scales = scales.data();
    if (shape_.head_dim <= 64) {
      run_with<64>(a);
    } else {
      run_with<kDimLimit>(a);
    }
    Halves rows;
    for (uint32_t r = 0; r < count; ++r) {
      const Halves row = out.row(r, q_width());
      rows.insert(rows.end(), row.begin(), row.end());
    }
    return rows;
  }

  /// From the formula.
  std::vector<double> expected(uint32_t position) const {
    const uint32_t dim = shape_.head_dim;
    const uint32_t begin =
        shape_.window != 0 && position + 1 > shape_.window ? position + 1 - shape_.window : 0;
    std::vector<double> out(q_width());
    for (uint32_t h = 0; h < heads(); ++h) {
      const Half* q = &q_[size_t{position} * q_width() + h * dim];
      const uint32_t at = h / shape_.group * dim;
      double total = 0;
      for (uint32_t t = begin; t <= position; ++t) {
        double score = 0;
        for (uint32_t d = 0; d < dim; ++d) score += widen(q[d]) * value(t, false, at + d);
        const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
        total += weight;
        for (uint32_t d = 0; d < dim; ++d) out[h * dim + d] += weight * value(t, true, at + d);
      }
      for (uint32_t d = 0; d < dim; ++d) out[h * dim + d] /= total;
    }
    return out;
  }

  bool by_warpgroup = false;

  uint32_t heads() const { return shape_.kv_heads * shape_.group; }
  uint32_t q_width() const { return heads() * shape_.head_dim; }

 private:
  static Kv negated(Kv v) { return static_cast<Kv>(v ^ 1u << (8 * sizeof(Kv) - 1)); }
  static float scale_of(bool is_v) {
    if (!kIsFp8<Kv>) return 1;
    return is_v ? kScales.v : kScales.k;
  }
  double value(uint32_t position, bool is_v, uint32_t i) const {
    return stored_value(kv_row(position, is_v)[i], scale_of(is_v));
  }
  Kv* kv_row(uint32_t position, bool is_v) const {
    auto* block =
        reinterpret_cast<Kv*>(kv_.data + blocks_[position / shape_.block_size] * kv_.block_bytes);
    return block + 2 * kv_.plane + (is_v ? kv_.plane : 0) +
           size_t{position % shape_.block_size} * kv_.token_stride;
  }

  template <uint32_t kDim>
  void run_with(const gpu::AttentionArgs& a) const {
    const PlanCounts& counts = *a.plan.counts;
    // Fewer blocks than units: they loop.
    launch<ChunkAttentionKernel<kDim, Kv>>({3}, a);
    using Fold = FoldChunksKernel<kDim, Kv>;
    launch<Fold>({1, ceil_div(heads(), Fold::kWarps)}, a);
    if (counts.num_tiles == 0) return;
    const Grid grid = {shape_.kv_heads, counts.num_tiles, ceil_div(shape_.group, kTileVectors)};
    if (by_warpgroup) return launch<TileAttentionKernel<kDim, true, Kv>>(grid, a);
    launch<TileAttentionKernel<kDim, false, Kv>>(grid, a);
  }

  const AttentionShape shape_;
  const uint32_t context_;
  KvMemory kv_ = {};
  std::vector<uint32_t> blocks_;
  std::vector<Kv> pool_;
  Halves q_;
};

// ---- products ---------------------------------------------------------------------------------

/// Products in double, and by how much sums of floats may miss them.
///
/// A product of two bf16 is exact in float, so only additions round: `n` of them, in any order, err
/// by at most n u / (1 - n u) times the sum of the terms' magnitudes, u = 2^-24 (Higham, Accuracy
/// and Stability of Numerical Algorithms, 4.2). That holds however a kernel cuts its sums.
class ExactProducts {
 public:
  ExactProducts(const TestMatrix& m, const Halves& rows, uint32_t num_rows)
      : n_(m.n), additions_(m.k + m.view.steps()) {
    for (uint32_t r = 0; r < num_rows; ++r) {
      for (uint32_t o = 0; o < m.n; ++o) add(&m.rows[size_t{o} * m.k], &rows[size_t{r} * m.k], m.k);
    }
  }
  double value(uint32_t row, uint32_t output) const { return values_[size_t{row} * n_ + output]; }
  /// `more`: magnitudes of further terms, fewer than kSpare.
  double bound(uint32_t row, uint32_t output, double more = 0) const {
    const double nu = (additions_ + kSpare) * std::ldexp(1.0, -24);
    return nu / (1 - nu) * (magnitudes_[size_t{row} * n_ + output] + more);
  }
  /// The largest error of y[row][output] in units of its bound; NaN counts as beyond any.
  double worst(const Floats& y) const {
    double most = y.size() == values_.size() ? 0 : HUGE_VAL;
    for (size_t i = 0; i < values_.size() && i < y.size(); ++i) {
      const auto row = static_cast<uint32_t>(i / n_), output = static_cast<uint32_t>(i % n_);
      const double off = std::abs(y[i] - values_[i]) / bound(row, output);
      if (!(off <= most)) most = std::isnan(off) ? HUGE_VAL : off;
    }
    return most;
  }

 private:
  static constexpr uint32_t kSpare = 4;
  void add(const Half* a, const Half* b, uint32_t k) {
    double value = 0, magnitude = 0;
    for (uint32_t i = 0; i < k; ++i) {
      const double term = double{widen(a[i])} * widen(b[i]);
      value += term;
      magnitude += std::abs(term);
    }
    values_.push_back(value);
    magnitudes_.push_back(magnitude);
  }
  const uint32_t n_;
  const uint32_t additions_;
  std::vector<double> values_, magnitudes_;
};

/// Kernels, and the number of outputs of a block.
template <uint32_t kRows, bool kSerial>
using Wgmma = WarpgroupProductKernel<kRows, 2, kSerial, ProductEnd::kSums>;
template <uint32_t kRows, bool kSerial>
using NarrowWgmma = WarpgroupProductKernel<kRows, 1, kSerial, ProductEnd::kSums>;
template <uint32_t kRows, bool kSerial>
using Narrow = NarrowProductKernel<kRows, 32, ProductEnd::kSums>;
template <uint32_t kRows, bool kSerial>
using WiderNarrow = NarrowProductKernel<kRows, 64, ProductEnd::kSums>;

/// silu(gate) * up for a matrix whose rows are gated pairs; `width` columns of each row.
template <class Kernel, uint32_t kOutputs>
std::vector<Halves> multiply_gated(const TestMatrix& m, const TestActivations& x, uint32_t num_rows,
                                   uint32_t width) {
  const TestActivations out(num_rows, m.view.n / 2, true);
  const Floats bias(m.view.n / 2, 0.25f);
  ProductArgs a = product_args(m, x, num_rows);
  a.gated = out.view();
  a.gate_bias = a.up_bias = bias.data();
  launch<Kernel>({ceil_div(num_rows, 128), m.view.n / kOutputs, 1}, a);
  std::vector<Halves> rows;
  for (uint32_t r = 0; r < num_rows; ++r) rows.push_back(out.row(r, width));
  return rows;
}

}  // namespace

TEST_CASE_TEMPLATE("attention by chunks and by tiles is the formula's, and the same bit for bit",
                   Kv, Half, Fp8Code) {
  const AttentionShape shapes[] = {
      {1, 1, 16, 0, 8},     {2, 3, 80, 0, 16}, {1, 5, 64, 40, 32},
      {1, 8, 128, 270, 16}, {2, 20, 32, 5, 8},
  };
  // Contexts that end next to the boundaries of a tile of positions (32) and of a chunk (256).
  const uint32_t contexts[] = {1, 2, 31, 32, 33, 65, 255, 256, 257, 301};
  uint32_t seed = 0;
  for (const AttentionShape& shape : shapes) {
    for (const uint32_t context : contexts) {
      CAPTURE(shape.group);
      CAPTURE(shape.head_dim);
      CAPTURE(shape.window);
      CAPTURE(context);
      AttentionRig<Kv> rig(shape, context, ++seed);
      const Halves alone = rig.run(context - 1, 1);
      // Weights are rounded to bf16 before they meet V, and so are the results.
      CHECK(difference(alone.data(), rig.expected(context - 1)) < 0.02);
      if (context == 1) continue;
      const uint32_t count = std::min(context, 2 + seed * 7 % 40), first = context - count;
      for (const bool by_warpgroup : {false, true}) {
        rig.by_warpgroup = by_warpgroup;
        const Halves chunk = rig.run(first, count);
        CHECK(std::equal(alone.begin(), alone.end(), chunk.end() - rig.q_width()));
        CHECK(difference(chunk.data(), rig.expected(first)) < 0.02);
      }
    }
  }
}

TEST_CASE_TEMPLATE("attention by chunks and by tiles adds in the same order", Kv, Half, Fp8Code) {
  // All that is left of sums that cancel is the rounding of what they went through.
  for (const AttentionShape& shape : {AttentionShape{1, 3, 64, 0, 16}, {1, 8, 128, 0, 16}}) {
    for (const uint32_t context : {64u, 320u}) {
      for (const bool of_scores : {false, true}) {
        CAPTURE(shape.head_dim);
        CAPTURE(context);
        CAPTURE(of_scores);
        AttentionRig<Kv> rig(shape, context, context);
        of_scores ? rig.cancel_scores() : rig.cancel_values();
        const Halves alone = rig.run(context - 1, 1);
        const auto left = std::count_if(alone.begin(), alone.end(), [](Half h) {
          return widen(h) != 0 && std::abs(widen(h)) < 1e-6f;
        });
        CHECK((of_scores || left > 5));
        for (const bool by_warpgroup : {false, true}) {
          rig.by_warpgroup = by_warpgroup;
          const Halves chunk = rig.run(context - 7, 7);
          CHECK(std::equal(alone.begin(), alone.end(), chunk.end() - rig.q_width()));
        }
      }
    }
  }
}

TEST_CASE("products are the formula's, and the same for every number of rows in a block") {
  Rng rng(3);
  struct Size {
    uint32_t n, k, rows, slice_steps;
  };
  for (const Size size :
       {Size{1, 8, 1, 1}, {130, 72, 9, 1}, {40, 520, 33, 4}, {257, 200, 130, 3}}) {
    CAPTURE(size.n);
    CAPTURE(size.k);
    const TestMatrix m(size.n, size.k, size.slice_steps, rng);
    const Halves rows = random_halves(rng, size_t{size.rows} * size.k);
    const TestActivations x = activations(rows, size.rows, size.k);
    const Floats y = multiply<Mma, 8, false>(m, x, size.rows);
    const ExactProducts exact(m, rows, size.rows);
    // Emulated, warps and warpgroups give the same bits; hardware promises the formula of both.
    const auto check = [&](const Floats& got) {
      CHECK(exact.worst(got) <= 1);
      CHECK(got == y);
    };
    check(y);
    check(multiply<Mma, 32, false>(m, x, size.rows));
    check(multiply<Mma, 64, false>(m, x, size.rows));
    check(multiply<Mma, 128, true>(m, x, size.rows));
    check(multiply<Wgmma, 8, false>(m, x, size.rows));
    check(multiply<Wgmma, 32, false>(m, x, size.rows));
    check(multiply<Wgmma, 64, false>(m, x, size.rows));
    check(multiply<Wgmma, 128, true>(m, x, size.rows));
  }
}

TEST_CASE("products by warpgroups: many slices, more steps than stages, the highest tiles") {
  Rng rng(17);
  // 20 steps in slices of 3, of 7 and of one; 256 rows in a block are for a single slice.
  for (const uint32_t slice_steps : {3u, 7u, 20u}) {
    CAPTURE(slice_steps);
    constexpr uint32_t kOutputs = 70, kInputs = 20 * kStep - 3, kRowsHere = 265;
    const TestMatrix m(kOutputs, kInputs, slice_steps, rng);
    const auto rows = random_halves(rng, size_t{kRowsHere} * kInputs);
    const TestActivations x = activations(rows, kRowsHere, kInputs);
    const Floats y = multiply<Mma, 128, true>(m, x, kRowsHere);
    const ExactProducts exact(m, rows, kRowsHere);
    const auto check = [&](const Floats& got) {
      CHECK(exact.worst(got) <= 1);
      CHECK(got == y);
    };
    check(multiply<Wgmma, 128, true>(m, x, kRowsHere));
    check(multiply<Wgmma, 64, false>(m, x, kRowsHere));
    check(multiply<Wgmma, 8, false>(m, x, kRowsHere));
    check(multiply<NarrowWgmma, 8, false>(m, x, kRowsHere));
    check(multiply<NarrowWgmma, 128, true>(m, x, kRowsHere));
    check(multiply<Narrow, 8, false>(m, x, kRowsHere));
    check(multiply<Narrow, 16, false>(m, x, kRowsHere));
    check(multiply<Narrow, 32, false>(m, x, kRowsHere));
    check(multiply<Narrow, 64, false>(m, x, kRowsHere));
    check(multiply<WiderNarrow, 8, false>(m, x, kRowsHere));
    check(multiply<WiderNarrow, 16, false>(m, x, kRowsHere));
    check(multiply<WiderNarrow, 32, false>(m, x, kRowsHere));
    if (m.view.by_mma.slices > 1) continue;
    check(multiply<Wgmma, 256, false>(m, x, kRowsHere));
  }
}

TEST_CASE("products by warpgroups add whole sums to the residual stream, and change nothing else") {
  Rng rng(23);
  // A width that fills no tile; rows beyond the step's, and the width's end, must not change.
  constexpr uint32_t kOutputs = 190, kWidth = 192, kInputs = 150, kRowsHere = 21, kRoom = 24;
  const TestMatrix m(kOutputs, kInputs, 3, rng);
  const auto rows = random_halves(rng, size_t{kRowsHere} * kInputs);
  const TestActivations x = activations(rows, kRowsHere, kInputs);
  const Floats y = multiply<Mma, 64, false>(m, x, kRowsHere);
  Floats stream(size_t{kRoom} * kWidth), bias(kWidth);
  for (float& v : stream) v = normal(rng);
  for (uint32_t o = 0; o < kOutputs; ++o) bias[o] = normal(rng);
  const auto add = [&](auto kernel) {
    using Kernel = decltype(kernel);
    Floats sums = stream;
    ProductArgs a = product_args(m, x, kRowsHere);
    a.x_sums = sums.data();
    a.x_width = kWidth;
    a.x_bias = bias.data();
    launch<Kernel>({ceil_div(kRowsHere, 8), m.view.n / Kernel::kOutputs, 1}, a);
    return sums;
  };
  const Floats sums = add(WarpgroupProductKernel<8, 1, false, ProductEnd::kAdded>{});
  const ExactProducts exact(m, rows, kRowsHere);
  for (uint32_t r = 0; r < kRoom; ++r) {
    for (uint32_t o = 0; o < kWidth; ++o) {
      const size_t at = size_t{r} * kWidth + o;
      const bool computed = r < kRowsHere && o < kOutputs;
      const float product = computed ? y[size_t{r} * kOutputs + o] : 0.0f;
      REQUIRE(sums[at] == (r < kRowsHere ? (product + bias[o]) + stream[at] : stream[at]));
      if (!computed) continue;
      const double want = exact.value(r, o) + bias[o] + stream[at];
      const double more = double{std::abs(bias[o])} + std::abs(stream[at]);
      REQUIRE(std::abs(sums[at] - want) <= exact.bound(r, o, more));
    }
  }
  CHECK(add(NarrowProductKernel<8, 32, ProductEnd::kAdded>{}) == sums);
  CHECK(add(NarrowProductKernel<32, 64, ProductEnd::kAdded>{}) == sums);
  CHECK(add(WarpgroupProductKernel<32, 1, false, ProductEnd::kAdded>{}) == sums);
  CHECK(add(WarpgroupProductKernel<64, 2, false, ProductEnd::kAdded>{}) == sums);
  CHECK(add(WarpgroupProductKernel<256, 2, false, ProductEnd::kAdded>{}) == sums);
}

TEST_CASE("gated products are alike by warps and by warpgroups") {
  Rng rng(19);
  constexpr uint32_t kWidth = 100, kInputs = 200, kRowsHere = 131;
  const TestMatrix m(2 * round_up(kWidth, kStep), kInputs, 2, rng);
  const auto rows = random_halves(rng, size_t{kRowsHere} * kInputs);
  const TestActivations x = activations(rows, kRowsHere, kInputs);
  const auto want =
      multiply_gated<ProductKernel<128, true, true, false>, 128>(m, x, kRowsHere, kWidth);
  using Wide = WarpgroupProductKernel<128, 2, true, ProductEnd::kGated>;
  CHECK(multiply_gated<Wide, Wide::kOutputs>(m, x, kRowsHere, kWidth) == want);
  using Half128 = WarpgroupProductKernel<128, 1, true, ProductEnd::kGated>;
  CHECK(multiply_gated<Half128, Half128::kOutputs>(m, x, kRowsHere, kWidth) == want);
  // Pairs as the layout has them: eight of the gate, eight of up.
  const ExactProducts exact(m, rows, kRowsHere);
  for (uint32_t r = 0; r < kRowsHere; ++r) {
    for (uint32_t o = 0; o < kWidth; ++o) {
      const uint32_t gate_row = gated_row(o, 0), up_row = gated_row(o, 1);
      const double gate = exact.value(r, gate_row) + 0.25, up = exact.value(r, up_row) + 0.25;
      const double silu = gate / (1 + std::exp(-gate)), value = silu * up;
      // The slope of silu is below 1.1. Half a step of bf16 is at most 2^-8 of the result; the few
      // operations in float, one exponential among them, err by far less than 2^-18 of it.
      const double bound = 1.1 * exact.bound(r, gate_row, 0.25) * std::abs(up) +
                           std::abs(silu) * exact.bound(r, up_row, 0.25) +
                           std::abs(value) * (std::ldexp(1.0, -8) + std::ldexp(1.0, -18));
      REQUIRE(std::abs(widen(want[r][o]) - value) <= bound);
    }
  }
}

TEST_CASE("a matrix of few outputs gives nearly all multiprocessors a block") {
  const auto blocks = [](uint32_t rows, uint32_t tiles, const WarpgroupTile& t) {
    return ceil_div(rows, t.rows) * tiles * kTileOutputs / t.outputs;
  };
  for (const uint32_t rows : {1u, 16u, 33u, 64u, 65u, 128u, 129u, 256u, 385u, 512u}) {
    CAPTURE(rows);
    for (const uint32_t fp8 : {0u, 1u}) {
      const WarpgroupTile t = fp8 != 0 ? fp8_tile(rows, 32) : warpgroup_tile(rows, 32, 1);
      CHECK(t.rows >= std::min(rows, 64u));
      CHECK(blocks(rows, 32, t) == 128);
    }
  }
}

TEST_CASE("descriptors of a packed tile name its elements, as the PTX ISA counts addresses") {
  // A tile has the same layout in shared memory as in global memory. kTileAt is a shared address.
  constexpr uint32_t kTileAt = 5 * 1024;
  for (uint32_t first : {0u, 64u}) {
    for (uint32_t k = 0; k < kStep; k += 16) {
      const uint64_t descriptor =
          matrix_descriptor(kTileAt + (first * kStep + k) * static_cast<uint32_t>(sizeof(Half)));
      for (uint32_t r = 0; r < 64; ++r) {
        for (uint32_t i = 0; i < 16; ++i) {
          REQUIRE(operand_address(descriptor, false, r, i) ==
                  kTileAt + weight_at(kStep, first + r, k + i) * sizeof(Half));
        }
      }
    }
  }
  // Activations: such a layout may begin at any eight rows of a plane.
  const TestActivations memory(24, kStep, false);
  const gpu::Activations x = memory.view();
  for (uint32_t r = 0; r < 16; ++r) {
    for (uint32_t i = 0; i < kStep; ++i) {
      REQUIRE(operand_address(matrix_descriptor(kTileAt + i / 16 * 32), false, r, i % 16) ==
              kTileAt + (x.at(8 + r, i) - x.at(8, 0)) * sizeof(Half));
    }
  }
  // Values of a tile of a context: k are positions, columns are dimensions.
  using Tile = ContextTile<kDimLimit, Half>;
  for (uint32_t first = 0; first < kContextTile; first += 16) {
    const uint64_t descriptor = transposed_descriptor(kTileAt + first * kStep * sizeof(Half),
                                                      Tile::kPanelHalves * sizeof(Half));
    for (uint32_t k = 0; k < 16; ++k) {
      for (uint32_t d = 0; d < kDimLimit; ++d) {
        REQUIRE(operand_address(descriptor, true, d, k) ==
                kTileAt + (Tile::at(first + k, d / kPiece) + d % kPiece) * sizeof(Half));
      }
    }
  }
}

TEST_CASE("a residual sum with what adapters add to some rows, and its norm") {
  Rng rng(5);
  for (const uint32_t hidden : {1u, 4u, 60u, 1030u}) {
    CAPTURE(hidden);
    // A shape has more rows than the step, and memory for all of them.
    constexpr uint32_t kRowsHere = 3, kShapeRows = kRowsHere + 1, kSlices = 2;
    const uint32_t width = round_up(hidden, kStep);
    // The padding is zero, as the products leave it.
    const auto rows_of = [&](uint32_t rows) {
      Floats values(size_t{rows} * width);
      for (uint32_t r = 0; r < rows; ++r) {
        for (uint32_t i = 0; i < hidden; ++i) values[size_t{r} * width + i] = normal(rng);
      }
      return values;
    };
    Floats sums = rows_of(kShapeRows * kSlices);
    Floats x = rows_of(kShapeRows), bias = rows_of(1), weight = rows_of(1);
    const Floats before = x;
    const TestActivations out(kShapeRows, width, true);
    const PlanCounts counts = {kRowsHere, 0, 0, 0, 0};
    const size_t plane = size_t{kShapeRows} * width;
    const uint32_t row_slot[kShapeRows] = {Deltas::kNoSlot, 1, 0, 1};
    const Floats deltas = rows_of(2);
    launch<AddNormKernel>({kShapeRows}, {&counts,
                                         {sums.data(), kSlices, width, plane},
                                         {deltas.data(), width, row_slot},
                                         bias.data(),
                                         x.data(),
                                         {weight.data(), out.view(), 1e-5f, hidden, width}});
    CHECK(std::equal(x.end() - width, x.end(), before.end() - width));
    for (uint32_t r = 0; r < kRowsHere; ++r) {
      std::vector<double> want(width);
      double squares = 0;
      for (uint32_t i = 0; i < width; ++i) {
        const size_t at = size_t{r} * width + i;
        want[i] = double{before[at]} + sums[at] + sums[plane + at] + bias[i];
        if (row_slot[r] != Deltas::kNoSlot) want[i] += deltas[row_slot[r] * width + i];
        squares += want[i] * want[i];
        CHECK(x[at] == doctest::Approx(want[i]).epsilon(1e-5));
      }
      const double scale = 1 / std::sqrt(squares / hidden + 1e-5);
      for (uint32_t i = 0; i < width; ++i) want[i] *= scale * weight[i];
      CHECK(difference(out.row(r, width).data(), want) < 0.03);  // values up to 5 in bf16
    }
  }
}

TEST_CASE_TEMPLATE("queries and keys are normed and rotated, and are where attention reads them",
                   Kv, Half, Fp8Code) {
  Rng rng(7);
  constexpr uint32_t kHeads = 3, kKvHeads = 2, kDim = 48, kRotary = 36, kLen = 20, kSwitch = 6;
  constexpr uint32_t kAllHeads = kHeads + 2 * kKvHeads, kPosition = 5;
  for (const uint32_t prompt_len : {4u, 9u}) {  // 9: beyond the switch, other angles
    CAPTURE(prompt_len);
    const uint32_t stride = round_up(kAllHeads * kDim, kTileOutputs);
    Floats qkv = random_floats(rng, stride), bias = random_floats(rng, stride);
    Floats q_norm = random_floats(rng, kDim), k_norm = random_floats(rng, kDim);
    const size_t angles = (kLen + kSwitch) * (kRotary / 2);
    Floats cos = random_floats(rng, angles), sin = random_floats(rng, angles);
    SeatParams params[2] = {};
    params[1].prompt_len = prompt_len;
    const uint32_t blocks[2][3] = {{0, 1, 2}, {5, 3, 4}};
    constexpr uint32_t kBlockSize = 8;
    constexpr size_t kPlane = kBlockSize * kKvHeads * kDim;
    std::vector<Kv> pool(6 * 2 * kPlane, unwritten<Kv>());
    Halves q(kHeads * kDim, kNan);
    gpu::PlanRow row = {0, kPosition, 1};
    const PlanCounts counts = {1, 0, 0, 0, 0};
    using Kernel = RotateKernel<Kv>;
    typename Kernel::Args a = {};
    a.counts = &counts;
    a.rows = &row;
    a.seats.params = params;
    a.seats.block_tables = blocks[0];
    a.seats.max_blocks_per_seq = 3;
    a.qkv = {qkv.data(), 1, stride, stride};
    a.bias = bias.data();
    a.q_norm = q_norm.data();
    a.k_norm = k_norm.data();
    a.cos = cos.data();
    a.sin = sin.data();
    a.eps = 1e-5f;
    a.num_heads = kHeads;
    a.num_kv_heads = kKvHeads;
    a.head_dim = kDim;
    a.rotary_dim = kRotary;
    a.max_model_len = kLen;
    a.rope_switch_len = kSwitch;
    a.q = q.data();
    a.q_stride = kHeads * kDim;
    a.kv = {reinterpret_cast<unsigned char*>(pool.data()), 2 * kPlane * sizeof(Kv), kPlane,
            kBlockSize, kKvHeads * kDim};
    a.kv_scales = kScales;
    launch<Kernel>({1, Kernel::blocks_of_row(kAllHeads)}, a);
    const size_t angle = (kPosition + (prompt_len > kSwitch ? kLen : 0)) * (kRotary / 2);
    const Kv* block = &pool[5 * 2 * kPlane];
    for (uint32_t h = 0; h < kAllHeads; ++h) {
      CAPTURE(h);
      const bool is_q = h < kHeads, is_v = h >= kHeads + kKvHeads;
      std::vector<double> want(kDim);
      double squares = 0;
      for (uint32_t d = 0; d < kDim; ++d) {
        want[d] = double{qkv[h * kDim + d]} + bias[h * kDim + d];
        squares += want[d] * want[d];
      }
      for (uint32_t d = 0; d < kDim && !is_v; ++d) {
        want[d] *= (is_q ? q_norm : k_norm)[d] / std::sqrt(squares / kDim + 1e-5);
      }
      for (uint32_t i = 0; i < kRotary / 2 && !is_v; ++i) {
        const double x = want[i], y = want[i + kRotary / 2];
        want[i] = x * cos[angle + i] - y * sin[angle + i];
        want[i + kRotary / 2] = y * cos[angle + i] + x * sin[angle + i];
      }
      const uint32_t kv_head = (h - kHeads) % kKvHeads;
      const Kv* stored =
          block + (is_v ? kPlane : 0) + (kPosition % kBlockSize * kKvHeads + kv_head) * kDim;
      const float scale = is_v ? kScales.v : kScales.k;
      for (uint32_t d = 0; d < kDim; ++d) {
        const double got = is_q ? widen(q[h * kDim + d]) : stored_value(stored[d], scale);
        // Half a step of bf16, and of e4m3, whose steps below 2^-6 are 2^-9; sums in float err far
        // less.
        const double bound = is_q || !kIsFp8<Kv>
                                 ? std::ldexp(std::abs(want[d]), -8)
                                 : std::max(std::ldexp(std::abs(want[d]), -4), scale * 0x1p-10);
        CHECK(std::abs(got - want[d]) <= bound + 1e-4);
      }
    }
    // Only one row of the pool was written.
    CHECK(std::count(pool.begin(), pool.end(), unwritten<Kv>()) ==
          static_cast<long>(pool.size() - 2 * kKvHeads * kDim));
  }
}
