// Micro benchmark of the CPU step alone: Qwen3-0.6B's shape with random bf16 weights.
//
//   cpu_step_bench [threads = 2] [portable | avx2 | avx512 | avx512_bf16 | amx | best] [bf16 |
//   int8]
//
// Prints, from one run: memory read bandwidth, decode tokens/s at several batch sizes with a
// context of 128 tokens (and the share of the bandwidth that reading the weights takes), prefill
// tokens/s.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/step_harness.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

constexpr uint32_t kMaxLen = 1024;
constexpr uint32_t kMaxSeqs = 16;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

sac_model_config qwen3_06b() {
  sac_model_config c = {};
  c.num_layers = 28;
  c.hidden_size = 1024;
  c.intermediate_size = 3072;
  c.num_heads = 16;
  c.num_kv_heads = 8;
  c.head_dim = c.rotary_dim = 128;
  c.vocab_size = 151936;
  c.dtype = SAC_DTYPE_BF16;
  c.qk_norm = 1;
  c.tied_embeddings = 1;
  c.rms_norm_eps = 1e-6f;
  return c;
}

/// Bytes of all matrices: what a decode step must read.
double weight_bytes(const sac_model_config& c) {
  double elements = 0;
  for (uint32_t role = 0; role < SAC_NUM_TENSOR_ROLES; ++role) {
    const TensorRole& r = tensor_role(role);
    if (r.kind != TensorKind::kMatrix) continue;
    const TensorShape s = tensor_shape(c, role);
    for (uint32_t layer = 0; layer < (r.per_layer ? c.num_layers : 1); ++layer) {
      if (tensor_used(c, role, layer)) elements += static_cast<double>(s.rows * s.cols);
    }
  }
  const double bytes_per_weight =
      c.quantization == SAC_QUANTIZATION_INT8 ? 1 + 4.0 / kQuantGroup : 2;
  return bytes_per_weight * elements;
}

/// Best of five readings of 1 GiB by all threads, bytes/s.
double read_bandwidth(uint32_t threads) {
  MemoryRegion region(size_t{1} << 30, "the bandwidth test");
  std::memset(region.data(), 1, region.bytes());
  const uint64_t* words = static_cast<const uint64_t*>(region.data());
  const size_t per_thread = region.bytes() / 8 / threads;
  double best_s = 1e9;
  for (int run = 0; run < 5; ++run) {
    std::vector<std::thread> team;
    std::vector<uint64_t> sums(threads * 16);
    const double start_s = now_s();
    for (uint32_t t = 0; t < threads; ++t) {
      team.emplace_back([&, t] {
        const uint64_t* at = words + t * per_thread;
        uint64_t lanes[16] = {};
        for (size_t i = 0; i + 16 <= per_thread; i += 16) {
          for (size_t j = 0; j < 16; ++j) lanes[j] += at[i + j];
        }
        for (uint64_t lane : lanes) sums[t * 16] += lane;
      });
    }
    for (std::thread& t : team) t.join();
    best_s = std::min(best_s, now_s() - start_s);
    if (sums[0] == 1) std::puts("");  // keeps the sums alive
  }
  return static_cast<double>(region.bytes()) / best_s;
}

/// Seconds per decode step of `seqs` sequences at 128 tokens of context, median of 9.
double decode_s(StepHarness& h, uint32_t seqs) {
  std::vector<double> times;
  for (uint32_t i = 0; i < 9; ++i) {
    for (uint32_t s = 0; s < seqs; ++s) h.add(s, 128 + i, 1, true);
    const double start_s = now_s();
    h.run();
    times.push_back(now_s() - start_s);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double prefill_s(StepHarness& h, uint32_t rows) {
  double best_s = 1e9;
  for (uint32_t i = 0; i < 2; ++i) {
    h.add(0, 0, rows, true);
    const double start_s = now_s();
    h.run();
    best_s = std::min(best_s, now_s() - start_s);
  }
  return best_s;
}

const Kernels* kernels_named(const char* name) {
  for (const Kernels* k : available_kernels()) {
    if (std::strcmp(k->name, name) == 0) return k;
  }
  return nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t threads = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 2;
  HarnessOptions o;
  o.num_seats = kMaxSeqs;
  o.max_len = kMaxLen;
  o.max_rows = 512;
  o.num_threads = threads;
  o.kernels = argc > 2 ? kernels_named(argv[2]) : nullptr;
  const double bandwidth = read_bandwidth(threads);
  std::printf("threads %u, read bandwidth %.1f GB/s\n", threads, bandwidth / 1e9);

  sac_model_config config = qwen3_06b();
  if (argc > 3 && std::strcmp(argv[3], "int8") == 0) config.quantization = SAC_QUANTIZATION_INT8;
  const double start_s = now_s();
  StepHarness h(config, o);
  h.step->fill_dummy(1);
  TestModel rope;
  rope.config = config;
  fill_rope(rope, kMaxLen, 1e6);
  if (!h.step->set_rope(rope.cos.data(), rope.sin.data(), rope.cos.size()).empty()) return 1;
  const double bytes = weight_bytes(config);
  std::printf("kernels %s, weights %.2f GB, made in %.1f s, bandwidth allows %.1f steps/s\n",
              h.step->kernels_name(), bytes / 1e9, now_s() - start_s, bandwidth / bytes);
  for (uint32_t s = 0; s < kMaxSeqs; ++s) {
    for (uint32_t i = 0; i < kMaxLen; ++i) h.tokens(s)[i] = (s * 977 + i * 31) % config.vocab_size;
    h.params[s] = greedy(128);
  }
  for (uint32_t rows : {16u, 128u, 512u}) {
    std::printf("prefill %4u rows: %7.1f tokens/s\n", rows, rows / prefill_s(h, rows));
  }
  for (uint32_t seqs : {1u, 4u, 8u, 16u}) {
    const double s = decode_s(h, seqs);
    std::printf("decode  %4u seqs: %7.1f tokens/s, %6.2f ms a step, %3.0f %% of the bandwidth\n",
                seqs, seqs / s, s * 1e3, 100 * bytes / s / bandwidth);
  }
  return 0;
}
