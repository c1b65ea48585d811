#include "cpu/weights.hpp"

#include <cstring>

namespace saccade {
namespace {

/// Bump when the packed format changes: weights packed before are then packed again. A test ties
/// the bytes of each panel form to this number.
constexpr uint64_t kPackedVersion = 1;
/// The packed form ends with a page, so that a file of it can be mapped to the end.
constexpr size_t kPackedPageBytes = 4096;

/// splitmix64's mixer.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// Layers and experts are below 2^16 (config_check.cpp).
uint64_t place_number(const TensorPlace& at) {
  return uint64_t{at.role} << 32 | at.expert << 16 | at.layer;
}

uint64_t dummy_key(uint64_t seed, const TensorPlace& at) {
  return mix(mix(seed) ^ place_number(at));
}

/// A copy of an array with a number for each layer; of null, none.
std::vector<uint32_t> copy_of(const uint32_t* by_layer, uint32_t num_layers) {
  if (by_layer == nullptr) return {};
  return {by_layer, by_layer + num_layers};
}

/// The configuration with arrays that live as long as it.
sac_model_config with_arrays(sac_model_config config, const std::vector<uint32_t>& sparse_layers,
                             const std::vector<uint32_t>& fp8_roles) {
  config.sparse_layers = sparse_layers.empty() ? nullptr : sparse_layers.data();
  config.fp8_roles = fp8_roles.empty() ? nullptr : fp8_roles.data();
  return config;
}

}  // namespace

Weights::Weights(const sac_model_config& config, uint32_t max_model_len, const Kernels& kernels,
                 WorkerPool& pool)
    : sparse_layers_(copy_of(config.sparse_layers, config.num_layers)),
      fp8_roles_(copy_of(config.fp8_roles, config.num_layers)),
      config_(with_arrays(config, sparse_layers_, fp8_roles_)),
      max_model_len_(max_model_len),
      kernels_(kernels),
      pool_(pool),
      layers_(config.num_layers),
      experts_given_(size_t{config.num_layers} * config.num_experts * 3),
      packed_bytes_(lay_out(nullptr)),
      region_(std::in_place, packed_bytes_, "weights", FirstTouch::kOwner),
      packed_(region_->data()),
      rope_region_(lay_out_rope(Layout(nullptr)), "rope tables") {
  lay_out(region_->data());
  lay_out_rope(Layout(rope_region_.data()));
  for (uint32_t l = 0; l < config.num_layers && config.sliding_window != nullptr; ++l) {
    layers_[l].window = config.sliding_window[l];
  }
}

size_t Weights::lay_out(void* packed) {
  Layout layout(packed);
  layout_ = mix(kPackedVersion);
  if (config_.tied_embeddings == 0) take_matrix(layout, {SAC_TENSOR_EMBED, 0, 0}, embed_);
  take_matrix(layout, {SAC_TENSOR_LM_HEAD, 0, 0}, lm_head_);
  final_norm_ = take_vector(layout, SAC_TENSOR_FINAL_NORM, 0);
  for (uint32_t l = 0; l < config_.num_layers; ++l) lay_out_layer(layout, l);
  return (layout.bytes() + kPackedPageBytes - 1) / kPackedPageBytes * kPackedPageBytes;
}

size_t Weights::lay_out_rope(Layout layout) {
  cos_ = layout.take<float>(rope_entries());
  sin_ = layout.take<float>(rope_entries());
  return layout.bytes();
}

void Weights::lay_out_layer(Layout& layout, uint32_t l) {
  layers_[l].experts.resize(has_experts(config_, l) ? config_.num_experts : 0);
  for (uint32_t role = SAC_TENSOR_INPUT_NORM; role < SAC_NUM_TENSOR_ROLES; ++role) {
    if (!tensor_used(config_, role, l)) continue;
    if (tensor_role(role).kind == TensorKind::kVector) {
      layers_[l].vectors[role] = take_vector(layout, role, l);
      continue;
    }
    for (uint32_t e = 0; e < num_copies(config_, role); ++e) {
      take_matrix(layout, {role, l, e}, *matrix_of({role, l, e}));
    }
  }
}

float* Weights::take_vector(Layout& layout, uint32_t role, uint32_t layer) {
  float* vector = layout.take<float>(tensor_shape(config_, role).cols);
  fold_into_layout({role, layer, 0}, layout.bytes(), SAC_DTYPE_F32);
  return vector;
}

/// `end` is where the tensor's bytes end.
void Weights::fold_into_layout(const TensorPlace& at, size_t end, uint32_t dtype) {
  const TensorShape shape = tensor_shape(config_, at.role);
  for (const uint64_t part :
       {place_number(at), uint64_t{dtype}, shape.rows, shape.cols, uint64_t{end}}) {
    layout_ = mix(layout_ ^ part);
  }
}

uint32_t Weights::matrix_dtype(const TensorPlace& at) const {
  // A router is small, and what it picks depends on small differences.
  const bool int8 = config_.quantization == SAC_QUANTIZATION_INT8;
  if (int8 && at.role != SAC_TENSOR_ROUTER) return SAC_DTYPE_INT8;
  return kept_in_fp8(config_, at.role, at.layer) ? SAC_DTYPE_FP8 : config_.dtype;
}

void Weights::take_matrix(Layout& layout, const TensorPlace& at, Matrix& matrix) {
  const TensorShape shape = tensor_shape(config_, at.role);
  matrix.n = static_cast<uint32_t>(shape.rows);
  matrix.k = static_cast<uint32_t>(shape.cols);
  matrix.dtype = matrix_dtype(at);
  matrix.panels = layout.take<uint8_t>(matrix.bytes());
  fold_into_layout(at, layout.bytes(), matrix.dtype);
}

std::string Weights::adopt_packed(const void* data, size_t bytes) {
  if (data == nullptr) return "packed weights: data is null";
  if (reinterpret_cast<uintptr_t>(data) % SAC_LINE_BYTES != 0) {
    return "packed weights: data is not aligned to " + std::to_string(SAC_LINE_BYTES) + " bytes";
  }
  if (bytes != packed_bytes_) {
    return "packed weights have " + std::to_string(bytes) + " bytes, expected " +
           std::to_string(packed_bytes_);
  }
  lay_out(const_cast<void*>(data));  // nothing writes through it: set_tensor only checks
  packed_ = data;
  region_.reset();
  return "";
}

Matrix* Weights::matrix_of(const TensorPlace& at) {
  LayerWeights& w = layers_[at.layer];
  switch (at.role) {
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
    case SAC_TENSOR_DOWN:
      return &w.down;
    case SAC_TENSOR_ROUTER:
      return &w.router;
    case SAC_TENSOR_EXPERT_GATE:
      return &w.experts[at.expert].gate;
    case SAC_TENSOR_EXPERT_UP:
      return &w.experts[at.expert].up;
    default:
      return &w.experts[at.expert].down;
  }
}

float* Weights::vector_of(const TensorPlace& at) {
  return at.role == SAC_TENSOR_FINAL_NORM ? final_norm_ : layers_[at.layer].vectors[at.role];
}

size_t Weights::expert_mark(const TensorPlace& at) const {
  const size_t expert = size_t{at.layer} * config_.num_experts + at.expert;
  return expert * 3 + at.role - SAC_TENSOR_EXPERT_GATE;
}

void Weights::mark(const TensorPlace& at) {
  const TensorRole& role = tensor_role(at.role);
  if (role.per_expert) {
    experts_given_[expert_mark(at)] = true;
  } else {
    (role.per_layer ? layers_[at.layer].given[at.role] : model_given_[at.role]) = true;
  }
}

bool Weights::is_given(const TensorPlace& at) const {
  const TensorRole& role = tensor_role(at.role);
  if (role.per_expert) return experts_given_[expert_mark(at)];
  return role.per_layer ? layers_[at.layer].given[at.role] : model_given_[at.role];
}

template <class F>
void Weights::for_each_needed(F&& f) const {
  for (uint32_t role = 0; role < SAC_NUM_TENSOR_ROLES; ++role) {
    if (tensor_role(role).optional) continue;
    const uint32_t layers = tensor_role(role).per_layer ? config_.num_layers : 1;
    for (uint32_t l = 0; l < layers; ++l) {
      if (!tensor_used(config_, role, l)) continue;
      for (uint32_t e = 0; e < num_copies(config_, role); ++e) {
        if (!f(TensorPlace{role, l, e})) return;
      }
    }
  }
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

std::string Weights::set_tensor(const TensorPlace& place, uint32_t dtype, uint64_t rows,
                                uint64_t cols, const void* data, const float* scales) {
  const std::string wrong = check_tensor(config_, place, dtype, rows, cols, scales);
  if (!wrong.empty()) return wrong;
  if (data == nullptr) return tensor_name(place) + ": data is null";
  if (adopted()) return mark(place), "";
  if (tensor_role(place.role).kind == TensorKind::kMatrix) {
    PackArgs args = {};
    args.source = data;
    args.source_dtype = dtype;
    args.source_scales = scales;
    pack_matrix(*matrix_of(place), args, nullptr);
  } else {
    kernels_.widen(data, dtype, static_cast<uint32_t>(cols), vector_of(place));
  }
  mark(place);
  return "";
}

void Weights::fill_dummy_tensor(const TensorPlace& place, uint64_t seed) {
  if (tensor_role(place.role).kind == TensorKind::kMatrix) {
    const uint64_t key = dummy_key(seed, place);
    pack_matrix(*matrix_of(place), {}, &key);
  } else {
    const uint64_t n = tensor_shape(config_, place.role).cols;
    for (uint64_t i = 0; i < n; ++i) vector_of(place)[i] = 1.0f;
  }
  mark(place);
}

void Weights::fill_dummy(uint64_t seed) {
  for_each_needed([&](const TensorPlace& place) {
    fill_dummy_tensor(place, seed);
    return true;
  });
}

std::string Weights::set_rope(const float* cos, const float* sin, uint64_t count) {
  const uint64_t want = rope_entries();
  if (count != want) {
    return "rope tables have " + std::to_string(count) + " entries, expected " +
           std::to_string(want) + " ((max_model_len + rope_switch_len) * rotary_dim / 2)";
  }
  if (cos == nullptr || sin == nullptr) return "rope tables: a pointer is null";
  std::memcpy(cos_, cos, count * sizeof(float));
  std::memcpy(sin_, sin, count * sizeof(float));
  rope_given_ = true;
  return "";
}

std::string Weights::missing_tensor() const {
  std::string missing;
  for_each_needed([&](const TensorPlace& place) {
    if (!is_given(place)) missing = tensor_name(place);
    return missing.empty();
  });
  if (!missing.empty()) return missing;
  return rope_given_ ? "" : "rope tables";
}

}  // namespace saccade
