// Every bound of a running device plane: set before the memory is laid out, constant afterwards.
#pragma once
#include "platform/hd.hpp"
#include "sched/policy/policy.hpp"

namespace saccade {

inline constexpr uint32_t kNone = UINT32_MAX;
inline constexpr uint32_t kMaxEosIds = 16;

enum class PrefillPolicy : uint32_t {
  kChunked = 0,  // chunks of prompts ride with the decodes under the token budget
  kInline = 1,   // decodes pause while admitted prompts are computed (Blink §4.2)
  kPaced = 2,    // as kChunked, in chunks that end before the running streams' next tokens are due
};

/// Of the traffic with the fetch plane. All zero: there is none.
struct FetchLimits {
  uint32_t queue_len;     // commands, and completions; a power of two
  uint32_t num_entries;   // prompts and chunks whose tokens the fetch plane has at one time
  uint32_t num_frames;    // chunks on their way
  uint32_t chunk_tokens;  // a multiple of block_size
  uint32_t first_come;    // 1: loads in order of arrival, not the shortest first
  uint32_t always;        // 1: what a store has is loaded, whatever is expected to be faster
  uint32_t synchronous;   // 1: no step runs beside a load (ShadowServe's ablation)
  uint64_t late_ns;       // a request may lose this much to a store, against computing

  SAC_HD bool enabled() const { return num_frames != 0; }
};

struct Limits {
  uint32_t num_slots;
  uint32_t num_frontends;
  uint32_t num_seats;               // = max_num_seqs: requests that hold a seat at one time
  uint32_t max_num_batched_tokens;  // rows of a step, >= num_seats
  uint32_t max_model_len;           // tokens of a sequence, prompt and output
  uint32_t block_size;              // tokens
  uint32_t num_blocks;              // >= ceil(max_model_len / block_size): one request always fits
  uint32_t num_host_blocks;  // of the second tier; 0 = none: preempted requests are recomputed
  uint32_t eager_window;     // background copies down in flight; 0 = none is made
  uint32_t prefix_caching;   // 1: requests with the same prefix share its blocks
  uint64_t prefix_seed;      // of the keys by which prefixes are found; a secret of this start
  uint32_t rope_switch_len;  // prompts longer than this have other KV than shorter ones; 0 = none
  uint32_t vocab_size;
  uint32_t num_eos_ids;
  uint32_t log_words;       // of the decision log; 0 = none
  uint32_t grammar_words;   // that a request may bring; 0 = grammars are refused
  uint32_t embedding_size;  // values of an embedding; 0 = they are refused
  uint32_t num_adapters;    // that a request may name
  PrefillPolicy prefill_policy;
  FetchLimits fetch;
  Policy policy;
  PolicySettings policy_settings;
  uint64_t slo_ttft_ns;  // of requests that name no target of their own
  uint64_t slo_tbt_ns;

  SAC_HD uint32_t max_blocks_per_seq() const { return ceil_div(max_model_len, block_size); }
  SAC_HD uint32_t blocks_per_chunk() const {
    return fetch.enabled() ? fetch.chunk_tokens / block_size : 0;
  }
  /// Places for blocks in frames. In copies they come behind those of host memory.
  SAC_HD uint32_t num_frame_blocks() const { return fetch.num_frames * blocks_per_chunk(); }
};

}  // namespace saccade
