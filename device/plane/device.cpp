#include "plane/device.hpp"

#include "capi/config_check.hpp"
#include "host/host_env.hpp"
#include "host/process.hpp"
#include "sim/sim_check.hpp"

namespace saccade {

namespace {

/// Tells frontends what only the host knows of this device; visible to them with phase READY.
void introduce(sac_device_line* line, uint64_t kv_block_bytes) {
  const ProcessId self = own_process();
  store_relaxed(&line->kv_block_bytes, kv_block_bytes);
  store_relaxed(&line->process_start_ticks, self.start_ticks);
  store_relaxed(&line->pid, self.pid);
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
      c.num_threads, scheduler.launch.tables, scheduler.launch.outputs);
  if (c.num_host_blocks == 0) return;
  host_kv = std::make_unique<saccade::MemoryRegion>(kv_block_bytes * c.num_host_blocks,
                                                    "KV blocks in host memory");
  const saccade::CopyPools pools = {cpu->kv_memory(), static_cast<unsigned char*>(host_kv->data()),
                                    kv_block_bytes};
  copy_engine = std::make_unique<saccade::CopyEngine>(pools, scheduler.kv.store.copies);
}

std::string sac_device::attach(void* region, uint64_t region_bytes) {
  saccade::RingView view;
  if (const char* wrong = saccade::open_ring(region, region_bytes, &view)) return wrong;
  scheduler.limits.num_slots = view.num_slots;
  scheduler.limits.num_frontends = view.num_frontends;
  join_ring(scheduler, view, saccade::monotonic_ns());
  saccade::introduce(view.device, kv_block_bytes);
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
    if (tick() == 0 && !scheduler.has_finished()) saccade::IdleWait::wait(scheduler);
}
