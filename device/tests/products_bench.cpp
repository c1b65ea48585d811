// Matrix products of the kernel sets, and of oneDNN where its headers are installed, side by side.
//
//   products_bench [kernel set = the widest] [bf16 | fp8: the weights]
//
// One thread; shapes of Qwen3-0.6B; weights packed once; best of nine. Prints GFLOP/s and the
// GB/s at which weights are read. Set OMP_NUM_THREADS=1 for oneDNN.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>

#include "cpu/kernels.hpp"
#include "cpu/memory_region.hpp"
#if defined(SACCADE_HAVE_ONEDNN)
#include <dnnl.hpp>
#endif

using namespace saccade;

namespace {

constexpr uint32_t kShapes[][2] = {{1024, 4096}, {2048, 1024}, {1024, 3072}, {3072, 1024}};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double best_s(const std::function<void()>& work) {
  double best = 1e9;
  for (int i = 0; i < 9; ++i) {
    const double start_s = now_s();
    work();
    best = std::min(best, now_s() - start_s);
  }
  return best;
}

void report(const char* name, uint32_t m, uint32_t k, uint32_t n, double bytes, double s) {
  const double products = static_cast<double>(k) * n;
  std::printf("%-12s rows %4u  k %4u  n %4u  %8.1f us  %6.0f GFLOP/s  %5.1f GB/s\n", name, m, k, n,
              s * 1e6, 2 * products * m / s / 1e9, bytes / s / 1e9);
}

void run_ours(const Kernels& kernels, uint32_t dtype, uint32_t m, uint32_t k, uint32_t n) {
  const bool tiled = kernels.bf16_activations;
  const size_t element_bytes = dtype == SAC_DTYPE_BF16 ? 2 : 1;
  const size_t bytes = element_bytes * panel_elements(dtype, k) * (n / kPanelOutputs);
  MemoryRegion panels(bytes, "panels");
  MemoryRegion x(activation_bytes(m, k, tiled), "activations");
  MemoryRegion y(size_t{m} * n * sizeof(float), "results");
  MemoryRegion tiles(2 * kTileFloats * sizeof(float), "tiles");
  MatmulArgs a = {};
  a.x = {x.data(), k, tiled};
  a.n = n;
  a.dtype = dtype;
  a.panels = panels.data();
  a.epilogue = Epilogue::kStore;
  a.y = static_cast<float*>(y.data());
  a.y_stride = n;
  a.tiles = static_cast<float*>(tiles.data());
  const double s = best_s([&] {
    for (uint32_t row = 0; row < m; row += kTileRows) {
      for (uint32_t p = 0; p < n / kPanelOutputs; p += kTilePanels) {
        a.first_row = row;
        a.num_rows = min_u32(kTileRows, m - row);
        a.first_panel = p;
        a.num_panels = min_u32(kTilePanels, n / kPanelOutputs - p);
        kernels.multiply(a);
        kernels.finish(a);
      }
    }
  });
  report(kernels.name, m, k, n, static_cast<double>(bytes), s);
}

#if defined(SACCADE_HAVE_ONEDNN)
void run_onednn(uint32_t m, uint32_t k, uint32_t n) {
  using dnnl::memory;
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc x({m, k}, memory::data_type::bf16, memory::format_tag::ab);
  const memory::desc w({k, n}, memory::data_type::bf16, memory::format_tag::any);
  const memory::desc y({m, n}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(x, w, y), engine);
  memory memories[3] = {{x, engine}, {plan.weights_desc(), engine}, {y, engine}};
  for (memory& each : memories) {
    std::memset(each.get_data_handle(), 0, each.get_desc().get_size());
  }
  dnnl::matmul product(plan);
  const double s = best_s([&] {
    product.execute(stream, {{DNNL_ARG_SRC, memories[0]},
                             {DNNL_ARG_WEIGHTS, memories[1]},
                             {DNNL_ARG_DST, memories[2]}});
    stream.wait();
  });
  report("onednn", m, k, n, 2.0 * k * n, s);
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const Kernels* kernels = &best_kernels();
  for (const Kernels* k : available_kernels()) {
    if (argc > 1 && std::strcmp(k->name, argv[1]) == 0) kernels = k;
  }
  const bool fp8 = argc > 2 && std::strcmp(argv[2], "fp8") == 0;
  for (uint32_t m : {1u, 4u, 16u, 128u, 512u}) {
    for (const auto& shape : kShapes) {
      run_ours(*kernels, fp8 ? SAC_DTYPE_FP8 : SAC_DTYPE_BF16, m, shape[0], shape[1]);
#if defined(SACCADE_HAVE_ONEDNN)
      run_onednn(m, shape[0], shape[1]);
#endif
    }
  }
  return 0;
}
