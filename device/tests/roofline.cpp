// What the machine allows a CPU step: memory read bandwidth and bf16 matrix products, all threads.
//
//   roofline [threads = all] -> {"threads": 2, "read_gb_per_s": 38.1, "bf16_gflop_per_s": 1890.2,
//   ...}
//
// Products: 256 rows by a 1024 x 1024 matrix that stays in each core's cache, the better of ours
// and oneDNN's where that is installed; and 2048 x 2048 x 2048 by oneDNN, rows split among threads,
// with operands and results further away. Best of several runs of some tens of milliseconds.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>

#include "cpu/kernels.hpp"
#include "cpu/memory_region.hpp"
#if defined(SACCADE_HAVE_ONEDNN)
#include <dnnl.hpp>
#endif

using namespace saccade;

namespace {

constexpr uint32_t kRows = 256, kDepth = 1024, kOutputs = 1024;
constexpr int kRuns = 7;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Shortest time, in seconds, for all threads, started together, to finish work(thread).
double best_s(uint32_t threads, const std::function<void(uint32_t)>& work) {
  double best = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    std::atomic<uint32_t> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> team;
    for (uint32_t t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        ready += 1;
        while (!go.load()) {
        }
        work(t);
      });
    }
    while (ready.load() != threads) std::this_thread::yield();
    const double start_s = now_s();
    go = true;
    for (std::thread& each : team) each.join();
    best = std::min(best, now_s() - start_s);
  }
  return best;
}

double read_bytes_per_s(uint32_t threads) {
  MemoryRegion region(size_t{1} << 30, "the bandwidth test");
  std::memset(region.data(), 1, region.bytes());
  const uint64_t* words = static_cast<const uint64_t*>(region.data());
  const size_t share = region.bytes() / 8 / threads;
  std::atomic<uint64_t> sum{0};
  const double s = best_s(threads, [&](uint32_t t) {
    uint64_t lanes[16] = {};
    for (size_t i = 0; i + 16 <= share; i += 16) {
      for (size_t j = 0; j < 16; ++j) lanes[j] += words[t * share + i + j];
    }
    for (uint64_t lane : lanes) sum += lane;
  });
  return static_cast<double>(region.bytes()) / s;
}

double our_flops(uint32_t threads) {
  constexpr uint32_t kRepeats = 64;
  const Kernels& kernels = best_kernels();
  const bool tiled = kernels.bf16_activations;
  MemoryRegion panels(2 * panel_elements(SAC_DTYPE_BF16, kDepth) * (kOutputs / kPanelOutputs),
                      "panels");
  std::vector<MatmulArgs> args(threads);
  std::vector<std::unique_ptr<MemoryRegion>> memory;
  for (MatmulArgs& a : args) {
    memory.push_back(
        std::make_unique<MemoryRegion>(activation_bytes(kRows, kDepth, tiled), "activations"));
    a.x = {memory.back()->data(), kDepth, tiled};
    memory.push_back(std::make_unique<MemoryRegion>(2 * kTileFloats * sizeof(float), "tiles"));
    a.tiles = static_cast<float*>(memory.back()->data());
    a.num_rows = kRows;
    a.n = kOutputs;
    a.dtype = SAC_DTYPE_BF16;
    a.panels = panels.data();
    a.num_panels = kTilePanels;
  }
  const double s = best_s(threads, [&](uint32_t t) {
    for (uint32_t i = 0; i < kRepeats; ++i) {
      for (uint32_t p = 0; p < kOutputs / kPanelOutputs; p += kTilePanels) {
        args[t].first_panel = p;
        kernels.multiply(args[t]);
      }
    }
  });
  return 2.0 * kRows * kDepth * kOutputs * kRepeats * threads / s;
}

struct Shape {
  uint32_t rows;  // of each thread
  uint32_t depth;
  uint32_t outputs;
  uint32_t repeats;
};

/// 0 without oneDNN. Its own threads stay off: each of ours runs a product.
double onednn_flops([[maybe_unused]] uint32_t threads, [[maybe_unused]] Shape shape) {
#if defined(SACCADE_HAVE_ONEDNN)
  setenv("OMP_NUM_THREADS", "1", 1);
  using dnnl::memory;
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const memory::desc x({shape.rows, shape.depth}, memory::data_type::bf16, memory::format_tag::ab);
  const memory::desc w({shape.depth, shape.outputs}, memory::data_type::bf16,
                       memory::format_tag::any);
  const memory::desc y({shape.rows, shape.outputs}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(x, w, y), engine);
  std::vector<memory> memories;
  for (uint32_t t = 0; t < threads; ++t) {
    for (const memory::desc& desc : {x, plan.weights_desc(), y}) {
      memories.emplace_back(desc, engine);
      std::memset(memories.back().get_data_handle(), 0, desc.get_size());
    }
  }
  const double s = best_s(threads, [&](uint32_t t) {
    dnnl::stream stream(engine);
    dnnl::matmul product(plan);
    for (uint32_t i = 0; i < shape.repeats; ++i) {
      product.execute(stream, {{DNNL_ARG_SRC, memories[3 * t]},
                               {DNNL_ARG_WEIGHTS, memories[3 * t + 1]},
                               {DNNL_ARG_DST, memories[3 * t + 2]}});
    }
    stream.wait();
  });
  return 2.0 * shape.rows * shape.depth * shape.outputs * shape.repeats * threads / s;
#else
  return 0;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const int threads_given = argc > 1 ? std::atoi(argv[1]) : 1;
  if (argc > 2 || threads_given < 1) {
    std::fputs("usage: roofline [threads > 0]\n", stderr);
    return 2;
  }
  const auto threads =
      argc > 1 ? static_cast<uint32_t>(threads_given) : std::thread::hardware_concurrency();
  const double ours = our_flops(threads);
  const double theirs = onednn_flops(threads, {kRows, kDepth, kOutputs, 64});
  const double large = onednn_flops(threads, {2048 / threads, 2048, 2048, 4});
  std::printf(
      "{\"threads\": %u, \"kernels\": \"%s\", \"read_gb_per_s\": %.1f, \"bf16_gflop_per_s\": %.1f, "
      "\"ours_gflop_per_s\": %.1f, \"onednn_gflop_per_s\": %.1f, "
      "\"onednn_large_gflop_per_s\": %.1f}\n",
      threads, best_kernels().name, read_bytes_per_s(threads) / 1e9, std::max(ours, theirs) / 1e9,
      ours / 1e9, theirs / 1e9, large / 1e9);
  return 0;
}
