// Steps of one large model with random weights on a GPU, as one JSON object, printed whole or not
// at all: what decode and prefill steps take, next to the roofline of each decode step, the bytes
// that it must read at the measured copy bandwidth; and what a decode step takes while KV blocks
// move both ways as fast as they can. Each with products by mma and, where the GPU has it, by
// wgmma.
//   model_bench llama3-8b|qwen3-30b-a3b|qwen3-32b [OPTION...]
//     --way mma|wgmma    the steps of one way only
//     --decode N         decode steps of N sequences only; may be repeated
//     --prefill N        prefill steps of N rows only; may be repeated
//     --beside-rotation  decode steps during copies; with the above, those too
//     --context N        positions before each decoded row [1024]
//     --kv bf16|fp8      the element of KV [bf16]
//     --weights bf16|fp8 of the layers' matrices [bf16]; with fp8 by wgmma only
//     --adapters RANK    each step once more with a LoRA adapter of this rank on every row: of
//     four,
//                        which sequences take in turn, on all matrices but those of experts
//     --layers N         a model of N layers: for a profiler, to which all layers are alike
//     --once             each step once, kernel by kernel on a stream, and no times: for a profiler
// Exit codes: 0 done, 2 an error, 3 there is no driver or no GPU.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <thread>
#include <vector>

#include "cpu/tensor_roles.hpp"
#include "cuda/model/tests/cuda_rig.hpp"
#include "cuda/rotation/rotation_bed.hpp"

namespace saccade::test {
namespace {

constexpr int kExitNoGpu = 3;
constexpr uint32_t kRepeats = 20;
constexpr uint32_t kPrefillRepeats = 7;  // a step of them may take a second
constexpr uint32_t kBatches[] = {1, 4, 16, 64, 128, 256};
constexpr uint32_t kPrompts[] = {128, 512, 1024, 4096};  // rows of a prefill step
constexpr RotationWorkers kBesideWorkers[] = {{1, 2}, {1, 4}, {2, 8}};
constexpr uint32_t kRows = 4096, kBlockSize = 16;
constexpr uint32_t kMostContext = 1u << 17;
constexpr uint32_t kNumAdapters = 4;
/// What the context, the graphs and the beds of the rotation take besides the model.
constexpr size_t kSpareBytes = size_t{6} << 30;

/// What the command line chooses.
struct Choice {
  std::string model;
  std::string way;  // empty: all that the GPU has
  std::vector<uint32_t> batches;
  std::vector<uint32_t> prompts;
  uint32_t layers = 0;  // 0: the model's
  uint32_t context = 1024;
  uint32_t adapter_rank = 0;  // 0: no adapters
  bool fp8_kv = false;
  bool fp8_weights = false;
  bool beside_rotation = false;
  bool once = false;

  bool has_way(const char* name) const { return way.empty() || way == name; }
  uint32_t num_adapters() const { return adapter_rank != 0 ? kNumAdapters : 0; }
  /// Positions of a sequence: a multiple of kBlockSize.
  uint32_t max_len() const { return std::max(kRows, ceil_div(context, kBlockSize) * kBlockSize); }
};

/// Text that grows by printf's rules.
class Json {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    char text[512];
    va_list values;
    va_start(values, format);
    const int length = std::vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    if (length < 0 || static_cast<size_t>(length) >= sizeof(text))
      throw std::runtime_error("a piece of JSON is too long");
    text_ += text;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct Preset {
  const char* name;
  sac_model_config config;
  bool beside_rotation;  // costs three seconds
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

/// Tables of sequences where production has them: in the GPU's memory.
class BenchTables {
 public:
  BenchTables(uint32_t num_seqs, uint32_t num_blocks, const Choice& choice)
      : max_len_(choice.max_len()),
        num_adapters_(choice.num_adapters()),
        params_(num_seqs * sizeof(SeatParams)),
        history_(size_t{num_seqs} * max_len_ * sizeof(uint32_t)),
        blocks_(size_t{num_seqs} * per_seq() * sizeof(uint32_t)),
        seqs_(num_seqs * sizeof(StepSeq)),
        batch_(sizeof(StepBatch)),
        sampled_(size_t{num_seqs} * kRecordWords * sizeof(uint64_t)),
        prompt_records_(size_t{kRows} * kRecordWords * sizeof(uint64_t)) {
    // Contexts have blocks of their own; a longer prompt runs alone.
    std::vector<uint32_t> table(size_t{num_seqs} * per_seq());
    const uint32_t own = ceil_div(choice.context, kBlockSize);
    for (uint32_t s = 0; s < num_seqs; ++s)
      for (uint32_t i = 0; i < per_seq(); ++i)
        table[s * per_seq() + i] = (s * own + i) % num_blocks;
    upload(blocks_, table);
    std::vector<uint32_t> tokens(size_t{num_seqs} * max_len_);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i * 7919 % 32000);
    upload(history_, tokens);
    SeatParams p = {};
    p.top_p = p.repetition_penalty = 1.0f;
    p.prompt_len = max_len_;
    std::vector<SeatParams> params(num_seqs, p);
    for (uint32_t s = 0; s < num_seqs && num_adapters_ != 0; ++s)
      params[s].adapter = 1 + s % num_adapters_;
    upload(params_, params);
  }
  StepTables tables(uint32_t num_seqs) const {
    return {{num_seqs, max_len_, per_seq(), 0, params_.as<SeatParams>(), history_.as<uint32_t>(),
             blocks_.as<uint32_t>(), nullptr, nullptr, nullptr},
            batch_.as<StepBatch>(),
            {sampled_.as<uint64_t>(), prompt_records_.as<uint64_t>()}};
  }
  /// Every sequence brings `rows` rows from `position` on, the last one drawing.
  void set_batch(uint32_t num_seqs, uint32_t rows, uint32_t position) {
    std::vector<StepSeq> q;
    for (uint32_t s = 0; s < num_seqs; ++s) q.push_back({s, position, rows, s * rows, 1, 0});
    upload(seqs_, q);
    const uint32_t adapted = num_adapters_ != 0 ? num_seqs : 0;
    const StepBatch batch = {1, num_seqs, num_seqs * rows,    num_seqs,
                             0, adapted,  seqs_.as<StepSeq>()};
    upload(batch_, std::vector<StepBatch>{batch});
  }

 private:
  uint32_t per_seq() const { return max_len_ / kBlockSize; }

  template <class T>
  static void upload(const DeviceMemory& to, const std::vector<T>& from) {
    require(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
            "cudaMemcpy");
  }

  const uint32_t max_len_;
  const uint32_t num_adapters_;
  const DeviceMemory params_, history_, blocks_, seqs_, batch_, sampled_, prompt_records_;
};

/// A captured step. Made and destroyed while nothing spins on the GPU.
template <class Rig>
class Step {
 public:
  Step(const CudaModel& model, cudaStream_t stream, const GraphShape& shape)
      : exec_(Rig::capture(model, stream, shape)) {}
  ~Step() { cudaGraphExecDestroy(exec_); }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  double median_ms(Timer& timer, cudaStream_t stream, uint32_t repeats = kRepeats) const {
    return timer.median_ms(stream, repeats, [this](cudaStream_t s) {
      require_cuda(cudaGraphLaunch(exec_, s), "cudaGraphLaunch");
    });
  }

 private:
  const cudaGraphExec_t exec_;
};

/// Weights of one layer that `rows` rows multiply with; those of experts and of their router, or of
/// the MLP, count `mlp_share`. Of experts: the expected number where each row draws its own evenly.
double layer_weights(const sac_model_config& c, double rows, double mlp_share = 1) {
  const double h = c.hidden_size, q = double{1} * c.num_heads * c.head_dim;
  const double kv = double{1} * c.num_kv_heads * c.head_dim;
  double mlp = c.intermediate_size, router = 0;
  if (c.num_experts > 0) {
    const double experts = c.num_experts;
    const double drawn = experts * (1 - std::pow(1 - c.experts_per_token / experts, rows));
    mlp = drawn * c.moe_intermediate_size;
    router = h * experts;
  }
  return h * (q + 2 * kv) + q * h + mlp_share * (3 * h * mlp + router);
}

/// Bytes of one layer's weights, as layer_weights counts them. In e4m3 128 share a scale; experts
/// are in bf16.
double layer_bytes(const sac_model_config& c, double rows) {
  if (c.quantization != SAC_QUANTIZATION_FP8) return 2 * layer_weights(c, rows);
  const double narrow = layer_weights(c, rows, c.num_experts > 0 ? 0 : 1);
  return narrow * (1 + sizeof(float) / double{SAC_SCALE_GROUP}) +
         2 * (layer_weights(c, rows) - narrow);
}

/// Bytes that a decode step must read: weights, and K and V of `context` positions a row.
double decode_bytes(const sac_model_config& c, double rows, double context) {
  const double weights = c.num_layers * layer_bytes(c, rows) + 2.0 * c.hidden_size * c.vocab_size;
  const double kv = 2.0 * c.num_layers * c.num_kv_heads * c.head_dim * context * rows;
  return weights + (c.kv_dtype == SAC_KV_DTYPE_FP8 ? 1 : 2) * kv;
}

/// Floating-point operations of a prompt's products; one row has logits. Attention is not counted.
double prefill_flops(const sac_model_config& c, double rows) {
  return 2 * (rows * c.num_layers * layer_weights(c, 1) + double{1} * c.hidden_size * c.vocab_size);
}

/// Gives every adapter a pair for each matrix that it may change; what is in them costs no time.
void fill_adapters(CudaModel& model, const sac_model_config& config, uint32_t num_adapters,
                   uint32_t rank) {
  const size_t most =
      std::max({config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim});
  std::vector<uint16_t> halves(most * rank);  // bf16 between 1/64 and 1/32
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(0x3c80 + i % 127);
  const uint32_t last = config.num_experts > 0 ? SAC_TENSOR_O : SAC_TENSOR_DOWN;
  for (uint32_t adapter = 1; adapter <= num_adapters; ++adapter) {
    for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
      for (uint32_t role = SAC_TENSOR_Q; role <= last; ++role) {
        const TensorShape shape = tensor_shape(config, role);
        const sac_adapter_pair pair = {role, layer,      rank,       SAC_DTYPE_BF16, SAC_DTYPE_BF16,
                                       1.0f, shape.cols, shape.rows, halves.data(),  halves.data()};
        const std::string wrong = model.set_adapter_pair(adapter, pair);
        if (!wrong.empty()) throw std::runtime_error(wrong);
      }
    }
  }
}

/// Copies both ways without a pause on a thread of its own, while it lives.
class Traffic {
 public:
  Traffic(const Bed& bed, RotationWay way, RotationWorkers workers)
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

/// One model on the GPU, and what its steps are timed with.
class Bench {
 public:
  Bench(const Preset& preset, const Choice& choice, double bandwidth)
      : preset_(preset),
        context_(choice.context),
        bandwidth_(bandwidth),
        limits_(fitting(preset.config, choice)),
        tables_(limits_.max_num_seqs, limits_.num_blocks, choice),
        model_(preset.config, limits_, tables_.tables(limits_.max_num_seqs)) {
    model_.fill_dummy(1);
    const std::vector<float> angles(size_t{limits_.max_model_len} * preset.config.rotary_dim / 2,
                                    0.5f);
    model_.set_rope(angles.data(), angles.data(), angles.size());
    fill_adapters(model_, preset.config, limits_.num_adapters, limits_.max_adapter_rank);
  }

  /// The steps by one way of products, as members of an object.
  template <class Rig>
  void add_steps(Json& json, const Choice& choice) {
    json.add("\"decode\": [");
    const char* comma = "";
    for (const uint32_t seqs : choice.batches) {
      if (seqs > limits_.max_num_seqs) break;
      tables_.set_batch(seqs, 1, context_ - 1);
      const double ms = time<Rig>({seqs, seqs, false}, kRepeats);
      json.add("%s{\"batch\": %u, \"ms\": %.4f, \"roofline_ms\": %.4f", comma, seqs, ms,
               decode_bytes(preset_.config, seqs, context_) / bandwidth_ * 1e3);
      add_adapted<Rig>(json, {seqs, seqs, false, true}, kRepeats);
      comma = ", ";
    }
    json.add("],\n  \"prefill\": [");
    comma = "";
    for (const uint32_t rows : choice.prompts) {
      tables_.set_batch(1, rows, 0);
      const double ms = time<Rig>({rows, 1, true}, kPrefillRepeats);
      json.add("%s{\"rows\": %u, \"ms\": %.4f, \"tflops\": %.1f", comma, rows, ms,
               prefill_flops(preset_.config, rows) / (ms * 1e-3) * 1e-12);
      add_adapted<Rig>(json, {rows, 1, true, true}, kPrefillRepeats);
      comma = ", ";
    }
    json.add("]");
  }

  /// The same steps, each once, kernel by kernel.
  void run_once(const Choice& choice, ProductWay way) {
    const auto run = [&](GraphShape shape) {
      shape.has_adapters = limits_.num_adapters != 0;
      model_.enqueue(stream_.get(), shape, way);
      require_cuda(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    };
    for (const uint32_t seqs : choice.batches) {
      tables_.set_batch(seqs, 1, context_ - 1);
      run({seqs, seqs, false});
    }
    for (const uint32_t rows : choice.prompts) {
      tables_.set_batch(1, rows, 0);
      run({rows, 1, true});
    }
  }

  /// The decode step of `seqs` sequences during copies of each way.
  void add_beside_rotation(Json& json, uint32_t seqs) {
    tables_.set_batch(seqs, 1, context_ - 1);
    const Bed bed;
    const Step<CudaRig> step(model_, stream_.get(), {seqs, seqs, false});
    const char* comma = "";
    json.add(",\n  \"decode_beside_rotation\": [");
    for (const RotationWay way : {RotationWay::kVector, RotationWay::kBulk}) {
      if (way == RotationWay::kBulk && !gpu_has_wgmma()) continue;
      for (const RotationWorkers& workers : kBesideWorkers) {
        const Traffic traffic(bed, way, workers);
        const double ms = step.median_ms(timer_, stream_.get());
        json.add(
            "%s{\"batch\": %u, \"way\": \"%s\", \"blocks_down\": %u, \"blocks_up\": %u, "
            "\"ms\": %.4f, \"both_gb_s\": %.2f}",
            comma, seqs, way == RotationWay::kBulk ? "bulk" : "vector", workers.down, workers.up,
            ms, traffic.gb_s());
        comma = ", ";
      }
    }
    json.add("]");
  }

  uint32_t max_seqs() const { return limits_.max_num_seqs; }

 private:
  /// The largest batch whose contexts fit next to the weights.
  static ModelLimits fitting(const sac_model_config& config, const Choice& choice) {
    const uint32_t max_len = choice.max_len();
    const size_t free = free_device_bytes();
    for (uint32_t i = std::size(kBatches); i-- > 0;) {
      const uint32_t seqs = kBatches[i];
      const uint32_t blocks =
          std::max(seqs * ceil_div(choice.context, kBlockSize), max_len / kBlockSize);
      const ModelLimits limits = {
          seqs, kRows, max_len, kBlockSize, blocks, choice.num_adapters(), choice.adapter_rank};
      if (gpu_memory_need(config, limits).total() + kSpareBytes <= free) return limits;
    }
    throw std::runtime_error("the GPU's memory is too small for one sequence of this model");
  }
  /// Ends the object of a step: with what it takes with adapters, if there are any.
  template <class Rig>
  void add_adapted(Json& json, const GraphShape& shape, uint32_t repeats) {
    if (limits_.num_adapters != 0) json.add(", \"adapters_ms\": %.4f", time<Rig>(shape, repeats));
    json.add("}");
  }
  template <class Rig>
  double time(const GraphShape& shape, uint32_t repeats) {
    return Step<Rig>(model_, stream_.get(), shape).median_ms(timer_, stream_.get(), repeats);
  }

  const Preset& preset_;
  const uint32_t context_;
  const double bandwidth_;
  const ModelLimits limits_;
  Stream stream_;
  Timer timer_;
  BenchTables tables_;
  CudaModel model_;
};

std::string bench_model(const Preset& preset, const Choice& choice) {
  double bandwidth = 0;
  if (!choice.once) {
    const Stream stream;
    Timer timer;
    bandwidth = copy_bandwidth(timer, stream.get());
  }
  Bench bench(preset, choice, bandwidth);
  const bool mma = choice.has_way("mma"), wgmma = choice.has_way("wgmma") && gpu_has_wgmma();
  if (choice.once) {
    if (mma) bench.run_once(choice, ProductWay::kMma);
    if (wgmma) bench.run_once(choice, ProductWay::kWgmma);
    return "";
  }
  Json json;
  json.add("{\"model\": \"%s\", \"weights\": \"%s\", \"kv\": \"%s\"", preset.name,
           choice.fp8_weights ? "fp8" : "bf16", choice.fp8_kv ? "fp8" : "bf16");
  json.add(", \"copy_bytes_per_s\": %.4g, \"context\": %u", bandwidth, choice.context);
  if (choice.adapter_rank != 0)
    json.add(", \"adapters\": %u, \"adapter_rank\": %u", kNumAdapters, choice.adapter_rank);
  if (mma) {
    json.add(",\n  ");
    bench.add_steps<CudaRig>(json, choice);
  }
  constexpr uint32_t kBeside = 64;
  if (preset.beside_rotation && choice.beside_rotation && bench.max_seqs() >= kBeside)
    bench.add_beside_rotation(json, kBeside);
  if (wgmma) {
    json.add(",\n  \"wgmma\": {");
    bench.add_steps<CudaWgmmaRig>(json, choice);
    json.add("}");
  }
  json.add("}\n");
  return json.text();
}

int run(const Choice& choice) {
  const std::vector<Preset> all = presets();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Preset& p) { return choice.model == p.name; });
  if (found == all.end()) throw std::runtime_error("no model is called \"" + choice.model + "\"");
  const std::string reason = cuda_error_name();
  if (!reason.empty()) {
    std::printf("no CUDA driver or GPU: %s\n", reason.c_str());
    return kExitNoGpu;
  }
  Preset preset = *found;
  if (choice.layers != 0) preset.config.num_layers = choice.layers;
  if (choice.fp8_kv) preset.config.kv_dtype = SAC_KV_DTYPE_FP8;
  if (choice.fp8_weights) preset.config.quantization = SAC_QUANTIZATION_FP8;
  const std::string json = bench_model(preset, choice);
  return std::fwrite(json.data(), 1, json.size(), stdout) == json.size() ? 0 : 2;
}

/// False: the command line is invalid.
bool read_choice(int argc, char** argv, Choice& choice) {
  if (argc < 2) return false;
  choice.model = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--once") {
      choice.once = true;
      continue;
    }
    if (option == "--beside-rotation") {
      choice.beside_rotation = true;
      continue;
    }
    if (++i == argc) return false;
    const auto number = static_cast<uint32_t>(std::strtoul(argv[i], nullptr, 10));
    if (option == "--way") {
      choice.way = argv[i];
    } else if (option == "--kv" &&
               (argv[i] == std::string("fp8") || argv[i] == std::string("bf16"))) {
      choice.fp8_kv = argv[i] == std::string("fp8");
    } else if (option == "--weights" &&
               (argv[i] == std::string("fp8") || argv[i] == std::string("bf16"))) {
      choice.fp8_weights = argv[i] == std::string("fp8");
    } else if (option == "--context" && number > 0 && number <= kMostContext) {
      choice.context = number;
    } else if (option == "--adapters" && number > 0 && number <= SAC_MAX_ADAPTER_RANK) {
      choice.adapter_rank = number;
    } else if (option == "--layers") {
      choice.layers = number;
    } else if (option == "--decode" && number > 0 && number <= kRows) {
      choice.batches.push_back(number);
    } else if (option == "--prefill" && number > 0 && number <= kRows) {
      choice.prompts.push_back(number);
    } else {
      return false;
    }
  }
  if (choice.fp8_weights) choice.way = "wgmma";
  if (!choice.batches.empty() || !choice.prompts.empty() || choice.beside_rotation) return true;
  choice.batches.assign(std::begin(kBatches), std::end(kBatches));
  choice.prompts.assign(std::begin(kPrompts), std::end(kPrompts));
  choice.beside_rotation = !choice.fp8_weights;  // those steps are by mma
  return true;
}

}  // namespace
}  // namespace saccade::test

int main(int argc, char** argv) {
  saccade::test::Choice choice;
  if (!saccade::test::read_choice(argc, argv, choice)) {
    std::fprintf(stderr, "usage: %s llama3-8b|qwen3-30b-a3b|qwen3-32b [OPTION...]\n", argv[0]);
    return 2;
  }
  try {
    return saccade::test::run(choice);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  }
}
