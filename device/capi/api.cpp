// The C interface: argument checks, error sentences, and nothing else.
#include <cstring>

#include "capi/last_error.hpp"
#include "host/host_env.hpp"
#include "invariants/check.hpp"
#include "plane/device.hpp"

namespace {

using saccade::fail;
using saccade::guarded;

int check_loading(const sac_device* d) {
  if (d == nullptr) return fail(SAC_ERR_ARGUMENT, "device is null");
  if (d->cpu == nullptr) return fail(SAC_ERR_STATE, "this kind of device takes no weights");
  if (d->loaded) return fail(SAC_ERR_STATE, "weights are loaded already");
  return 0;
}

int result(const std::string& wrong) { return wrong.empty() ? 0 : fail(SAC_ERR_ARGUMENT, wrong); }

}  // namespace

extern "C" {

const char* sac_last_error(void) { return saccade::last_error.c_str(); }

uint64_t sac_control_abi(void) {
  return uint64_t{sizeof(sac_device_config)} << 32 | sizeof(sac_model_config);
}

int sac_device_create(const sac_device_config* config, const sac_model_config* model,
                      uint32_t vocab_size, sac_device** out) {
  return guarded([&] {
    if (config == nullptr || out == nullptr) return fail(SAC_ERR_ARGUMENT, "config or out is null");
    auto device = std::make_unique<sac_device>();
    int code = 0;
    std::string wrong = device->create(*config, model, vocab_size, &code);
    if (!wrong.empty()) return fail(code, std::move(wrong));
    *out = device.release();
    return 0;
  });
}

void sac_device_destroy(sac_device* device) { delete device; }

int sac_device_set_tensor(sac_device* d, uint32_t role, uint32_t layer, uint32_t expert,
                          uint32_t dtype, uint64_t rows, uint64_t cols, const void* data,
                          const float* scales) {
  return guarded([&] {
    if (int code = check_loading(d)) return code;
    return result(d->cpu->set_tensor(role, layer, dtype, rows, cols, data, expert, scales));
  });
}

int sac_device_packed_weights(const sac_device* d, sac_packed_weights* out) {
  return guarded([&] {
    if (d == nullptr || out == nullptr) return fail(SAC_ERR_ARGUMENT, "device or out is null");
    if (d->cpu == nullptr) return fail(SAC_ERR_STATE, "this kind of device packs no weights");
    const saccade::PackedWeights packed = d->cpu->packed_weights();
    *out = {packed.data, packed.bytes, packed.layout};
    return 0;
  });
}

int sac_device_adopt_packed(sac_device* d, const void* data, uint64_t bytes) {
  return guarded([&] {
    if (int code = check_loading(d)) return code;
    return result(d->cpu->adopt_packed(data, bytes));
  });
}

int sac_device_fill_dummy(sac_device* d, uint64_t seed) {
  return guarded([&] {
    if (int code = check_loading(d)) return code;
    if (d->cpu->adopted()) return fail(SAC_ERR_STATE, "packed weights are adopted already");
    return d->cpu->fill_dummy(seed), 0;
  });
}

int sac_device_set_rope(sac_device* d, const float* cos, const float* sin, uint64_t count) {
  return guarded([&] {
    if (int code = check_loading(d)) return code;
    return result(d->cpu->set_rope(cos, sin, count));
  });
}

int sac_device_set_adapter(sac_device* d, uint32_t adapter, uint64_t key, uint64_t name) {
  return guarded([&] {
    if (d == nullptr) return fail(SAC_ERR_ARGUMENT, "device is null");
    if (d->attached) return fail(SAC_ERR_STATE, "a region is attached already");
    return result(saccade::set_adapter_key(d->adapter_keys(), adapter, key, name));
  });
}

int sac_device_set_adapter_pair(sac_device* d, uint32_t adapter, const sac_adapter_pair* pair) {
  return guarded([&] {
    if (int code = check_loading(d)) return code;
    if (pair == nullptr) return fail(SAC_ERR_ARGUMENT, "pair is null");
    return result(d->cpu->set_adapter_pair(adapter, *pair));
  });
}

int sac_device_set_vocab(sac_device* d, const uint32_t* offsets, const uint8_t* bytes,
                         uint32_t num_tokens) {
  return guarded([&] {
    if (d == nullptr || offsets == nullptr || bytes == nullptr)
      return fail(SAC_ERR_ARGUMENT, "device, offsets or bytes is null");
    if (d->attached) return fail(SAC_ERR_STATE, "a region is attached already");
    return result(d->set_vocab(offsets, bytes, num_tokens));
  });
}

int sac_device_finish_load(sac_device* d) {
  return guarded([&] {
    if (int code = check_loading(d)) return code;
    std::string missing = d->cpu->missing_tensor();
    if (!missing.empty()) return fail(SAC_ERR_STATE, "missing tensor: " + missing);
    d->loaded = true;
    return 0;
  });
}

int sac_device_attach(sac_device* d, void* region, uint64_t region_bytes) {
  return guarded([&] {
    if (d == nullptr) return fail(SAC_ERR_ARGUMENT, "device is null");
    if (d->attached) return fail(SAC_ERR_STATE, "a region is attached already");
    const std::string wrong = d->attach(region, region_bytes);
    return wrong.empty() ? 0 : fail(SAC_ERR_REGION, wrong);
  });
}

uint64_t sac_device_fetch_bytes(const sac_device* d) { return d == nullptr ? 0 : d->fetch_bytes(); }

int sac_device_open_fetch(sac_device* d, void* region, uint64_t region_bytes,
                          const uint8_t model_id[32], uint64_t instance_id) {
  return guarded([&] {
    constexpr uintptr_t kPageBytes = 4096;
    if (d == nullptr || model_id == nullptr)
      return fail(SAC_ERR_ARGUMENT, "device or model_id is null");
    const uint64_t bytes = d->fetch_bytes();
    if (bytes == 0) return fail(SAC_ERR_STATE, "this device has no fetch plane");
    if (d->scheduler.fetch.view.device != nullptr)
      return fail(SAC_ERR_STATE, "a region for a fetch plane is open already");
    if (region == nullptr || reinterpret_cast<uintptr_t>(region) % kPageBytes != 0)
      return fail(SAC_ERR_REGION, "fetch region: the address is null or not on a page");
    if (region_bytes < bytes)
      return fail(SAC_ERR_REGION, "fetch region: smaller than " + std::to_string(bytes) + " bytes");
    uint8_t id[32];
    std::memcpy(id, model_id, sizeof(id));
    return d->open_fetch(region, id, instance_id), 0;
  });
}

const char* sac_device_kernels(const sac_device* d) {
  return d == nullptr || d->cpu == nullptr ? "" : d->cpu->kernels_name();
}

int sac_device_measure_roof(sac_device* d) {
  return guarded([&] {
    if (d == nullptr) return fail(SAC_ERR_ARGUMENT, "device is null");
    if (d->cpu == nullptr) return fail(SAC_ERR_STATE, "only the cpu device measures its roof");
    if (!d->loaded || d->attached)
      return fail(SAC_ERR_STATE, d->loaded ? "the device is attached" : "weights are not loaded");
    return d->roof.measure(*d->cpu, d->config.num_threads), 0;
  });
}

int sac_region_load_progress(void* region, uint64_t region_bytes, uint32_t phase,
                             uint64_t done_bytes, uint64_t total_bytes) {
  return guarded([&] {
    saccade::RingView ring;
    if (const char* wrong = saccade::open_ring(region, region_bytes, &ring))
      return fail(SAC_ERR_REGION, wrong);
    saccade::store_relaxed(&ring.device->load_done_bytes, done_bytes);
    saccade::store_relaxed(&ring.device->load_total_bytes, total_bytes);
    saccade::store_relaxed(&ring.device->heartbeat,
                           saccade::load_relaxed(&ring.device->heartbeat) + 1);
    saccade::store_release(&ring.device->phase, phase);
    return 0;
  });
}

int sac_device_ready(sac_device* d) {
  return guarded([&] {
    if (d == nullptr) return fail(SAC_ERR_ARGUMENT, "device is null");
    if (!d->attached || !d->loaded)
      return fail(SAC_ERR_STATE, d->attached ? "weights are not loaded" : "no region is attached");
    if (d->fetch_bytes() != 0 && d->scheduler.fetch.view.device == nullptr)
      return fail(SAC_ERR_STATE, "the region for the fetch plane is not open");
    const std::string keyless = saccade::missing_adapter_key(d->adapter_keys());
    if (!keyless.empty()) return fail(SAC_ERR_STATE, keyless);
    saccade::go_ready(d->scheduler);
    return 0;
  });
}

int sac_device_tick(sac_device* d) {
  return guarded([&] {
    if (d == nullptr || !d->attached || !d->loaded)
      return fail(SAC_ERR_STATE, "the device is not ready");
    return static_cast<int>(d->tick());
  });
}

int sac_device_run(sac_device* d) {
  return guarded([&] {
    if (int code = sac_device_ready(d)) return code;
    return d->run(), 0;
  });
}

void sac_device_stop(sac_device* d) { d->stop.store(true, std::memory_order_relaxed); }

uint64_t sac_device_decisions(const sac_device* d, uint64_t* words, uint64_t capacity) {
  const saccade::DecisionLog& log = d->scheduler.report.log;
  const uint64_t count = log.used < capacity ? log.used : capacity;
  if (count != 0) std::memcpy(words, log.words, count * sizeof(uint64_t));
  return log.used + log.dropped;
}

int sac_device_check(const sac_device* d) {
  return guarded([&] {
    const char* wrong = saccade::check_invariants(d->scheduler);
    return wrong == nullptr ? 0 : fail(SAC_ERR_STATE, wrong);
  });
}

}  // extern "C"
