// Micro benchmark of the CPU step alone: Qwen3-0.6B's shape with random bf16 weights.
//
//   cpu_step_bench [threads = 2] [kernels] [bf16 | int8 | fp8]
//
// kernels: portable | avx2 | avx512 | avx512_bf16 | amx | best. Prints, from one run: memory read
// bandwidth, decode tokens/s at several batch sizes with a context of 128 tokens (and the share of
// the bandwidth that reading the weights takes), prefill tokens/s, and the GFLOP/s of its products
// with weights: `roofline` prints what products reach alone. Last, what LoRA adapters of rank 16 on
// all projections add, one on all sequences or four taken in turn: the same step without them and
// with them, by turns.
#include <cstdio>
#include <cstdlib>

#include "tests/bench_model.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

constexpr uint32_t kMaxLen = 2048;
constexpr uint32_t kMaxSeqs = 16;
constexpr uint32_t kRank = 16;
constexpr uint32_t kNumAdapters = 4;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
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
  return median(times);
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

/// Changes every matrix that can be changed.
TestAdapter full_adapter(const sac_model_config& c, uint32_t rank, uint32_t seed) {
  Rng rng(seed);
  TestAdapter adapter;
  for (uint32_t l = 0; l < c.num_layers; ++l) {
    for (uint32_t role = kFirstAdapted; role < kFirstAdapted + kNumAdapted; ++role) {
      if (tensor_used(c, role, l)) adapter[{role, l}] = random_pair(c, role, rank, rng);
    }
  }
  return adapter;
}

/// Steps of `seqs` sequences, one row each behind 128 tokens or a prompt, without adapters and with
/// num_adapters. The ratio is the median of those of neighbouring steps: a slow stretch of the
/// machine meets both.
void print_adapters(StepHarness& h, const char* what, uint32_t num_adapters, uint32_t seqs,
                    uint32_t rows) {
  constexpr uint32_t kPairs = 21;
  std::vector<double> times[2], ratios;
  for (uint32_t i = 0; i < kPairs + 1; ++i) {
    double now[2];
    for (const uint32_t with : {i % 2, 1 - i % 2}) {
      for (uint32_t s = 0; s < seqs; ++s) {
        h.params[s].adapter = with * (1 + s % num_adapters);
        h.add(s, rows == 1 ? 128 : 0, rows, true);
      }
      const double start_s = now_s();
      h.run();
      now[with] = now_s() - start_s;
    }
    if (i == 0) continue;  // finds its memory for the first time
    for (const uint32_t with : {0u, 1u}) times[with].push_back(now[with]);
    ratios.push_back(now[1] / now[0]);
  }
  std::printf("%s, %u adapters: %7.2f ms a step without, %7.2f ms with, ratio %.3f\n", what,
              num_adapters, median(times[0]) * 1e3, median(times[1]) * 1e3, median(ratios));
}

bool quantization_named(const char* name, uint32_t* out) {
  const char* names[] = {"bf16", "int8", "fp8"};  // in the order of SAC_QUANTIZATION_*
  for (uint32_t i = 0; i < 3; ++i) {
    if (std::strcmp(name, names[i]) == 0) return *out = i, true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t threads = argc > 1 ? static_cast<uint32_t>(std::atoi(argv[1])) : 2;
  uint32_t quantization = 0;
  if (threads == 0 || argc > 4 || (argc > 3 && !quantization_named(argv[3], &quantization))) {
    std::fputs("usage: cpu_step_bench [threads > 0] [kernels | best] [bf16 | int8 | fp8]\n",
               stderr);
    return 2;
  }
  HarnessOptions o;
  o.num_seats = kMaxSeqs;
  o.max_len = kMaxLen;
  o.max_rows = kMaxLen;
  o.num_threads = threads;
  o.kernels = argc > 2 ? kernels_named(argv[2]) : nullptr;
  o.adapters = {kNumAdapters, kRank};

  sac_model_config config = qwen3_06b();
  config.quantization = quantization;
  const double start_s = now_s();
  StepHarness h(config, o);
  h.step->fill_dummy(1);
  TestModel model;
  model.config = config;
  fill_rope(model, kMaxLen, 1e6);
  if (!h.step->set_rope(model.cos.data(), model.sin.data(), model.cos.size()).empty()) return 1;
  const double bytes = weight_bytes(config);
  const double made_s = now_s() - start_s;
  const Roof roof = h.step->measure_roof();
  const double bandwidth = roof.read_bytes_per_s;
  std::printf("kernels %s, threads %u, weights %.2f GB, made in %.1f s\n", h.step->kernels_name(),
              threads, bytes / 1e9, made_s);
  std::printf("read at %.1f GB/s, which allows %.1f steps/s; products of 256 rows %.0f GFLOP/s\n",
              bandwidth / 1e9, bandwidth / bytes,
              roof.product_flop_per_s[Roof::kNumRows - 1] / 1e9);
  for (uint32_t i = 0; i < kNumAdapters; ++i)
    model.adapters.push_back(full_adapter(config, kRank, 3 + i));
  if (!load_adapters(model, *h.step).empty()) return 1;
  for (uint32_t s = 0; s < kMaxSeqs; ++s) {
    for (uint32_t i = 0; i < kMaxLen; ++i) h.tokens(s)[i] = (s * 977 + i * 31) % config.vocab_size;
    h.params[s] = greedy(128);
  }
  // Only the last row goes on after K and V of the last layer, and is projected to logits.
  const double head = double(config.vocab_size) * config.hidden_size;
  const double last_layer = double(config.hidden_size) *
                            (config.num_heads * config.head_dim + 3 * config.intermediate_size);
  for (uint32_t rows : {16u, 128u, 512u, 2048u}) {
    const double s = prefill_s(h, rows);
    const double flop =
        2 * (num_weights(config) - head - last_layer) * rows + 2 * (head + last_layer);
    std::printf("prefill %4u rows: %7.1f tokens/s, %5.0f GFLOP/s in products\n", rows, rows / s,
                flop / s / 1e9);
  }
  for (uint32_t seqs : {1u, 4u, 8u, 16u}) {
    const double s = decode_s(h, seqs);
    std::printf("decode  %4u seqs: %7.1f tokens/s, %6.2f ms a step, %3.0f %% of the bandwidth\n",
                seqs, seqs / s, s * 1e3, 100 * bytes / s / bandwidth);
  }
  print_adapters(h, "decode    1 seqs", 1, 1, 1);
  print_adapters(h, "decode    8 seqs", 1, 8, 1);
  print_adapters(h, "decode    8 seqs", kNumAdapters, 8, 1);
  print_adapters(h, "prompt  256 rows", 1, 1, 256);
  print_adapters(h, "prompts 4 x  256", kNumAdapters, 4, 256);
  return 0;
}
