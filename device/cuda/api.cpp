// The C interface of the CUDA device: argument checks, error sentences, and the order of calls.
#include "capi/config_check.hpp"
#include "capi/last_error.hpp"
#include "cuda/cuda_memory.hpp"
#include "cuda/gpu_ring.hpp"
#include "cuda/plane.hpp"
#include "cuda/saccade_cuda.h"

namespace {

using saccade::fail;
using saccade::guarded;

int check_loading(sac_device* d) {
  if (d == nullptr) return fail(SAC_ERR_ARGUMENT, "device is null");
  if (d->plane.model() == nullptr) return fail(SAC_ERR_STATE, "this kind of device has no weights");
  if (d->plane.prepared()) return fail(SAC_ERR_STATE, "weights are loaded already");
  return 0;
}

int check_attaching(sac_device* d) {
  if (d == nullptr) return fail(SAC_ERR_ARGUMENT, "device is null");
  return d->plane.attached() ? fail(SAC_ERR_STATE, "a region is attached already") : 0;
}

int result(const std::string& wrong) { return wrong.empty() ? 0 : fail(SAC_ERR_ARGUMENT, wrong); }

/// 0, or an error that says why no kernel can run here.
int check_gpu() {
  const std::string error = saccade::cuda_error_name();
  return error.empty() ? 0 : fail(SAC_ERR_STATE, "no CUDA driver or GPU: " + error);
}

int not_here(const char* what) {
  return guarded([&] {
    return fail(SAC_ERR_STATE, std::string(what) + ": not of a device whose ticks run on a GPU");
  });
}

}  // namespace

extern "C" {

const char* sac_last_error(void) { return saccade::last_error.c_str(); }

uint64_t sac_control_abi(void) {
  return uint64_t{sizeof(sac_device_config)} << 32 | sizeof(sac_model_config);
}

int sac_cuda_probe(sac_cuda_info* out) {
  return guarded([&] {
    if (out == nullptr) return fail(SAC_ERR_ARGUMENT, "out is null");
    if (const int code = check_gpu()) return code;
    return *out = saccade::gpu_info(), 0;
  });
}

int sac_cuda_memory_need(const sac_device_config* config, const sac_model_config* model,
                         uint64_t* fixed_bytes, uint64_t* kv_block_bytes) {
  return guarded([&] {
    if (config == nullptr || model == nullptr) return fail(SAC_ERR_ARGUMENT, "config is null");
    std::string wrong = saccade::check_device_config(*config, model->vocab_size);
    if (wrong.empty()) wrong = saccade::check_model_config(*model);
    const saccade::ModelLimits limits = saccade::model_limits(*config);
    if (wrong.empty()) wrong = saccade::check_gpu_model(*model, limits);
    if (!wrong.empty()) return fail(SAC_ERR_ARGUMENT, wrong);
    const saccade::MemoryNeed need = saccade::gpu_memory_need(*model, limits);
    const uint64_t grammars = uint64_t{config->max_num_seqs} * config->grammar_words * 4;
    const uint64_t embeddings = uint64_t{config->max_num_seqs} * config->embedding_size * 4;
    *fixed_bytes = need.weights + need.workspace + grammars + embeddings;
    *kv_block_bytes = need.kv / limits.num_blocks;
    return 0;
  });
}

int sac_device_create(const sac_device_config* config, const sac_model_config* model,
                      uint32_t vocab_size, sac_device** out) {
  return guarded([&] {
    if (config == nullptr || out == nullptr) return fail(SAC_ERR_ARGUMENT, "config or out is null");
    std::string wrong = saccade::check_device_config(*config, vocab_size);
    if (wrong.empty()) wrong = saccade::check_cuda_config(*config, model, vocab_size);
    if (!wrong.empty()) return fail(SAC_ERR_ARGUMENT, wrong);
    if (const int code = check_gpu()) return code;
    *out = new sac_device(*config, model, vocab_size);
    return 0;
  });
}

void sac_device_destroy(sac_device* device) { delete device; }

int sac_device_set_tensor(sac_device* d, uint32_t role, uint32_t layer, uint32_t expert,
                          uint32_t dtype, uint64_t rows, uint64_t cols, const void* data,
                          const float* scales) {
  return guarded([&] {
    if (const int code = check_loading(d)) return code;
    return result(
        d->plane.model()->set_tensor(role, layer, dtype, rows, cols, data, expert, scales));
  });
}

int sac_device_fill_dummy(sac_device* d, uint64_t seed) {
  return guarded([&] {
    if (const int code = check_loading(d)) return code;
    return d->plane.model()->fill_dummy(seed), 0;
  });
}

int sac_device_set_rope(sac_device* d, const float* cos, const float* sin, uint64_t count) {
  return guarded([&] {
    if (const int code = check_loading(d)) return code;
    return result(d->plane.model()->set_rope(cos, sin, count));
  });
}

int sac_device_set_vocab(sac_device* d, const uint32_t* offsets, const uint8_t* bytes,
                         uint32_t num_tokens) {
  return guarded([&] {
    if (const int code = check_attaching(d)) return code;
    if (offsets == nullptr || bytes == nullptr)
      return fail(SAC_ERR_ARGUMENT, "offsets or bytes is null");
    return result(d->plane.set_vocab(offsets, bytes, num_tokens));
  });
}

int sac_device_set_adapter(sac_device* d, uint32_t adapter, uint64_t key, uint64_t name) {
  return guarded([&] {
    if (const int code = check_attaching(d)) return code;
    return result(saccade::set_adapter_key(d->plane.adapter_keys(), adapter, key, name));
  });
}

int sac_device_set_adapter_pair(sac_device* d, uint32_t adapter, const sac_adapter_pair* pair) {
  return guarded([&] {
    if (const int code = check_loading(d)) return code;
    if (pair == nullptr) return fail(SAC_ERR_ARGUMENT, "pair is null");
    return result(d->plane.model()->set_adapter_pair(adapter, *pair));
  });
}

int sac_device_finish_load(sac_device* d) {
  return guarded([&] {
    if (const int code = check_loading(d)) return code;
    const std::string missing = d->plane.model()->missing_tensor();
    if (!missing.empty()) return fail(SAC_ERR_STATE, "missing tensor: " + missing);
    return d->plane.prepare(), 0;
  });
}

int sac_device_attach(sac_device* d, void* region, uint64_t region_bytes) {
  return guarded([&] {
    if (const int code = check_attaching(d)) return code;
    const std::string wrong = d->plane.attach(region, region_bytes);
    return wrong.empty() ? 0 : fail(SAC_ERR_REGION, wrong);
  });
}

int sac_cuda_ring_create(const void* image, uint64_t bytes, sac_cuda_ring* out) {
  return guarded([&] {
    if (image == nullptr || out == nullptr) return fail(SAC_ERR_ARGUMENT, "image or out is null");
    if (const int code = check_gpu()) return code;
    auto ring = std::make_unique<saccade::GpuRing>(image, bytes);
    *out = {ring->data(), bytes, SAC_RING_MEMORY_CUDA, 0, ring.get()};
    ring.release();
    return 0;
  });
}

void sac_cuda_ring_destroy(sac_cuda_ring* ring) {
  delete static_cast<saccade::GpuRing*>(ring->owner);
}

int sac_cuda_attach(sac_device* d, void* region, uint64_t region_bytes, const sac_cuda_ring* ring) {
  return guarded([&] {
    if (const int code = check_attaching(d)) return code;
    if (ring == nullptr || ring->bytes != region_bytes)
      return fail(SAC_ERR_ARGUMENT, "ring is null, or not as long as the region");
    auto* on_gpu = static_cast<unsigned char*>(ring->base);
    const std::string wrong = d->plane.attach(region, region_bytes, on_gpu);
    return wrong.empty() ? 0 : fail(SAC_ERR_REGION, wrong);
  });
}

int sac_device_run(sac_device* d) {
  return guarded([&] {
    if (d == nullptr) return fail(SAC_ERR_ARGUMENT, "device is null");
    if (!d->plane.attached() || !d->plane.prepared())
      return fail(SAC_ERR_STATE,
                  d->plane.attached() ? "weights are not loaded" : "no region is attached");
    const std::string keyless = saccade::missing_adapter_key(d->plane.adapter_keys());
    if (!keyless.empty()) return fail(SAC_ERR_STATE, keyless);
    const std::string wrong = d->plane.run();
    return wrong.empty() ? 0 : fail(SAC_ERR_STATE, wrong);
  });
}

void sac_device_stop(sac_device* d) { d->plane.stop(); }

int sac_device_ready(sac_device*) { return not_here("ready without a loop"); }
int sac_device_tick(sac_device*) { return not_here("a tick from the caller's thread"); }
int sac_device_check(const sac_device*) { return not_here("a check of the scheduler's state"); }

uint64_t sac_device_decisions(const sac_device* d, uint64_t* words, uint64_t capacity) {
  return d->plane.decisions(words, capacity);
}

int sac_region_load_progress(void*, uint64_t, uint32_t, uint64_t, uint64_t) {
  return guarded([&] {
    return fail(SAC_ERR_STATE, "progress of loading is reported by the host's own library");
  });
}

}  // extern "C"
