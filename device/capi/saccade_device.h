/* Control boundary of the device plane: create, load, attach, run, stop. Plain C; nothing here is
 * on the path of a token. Every function returns 0 or a negative SAC_ERR_* and then leaves a
 * sentence in sac_last_error(), which belongs to the calling thread. No exception crosses.
 */
#ifndef SACCADE_DEVICE_H
#define SACCADE_DEVICE_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define SAC_ERR_ARGUMENT (-1) /* a field is out of bounds; the sentence names field and bound */
#define SAC_ERR_MEMORY (-2)   /* an allocation at start failed; the sentence says its size */
#define SAC_ERR_REGION (-3)   /* the ring region does not fit this build */
#define SAC_ERR_STATE (-4)    /* called out of order */

#define SAC_DTYPE_F32 0u
#define SAC_DTYPE_BF16 1u
#define SAC_DTYPE_F16 2u
#define SAC_DTYPE_INT8 3u /* weights in memory only */
#define SAC_DTYPE_FP8 4u  /* e4m3, without infinities; weights, with scales, and KV in memory */

#define SAC_MAX_HEAD_DIM 1024u
#define SAC_SCALE_GROUP 128u /* inputs of a matrix that share an output's scale */

#define SAC_QUANTIZATION_NONE 0u /* weights in memory have the model's dtype */
#define SAC_QUANTIZATION_INT8 1u /* matrices in 8 bits, a scale per output and 128 inputs */
#define SAC_QUANTIZATION_FP8 2u  /* matrices of the layers in e4m3, scales as above */

#define SAC_KV_DTYPE_AUTO 0u /* KV has the model's dtype */
#define SAC_KV_DTYPE_FP8 1u  /* KV is SAC_DTYPE_FP8 */

#define SAC_DEVICE_CPU 0u  /* real inference on CPU threads */
#define SAC_DEVICE_NULL 1u /* steps only write tokens: for benchmarks and tests */
#define SAC_DEVICE_SIM 2u  /* as null, but each step takes the time that a cost model says */
#define SAC_DEVICE_CUDA 3u /* inference on a GPU, by the library that cuda/saccade_cuda.h names */

#define SAC_CUDA_LAUNCH_WINDOW 0u /* device graphs, launched by the scheduler on the GPU */
#define SAC_CUDA_LAUNCH_LOOP 1u   /* one graph of WHILE and SWITCH nodes, no host either */
#define SAC_CUDA_LAUNCH_HOST 2u   /* the scheduler on a host thread: one copy, one launch a step */

#define SAC_CUDA_ROTATION_VECTOR 0u /* KV copies between the tiers by vector loads and stores */
#define SAC_CUDA_ROTATION_BULK 1u   /* by bulk copies; needs compute capability 9.0 */

#define SAC_CUDA_PRODUCTS_MMA 0u   /* products with weights by mma.sync */
#define SAC_CUDA_PRODUCTS_WGMMA 1u /* by wgmma; needs compute capability 9.0 */

#define SAC_PREFILL_CHUNKED 0u /* chunks mixed with decodes under max_num_batched_tokens */
#define SAC_PREFILL_INLINE 1u  /* decodes pause while a newly admitted prompt is computed */
#define SAC_PREFILL_PACED 2u   /* chunks that end before the next tokens of streams are due */

#define SAC_MODE_OVERLAPPED 0u /* slots are scanned while the step runs */
#define SAC_MODE_SERIAL 1u     /* the readable specification: nothing overlaps */

/* A decoder of the Llama family, dense or with experts. */
typedef struct sac_model_config {
  uint32_t num_layers;
  uint32_t hidden_size;
  uint32_t intermediate_size;
  uint32_t num_heads;
  uint32_t num_kv_heads; /* divides num_heads */
  uint32_t head_dim;     /* even */
  uint32_t vocab_size;
  uint32_t rotary_dim; /* even, <= head_dim */
  uint32_t dtype;      /* SAC_DTYPE_*: of weights in memory, and of KV unless kv_dtype says else */
  uint32_t qk_norm;    /* 1: RMS norm per head on q and k before rope (Qwen3) */
  uint32_t tied_embeddings; /* 1: no SAC_TENSOR_LM_HEAD is given */
  float rms_norm_eps;
  uint32_t quantization;          /* SAC_QUANTIZATION_* */
  const uint32_t* sliding_window; /* [num_layers]: positions a row may look back, itself included; 0
                                     = all. NULL = all layers full */
  uint32_t num_experts;           /* 0: no layer has experts */
  uint32_t experts_per_token;     /* 1 .. num_experts; this and the next three only with experts */
  uint32_t moe_intermediate_size; /* width of one expert */
  uint32_t norm_topk_prob;  /* 1: the picked experts' probabilities are divided by their sum */
  uint32_t rope_switch_len; /* longrope: positions below it have a second set of angles, for longer
                               prompts; < max_model_len; 0 = none */
  const uint32_t* sparse_layers; /* [num_layers]: 1 = experts, 0 = one MLP. NULL = experts in all */
  const uint32_t* fp8_roles; /* [num_layers], with SAC_QUANTIZATION_FP8: bit r set = the matrices of
                                role r are in e4m3. Gate and up are only if both are; a router never
                                is. The output projection's bit, if it is not tied, is in layer 0.
                                NULL = all of the layers */
  const float* kv_scales; /* [num_layers][2], of K and of V, finite and > 0: what is stored is the
                             value / scale, rounded to nearest even, +-448 at most. NULL = all 1.
                             Only with SAC_KV_DTYPE_FP8 */
  uint32_t kv_dtype;      /* SAC_KV_DTYPE_* */
} sac_model_config;

#define SAC_POLICY_FCFS 0u    /* first come, first served; the settings below are not used */
#define SAC_POLICY_WF 1u      /* waiting first */
#define SAC_POLICY_SF 2u      /* swapped (rotated out) first */
#define SAC_POLICY_LVF 3u     /* largest virtual lag time first */
#define SAC_POLICY_GOODPUT 4u /* requests that can still meet their targets first */
#define SAC_POLICY_CHURN 5u   /* for tests: rotates whatever can be rotated, at every tick */

/* Which requests come onto the device, and which leave it: see device/sched/policy/policy.hpp.
 * Bounds hold for every policy but SAC_POLICY_FCFS, whose settings may be all zero. */
typedef struct sac_policy_config {
  uint32_t policy;        /* SAC_POLICY_* */
  uint32_t b_xfer_blocks; /* blocks that may change hands per tick */
  float alpha;            /* 0 .. 100 */
  float beta_f;           /* -100 .. 100 */
  float beta_b;           /* -100 .. 100 */
  uint32_t late_share;    /* >= 2 */
  float min_run_s;        /* 0 .. 3600 */
  float max_wait_s;       /* (0, 86400] */
  float slo_ttft_s;       /* (0, 86400]: for requests that name no target */
  float slo_tbt_s;        /* (0, 86400] */
} sac_policy_config;

#define SAC_FETCH_FIRST_COME 1u  /* loads in order of arrival, not the shortest first */
#define SAC_FETCH_SYNCHRONOUS 2u /* no step runs beside a load */
#define SAC_FETCH_ALWAYS 4u      /* what a store has is loaded, whatever is expected to be faster */

/* Traffic with a fetch plane (abi/fetch.h). All zero: there is none. */
typedef struct sac_fetch_config {
  uint32_t num_frames; /* chunks on their way: 0 .. SAC_MAX_FETCH_FRAMES */
  uint32_t
      num_events; /* of the ring that routers are told by; a power of two, or 0: none is told */
  uint32_t num_entries; /* this and the rest with frames: prompts and chunks that the plane knows */
  uint32_t queue_len;   /* a power of two, at most SAC_MAX_FETCH_QUEUE */
  uint32_t flags;       /* SAC_FETCH_FIRST_COME ... */
  float late_s;         /* what a request may lose to a store, against computing: (0, 3600] */
} sac_fetch_config;

struct sac_sim_config; /* sim/saccade_sim.h */

typedef struct sac_device_config {
  uint32_t kind;                   /* SAC_DEVICE_* */
  uint32_t mode;                   /* SAC_MODE_* */
  uint32_t prefill_policy;         /* SAC_PREFILL_* */
  uint32_t max_num_seqs;           /* 1 .. 4096 */
  uint32_t max_num_batched_tokens; /* >= max_num_seqs */
  uint32_t max_model_len;          /* tokens */
  uint32_t block_size;             /* tokens; 8, 16, 32, 64 or 128 */
  uint32_t num_blocks;             /* >= ceil(max_model_len / block_size) */
  uint32_t num_host_blocks;        /* KV blocks of host memory, the second tier; 0 = none */
  uint32_t eager_window;           /* blocks on their way to host memory ahead of need; 0 = none */
  uint32_t num_threads;            /* compute threads of the cpu device, >= 1 */
  uint32_t num_eos_ids;            /* <= 16 */
  const uint32_t* eos_ids;
  uint32_t log_decisions; /* 1: keep a log of decisions in memory for sac_device_decisions */
  uint32_t null_step_us;  /* SAC_DEVICE_NULL: time that a step takes */
  const struct sac_sim_config* sim; /* SAC_DEVICE_SIM: what it emulates; copied */
  sac_policy_config policy;
  uint64_t prefix_seed;    /* of the keys by which prefixes are found: drawn at each start */
  sac_fetch_config fetch;  /* needs prefix_caching; not on SAC_DEVICE_NULL */
  uint32_t prefix_caching; /* 1: requests with the same prefix and cache_salt share its KV blocks */
  uint32_t grammar_words;  /* of a request's grammar, at most SAC_MAX_GRAMMAR_WORDS; 0: refused.
                              Needs sac_device_set_vocab */
  uint32_t embedding_size; /* values of an embedding; 0: refused. With a model its hidden_size or
                              0; SAC_DEVICE_NULL: any; SAC_DEVICE_SIM: 0. Refused too where one
                              does not fit a slot's output ring */
  uint32_t num_adapters;   /* LoRA adapters, 0 .. SAC_MAX_ADAPTERS; SAC_DEVICE_CUDA lays out
                              memory for as many, each of max_adapter_rank on all matrices */
  uint32_t max_adapter_rank;     /* 1 .. SAC_MAX_ADAPTER_RANK; 0 without adapters */
  uint32_t cuda_launch;          /* SAC_CUDA_LAUNCH_*; this and the rest: SAC_DEVICE_CUDA only */
  uint32_t cuda_rotation;        /* SAC_CUDA_ROTATION_* */
  uint32_t cuda_rotation_blocks; /* thread blocks that bring KV up: 1 .. 16; a quarter as many, at
                                    least one, take it down */
  uint32_t cuda_products;        /* SAC_CUDA_PRODUCTS_* */
} sac_device_config;

/* Tensors by role. Weights are row-major [out_features][in_features], as in safetensors. */
#define SAC_TENSOR_EMBED 0u      /* [vocab][hidden] */
#define SAC_TENSOR_FINAL_NORM 1u /* [hidden] */
#define SAC_TENSOR_LM_HEAD 2u    /* [vocab][hidden] */
#define SAC_TENSOR_INPUT_NORM 3u /* per layer from here on */
#define SAC_TENSOR_POST_NORM 4u  /* [hidden], before the MLP */
#define SAC_TENSOR_Q 5u          /* [heads * head_dim][hidden] */
#define SAC_TENSOR_K 6u          /* [kv_heads * head_dim][hidden] */
#define SAC_TENSOR_V 7u
#define SAC_TENSOR_O 8u    /* [hidden][heads * head_dim] */
#define SAC_TENSOR_GATE 9u /* [intermediate][hidden] */
#define SAC_TENSOR_UP 10u
#define SAC_TENSOR_DOWN 11u   /* [hidden][intermediate] */
#define SAC_TENSOR_Q_BIAS 12u /* optional biases: absent means zero */
#define SAC_TENSOR_K_BIAS 13u
#define SAC_TENSOR_V_BIAS 14u
#define SAC_TENSOR_O_BIAS 15u
#define SAC_TENSOR_GATE_BIAS 16u
#define SAC_TENSOR_UP_BIAS 17u
#define SAC_TENSOR_DOWN_BIAS 18u
#define SAC_TENSOR_Q_NORM 19u /* [head_dim] */
#define SAC_TENSOR_K_NORM 20u
#define SAC_TENSOR_ROUTER 21u      /* [experts][hidden], of layers with experts */
#define SAC_TENSOR_EXPERT_GATE 22u /* [moe_intermediate][hidden], per expert from here on */
#define SAC_TENSOR_EXPERT_UP 23u
#define SAC_TENSOR_EXPERT_DOWN 24u /* [hidden][moe_intermediate] */
#define SAC_NUM_TENSOR_ROLES 25u

typedef struct sac_device sac_device;

const char* sac_last_error(void);

/* sizeof(sac_device_config) << 32 | sizeof(sac_model_config): lets another language check its
 * mirror. */
uint64_t sac_control_abi(void);

/* Checks both configurations and allocates everything the plane will ever use. model may be NULL
 * for SAC_DEVICE_NULL; vocab_size then bounds its tokens. */
int sac_device_create(const sac_device_config* config, const sac_model_config* model,
                      uint32_t vocab_size, sac_device** out);
void sac_device_destroy(sac_device* device);

/* Copies (converts, packs) one tensor. data: rows * cols elements of dtype, any alignment; 1-D
 * tensors have rows = 1. layer is 0 for the first three roles, expert is 0 for all but experts'.
 * scales: of matrices of SAC_DTYPE_FP8, [rows][ceil(cols / SAC_SCALE_GROUP)], a weight is its
 * element * scale; NULL for the other types. A matrix that is not kept in e4m3 is converted,
 * whatever its source. */
int sac_device_set_tensor(sac_device* device, uint32_t role, uint32_t layer, uint32_t expert,
                          uint32_t dtype, uint64_t rows, uint64_t cols, const void* data,
                          const float* scales);
/* All tensors as the CPU device keeps them, in one span: what set_tensor packed, once each was set.
 * The same bytes serve any device with the same layout and the same source. */
typedef struct sac_packed_weights {
  const void* data; /* owned by the device */
  uint64_t bytes;   /* whole pages of 4096 */
  uint64_t layout;  /* hash of shapes, element types, places and the packing itself */
} sac_packed_weights;
/* SAC_DEVICE_CPU only. */
int sac_device_packed_weights(const sac_device* device, sac_packed_weights* out);
/* From now on weights are read from data, which must be aligned to a page and must not change until
 * the device is destroyed. sac_device_set_tensor then checks its arguments, marks the tensor as
 * given, and copies nothing. */
int sac_device_adopt_packed(sac_device* device, const void* data, uint64_t bytes);
/* Random weights from a seed (--load-format dummy), the same for any number of threads. */
int sac_device_fill_dummy(sac_device* device, uint64_t seed);
/* Rotary tables, [max_model_len + rope_switch_len][rotary_dim / 2] each, attention scaling already
 * multiplied in. The last rope_switch_len rows are for prompts longer than that. */
int sac_device_set_rope(sac_device* device, const float* cos, const float* sin, uint64_t count);
/* The bytes of every token, for grammars: token i is bytes[offsets[i] .. offsets[i + 1]), none if
 * it is not part of a text. num_tokens is the vocabulary's size. Copied; before the device is
 * attached. Without it grammars are refused. */
int sac_device_set_vocab(sac_device* device, const uint32_t* offsets, const uint8_t* bytes,
                         uint32_t num_tokens);
#define SAC_MAX_ADAPTER_RANK 512u

/* What an adapter adds to one matrix: y += scaling * B (A x). Elements are row-major. */
typedef struct sac_adapter_pair {
  uint32_t role; /* SAC_TENSOR_Q .. SAC_TENSOR_DOWN, of layers without experts the last three */
  uint32_t layer;
  uint32_t rank;    /* 1 .. max_adapter_rank, of each pair its own */
  uint32_t a_dtype; /* SAC_DTYPE_F32, _BF16 or _F16 */
  uint32_t b_dtype;
  float scaling; /* finite; of each pair its own */
  uint64_t in;   /* inputs and outputs of the matrix */
  uint64_t out;
  const void* a; /* [rank][in], any alignment */
  const void* b; /* [out][rank] */
} sac_adapter_pair;

/* Every adapter 1 .. num_adapters must have a key: not 0, a hash of what it holds. It separates the
 * KV of adapters in the prefix cache and in stores, so equal adapters have equal keys on all hosts.
 * `name`: not 0, a hash of its name. Events say whose a block is by it; adapters with equal keys
 * share blocks, and these are told as the first one's. All kinds that take adapters; before the
 * device is ready. */
int sac_device_set_adapter(sac_device* device, uint32_t adapter, uint64_t key, uint64_t name);
/* Copies (converts, packs) one pair; a matrix without one is as in the model. SAC_DEVICE_CPU and
 * SAC_DEVICE_CUDA, before sac_device_finish_load. */
int sac_device_set_adapter_pair(sac_device* device, uint32_t adapter, const sac_adapter_pair* pair);
/* Fails with the name of the first tensor that is missing. */
int sac_device_finish_load(sac_device* device);

/* Joins a ring region (checks magic, version, layout hash and every offset), raises the device
 * epoch and phase LOADING; progress may be reported meanwhile. */
int sac_device_attach(sac_device* device, void* region, uint64_t region_bytes);
/* Before there is a device: announces in a region that one is loading, and its progress. */
int sac_region_load_progress(void* region, uint64_t region_bytes, uint32_t phase,
                             uint64_t done_bytes, uint64_t total_bytes);
/* Bytes of the region that this device shares with a fetch plane; 0: it has none. */
uint64_t sac_device_fetch_bytes(const sac_device* device);
/* Lays out that region in zeroed memory of region_bytes, on a page boundary, and uses it from the
 * first tick on. model_id tells KV of this model, run in this way, from all other. Before run. */
int sac_device_open_fetch(sac_device* device, void* region, uint64_t region_bytes,
                          const uint8_t model_id[32], uint64_t instance_id);
/* How the CPU device computes: the name of its kernel set. "" for the others. */
const char* sac_device_kernels(const sac_device* device);
/* Measures what memory and arithmetic allow the device's steps (cpu/roof.hpp), after finish_load;
 * frontends read it once the device is attached, and may have it measured again. SAC_ERR_STATE for
 * other devices than SAC_DEVICE_CPU. */
int sac_device_measure_roof(sac_device* device);
/* Starts serving: phase READY, then ticks until sac_device_stop. Blocks the calling thread. */
int sac_device_run(sac_device* device);
/* Async-signal-safe; run returns after the current tick. */
void sac_device_stop(sac_device* device);

/* For tests and simulators: READY without a loop, then single ticks from the caller's thread.
 * Returns the number of sequences in the step, or a negative error. */
int sac_device_ready(sac_device* device);
int sac_device_tick(sac_device* device);
/* The log of decisions so far (u64 words, format in device/sched/decision_log.hpp); returns the
 * count of words available and copies at most capacity of them. */
uint64_t sac_device_decisions(const sac_device* device, uint64_t* words, uint64_t capacity);
/* Checks every invariant of the scheduler's state (one owner per block, no leak, lists consistent).
 * 0, or SAC_ERR_STATE with the first violation. */
int sac_device_check(const sac_device* device);

#ifdef __cplusplus
}
#endif
#endif
