#include "cpu/roof.hpp"

#include "cpu/row_blocks.hpp"
#include "platform/clock.hpp"

namespace saccade {
namespace {

/// What a worker reads at a time: about the panels of an item.
constexpr size_t kPieceBytes = 256 << 10;
/// Bounds of what a pass reads: fewer weights are read again, more not to their end.
constexpr size_t kLeastPassBytes = 64 << 20, kMostPassBytes = size_t{2} << 30;
constexpr uint32_t kReadPasses = 3;
/// Weights of a product that stay in a core's cache.
constexpr size_t kCachedBytes = 256 << 10;
/// Operations of an item of products, and items of a run: some tens of microseconds each, so that
/// workers end together.
constexpr double kItemFlop = 4e6;
constexpr uint32_t kItemsPerWorker = 8;
constexpr uint32_t kProductRuns = 8;

/// Nanoseconds of the fastest of `runs`.
template <class Context>
uint64_t fastest_ns(WorkerPool& pool, uint32_t runs, WorkerPool::Job job, Context& context) {
  uint64_t best = UINT64_MAX;
  for (uint32_t run = 0; run < runs; ++run) {
    const uint64_t start = monotonic_ns();
    pool.start(job, &context);
    pool.wait();
    const uint64_t ns = monotonic_ns() - start;
    if (ns < best) best = ns;
  }
  return best;
}

/// One pass: pieces of the weights in their order in memory, which is that of a step.
struct Reading {
  void (*read)(const void* data, size_t bytes);
  const uint8_t* data;
  size_t bytes;
  uint32_t num_pieces;
  uint32_t repeats;

  static void run(void* context, WorkerPool::Worker& worker) {
    const Reading r = *static_cast<const Reading*>(context);
    worker.for_each(r.num_pieces * r.repeats, [r](uint32_t item) {
      const size_t begin = item % r.num_pieces * kPieceBytes;
      const size_t left = r.bytes - begin;
      r.read(r.data + begin, left < kPieceBytes ? left : kPieceBytes);
    });
  }
};

}  // namespace

double measure_reading(const RoofContext& c, WorkerPool& pool, uint32_t passes) {
  const PackedWeights all = c.weights.packed();
  Reading r = {};
  r.read = c.kernels.read;
  r.data = static_cast<const uint8_t*>(all.data);
  r.bytes = all.bytes < kMostPassBytes ? all.bytes : kMostPassBytes;
  r.num_pieces = static_cast<uint32_t>((r.bytes + kPieceBytes - 1) / kPieceBytes);
  r.repeats = static_cast<uint32_t>((kLeastPassBytes + r.bytes - 1) / r.bytes);
  const uint64_t ns = fastest_ns(pool, passes, Reading::run, r);
  return static_cast<double>(r.bytes) * r.repeats / (static_cast<double>(ns) * 1e-9);
}

namespace {

/// Products of some rows with the first panels of a matrix, again and again.
struct Multiplying {
  const Kernels& kernels;
  const Workspace& space;
  const Matrix& matrix;
  uint32_t rows;
  uint32_t most_rows;  // of a call
  uint32_t num_panels;
  uint32_t repeats;  // of an item
  uint32_t num_items;

  static void run(void* context, WorkerPool::Worker& worker) {
    const Multiplying m = *static_cast<const Multiplying*>(context);
    float* const tiles = m.space.workers[worker.index()].tiles;
    worker.for_each(m.num_items, [m, tiles](uint32_t) {
      for (uint32_t i = 0; i < m.repeats; ++i) m.multiply(tiles);
    });
  }

  void multiply(float* tiles) const {
    MatmulArgs a = {};
    a.x = space.normed;
    a.quantized = {space.quantized, space.quantized_scales, matrix.k};
    a.n = matrix.n;
    a.dtype = matrix.dtype;
    a.panels = matrix.panels;
    a.tiles = tiles;
    for (a.first_row = 0; a.first_row < rows; a.first_row += a.num_rows) {
      a.num_rows = min_u32(rows - a.first_row, most_rows);
      for (a.first_panel = 0; a.first_panel < num_panels; a.first_panel += a.num_panels) {
        a.num_panels = min_u32(num_panels - a.first_panel, kTilePanels);
        kernels.multiply(a);
      }
    }
  }
};

double product_flop_per_s(const RoofContext& c, WorkerPool& pool, uint32_t rows) {
  const Matrix& q = c.weights.layer(0).q;
  const auto cached = static_cast<uint32_t>(kCachedBytes / q.panel_bytes());
  const uint32_t num_panels = min_u32(max_u32(cached, kTilePanels), q.num_panels());
  const double flop = 2.0 * rows * q.k * num_panels * kPanelOutputs;
  const auto repeats = max_u32(static_cast<uint32_t>(kItemFlop / flop), 1);
  Multiplying m = {c.kernels,
                   c.space,
                   q,
                   rows,
                   rows_of_block(c.kernels, c.space.normed, q.dtype),
                   num_panels,
                   repeats,
                   kItemsPerWorker * pool.num_threads()};
  const uint64_t ns = fastest_ns(pool, kProductRuns, Multiplying::run, m);
  return flop * repeats * m.num_items / (static_cast<double>(ns) * 1e-9);
}

/// Adds what a step of one row reads of a matrix, and what it multiplies.
void count(Roof& roof, const Matrix& m, uint32_t times = 1) {
  roof.step_weight_bytes += m.bytes() * times;
  roof.row_flop += 2 * uint64_t{m.n} * m.k * times;
}

void count_weights(Roof& roof, const RoofContext& c) {
  for (uint32_t l = 0; l < c.config.num_layers; ++l) {
    const LayerWeights& w = c.weights.layer(l);
    for (const Matrix* m : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down, &w.router}) {
      if (m->n != 0) count(roof, *m);
    }
    if (w.experts.empty()) continue;
    const ExpertWeights& any = w.experts.front();
    for (const Matrix* m : {&any.gate, &any.up, &any.down}) {
      count(roof, *m, c.config.experts_per_token);
    }
  }
  count(roof, c.weights.lm_head());
}

}  // namespace

Roof measure_roof(const RoofContext& context, WorkerPool& pool) {
  Roof roof = {};
  count_weights(roof, context);
  roof.read_bytes_per_s = measure_reading(context, pool, kReadPasses);
  for (uint32_t i = 0; i < Roof::kNumRows; ++i) {
    const uint32_t rows = 1u << i;
    if (rows <= context.max_rows) {
      roof.product_flop_per_s[i] = product_flop_per_s(context, pool, rows);
    }
  }
  return roof;
}

}  // namespace saccade
