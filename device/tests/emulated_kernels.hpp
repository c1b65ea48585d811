// What tests of single kernels share: operands in the forms that kernels read, launches on an
// emulated GPU, and products by mma, which others are compared with.
#pragma once
#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "cuda/model/product.hpp"
#include "cuda/model/tests/emulated_model.hpp"
#include "tests/test_model.hpp"

namespace saccade::test {

using namespace gpu;

using Halves = std::vector<Half>;
using Floats = std::vector<float>;

inline constexpr Half kNan = 0x7fff;

inline float normal(Rng& rng) { return std::normal_distribution<float>()(rng); }
/// Random numbers that are exact in bf16.
inline Halves random_halves(Rng& rng, size_t count) {
  Halves out(count);
  for (Half& h : out) h = narrow(normal(rng));
  return out;
}
inline Floats random_floats(Rng& rng, size_t count) {
  Floats out(count);
  for (float& f : out) f = normal(rng);
  return out;
}

template <class Kernel>
void launch(Grid grid, const typename Kernel::Args& args) {
  Emulator emulator;
  emulator.launch<Kernel>(grid, Kernel::kSharedBytes, args);
}

/// Activations in their own memory, initially zeros or NaN.
class TestActivations {
 public:
  TestActivations(uint32_t rows, uint32_t width, bool nan)
      : width_(round_up(width, kStep)),
        rows_(round_up(rows, kTileOutputs)),
        memory_(std::make_unique<HostMemory>(size_t{rows_} * width_ * sizeof(Half))) {
    if (nan) std::fill_n(view().data, size_t{rows_} * width_, kNan);
  }
  gpu::Activations view() const { return {static_cast<Half*>(memory_->data()), rows_}; }
  /// `count` columns of a row, in their order.
  Halves row(uint32_t row, uint32_t count) const {
    Halves out(count);
    for (uint32_t i = 0; i < count; ++i) out[i] = *view().at(row, i);
    return out;
  }

 private:
  uint32_t width_;
  uint32_t rows_;
  std::unique_ptr<HostMemory> memory_;
};

/// Rows of activations, rounded up with zeros.
inline TestActivations activations(const Halves& rows, uint32_t num_rows, uint32_t k) {
  TestActivations x(num_rows, k, false);
  for (uint32_t r = 0; r < num_rows; ++r) {
    for (uint32_t i = 0; i < k; ++i) *x.view().at(r, i) = rows[size_t{r} * k + i];
  }
  return x;
}

/// A weight matrix in tiles, and as plain rows.
struct TestMatrix {
  TestMatrix(uint32_t n, uint32_t k, uint32_t slice_steps, Rng& rng)
      : n(n), k(k), rows(random_halves(rng, size_t{n} * k)) {
    view.n = round_up(n, kTileOutputs);
    view.k = round_up(k, kStep);
    view.by_mma = view.by_wgmma = {ceil_div(view.steps(), slice_steps), slice_steps};
    memory = std::make_unique<HostMemory>(view.halves() * sizeof(Half));
    view.data = static_cast<Half*>(memory->data());
    for (uint32_t o = 0; o < n; ++o) {
      for (uint32_t i = 0; i < k; ++i) view.data[weight_at(view.k, o, i)] = rows[size_t{o} * k + i];
    }
  }
  uint32_t n, k;
  Halves rows;
  std::unique_ptr<HostMemory> memory;
  MatrixView view = {};
};

/// Kernels, and the number of outputs of a block.
template <uint32_t kRows, bool kSerial>
struct Mma : ProductKernel<kRows, kSerial, false, false> {
  static constexpr uint32_t kOutputs = kTileOutputs;
};

/// The arguments of any product of a matrix; `num_rows` must outlive them.
inline ProductArgs product_args(const TestMatrix& m, const TestActivations& x,
                                const uint32_t& num_rows) {
  ProductArgs a = {};
  a.num_rows = &num_rows;
  a.weights = m.view.data;
  a.steps = m.view.steps();
  a.slice_steps = m.view.by_mma.slice_steps;
  a.early = num_rows % 2 != 0;
  a.x = x.view();
  return a;
}

/// y[row][output], slices added in ascending order.
template <template <uint32_t, bool> class Kernel, uint32_t kRows, bool kSerial>
Floats multiply(const TestMatrix& m, const TestActivations& x, uint32_t num_rows) {
  const uint32_t room = round_up(num_rows, kTileOutputs);
  const uint32_t slices = kSerial ? 1 : m.view.by_mma.slices;
  const size_t plane = size_t{room} * m.view.n;
  Floats sums(slices * plane, __builtin_nanf(""));
  ProductArgs a = product_args(m, x, num_rows);
  a.y = {sums.data(), slices, m.view.n, plane};
  using OneKernel = Kernel<kRows, kSerial>;
  launch<OneKernel>({ceil_div(num_rows, kRows), m.view.n / OneKernel::kOutputs, slices}, a);
  Floats y(size_t{num_rows} * m.n);
  for (uint32_t r = 0; r < num_rows; ++r) {
    for (uint32_t o = 0; o < m.n; ++o) {
      float sum = sums[size_t{r} * m.view.n + o];
      for (uint32_t s = 1; s < slices; ++s) sum += sums[s * plane + size_t{r} * m.view.n + o];
      y[size_t{r} * m.n + o] = sum;
    }
  }
  return y;
}

}  // namespace saccade::test
