#include "plane/device.hpp"

#include <cstring>

#include "capi/config_check.hpp"
#include "host/host_env.hpp"
#include "host/process.hpp"
#include "ring/introduction.hpp"
#include "sim/sim_check.hpp"

namespace saccade {

namespace {

/// What frontends learn of the device with phase READY.
sac_device_line told_of(uint64_t kv_block_bytes, uint64_t vocab_hash, const Limits& limits) {
  const ProcessId self = own_process();
  sac_device_line line = {};
  line.vocab_hash = vocab_hash;
  line.grammar_words = limits.grammar_words;
  line.embedding_size = limits.embedding_size;
  line.num_adapters = limits.num_adapters;
  line.kv_block_bytes = kv_block_bytes;
  line.process_start_ticks = self.start_ticks;
  line.pid = self.pid;
  return line;
}

/// The region for a fetch plane, but for the arrangement of a block's elements.
FetchShape fetch_shape_of(const sac_device_config& c, uint64_t block_bytes) {
  FetchShape f = {};
  f.queue_len = max_u32(c.fetch.queue_len, 1);
  f.num_entries = c.fetch.num_entries;
  f.entry_tokens = ceil_div(c.max_model_len, SAC_CHUNK_TOKENS) * SAC_CHUNK_TOKENS;
  f.num_frames = c.fetch.num_frames;
  f.block_size = c.block_size;
  f.block_bytes = block_bytes;
  f.chunk_tokens = SAC_CHUNK_TOKENS;
  f.device_wakes = 1;
  f.num_events = c.fetch.num_events;
  return f;
}

/// Nothing of a simulated device depends on how elements are arranged, only on their number.
void arrange_simulated(FetchShape& f, const sac_sim_model& model) {
  constexpr uint32_t kHeadDim = 128;
  const double elements = model.kv_token_bytes / (2.0 * 2.0 * model.num_layers);
  const auto per_token = static_cast<uint32_t>(elements);
  f.num_layers = model.num_layers;
  f.head_dim = per_token % kHeadDim == 0 ? kHeadDim : per_token;
  f.kv_heads = per_token / f.head_dim;
  f.dtype = SAC_DTYPE_BF16;
  f.block_bytes = uint64_t{4} * f.num_layers * per_token * f.block_size;
}

template <class Step, class Engine>
uint32_t tick_with(sac_device& d, Step& step, Engine& engine) {
  if (d.config.mode == SAC_MODE_SERIAL) {
    HostEnv<false> env{d.scheduler.report.ring};
    return tick(d.scheduler, step, engine, env);
  }
  HostEnv<true> env{d.scheduler.report.ring};
  return tick(d.scheduler, step, engine, env);
}

}  // namespace
}  // namespace saccade

using saccade::Layout;

std::string sac_device::create(const sac_device_config& c, const sac_model_config* model,
                               uint32_t vocab_size, int* code) {
  *code = SAC_ERR_ARGUMENT;
  std::string wrong = saccade::check_device_config(c, vocab_size);
  if (!wrong.empty()) return wrong;
  if (c.kind == SAC_DEVICE_CUDA)
    return "kind is SAC_DEVICE_CUDA, which the library of the CUDA device makes";
  if (c.kind == SAC_DEVICE_CPU) {
    if (model == nullptr) return "model is null, but kind is SAC_DEVICE_CPU";
    wrong = saccade::check_model_config(*model);
    if (!wrong.empty()) return wrong;
    if (model->vocab_size != vocab_size) return "vocab_size differs from the model's";
    if (c.embedding_size != 0 && c.embedding_size != model->hidden_size)
      return "embedding_size differs from the model's hidden_size";
  }
  config = c;
  eos_ids.assign(c.eos_ids, c.eos_ids + c.num_eos_ids);
  config.eos_ids = eos_ids.data();
  scheduler.limits = saccade::limits_of(c, vocab_size);
  if (c.kind == SAC_DEVICE_CPU) scheduler.limits.rope_switch_len = model->rope_switch_len;
  Layout measure(nullptr);
  lay_out(scheduler, measure);
  if (!memory.map(measure.bytes())) {
    *code = SAC_ERR_MEMORY;
    return "cannot map " + std::to_string(measure.bytes()) + " bytes for the scheduler";
  }
  Layout hand_out(memory.data());
  lay_out(scheduler, hand_out);
  scheduler.seats.vocab = &tokens.view();
  reset(scheduler, eos_ids.data());
  if (c.kind == SAC_DEVICE_SIM) return create_sim(vocab_size);
  if (c.kind == SAC_DEVICE_NULL) {
    null = {{scheduler.launch.tables, scheduler.launch.outputs, vocab_size},
            uint64_t{c.null_step_us} * 1000,
            0};
    loaded = true;
    return "";
  }
  *code = SAC_ERR_MEMORY;
  create_cpu(*model);
  return "";
}

std::string sac_device::create_sim(uint32_t vocab_size) {
  const sac_sim_config& c = *config.sim;
  const std::string wrong = saccade::sim::check_sim_config(c);
  if (!wrong.empty()) return wrong;
  const double block_bytes = c.model.kv_token_bytes * config.block_size;
  kv_block_bytes = static_cast<uint64_t>(block_bytes);
  fetch_shape = saccade::fetch_shape_of(config, kv_block_bytes);
  saccade::arrange_simulated(fetch_shape, c.model);
  paced = {c, {scheduler.launch.tables, scheduler.launch.outputs, vocab_size}};
  paced_copies = {c.hardware, block_bytes};
  config.sim = nullptr;
  loaded = true;
  return "";
}

void sac_device::create_cpu(const sac_model_config& model) {
  const sac_device_config& c = config;
  kv_block_bytes = saccade::CpuStep::kv_block_bytes(model, c.block_size);
  cpu = std::make_unique<saccade::CpuStep>(
      model, c.max_num_seqs, c.max_num_batched_tokens, c.max_model_len, c.block_size, c.num_blocks,
      c.num_threads, scheduler.launch.tables, scheduler.launch.outputs, nullptr,
      saccade::AdapterLimits{c.num_adapters, c.max_adapter_rank});
  fetch_shape = saccade::fetch_shape_of(c, kv_block_bytes);
  fetch_shape.num_layers = model.num_layers;
  fetch_shape.kv_heads = model.num_kv_heads;
  fetch_shape.head_dim = model.head_dim;
  fetch_shape.dtype = model.kv_dtype == SAC_KV_DTYPE_FP8 ? SAC_DTYPE_FP8 : model.dtype;
  if (c.num_host_blocks != 0)
    host_kv = std::make_unique<saccade::MemoryRegion>(
        kv_block_bytes * c.num_host_blocks, "KV blocks in host memory",
        saccade::FirstTouch::kConstructor, c.num_threads);
  // Where frames are is known later: then its threads start.
  if (c.num_host_blocks != 0 && c.fetch.num_frames == 0) start_copies(nullptr);
}

void sac_device::start_copies(unsigned char* frames) {
  auto* host = host_kv == nullptr ? nullptr : static_cast<unsigned char*>(host_kv->data());
  const saccade::CopyPools pools = {cpu->kv_memory(), host, kv_block_bytes, config.num_host_blocks,
                                    frames};
  copy_engine = std::make_unique<saccade::CopyEngine>(pools, scheduler.kv.store.copies);
}

uint64_t sac_device::fetch_bytes() const {
  const bool shares = config.fetch.num_frames != 0 || config.fetch.num_events != 0;
  return !shares ? 0 : saccade::fetch_region_bytes(fetch_shape);
}

void sac_device::open_fetch(void* region, const uint8_t (&model_id)[32], uint64_t instance_id) {
  std::memcpy(fetch_shape.model_id, model_id, sizeof(model_id));
  saccade::FetchView view = {};
  saccade::make_fetch_region(region, fetch_shape, instance_id, &view);
  if (cpu != nullptr && config.fetch.num_frames != 0) start_copies(view.frames);
  saccade::open_fetch(scheduler.fetch, scheduler.kv.store.events, view);
}

std::string sac_device::set_vocab(const uint32_t* offsets, const uint8_t* bytes,
                                  uint32_t num_tokens) {
  if (num_tokens != scheduler.limits.vocab_size) return "num_tokens differs from the vocabulary's";
  return tokens.build(offsets, bytes, num_tokens);
}

saccade::AdapterKeys sac_device::adapter_keys() const {
  return {scheduler.inbox.adapter_keys, scheduler.inbox.adapter_names,
          scheduler.limits.num_adapters};
}

std::string sac_device::attach(void* region, uint64_t region_bytes) {
  saccade::RingView view;
  if (const char* wrong = saccade::open_ring(region, region_bytes, &view)) return wrong;
  scheduler.limits.num_slots = view.num_slots;
  scheduler.limits.num_frontends = view.num_frontends;
  if (tokens.view().num_tokens == 0) scheduler.limits.grammar_words = 0;
  if (sac_embedding_words(scheduler.limits.embedding_size) > view.out_ring_words)
    scheduler.limits.embedding_size = 0;
  join_ring(scheduler, view, saccade::monotonic_ns());
  const sac_device_line told = saccade::told_of(kv_block_bytes, tokens.hash(), scheduler.limits);
  saccade::introduce(told, view.device);
  roof.join(view);
  attached = true;
  return "";
}

uint32_t sac_device::tick() {
  saccade::NoCopies none;
  if (config.kind == SAC_DEVICE_SIM) return saccade::tick_with(*this, paced, paced_copies);
  if (config.kind == SAC_DEVICE_NULL) return saccade::tick_with(*this, null, instant_copies);
  return copy_engine == nullptr ? saccade::tick_with(*this, *cpu, none)
                                : saccade::tick_with(*this, *cpu, *copy_engine);
}

void sac_device::run() {
  while (!stop.load(std::memory_order_relaxed))
    if (tick() == 0 && !scheduler.has_finished()) {
      answer_roof();
      saccade::IdleWait::wait(scheduler);
    }
}

void sac_device::answer_roof() {
  saccade::Scheduler& s = scheduler;
  if (cpu == nullptr || saccade::has_unfinished(s.waiting, s.seats, s.parking, s.fetch)) return;
  if (!roof.is_asked(s.report.ring, saccade::monotonic_ns())) return;
  roof.answer(s.report.ring, *cpu, config.num_threads);
}
