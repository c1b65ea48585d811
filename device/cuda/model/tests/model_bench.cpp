// Steps of large models with random weights on a GPU, as JSON: what a decode and a prefill step
// take, beside the roofline of each decode step, the bytes that it must read at the measured copy
// bandwidth; and what a decode step takes while KV blocks move both ways as fast as they can.
// Each with products by mma and, where the GPU has it, by wgmma.
//   model_bench [llama3-8b|qwen3-30b-a3b|qwen3-32b]...    [all]
// Exit codes: 0 done, 2 an error, 3 there is no driver or no GPU.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "cuda/model/tests/cuda_rig.hpp"
#include "cuda/rotation/rotation_bed.hpp"

namespace saccade::test {
namespace {

constexpr int kExitNoGpu = 3;
constexpr uint32_t kRepeats = 20;
constexpr uint32_t kPrefillRepeats = 7;  // a step of them may take a second
constexpr uint32_t kContext = 1024;      // positions behind each decoded row

struct Preset {
  const char* name;
  sac_model_config config;
  bool beside_rotation;  // costs two seconds
};

sac_model_config dense(uint32_t layers, uint32_t hidden, uint32_t mlp, uint32_t heads,
                       uint32_t vocab) {
  sac_model_config c = {};
  c.num_layers = layers;
  c.hidden_size = hidden;
  c.intermediate_size = mlp;
  c.num_heads = heads;
  c.num_kv_heads = 8;
  c.head_dim = c.rotary_dim = 128;
  c.vocab_size = vocab;
  c.dtype = SAC_DTYPE_BF16;
  c.rms_norm_eps = 1e-5f;
  return c;
}

std::vector<Preset> presets() {
  sac_model_config qwen32 = dense(64, 5120, 25600, 64, 151936);
  qwen32.qk_norm = 1;
  sac_model_config moe = dense(48, 2048, 6144, 32, 151936);
  moe.num_kv_heads = 4;
  moe.qk_norm = moe.norm_topk_prob = 1;
  moe.num_experts = 128;
  moe.experts_per_token = 8;
  moe.moe_intermediate_size = 768;
  return {{"llama3-8b", dense(32, 4096, 14336, 32, 128256), true},
          {"qwen3-30b-a3b", moe, false},
          {"qwen3-32b", qwen32, false}};
}

class Timer {
 public:
  Timer() {
    require_cuda(cudaEventCreate(&begin_), "cudaEventCreate");
    require_cuda(cudaEventCreate(&end_), "cudaEventCreate");
  }
  /// Median milliseconds of f(stream).
  template <class F>
  double median_ms(cudaStream_t stream, uint32_t repeats, F&& f) {
    for (uint32_t i = 0; i < 2; ++i) f(stream);
    std::vector<float> times;
    for (uint32_t i = 0; i < repeats; ++i) {
      require_cuda(cudaEventRecord(begin_, stream), "cudaEventRecord");
      f(stream);
      require_cuda(cudaEventRecord(end_, stream), "cudaEventRecord");
      require_cuda(cudaEventSynchronize(end_), "cudaEventSynchronize");
      float ms = 0;
      require_cuda(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
      times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    return times[repeats / 2];
  }

 private:
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

/// Bytes a second of a copy within the device, read and written both counted.
double copy_bandwidth(Timer& timer, cudaStream_t stream) {
  constexpr size_t kBytes = size_t{4} << 30;
  void* from = nullptr;
  void* to = nullptr;
  require_cuda(cudaMalloc(&from, kBytes), "cudaMalloc");
  require_cuda(cudaMalloc(&to, kBytes), "cudaMalloc");
  const double ms = timer.median_ms(stream, kRepeats, [&](cudaStream_t s) {
    require_cuda(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, s), "cudaMemcpyAsync");
  });
  cudaFree(from);
  cudaFree(to);
  return 2.0 * kBytes / (ms * 1e-3);
}

/// Tables of `seqs` sequences in memory that the GPU reaches.
struct BenchTables {
  BenchTables(uint32_t num_seqs, uint32_t max_rows, uint32_t max_len, uint32_t block_size)
      : per_seq(max_len / block_size),
        params(num_seqs * sizeof(SeatParams)),
        history(size_t{num_seqs} * max_len * 4),
        blocks(size_t{num_seqs} * per_seq * 4),
        seqs(num_seqs * sizeof(StepSeq)),
        batch(sizeof(StepBatch)),
        sampled(size_t{num_seqs} * kRecordWords * 8),
        prompt_records(size_t{max_rows} * kRecordWords * 8) {
    auto* table = static_cast<uint32_t*>(blocks.data());
    for (uint32_t i = 0; i < num_seqs * per_seq; ++i) table[i] = i;
    auto* tokens = static_cast<uint32_t*>(history.data());
    for (size_t i = 0; i < size_t{num_seqs} * max_len; ++i) tokens[i] = i * 7919 % 32000;
    tables.seats = {num_seqs, max_len, per_seq, 0,       static_cast<SeatParams*>(params.data()),
                    tokens,   table,   nullptr, nullptr, nullptr};
    tables.batch = static_cast<StepBatch*>(batch.data());
    tables.outputs = {static_cast<uint64_t*>(sampled.data()),
                      static_cast<uint64_t*>(prompt_records.data())};
    for (uint32_t s = 0; s < num_seqs; ++s) {
      SeatParams& p = static_cast<SeatParams*>(params.data())[s];
      p.top_p = p.repetition_penalty = 1.0f;
      p.prompt_len = max_len;
    }
  }
  /// Every sequence brings `rows` rows from `position` on, the last one drawing.
  void set_batch(uint32_t num_seqs, uint32_t rows, uint32_t position) {
    auto* q = static_cast<StepSeq*>(seqs.data());
    for (uint32_t s = 0; s < num_seqs; ++s) q[s] = {s, position, rows, s * rows, 1, 0};
    *static_cast<StepBatch*>(batch.data()) = {1, num_seqs, num_seqs * rows, num_seqs, 0, q};
  }

  uint32_t per_seq;
  PinnedBytes params, history, blocks, seqs, batch, sampled, prompt_records;
  StepTables tables = {};
};

template <class Rig = CudaRig>
double step_ms(const CudaModel& model, Timer& timer, cudaStream_t stream, const GraphShape& shape,
               uint32_t repeats = kRepeats) {
  const cudaGraphExec_t exec = Rig::capture(model, stream, shape);
  const double ms = timer.median_ms(stream, repeats, [exec](cudaStream_t s) {
    require_cuda(cudaGraphLaunch(exec, s), "cudaGraphLaunch");
  });
  cudaGraphExecDestroy(exec);
  return ms;
}

/// Weights of one layer that `rows` rows multiply with. Of experts: so many as are expected where
/// each row draws its own evenly.
double layer_weights(const sac_model_config& c, double rows) {
  const double h = c.hidden_size, q = double{1} * c.num_heads * c.head_dim;
  const double kv = double{1} * c.num_kv_heads * c.head_dim;
  double mlp = c.intermediate_size, router = 0;
  if (c.num_experts > 0) {
    const double experts = c.num_experts;
    const double drawn = experts * (1 - std::pow(1 - c.experts_per_token / experts, rows));
    mlp = drawn * c.moe_intermediate_size;
    router = h * experts;
  }
  return h * (q + 2 * kv) + q * h + 3 * h * mlp + router;
}

/// Bytes that a decode step must read: weights, and K and V of `context` positions a row.
double decode_bytes(const sac_model_config& c, double rows, double context) {
  const double weights =
      c.num_layers * layer_weights(c, rows) + double{1} * c.hidden_size * c.vocab_size;
  const double kv = 2.0 * c.num_layers * c.num_kv_heads * c.head_dim * context * rows;
  return 2 * (weights + kv);
}

/// Floating-point operations of a prompt's products; one row has logits. Attention is not counted.
double prefill_flops(const sac_model_config& c, double rows) {
  return 2 * (rows * c.num_layers * layer_weights(c, 1) + double{1} * c.hidden_size * c.vocab_size);
}

/// Copies both ways without a pause on a thread of its own, while it lives.
class Traffic {
 public:
  Traffic(const Bed& bed, RotationWay way, uint32_t workers)
      : rotation_(bed, way, workers), thread_([this] { run(); }) {}
  ~Traffic() {
    stop_.store(true, std::memory_order_relaxed);
    thread_.join();
  }
  /// Of both directions together, so far.
  double gb_s() const {
    return static_cast<double>(blocks_.load(std::memory_order_relaxed) * Bed::kBlockBytes) /
           static_cast<double>(ns_.load(std::memory_order_relaxed) + 1);
  }

 private:
  void run() {
    constexpr uint32_t kBatch = Bed::kBlocks / 8;
    while (!stop_.load(std::memory_order_relaxed)) {
      ns_.fetch_add(rotation_.run_ns(kBatch, kBatch), std::memory_order_relaxed);
      blocks_.fetch_add(2 * kBatch, std::memory_order_relaxed);
    }
  }

  BedRotation rotation_;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> blocks_{0};
  std::atomic<uint64_t> ns_{0};
  std::thread thread_;  // last: it uses the others
};

/// The decode step of `seqs` sequences beside copies of each way.
void bench_beside_rotation(const CudaModel& model, Timer& timer, cudaStream_t stream,
                           uint32_t seqs) {
  const Bed bed;
  int major = 0;
  require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
          "cudaDeviceGetAttribute");
  const char* comma = "";
  std::printf(",\n   \"decode_beside_rotation\": [");
  for (const RotationWay way : {RotationWay::kVector, RotationWay::kBulk}) {
    if (way == RotationWay::kBulk && major < 9) continue;
    for (const uint32_t workers : {2u, 8u}) {
      const Traffic traffic(bed, way, workers);
      const double ms = step_ms(model, timer, stream, {seqs, seqs, false});
      std::printf(
          "%s{\"batch\": %u, \"way\": \"%s\", \"blocks\": %u, \"ms\": %.4f, "
          "\"both_gb_s\": %.2f}",
          comma, seqs, way == RotationWay::kBulk ? "bulk" : "vector", workers, ms, traffic.gb_s());
      comma = ", ";
    }
  }
  std::printf("]");
}

constexpr uint32_t kSeqs = 256, kRows = 4096, kBlockSize = 16, kMaxLen = kRows;

/// Decode steps of some batches, as members of an object.
template <class Rig>
void bench_decode(const CudaModel& model, BenchTables& tables, const sac_model_config& config,
                  Timer& timer, cudaStream_t stream, double bandwidth) {
  std::printf("\"decode\": [");
  const char* comma = "";
  for (const uint32_t seqs : {1u, 16u, 64u, kSeqs}) {
    tables.set_batch(seqs, 1, kContext - 1);
    const double ms = step_ms<Rig>(model, timer, stream, {seqs, seqs, false});
    std::printf("%s{\"batch\": %u, \"ms\": %.4f, \"roofline_ms\": %.4f}", comma, seqs, ms,
                decode_bytes(config, seqs, kContext) / bandwidth * 1e3);
    comma = ", ";
  }
  std::printf("]");
}

template <class Rig>
void bench_prefill(const CudaModel& model, BenchTables& tables, const sac_model_config& config,
                   Timer& timer, cudaStream_t stream) {
  tables.set_batch(1, kRows, 0);
  const double ms = step_ms<Rig>(model, timer, stream, {kRows, 1, true}, kPrefillRepeats);
  std::printf(",\n   \"prefill\": {\"rows\": %u, \"ms\": %.3f, \"tflops\": %.1f}", kRows, ms,
              prefill_flops(config, kRows) / (ms * 1e-3) * 1e-12);
}

void bench_model(const Preset& preset, Timer& timer, cudaStream_t stream, double bandwidth) {
  const ModelLimits limits = {kSeqs, kRows, kMaxLen, kBlockSize, kSeqs * kContext / kBlockSize / 2};
  BenchTables tables(kSeqs, kRows, kMaxLen, kBlockSize);
  // Two sequences share a block here: only time is measured.
  auto* blocks = static_cast<uint32_t*>(tables.blocks.data());
  for (uint32_t i = 0; i < kSeqs * tables.per_seq; ++i) blocks[i] = i % limits.num_blocks;
  CudaModel model(preset.config, limits, tables.tables);
  model.fill_dummy(1);
  const std::vector<float> angles(size_t{kMaxLen} * preset.config.rotary_dim / 2, 0.5f);
  model.set_rope(angles.data(), angles.data(), angles.size());
  const sac_model_config& c = preset.config;
  std::printf("  {\"model\": \"%s\",\n   ", preset.name);
  bench_decode<CudaRig>(model, tables, c, timer, stream, bandwidth);
  if (preset.beside_rotation) {
    constexpr uint32_t kBeside = 64;
    tables.set_batch(kBeside, 1, kContext - 1);
    bench_beside_rotation(model, timer, stream, kBeside);
  }
  bench_prefill<CudaRig>(model, tables, c, timer, stream);
  if (gpu_has_wgmma()) {
    std::printf(",\n   \"wgmma\": {");
    bench_decode<CudaWgmmaRig>(model, tables, c, timer, stream, bandwidth);
    bench_prefill<CudaWgmmaRig>(model, tables, c, timer, stream);
    std::printf("}");
  }
  std::printf("}");
}

/// The presets that `names` names; all of them if it is empty.
std::vector<Preset> chosen(const std::vector<std::string>& names) {
  std::vector<Preset> all = presets();
  if (names.empty()) return all;
  std::vector<Preset> some;
  for (const std::string& name : names) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Preset& p) { return name == p.name; });
    if (found == all.end()) throw std::runtime_error("no model is called " + name);
    some.push_back(*found);
  }
  return some;
}

int run(const std::vector<std::string>& names) {
  const std::vector<Preset> models = chosen(names);
  const std::string reason = no_gpu_reason();
  if (!reason.empty()) {
    std::printf("no CUDA driver or GPU: %s\n", reason.c_str());
    return kExitNoGpu;
  }
  cudaStream_t stream = nullptr;
  require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  Timer timer;
  const double bandwidth = copy_bandwidth(timer, stream);
  std::printf("{\"copy_bytes_per_s\": %.4g, \"context\": %u, \"models\": [\n", bandwidth, kContext);
  const char* comma = "";
  for (const Preset& preset : models) {
    std::printf("%s", comma);
    bench_model(preset, timer, stream, bandwidth);
    std::fflush(stdout);
    comma = ",\n";
  }
  std::printf("\n]}\n");
  return 0;
}

}  // namespace
}  // namespace saccade::test

int main(int argc, char** argv) {
  try {
    return saccade::test::run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  }
}
