/* What the library of the CUDA device has in addition to device/capi/saccade_device.h, all of whose
 * functions it exports. It is loaded at run time, so that one binary serves with and without a GPU.
 */
#ifndef SACCADE_CUDA_H
#define SACCADE_CUDA_H
#include "capi/saccade_device.h"
#ifdef __cplusplus
extern "C" {
#endif

/* The GPU that is used: the first one that the process may see. */
typedef struct sac_cuda_info {
  uint64_t free_bytes; /* of its memory, now */
  uint64_t total_bytes;
  uint32_t compute_capability; /* 10 * major + minor */
  uint32_t num_multiprocessors;
  uint32_t driver_version; /* of CUDA, as 13000 */
  uint32_t _pad;
  char name[64];
} sac_cuda_info;

/* SAC_ERR_STATE with the reason when there is no driver or no GPU. */
int sac_cuda_probe(sac_cuda_info* out);

/* Device memory that a model and its adapters take besides KV blocks, and what one block takes, in
 * bytes.
 * SAC_ERR_ARGUMENT names the field and the bound when a GPU cannot run the model. */
int sac_cuda_memory_need(const sac_device_config* config, const sac_model_config* model,
                         uint64_t* fixed_bytes, uint64_t* kv_block_bytes);

/* Where memory of a ring is, as a network registers it. */
#define SAC_RING_MEMORY_HOST 0u
#define SAC_RING_MEMORY_CUDA 1u

/* A ring in the GPU's memory, for frontends whose NIC reaches it there. */
typedef struct sac_cuda_ring {
  void* base;
  uint64_t bytes;
  uint32_t memory; /* SAC_RING_MEMORY_* */
  uint32_t _pad;
  void* owner; /* the library's own */
} sac_cuda_ring;

/* A copy of `image`, a region with its header. SAC_ERR_MEMORY with the reason where no NIC reaches
 * the GPU, or a running kernel would not see its writes in order. */
int sac_cuda_ring_create(const void* image, uint64_t bytes, sac_cuda_ring* out);

/* After the device that is attached to it, and after everything that has registered it. */
void sac_cuda_ring_destroy(sac_cuda_ring* ring);

/* As sac_device_attach, but with the ring in the GPU's memory. `region` has the same limits; the
 * device's line and statistics are shown in it once a second, and it has no other use. */
int sac_cuda_attach(sac_device* device, void* region, uint64_t region_bytes,
                    const sac_cuda_ring* ring);

#ifdef __cplusplus
}
#endif
#endif
