// What a decode step of the CPU device costs as work grows: streams by tokens of context.
//
//   step_grid_bench SHAPE KV_GIB [threads = 2] [kernels = best] [kv = auto]
//
// SHAPE: qwen3-0.6b | llama-125m; kv: auto (bf16) | fp8.
// Prints a JSON object a line for each point whose KV fits: {"kv", "streams", "context", "step_ms"
// (median of steps), "read_gb_per_s", "product_gflop_per_s" (the roof of this process,
// cpu/roof.hpp, measured right before), "weight_bytes", "kv_bytes", "flop"}. Bytes and operations
// are the least that such a step needs; weights are random, the KV is zero.
#include <cstdio>
#include <cstdlib>

#include "tests/bench_model.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

constexpr uint32_t kStreams[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
constexpr uint32_t kContexts[] = {128, 512, 2048, 8192, 16384};
constexpr uint32_t kMaxStreams = 256, kMaxLen = 16384, kBlockSize = 16;
/// A point takes this many steps, and as many more as fit into this time.
constexpr uint32_t kLeastSteps = 3, kMostSteps = 15;
constexpr double kPointS = 1.0;

struct Point {
  double step_s;
  double read_bytes_per_s;
  double share;  // of what memory and arithmetic allow
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Steps that give each of `streams` a token at position context - 1, by turns with readings of the
/// weights: memory may be read at another rate a second later. Medians; the share is that of each
/// step among the readings before and after it.
Point measure(StepHarness& h, uint32_t streams, uint32_t context, double bytes, double flop_s) {
  std::vector<double> steps, readings = {h.step->measure_reading()}, shares;
  const double begin_s = now_s();
  while (steps.size() < kLeastSteps || (steps.size() < kMostSteps && now_s() - begin_s < kPointS)) {
    for (uint32_t s = 0; s < streams; ++s) h.add(s, context - 1, 1, true);
    const double start_s = now_s();
    h.run();
    steps.push_back(now_s() - start_s);
    readings.push_back(h.step->measure_reading());
    const double rate = (readings[readings.size() - 2] + readings.back()) / 2;
    shares.push_back(std::max(bytes / rate, flop_s) / steps.back());
  }
  return {median(steps), median(readings), median(shares)};
}

/// Multiplications and additions of attention: a query's head against K, and its weights against V.
double attention_flop(const sac_model_config& c, double streams, double context) {
  return 4.0 * streams * context * c.num_layers * c.num_heads * c.head_dim;
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_qwen = argc > 1 && std::strcmp(argv[1], "qwen3-0.6b") == 0;
  const bool is_llama = argc > 1 && std::strcmp(argv[1], "llama-125m") == 0;
  const char* kv = argc > 5 ? argv[5] : "auto";
  const bool is_fp8 = std::strcmp(kv, "fp8") == 0;
  if (argc < 3 || !(is_qwen || is_llama) || !(std::atof(argv[2]) > 0) ||
      !(is_fp8 || std::strcmp(kv, "auto") == 0)) {
    std::fputs(
        "usage: step_grid_bench qwen3-0.6b|llama-125m KV_GIB [threads] [kernels] [auto|fp8]; "
        "KV_GIB > 0\n",
        stderr);
    return 2;
  }
  sac_model_config config = is_qwen ? qwen3_06b() : llama_125m();
  if (is_fp8) config.kv_dtype = SAC_KV_DTYPE_FP8;
  const double block_bytes = static_cast<double>(CpuStep::kv_block_bytes(config, kBlockSize));
  HarnessOptions o;
  o.num_seats = o.max_rows = kMaxStreams;
  o.max_len = kMaxLen;
  o.block_size = kBlockSize;
  o.num_blocks = static_cast<uint32_t>(std::atof(argv[2]) * (1u << 30) / block_bytes);
  o.num_threads = argc > 3 ? static_cast<uint32_t>(std::atoi(argv[3])) : 2;
  o.kernels = argc > 4 ? kernels_named(argv[4]) : nullptr;
  StepHarness h(config, o);
  h.step->fill_dummy(1);
  TestModel rope;
  rope.config = config;
  fill_rope(rope, kMaxLen, 1e6);
  if (!h.step->set_rope(rope.cos.data(), rope.sin.data(), rope.cos.size()).empty()) return 1;
  for (uint32_t s = 0; s < kMaxStreams; ++s) {
    for (uint32_t i = 0; i < kMaxLen; ++i) h.tokens(s)[i] = (s * 977 + i * 31) % config.vocab_size;
    h.params[s] = greedy(1);
  }

  for (const uint32_t context : kContexts) {
    const uint32_t each = ceil_div(context, kBlockSize);
    for (const uint32_t streams : kStreams) {
      if (uint64_t{each} * streams > o.num_blocks) break;
      h.deal(streams, context);
      const Roof roof = h.step->measure_roof();
      const double products = roof.product_flop_per_s[31 - __builtin_clz(streams)];
      const double kv_bytes = block_bytes / kBlockSize * context * streams;
      const double flop =
          2 * num_weights(config) * streams + attention_flop(config, streams, context);
      const Point p =
          measure(h, streams, context, weight_bytes(config) + kv_bytes, flop / products);
      std::printf(
          "{\"shape\": \"%s\", \"kv\": \"%s\", \"kernels\": \"%s\", \"threads\": %u, \"streams\": "
          "%u, "
          "\"context\": %u, \"step_ms\": %.3f, \"read_gb_per_s\": %.2f, \"product_gflop_per_s\": "
          "%.1f, "
          "\"share\": %.3f, \"weight_bytes\": %.0f, \"kv_bytes\": %.0f, \"flop\": %.0f}\n",
          argv[1], kv, h.step->kernels_name(), o.num_threads, streams, context, p.step_s * 1e3,
          p.read_bytes_per_s / 1e9, products / 1e9, p.share, weight_bytes(config), kv_bytes, flop);
      std::fflush(stdout);
    }
  }
  return 0;
}
