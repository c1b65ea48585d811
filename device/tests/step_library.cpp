// The CPU step of one commit as a shared library, for step_turns. Compiled by bench/turns.sh
// against the device plane of either commit, so it uses only what both have.
#include "tests/bench_model.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

constexpr uint32_t kMaxLen = 2304, kMaxSeqs = 18;

/// Two of the 32 layers of Llama-3.1-8B, and a small vocabulary.
sac_model_config llama_8b_layers() {
  sac_model_config c = {};
  c.num_layers = 2;
  c.hidden_size = 4096;
  c.intermediate_size = 14336;
  c.num_heads = 32;
  c.num_kv_heads = 8;
  c.head_dim = c.rotary_dim = 128;
  c.vocab_size = 4096;
  c.dtype = SAC_DTYPE_BF16;
  c.rms_norm_eps = 1e-5f;
  return c;
}

}  // namespace

/// A step with random bf16 weights; null if it cannot be made.
extern "C" void* turns_open(bool is_large, uint32_t threads) {
  HarnessOptions o;
  o.num_seats = kMaxSeqs;
  o.max_len = o.max_rows = kMaxLen;
  o.num_threads = threads;
  const sac_model_config config = is_large ? llama_8b_layers() : qwen3_06b();
  auto* const h = new StepHarness(config, o);
  h->step->fill_dummy(1);
  TestModel model;
  model.config = config;
  fill_rope(model, kMaxLen, 1e6);
  if (!h->step->set_rope(model.cos.data(), model.sin.data(), model.cos.size()).empty())
    return nullptr;
  for (uint32_t s = 0; s < kMaxSeqs; ++s) {
    for (uint32_t i = 0; i < kMaxLen; ++i) h->tokens(s)[i] = (s * 977 + i * 31) % config.vocab_size;
    h->params[s] = greedy(128);
  }
  return h;
}

/// Seconds of a step that decodes `streams` sequences at `context` tokens, beside a prompt of
/// `prompt_rows`.
extern "C" double turns_step(void* opened, uint32_t streams, uint32_t context,
                             uint32_t prompt_rows) {
  StepHarness& h = *static_cast<StepHarness*>(opened);
  for (uint32_t s = 0; s < streams; ++s) h.add(s + 1, context - 1, 1, true);
  if (prompt_rows != 0) h.add(0, 0, prompt_rows, true);
  const double start_s = now_s();
  h.run();
  return now_s() - start_s;
}
