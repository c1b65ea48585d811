#include "cpu/weights.hpp"

#include <cstring>

#include "cpu/tensor_roles.hpp"

namespace saccade {
namespace {

size_t element_bytes(uint32_t dtype) {
  if (dtype == SAC_DTYPE_INT8) return 1;
  return dtype == SAC_DTYPE_F32 ? 4 : 2;
}

/// splitmix64's mixer.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t dummy_key(uint64_t seed, uint32_t role, uint32_t layer) {
  return mix(mix(seed) ^ (uint64_t{role} << 32 | layer));
}

}  // namespace

Weights::Weights(const sac_model_config& config, uint32_t max_model_len, const Kernels& kernels,
                 WorkerPool& pool)
    : config_(config),
      max_model_len_(max_model_len),
      kernels_(kernels),
      pool_(pool),
      layers_(config.num_layers),
      region_(lay_out(Layout(nullptr)), "weights") {
  lay_out(Layout(region_.data()));
  for (uint32_t l = 0; l < config.num_layers && config.sliding_window != nullptr; ++l) {
    layers_[l].window = config.sliding_window[l];
  }
}

size_t Weights::lay_out(Layout layout) {
  if (config_.tied_embeddings == 0) take_matrix(layout, SAC_TENSOR_EMBED, embed_);
  take_matrix(layout, SAC_TENSOR_LM_HEAD, lm_head_);
  final_norm_ = layout.take<float>(config_.hidden_size);
  const size_t angles = size_t{max_model_len_} * half_rotary();
  cos_ = layout.take<float>(angles);
  sin_ = layout.take<float>(angles);
  for (uint32_t l = 0; l < config_.num_layers; ++l) {
    for (uint32_t role = SAC_TENSOR_INPUT_NORM; role < SAC_NUM_TENSOR_ROLES; ++role) {
      if (tensor_role(role).kind == TensorKind::kMatrix) {
        take_matrix(layout, role, *matrix_of(role, l));
      } else {
        layers_[l].vectors[role] = layout.take<float>(tensor_shape(config_, role).cols);
      }
    }
  }
  return layout.bytes();
}

void Weights::take_matrix(Layout& layout, uint32_t role, Matrix& matrix) {
  const TensorShape shape = tensor_shape(config_, role);
  matrix.n = static_cast<uint32_t>(shape.rows);
  matrix.k = static_cast<uint32_t>(shape.cols);
  matrix.dtype = config_.quantization == SAC_QUANTIZATION_INT8 ? SAC_DTYPE_INT8 : config_.dtype;
  matrix.panels = layout.take<uint8_t>(
      matrix.num_panels() * panel_elements(matrix.dtype, matrix.k) * element_bytes(matrix.dtype));
}

Matrix* Weights::matrix_of(uint32_t role, uint32_t layer) {
  LayerWeights& w = layers_[layer];
  switch (role) {
    case SAC_TENSOR_EMBED:
      return config_.tied_embeddings != 0 ? &lm_head_ : &embed_;
    case SAC_TENSOR_LM_HEAD:
      return &lm_head_;
    case SAC_TENSOR_Q:
      return &w.q;
    case SAC_TENSOR_K:
      return &w.k;
    case SAC_TENSOR_V:
      return &w.v;
    case SAC_TENSOR_O:
      return &w.o;
    case SAC_TENSOR_GATE:
      return &w.gate;
    case SAC_TENSOR_UP:
      return &w.up;
    default:
      return &w.down;
  }
}

float* Weights::vector_of(uint32_t role, uint32_t layer) {
  return role == SAC_TENSOR_FINAL_NORM ? final_norm_ : layers_[layer].vectors[role];
}

void Weights::mark(uint32_t role, uint32_t layer) {
  (tensor_role(role).per_layer ? layers_[layer].given[role] : model_given_[role]) = true;
}

bool Weights::is_given(uint32_t role, uint32_t layer) const {
  return tensor_role(role).per_layer ? layers_[layer].given[role] : model_given_[role];
}

/// Packs all panels on all workers: from args.source, or random ones if dummy_key is given.
void Weights::pack_matrix(const Matrix& matrix, PackArgs args, const uint64_t* key) {
  args.n = matrix.n;
  args.k = matrix.k;
  args.dtype = matrix.dtype;
  args.panels = matrix.panels;
  struct Context {
    const Kernels& kernels;
    const PackArgs& args;
    const uint64_t* key;
  } context = {kernels_, args, key};
  pool_.start(
      [](void* opaque, WorkerPool::Worker& worker) {
        const Context& c = *static_cast<Context*>(opaque);
        worker.for_each(ceil_div(c.args.n, kPanelOutputs), [&c](uint32_t panel) {
          PackArgs one = c.args;
          one.panel = panel;
          if (c.key != nullptr) {
            c.kernels.pack_dummy(*c.key, one);
          } else {
            c.kernels.pack(one);
          }
        });
      },
      &context);
  pool_.wait();
}

std::string Weights::set_tensor(uint32_t role, uint32_t layer, uint32_t dtype, uint64_t rows,
                                uint64_t cols, const void* data) {
  const std::string wrong = check_tensor(config_, role, layer, dtype, rows, cols);
  if (!wrong.empty()) return wrong;
  if (data == nullptr) return tensor_name(role, layer) + ": data is null";
  if (tensor_role(role).kind == TensorKind::kMatrix) {
    PackArgs args = {};
    args.source = data;
    args.source_dtype = dtype;
    pack_matrix(*matrix_of(role, layer), args, nullptr);
  } else {
    kernels_.widen(data, dtype, static_cast<uint32_t>(cols), vector_of(role, layer));
  }
  mark(role, layer);
  return "";
}

void Weights::fill_dummy_tensor(uint32_t role, uint32_t layer, uint64_t seed) {
  if (tensor_role(role).kind == TensorKind::kMatrix) {
    const uint64_t key = dummy_key(seed, role, layer);
    pack_matrix(*matrix_of(role, layer), {}, &key);
  } else {
    const uint64_t n = tensor_shape(config_, role).cols;
    for (uint64_t i = 0; i < n; ++i) vector_of(role, layer)[i] = 1.0f;
  }
  mark(role, layer);
}

void Weights::fill_dummy(uint64_t seed) {
  for (uint32_t role = 0; role < SAC_NUM_TENSOR_ROLES; ++role) {
    if (tensor_role(role).optional || !tensor_used(config_, role)) continue;
    const uint32_t layers = tensor_role(role).per_layer ? config_.num_layers : 1;
    for (uint32_t l = 0; l < layers; ++l) fill_dummy_tensor(role, l, seed);
  }
}

std::string Weights::set_rope(const float* cos, const float* sin, uint64_t count) {
  const uint64_t want = uint64_t{max_model_len_} * half_rotary();
  if (count != want) {
    return "rope tables have " + std::to_string(count) + " entries, expected " +
           std::to_string(want) + " (max_model_len * rotary_dim / 2)";
  }
  if (cos == nullptr || sin == nullptr) return "rope tables: a pointer is null";
  std::memcpy(cos_, cos, count * sizeof(float));
  std::memcpy(sin_, sin, count * sizeof(float));
  rope_given_ = true;
  return "";
}

std::string Weights::missing_tensor() const {
  for (uint32_t role = 0; role < SAC_NUM_TENSOR_ROLES; ++role) {
    if (tensor_role(role).optional || !tensor_used(config_, role)) continue;
    const uint32_t layers = tensor_role(role).per_layer ? config_.num_layers : 1;
    for (uint32_t l = 0; l < layers; ++l) {
      if (!is_given(role, l)) return tensor_name(role, l);
    }
  }
  return rope_given_ ? "" : "rope tables";
}

}  // namespace saccade
