// Kernels over single rows: embedding, residual sums with RMS norm, gate activation.
//
// A row's sums run over fixed threads in a fixed tree, so that they depend on the row alone.
#pragma once
#include "cuda/model/block_ops.hpp"
#include "cuda/model/view.hpp"
#include "sample/exp.hpp"

namespace saccade::gpu {

inline constexpr uint32_t kRowThreads = 256;

/// A norm's weight and what it writes.
struct NormArgs {
  const float* weight;
  Activations out;  // width
  float eps;
  uint32_t hidden;  // elements of a row
  uint32_t width;   // the same rounded up; all rows are that long
};

SAC_DEVICE Float4 load4(const float* at) { return *reinterpret_cast<const Float4*>(at); }
SAC_DEVICE void store4(float* at, const Float4& v) { *reinterpret_cast<Float4*>(at) = v; }

/// The first elements of a norm's weight that a thread needs. No kernel writes weights, so they are
/// loaded while the previous kernel still runs. kMost: of 1,024 elements.
template <uint32_t kMost>
struct EarlyWeights {
  static constexpr uint32_t kHeld = kMost;
  Float4 v[kHeld];

  template <class Block>
  SAC_DEVICE EarlyWeights(const Block& b, const NormArgs& n) {
    SAC_UNROLL
    for (uint32_t k = 0; k < kHeld; ++k) {
      const uint32_t i = (k * kRowThreads + b.thread()) * 4;
      v[k] = n.weight != nullptr && i < n.width ? load4(n.weight + i) : Float4{};
    }
    b.await_previous();
  }
};

/// out row `to` = values / rms(values) * weight, if the row is there. value(i) gives elements
/// i .. i + 3, keep(i, v) may write them somewhere, and also(i, v) what they became, in f32. All of
/// a thread's elements are loaded before any is written, so that loads do not wait for each other;
/// those of very long rows are loaded twice. Rows that are not there have memory all the same:
/// whether one is, is not waited for first.
template <class Block, class Early, class Value, class Keep, class Also>
SAC_DEVICE void norm_row(const Block& b, const NormArgs& n, const Early& early, bool there,
                         uint32_t to, Value&& value, Keep&& keep, Also&& also) {
  constexpr uint32_t kHeld = 8, kBy = kRowThreads * 4;
  Float4 held[kHeld];
  SAC_UNROLL
  for (uint32_t k = 0; k < kHeld; ++k) {
    const uint32_t i = b.thread() * 4 + k * kBy;
    held[k] = i < n.width ? value(i) : Float4{};
  }
  if (!there) return;
  float squares = 0;
  const auto add = [&](const Float4& v) {
    SAC_UNROLL
    for (uint32_t j = 0; j < 4; ++j) squares += v.v[j] * v.v[j];
  };
  SAC_UNROLL
  for (uint32_t k = 0; k < kHeld; ++k) add(held[k]);
  for (uint32_t i = b.thread() * 4 + kHeld * kBy; i < n.width; i += kBy) add(value(i));
  const float mean = block_sum<kRowThreads>(b, squares) / static_cast<float>(n.hidden);
  const float inverse = 1.0f / __builtin_sqrtf(mean + n.eps);
  const auto write = [&](uint32_t i, const Float4& v, const Float4& w) {
    keep(i, v);
    if (n.weight == nullptr) return;
    Float4 normed;
    Half4 out;
    SAC_UNROLL
    for (uint32_t j = 0; j < 4; ++j) {
      normed.v[j] = w.v[j] * (v.v[j] * inverse);
      out.v[j] = narrow(normed.v[j]);
    }
    *reinterpret_cast<Half4*>(n.out.at(to, i)) = out;  // half of a piece
    also(i, normed);
  };
  const auto weight = [&](uint32_t i) {
    return n.weight != nullptr ? load4(n.weight + i) : Float4{};
  };
  SAC_UNROLL
  for (uint32_t k = 0; k < kHeld; ++k) {
    const uint32_t i = b.thread() * 4 + k * kBy;
    if (i >= n.width) continue;
    write(i, held[k], k < Early::kHeld ? early.v[k % Early::kHeld] : weight(i));
  }
  for (uint32_t i = b.thread() * 4 + kHeld * kBy; i < n.width; i += kBy)
    write(i, value(i), weight(i));
}
/// Where nothing need be kept.
struct KeepNothing {
  SAC_DEVICE void operator()(uint32_t, const Float4&) const {}
};
template <class Block, class Early, class Value, class Keep>
SAC_DEVICE void norm_row(const Block& b, const NormArgs& n, const Early& early, bool there,
                         uint32_t to, Value&& value, Keep&& keep) {
  norm_row(b, n, early, there, to, value, keep, KeepNothing{});
}

/// x = embedding of the row's token; normed = norm(x). Grid: rows.
struct EmbedKernel {
  static constexpr uint32_t kThreads = kRowThreads;
  static constexpr uint32_t kBlocksPerSm = 2;
  static constexpr uint32_t kSharedBytes = kOpsBytes;
  static constexpr bool kAwaitsPrevious = true;  // in EarlyWeights
  struct Args {
    const PlanCounts* counts;
    const PlanRow* rows;
    const Half* embed;
    uint32_t k;  // inputs of the embedding matrix
    uint32_t vocab_size;
    float* x;
    NormArgs norm;
  };

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const EarlyWeights<4> early(b, a.norm);
    const uint32_t row = b.x();
    const bool there = row < a.counts->num_rows;
    const uint32_t token = min_u32(a.rows[row].token, a.vocab_size - 1);
    float* x = a.x + size_t{row} * a.norm.width;
    norm_row(
        b, a.norm, early, there, row,
        [&](uint32_t i) {
          // Four numbers are contiguous: a piece is eight.
          const Half4 h = *reinterpret_cast<const Half4*>(a.embed + weight_at(a.k, token, i));
          return Float4{{widen(h.v[0]), widen(h.v[1]), widen(h.v[2]), widen(h.v[3])}};
        },
        [&](uint32_t i, const Float4& v) { store4(x + i, v); });
  }
};

SAC_DEVICE void add4(Float4& to, const Float4& v) {
  SAC_UNROLL
  for (uint32_t j = 0; j < 4; ++j) to.v[j] += v.v[j];
}

/// Sum of a product's slices, in rising order. Some loads are in flight at once.
SAC_DEVICE Float4 sum_slices(const Partials& p, uint32_t row, uint32_t i) {
  constexpr uint32_t kAhead = 4;
  const float* at = p.row(row) + i;
  Float4 sum = load4(at);
  for (uint32_t first = 1; first < p.slices; first += kAhead) {
    Float4 parts[kAhead];
    SAC_UNROLL
    for (uint32_t s = 0; s < kAhead; ++s) {
      if (first + s < p.slices) parts[s] = load4(at + (first + s) * p.plane);
    }
    SAC_UNROLL
    for (uint32_t s = 0; s < kAhead; ++s) {
      if (first + s < p.slices) add4(sum, parts[s]);
    }
  }
  return sum;
}

/// x += product + deltas + bias; normed = norm(x), if there is a weight. Grid: rows.
struct AddNormKernel {
  static constexpr uint32_t kThreads = kRowThreads;
  static constexpr uint32_t kBlocksPerSm = 2;
  static constexpr uint32_t kSharedBytes = kOpsBytes;
  static constexpr bool kAwaitsPrevious = true;  // in EarlyWeights
  struct Args {
    const PlanCounts* counts;
    Partials product;
    Deltas deltas;
    const float* bias;
    float* x;
    NormArgs norm;
  };

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const EarlyWeights<4> early(b, a.norm);
    const uint32_t row = b.x();
    const bool there = row < a.counts->num_rows;
    float* x = a.x + size_t{row} * a.norm.width;
    const float* delta = a.deltas.row(row);
    norm_row(
        b, a.norm, early, there, row,
        [&](uint32_t i) {
          Float4 v = sum_slices(a.product, row, i);
          if (delta != nullptr) add4(v, load4(delta + i));
          add4(v, load4(a.bias + i));
          add4(v, load4(x + i));
          return v;
        },
        [&](uint32_t i, const Float4& v) { store4(x + i, v); });
  }
};

/// normed = norm(x), if there is a weight, where products have added to x themselves. Grid: rows.
struct NormKernel {
  static constexpr uint32_t kThreads = kRowThreads;
  static constexpr uint32_t kBlocksPerSm = 2;
  static constexpr uint32_t kSharedBytes = kOpsBytes;
  static constexpr bool kAwaitsPrevious = true;  // in EarlyWeights
  struct Args {
    const PlanCounts* counts;
    const float* x;
    NormArgs norm;
  };

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const EarlyWeights<4> early(b, a.norm);
    if (a.norm.weight == nullptr) return;
    const uint32_t row = b.x();
    const bool there = row < a.counts->num_rows;
    const float* x = a.x + size_t{row} * a.norm.width;
    const auto value = [&](uint32_t i) { return load4(x + i); };
    norm_row(b, a.norm, early, there, row, value, KeepNothing{});
  }
};

/// The same from experts: x += the sum over a row's picks, rising, of weight * product of its slot.
struct AddExpertsKernel {
  static constexpr uint32_t kThreads = kRowThreads;
  static constexpr uint32_t kBlocksPerSm = 2;
  static constexpr uint32_t kSharedBytes = kOpsBytes;
  static constexpr bool kAwaitsPrevious = true;  // in EarlyWeights
  struct Args {
    const PlanCounts* counts;
    Partials product;  // rows are slots
    const uint32_t* slots;
    const float* weights;
    uint32_t per_token;
    float* x;
    NormArgs norm;
  };

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const EarlyWeights<2> early(b, a.norm);
    const uint32_t row = b.x();
    const bool there = row < a.counts->num_rows;  // others have slots of earlier rows
    float* x = a.x + size_t{row} * a.norm.width;
    norm_row(
        b, a.norm, early, there, row,
        [&](uint32_t i) {
          Float4 sum = {};
          for (uint32_t p = 0; p < a.per_token; p += kAhead) add_picks(a, row, p, i, sum);
          add4(sum, load4(x + i));
          return sum;
        },
        [&](uint32_t i, const Float4& v) { store4(x + i, v); });
  }

 private:
  static constexpr uint32_t kAhead = 4;  // picks whose loads are in flight

  /// Adds the elements i .. i + 3 of up to kAhead picks of a row, in their order.
  SAC_DEVICE static void add_picks(const Args& a, uint32_t row, uint32_t first, uint32_t i,
                                   Float4& sum) {
    const uint32_t count = min_u32(kAhead, a.per_token - first);
    const size_t pick = size_t{row} * a.per_token + first;
    const float* at[kAhead];
    Float4 picked[kAhead];
    SAC_UNROLL
    for (uint32_t p = 0; p < kAhead; ++p) {
      at[p] = a.product.row(a.slots[pick + min_u32(p, count - 1)]) + i;
    }
    SAC_UNROLL
    for (uint32_t p = 0; p < kAhead; ++p) picked[p] = load4(at[p]);
    for (uint32_t s = 1; s < a.product.slices; ++s) {
      Float4 parts[kAhead];
      SAC_UNROLL
      for (uint32_t p = 0; p < kAhead; ++p) parts[p] = load4(at[p] + s * a.product.plane);
      SAC_UNROLL
      for (uint32_t p = 0; p < kAhead; ++p) add4(picked[p], parts[p]);
    }
    SAC_UNROLL
    for (uint32_t p = 0; p < kAhead; ++p) {
      if (p >= count) break;
      const float weight = a.weights[pick + p];
      SAC_UNROLL
      for (uint32_t j = 0; j < 4; ++j) sum.v[j] += picked[p].v[j] * weight;
    }
  }
};

/// Row i of out = final norm of the plan's i-th LogitsRow, from `first` on; of one that is an
/// embedding also in f32, as a result. Grid: rows.
struct FinalNormKernel {
  static constexpr uint32_t kThreads = kRowThreads;
  static constexpr uint32_t kBlocksPerSm = 2;
  static constexpr uint32_t kSharedBytes = kOpsBytes;
  static constexpr bool kAwaitsPrevious = true;  // in EarlyWeights
  struct Args {
    const PlanCounts* counts;
    const LogitsRow* logits;
    uint32_t first;
    const float* x;
    NormArgs norm;
    StepOutputs outputs;
  };

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const EarlyWeights<4> early(b, a.norm);
    const uint32_t index = a.first + b.x();
    if (index >= a.counts->num_logits) return;  // its row is anything
    const LogitsRow& at = a.logits[index];
    const float* x = a.x + size_t{at.row} * a.norm.width;
    const auto value = [&](uint32_t i) { return load4(x + i); };
    const uint32_t size = at.end == kEmbedded ? a.outputs.embedding_size : 0;
    float* values = size != 0 ? a.outputs.embedding(at.record) : nullptr;
    norm_row(b, a.norm, early, true, b.x(), value, KeepNothing{}, [&](uint32_t i, const Float4& v) {
      for (uint32_t j = 0; j < 4 && i + j < size; ++j) values[i + j] = v.v[j];
    });
  }
};

/// silu(gate) * up.
SAC_DEVICE float gated_unit(float gate, float up) { return gate / (1.0f + exp_fixed(-gate)) * up; }

/// gated = silu(gate + delta + bias) * (up + delta + bias) of a product whose slices are not added
/// up. Grid: rows, width / kThreads. Rows are counted by `num_rows`, or by the tiles of experts.
struct ActivateKernel {
  static constexpr uint32_t kThreads = kRowThreads;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kSharedBytes = 0;
  struct Args {
    const uint32_t* num_rows;
    uint32_t per_row;        // products of a row: 1, or its experts
    Partials product;        // [..][2 * width], gate and up by gated_row
    Deltas deltas;           // [..][2][width]; not of experts
    const float* gate_bias;  // null: none
    const float* up_bias;
    Activations out;  // width
    uint32_t width;
  };

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t row = b.x();
    const uint32_t column = b.y() * kThreads + b.thread();
    if (column >= a.width) return;
    const uint32_t num_rows = *a.num_rows;  // others have memory: not waited for first
    const float* delta = a.deltas.row(row);
    float sums[2];
    SAC_UNROLL
    for (uint32_t which = 0; which < 2; ++which) {
      const float* at = a.product.row(row) + gated_row(column, which);
      sums[which] = at[0];
      for (uint32_t s = 1; s < a.product.slices; ++s) sums[which] += at[s * a.product.plane];
      if (delta != nullptr) sums[which] += delta[which * a.width + column];
    }
    if (a.gate_bias != nullptr) {
      sums[0] += a.gate_bias[column];
      sums[1] += a.up_bias[column];
    }
    if (row < num_rows * a.per_row) *a.out.at(row, column) = narrow(gated_unit(sums[0], sums[1]));
  }
};

}  // namespace saccade::gpu
