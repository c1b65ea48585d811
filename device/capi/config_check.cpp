#include "capi/config_check.hpp"

#include <cmath>

#include "abi/fetch.h"

namespace saccade {
namespace {

constexpr uint32_t kMaxSeqs = SAC_MAX_SLOTS;
constexpr uint32_t kMaxBatchedTokens = 1u << 20;
constexpr uint32_t kMaxModelLen = 1u << 24;
constexpr uint32_t kMaxBlocks = 1u << 28;
constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kMaxVocab = 1u << 24;
constexpr uint32_t kMaxLayers = 1024;
constexpr uint32_t kMaxWidth = 1u << 20;
constexpr uint32_t kMaxExperts = 1024;
constexpr uint32_t kMaxRotationBlocks = 16;
constexpr uint64_t kDecisionLogWords = 1u << 20;

/// Collects the first violation.
class Bounds {
 public:
  void in(const char* field, uint64_t value, uint64_t low, uint64_t high) {
    if (!wrong_.empty() || (value >= low && value <= high)) return;
    wrong_ = std::string(field) + " is " + std::to_string(value) + ", outside " +
             std::to_string(low) + " .. " + std::to_string(high);
  }
  void require(bool ok, const std::string& sentence) {
    if (wrong_.empty() && !ok) wrong_ = sentence;
  }
  std::string first() const { return wrong_; }

 private:
  std::string wrong_;
};

void check_number(Bounds& b, const char* field, float value, float low, float high) {
  b.require(value >= low && value <= high, std::string(field) + " is " + std::to_string(value) +
                                               ", outside " + std::to_string(low) + " .. " +
                                               std::to_string(high));
}

void check_policy(Bounds& b, const sac_policy_config& p) {
  constexpr float kLeastS = 1e-6f;
  constexpr float kDayS = 86400;
  b.in("policy", p.policy, 0, SAC_POLICY_CHURN);
  if (p.policy == SAC_POLICY_FCFS) return;
  b.in("late_share", p.late_share, 2, UINT32_MAX);
  check_number(b, "alpha", p.alpha, 0, 100);
  check_number(b, "beta_f", p.beta_f, -100, 100);
  check_number(b, "beta_b", p.beta_b, -100, 100);
  check_number(b, "min_run_s", p.min_run_s, 0, 3600);
  check_number(b, "max_wait_s", p.max_wait_s, kLeastS, kDayS);
  check_number(b, "slo_ttft_s", p.slo_ttft_s, kLeastS, kDayS);
  check_number(b, "slo_tbt_s", p.slo_tbt_s, kLeastS, kDayS);
}

void check_kv_scales(Bounds& b, const sac_model_config& m) {
  if (m.kv_scales == nullptr || !b.first().empty()) return;
  b.require(m.kv_dtype == SAC_KV_DTYPE_FP8, "kv_scales are given, but kv_dtype is not fp8 (1)");
  for (uint32_t i = 0; b.first().empty() && i < 2 * m.num_layers; ++i) {
    b.require(std::isfinite(m.kv_scales[i]) && m.kv_scales[i] > 0,
              "kv_scales: the scale of " + std::string(i % 2 == 0 ? "K" : "V") + " of layer " +
                  std::to_string(i / 2) + " is not a finite number above 0");
  }
}

void check_cuda(Bounds& b, const sac_device_config& c) {
  b.in("cuda_launch", c.cuda_launch, 0, SAC_CUDA_LAUNCH_HOST);
  b.in("cuda_rotation", c.cuda_rotation, 0, SAC_CUDA_ROTATION_BULK);
  b.in("cuda_rotation_blocks", c.cuda_rotation_blocks, 1, kMaxRotationBlocks);
  b.in("cuda_products", c.cuda_products, 0, SAC_CUDA_PRODUCTS_WGMMA);
}

void check_fetch(Bounds& b, const sac_device_config& c) {
  const sac_fetch_config& f = c.fetch;
  b.in("fetch.num_frames", f.num_frames, 0, SAC_MAX_FETCH_FRAMES);
  b.in("fetch.num_events", f.num_events, 0, SAC_MAX_KV_EVENTS);
  b.require((f.num_events & (f.num_events - 1)) == 0, "fetch.num_events is not a power of two");
  b.require(f.num_events == 0 || c.prefix_caching == 1, "fetch needs prefix_caching");
  if (f.num_frames == 0) return;
  b.in("fetch.num_entries", f.num_entries, 1, SAC_MAX_FETCH_ENTRIES);
  b.in("fetch.queue_len", f.queue_len, 1, SAC_MAX_FETCH_QUEUE);
  b.require((f.queue_len & (f.queue_len - 1)) == 0, "fetch.queue_len is not a power of two");
  b.in("fetch.flags", f.flags, 0, SAC_FETCH_FIRST_COME | SAC_FETCH_SYNCHRONOUS | SAC_FETCH_ALWAYS);
  check_number(b, "fetch.late_s", f.late_s, 1e-6f, 3600);
  b.require(c.prefix_caching == 1, "fetch needs prefix_caching");
  b.require(c.kind != SAC_DEVICE_NULL, "fetch: blocks of SAC_DEVICE_NULL have no KV");
}

uint64_t ns_of(float seconds) { return static_cast<uint64_t>(static_cast<double>(seconds) * 1e9); }

FetchLimits fetch_limits_of(const sac_fetch_config& c) {
  FetchLimits f = {};
  if (c.num_frames == 0) return f;
  f.queue_len = c.queue_len;
  f.num_entries = c.num_entries;
  f.num_frames = c.num_frames;
  f.chunk_tokens = SAC_CHUNK_TOKENS;
  f.first_come = (c.flags & SAC_FETCH_FIRST_COME) != 0 ? 1 : 0;
  f.synchronous = (c.flags & SAC_FETCH_SYNCHRONOUS) != 0 ? 1 : 0;
  f.always = (c.flags & SAC_FETCH_ALWAYS) != 0 ? 1 : 0;
  f.late_ns = ns_of(c.late_s);
  return f;
}

PolicySettings settings_of(const sac_policy_config& p) {
  PolicySettings s;
  if (p.policy == SAC_POLICY_FCFS) return s;
  s.alpha = p.alpha;
  s.beta_f = p.beta_f;
  s.beta_b = p.beta_b;
  s.b_xfer_blocks = p.b_xfer_blocks;
  s.min_run_ns = ns_of(p.min_run_s);
  s.max_wait_ns = ns_of(p.max_wait_s);
  s.late_share = p.late_share;
  return s;
}

void check_adapters(Bounds& b, const sac_device_config& c) {
  b.in("num_adapters", c.num_adapters, 0, SAC_MAX_ADAPTERS);
  if (c.num_adapters != 0) b.in("max_adapter_rank", c.max_adapter_rank, 1, SAC_MAX_ADAPTER_RANK);
  b.require(
      c.num_adapters != 0 || c.max_adapter_rank == 0,
      "max_adapter_rank is " + std::to_string(c.max_adapter_rank) + ", but num_adapters is 0");
}

/// Devices that give embeddings.
bool embeds_on(uint32_t kind) { return kind != SAC_DEVICE_SIM; }

}  // namespace

std::string check_device_config(const sac_device_config& c, uint32_t vocab_size) {
  Bounds b;
  b.in("kind", c.kind, 0, SAC_DEVICE_CUDA);
  if (c.kind == SAC_DEVICE_CUDA) check_cuda(b, c);
  b.require(c.kind != SAC_DEVICE_SIM || c.sim != nullptr, "sim is null");
  b.in("mode", c.mode, 0, SAC_MODE_SERIAL);
  b.in("prefill_policy", c.prefill_policy, 0, SAC_PREFILL_PACED);
  b.in("max_num_seqs", c.max_num_seqs, 1, kMaxSeqs);
  b.in("max_num_batched_tokens", c.max_num_batched_tokens, c.max_num_seqs, kMaxBatchedTokens);
  b.in("max_model_len", c.max_model_len, 2, kMaxModelLen);
  b.require(c.block_size >= 8 && c.block_size <= 128 && (c.block_size & (c.block_size - 1)) == 0,
            "block_size is " + std::to_string(c.block_size) + ", not one of 8, 16, 32, 64, 128");
  if (b.first().empty())
    b.in("num_blocks", c.num_blocks, ceil_div(c.max_model_len, c.block_size), kMaxBlocks);
  b.in("num_host_blocks", c.num_host_blocks, 0, kMaxBlocks);
  b.in("eager_window", c.eager_window, 0, kMaxBlocks);
  b.in("prefix_caching", c.prefix_caching, 0, 1);
  b.in("num_threads", c.num_threads, 1, kMaxThreads);
  b.in("grammar_words", c.grammar_words, 0, SAC_MAX_GRAMMAR_WORDS);
  b.in("embedding_size", c.embedding_size, 0, embeds_on(c.kind) ? kMaxWidth : 0);
  b.in("num_eos_ids", c.num_eos_ids, 0, kMaxEosIds);
  b.in("vocab_size", vocab_size, 1, kMaxVocab);
  b.require(c.num_eos_ids == 0 || c.eos_ids != nullptr, "eos_ids is null");
  for (uint32_t i = 0; b.first().empty() && i < c.num_eos_ids; ++i)
    b.in("eos_ids[]", c.eos_ids[i], 0, vocab_size - 1);
  check_adapters(b, c);
  check_fetch(b, c);
  check_policy(b, c.policy);
  return b.first();
}

std::string check_model_config(const sac_model_config& m) {
  Bounds b;
  b.in("num_layers", m.num_layers, 1, kMaxLayers);
  b.in("hidden_size", m.hidden_size, 1, kMaxWidth);
  b.in("intermediate_size", m.intermediate_size, 1, kMaxWidth);
  b.in("num_heads", m.num_heads, 1, kMaxWidth);
  b.in("num_kv_heads", m.num_kv_heads, 1, m.num_heads);
  b.in("head_dim", m.head_dim, 2, SAC_MAX_HEAD_DIM);
  b.in("vocab_size", m.vocab_size, 1, kMaxVocab);
  b.in("rotary_dim", m.rotary_dim, 2, m.head_dim);
  b.in("dtype", m.dtype, 0, SAC_DTYPE_F16);
  b.in("quantization", m.quantization, 0, SAC_QUANTIZATION_FP8);
  b.require(m.fp8_roles == nullptr || m.quantization == SAC_QUANTIZATION_FP8,
            "fp8_roles are given, but quantization is not fp8 (2)");
  b.in("kv_dtype", m.kv_dtype, 0, SAC_KV_DTYPE_FP8);
  check_kv_scales(b, m);
  b.in("num_experts", m.num_experts, 0, kMaxExperts);
  if (m.num_experts > 0) {
    b.in("experts_per_token", m.experts_per_token, 1, m.num_experts);
    b.in("moe_intermediate_size", m.moe_intermediate_size, 1, kMaxWidth);
  }
  b.in("rope_switch_len", m.rope_switch_len, 0, kMaxModelLen);
  b.require(b.first().size() || m.num_heads % m.num_kv_heads == 0,
            "num_heads is not a multiple of num_kv_heads");
  b.require(m.head_dim % 2 == 0 && m.rotary_dim % 2 == 0, "head_dim and rotary_dim must be even");
  b.require(m.rms_norm_eps > 0 && m.rms_norm_eps < 1, "rms_norm_eps is outside (0, 1)");
  return b.first();
}

Limits limits_of(const sac_device_config& c, uint32_t vocab_size) {
  Limits l = {};
  l.num_slots = SAC_MAX_SLOTS;  // arrays by slot fit any region
  l.num_frontends = SAC_MAX_FRONTENDS;
  l.num_seats = c.max_num_seqs;
  l.max_num_batched_tokens = c.max_num_batched_tokens;
  l.max_model_len = c.max_model_len;
  l.block_size = c.block_size;
  l.num_blocks = c.num_blocks;
  l.num_host_blocks = c.num_host_blocks;
  l.eager_window = c.eager_window;
  l.prefix_caching = c.prefix_caching;
  l.prefix_seed = c.prefix_seed;
  l.fetch = fetch_limits_of(c.fetch);
  l.vocab_size = vocab_size;
  l.num_eos_ids = c.num_eos_ids;
  l.grammar_words = c.grammar_words;
  l.embedding_size = c.embedding_size;
  l.num_adapters = c.num_adapters;
  l.log_words = c.log_decisions != 0 ? static_cast<uint32_t>(kDecisionLogWords) : 0;
  l.prefill_policy = static_cast<PrefillPolicy>(c.prefill_policy);
  l.policy = static_cast<Policy>(c.policy.policy);
  l.policy_settings = settings_of(c.policy);
  l.slo_ttft_ns = ns_of(c.policy.slo_ttft_s);
  l.slo_tbt_ns = ns_of(c.policy.slo_tbt_s);
  return l;
}

}  // namespace saccade
