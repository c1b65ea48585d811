/* A simulated device: what a named accelerator and a named model cost, and a run of a whole
 * workload in virtual time. Plain C, as capi/saccade_device.h. Every figure is an input: the tables
 * of named devices and models, with their sources, are in crates/device/src/sim.
 */
#ifndef SACCADE_SIM_H
#define SACCADE_SIM_H
#include "capi/saccade_device.h"
#ifdef __cplusplus
extern "C" {
#endif

/* An accelerator. Rates are what the part can do; efficiencies are what kernels reach of them. */
typedef struct sac_sim_hardware {
  double hbm_bytes_per_s;
  double hbm_efficiency;        /* (0, 1] */
  double flops_per_s;           /* dense, of the model's dtype */
  double flops_efficiency;      /* (0, 1]: of matrix products with many rows */
  double attention_efficiency;  /* (0, 1]: of the peak, in attention over prompts */
  double step_overhead_s;       /* of each step: launch, and what does not scale with anything */
  double layer_overhead_s;      /* of each step and layer: between dependent kernels */
  double link_bytes_per_s;      /* device <-> host memory, each direction alone */
  double link_both_bytes_per_s; /* both directions together, at one time */
  uint32_t link_duplex;         /* 0: up waits while anything goes down */
  uint32_t _pad0;
} sac_sim_hardware;

/* What one step of a model reads and computes. */
typedef struct sac_sim_model {
  double dense_weight_bytes;   /* read by every step: all but experts, embedding and head */
  double expert_weight_bytes;  /* of all experts of all layers */
  double head_weight_bytes;    /* output projection; read when a row is sampled */
  double row_flops;            /* per row, attention over the context and head left out */
  double head_flops;           /* per sampled row */
  double attention_pair_flops; /* per row and position that it looks at */
  double kv_token_bytes;       /* of all layers */
  uint32_t num_layers;
  uint32_t num_experts;       /* of a layer; 0: dense */
  uint32_t experts_per_token; /* 1 .. num_experts, if there are any */
  uint32_t _pad0;
} sac_sim_model;

/* A host that drives the device: time on the path of each step. All zero: the scheduler lives on
 * the device. In real time stalls are whatever happens, and stall_odds and stall_s are not used. */
typedef struct sac_sim_host {
  double step_s;     /* per step: scheduling, inputs, launches, results */
  double seq_s;      /* per sequence of the step */
  double stall_odds; /* [0, 1]: share of the steps for which the host's thread loses its core */
  double stall_s;    /* mean of the time that it is gone, exponentially distributed */
  uint32_t drives;   /* 1: the tick runs on a host */
  uint32_t _pad0;
} sac_sim_host;

typedef struct sac_sim_config {
  sac_sim_hardware hardware;
  sac_sim_model model;
  sac_sim_host host;
  uint64_t seed; /* of the host's stalls */
} sac_sim_config;

#define SAC_SIM_QUEUE 0u  /* a request that finds every slot taken waits in front of the ring */
#define SAC_SIM_REFUSE 1u /* a request that finds every slot taken is refused, as with a 429 */

/* The ring of a run in virtual time, and what its frontend does when it is full. */
typedef struct sac_sim_ring {
  uint32_t num_slots; /* SAC_SLOT_GRANULE .. SAC_MAX_SLOTS, a multiple of SAC_SLOT_GRANULE */
  uint32_t when_full; /* SAC_SIM_QUEUE or SAC_SIM_REFUSE */
} sac_sim_ring;

/* One request of a workload. */
typedef struct sac_sim_request {
  uint64_t arrival_ns;
  uint32_t prompt_len;
  uint32_t output_len; /* tokens that it yields: it ends there */
  float slo_ttft_s;    /* as in the descriptor; 0 = the device's default */
  float slo_tbt_s;
  int32_t priority;
  uint32_t num_block_ids;  /* one for each block_tokens of its prompt and for the rest; 0: none */
  uint64_t first_block_id; /* where they begin in the load's block_ids */
} sac_sim_request;

#define SAC_SIM_BLOCK_IDS (1u << 30) /* ids of a prompt's blocks are below this */

/* A workload. Prompts share what their ids say: blocks of one id have the same tokens, blocks of
 * different ids have no token in common. Prompts without ids and all answers consist of tokens that
 * no other request has. */
typedef struct sac_sim_load {
  const sac_sim_request* requests; /* in order of arrival */
  uint64_t num_requests;
  const uint32_t* block_ids;
  uint64_t num_block_ids;
  uint32_t block_tokens; /* of each id; the last one of a prompt may have fewer */
  uint32_t _pad0;
} sac_sim_load;

/* The state at one moment of a run. */
typedef struct sac_sim_sample {
  uint64_t at_ns;
  uint32_t num_running; /* seated */
  uint32_t num_waiting; /* known to the device, or queued in front of it */
  uint32_t blocks_used;
  uint32_t host_blocks_used;
  uint32_t step_rows;
  uint32_t step_seqs;
} sac_sim_sample;

typedef struct sac_sim_result {
  uint64_t end_ns; /* virtual time at which the run ended */
  uint64_t ticks;
  uint64_t steps;
  uint64_t busy_ns; /* steps, summed */
  uint64_t host_ns; /* host time on the path of steps, summed */
  uint64_t num_samples;
  uint64_t num_unfinished; /* requests that had not ended at the limit of time */
  uint64_t num_refused;    /* requests that found no free slot */
  uint64_t preemptions;    /* blocks taken, KV computed again later */
  uint64_t recomputed_tokens;
  uint64_t prefill_tokens;
  uint64_t decode_tokens;
  uint64_t rotations; /* requests sent down to host memory */
  uint64_t blocks_down;
  uint64_t blocks_up;
  uint64_t prefix_query_tokens; /* of prompts, looked up when their requests were admitted */
  uint64_t prefix_hit_tokens;   /* of those: not computed, their KV was there */
  uint32_t blocks_used_max;
  uint32_t host_blocks_used_max;
} sac_sim_result;

#define SAC_SIM_NEVER UINT64_MAX

/* Lets another language check its mirror of the structs above: their sizes, mixed. */
uint64_t sac_sim_abi(void);

/* Runs `load` over `ring` through the scheduler of `device` (kind is ignored) in virtual time,
 * until all have ended or limit_ns has passed. token_ns[] gets the time of each token: request i's
 * tokens follow those of requests 0 .. i-1, output_len each; SAC_SIM_NEVER where none came.
 * samples gets one entry per sample_ns of virtual time, at most sample_capacity; 0: none. */
int sac_sim_run(const sac_device_config* device, const sac_sim_config* config,
                const sac_sim_ring* ring, const sac_sim_load* load, uint64_t limit_ns,
                uint64_t* token_ns, sac_sim_sample* samples, uint64_t sample_capacity,
                uint64_t sample_ns, sac_sim_result* result);

/* Seconds that a step takes: rows of all sequences, sampled rows, positions that each sequence
 * reads (summed), and pairs of row and position (summed). NaN, with a sentence in sac_last_error,
 * if config is null or out of bounds. */
double sac_sim_step_s(const sac_sim_config* config, double rows, double samples,
                      double context_tokens, double pairs);

#ifdef __cplusplus
}
#endif
#endif
