// Shared by the benchmarks of the CPU step: model shapes, and what a step must move and compute.
#pragma once
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/step_harness.hpp"

namespace saccade::test {

inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// bench/models/qwen3-0.6b-shape
inline sac_model_config qwen3_06b() {
  sac_model_config c = {};
  c.num_layers = 28;
  c.hidden_size = 1024;
  c.intermediate_size = 3072;
  c.num_heads = 16;
  c.num_kv_heads = 8;
  c.head_dim = c.rotary_dim = 128;
  c.vocab_size = 151936;
  c.dtype = SAC_DTYPE_BF16;
  c.qk_norm = 1;
  c.tied_embeddings = 1;
  c.rms_norm_eps = 1e-6f;
  return c;
}

/// bench/models/llama-125m-shape
inline sac_model_config llama_125m() {
  sac_model_config c = {};
  c.num_layers = 12;
  c.hidden_size = 768;
  c.intermediate_size = 2048;
  c.num_heads = c.num_kv_heads = 12;
  c.head_dim = c.rotary_dim = 64;
  c.vocab_size = 50304;
  c.dtype = SAC_DTYPE_BF16;
  c.tied_embeddings = 1;
  c.rms_norm_eps = 1e-5f;
  return c;
}

/// Weights of all matrices: each is read once and multiplied once per row in a decode step.
inline double num_weights(const sac_model_config& c) {
  double elements = 0;
  for (uint32_t role = 0; role < SAC_NUM_TENSOR_ROLES; ++role) {
    const TensorRole& r = tensor_role(role);
    if (r.kind != TensorKind::kMatrix) continue;
    const TensorShape s = tensor_shape(c, role);
    for (uint32_t layer = 0; layer < (r.per_layer ? c.num_layers : 1); ++layer) {
      if (tensor_used(c, role, layer)) elements += static_cast<double>(s.rows * s.cols);
    }
  }
  return elements;
}

/// Bytes of all matrices: what a decode step must read.
inline double weight_bytes(const sac_model_config& c) {
  constexpr double kEightBits = 1 + 4.0 / kQuantGroup;
  if (c.quantization == SAC_QUANTIZATION_INT8) return num_weights(c) * kEightBits;
  if (c.quantization == SAC_QUANTIZATION_NONE) return num_weights(c) * 2;
  const double head = double(c.vocab_size) * c.hidden_size;  // stays in bf16
  return (num_weights(c) - head) * kEightBits + head * 2;
}

/// The named kernel set, "best" for the widest. Ends the program if the set does not run here.
inline const Kernels* kernels_named(const char* name) {
  if (std::strcmp(name, "best") == 0) return &best_kernels();
  for (const Kernels* k : available_kernels()) {
    if (std::strcmp(k->name, name) == 0) return k;
  }
  std::fprintf(stderr, "kernels %s: not one of best", name);
  for (const Kernels* k : available_kernels()) std::fprintf(stderr, ", %s", k->name);
  std::fputs(" (those that run here)\n", stderr);
  std::exit(2);
}

}  // namespace saccade::test
