// Tensors into device memory: converted to bf16 on the host, copied as they are, and put into the
// tiles of the products by a kernel.
//
//   Backend: launch<Kernel>(Grid, args), copy_in(void* device, const void* host, size_t bytes),
//            staging(), a buffer of device memory of kStagingHalves
#pragma once
#include <set>
#include <tuple>

#include "cuda/model/layout.hpp"
#include "cuda/model/sequence_shape.hpp"

namespace saccade::gpu {

inline constexpr size_t kStagingHalves = size_t{1} << 23;

/// Writes rows of a matrix into its tiles: from `source`, or random ones. A thread per element.
struct PlaceKernel {
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kSharedBytes = 0;

  struct Args {
    const Half* source;  // [rows][cols]; null: random ones
    uint32_t key[2];     // of random ones
    uint32_t first_row;  // of the tensor
    uint32_t rows;
    uint32_t cols;
    MatrixPlace place;
  };

  /// Grid: ceil(cols / kThreads), rows.
  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t column = b.x() * kThreads + b.thread();
    if (column >= a.cols) return;
    const uint32_t row = a.first_row + b.y();
    const uint32_t to = a.place.gated ? gated_row(row, a.place.which) : a.place.first + row;
    const Half value = a.source != nullptr ? a.source[size_t{b.y()} * a.cols + column]
                                           : narrow(dummy(a.key, row, column));
    a.place.matrix.data[weight_at(a.place.matrix.k, to, column)] = value;
  }

 private:
  /// The CPU's: uniform in +-0.035, a function of the key and the place in the row-major matrix.
  SAC_DEVICE static float dummy(const uint32_t (&key)[2], uint32_t row, uint32_t column) {
    uint32_t h = (row * 0x9E3779B1u) ^ (column * 0x85EBCA77u) ^ key[0];
    h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
    h = ((h ^ (h >> 13)) + key[1]) * 0xC2B2AE35u;
    h = h ^ (h >> 16);
    return (static_cast<float>(static_cast<int32_t>(h)) * 4.656612873e-10f) * 0.034641016f;
  }
};

/// n unaligned elements of dtype, from the index-th on.
void read_halves(const void* data, uint32_t dtype, size_t index, size_t n, Half* out);
/// Rows of a matrix in fp8, [rows][cols], times their scales, [rows][ceil(cols / SAC_SCALE_GROUP)].
void read_scaled_halves(const void* data, const float* scales, uint32_t first_row, uint32_t rows,
                        uint32_t cols, Half* out);
void read_floats(const void* data, uint32_t dtype, size_t n, float* out);
/// The key that encodes a seed and a tensor in the random weights.
uint64_t dummy_key(uint64_t seed, const TensorPlace& at);

template <class Backend>
class ModelLoader {
 public:
  ModelLoader(const ModelView& model, Backend& backend) : m_(model), backend_(backend) {}

  std::string set_tensor(const TensorPlace& at, uint32_t dtype, uint64_t rows, uint64_t cols,
                         const void* data, const float* scales) {
    const std::string wrong = check_tensor(m_.config, at, dtype, rows, cols, scales);
    if (!wrong.empty()) return wrong;
    if (data == nullptr) return tensor_name(at) + ": data is null";
    if (tensor_role(at.role).kind == TensorKind::kMatrix) {
      place_matrix(at, dtype, data, scales);
    } else {
      std::vector<float> values(cols);
      read_floats(data, dtype, cols, values.data());
      backend_.copy_in(vector_of(m_, at), values.data(), cols * sizeof(float));
    }
    mark(at);
    return "";
  }

  void fill_dummy(uint64_t seed) {
    for_each_needed([&](const TensorPlace& at) {
      const TensorShape shape = tensor_shape(m_.config, at.role);
      if (tensor_role(at.role).kind == TensorKind::kMatrix) {
        const uint64_t key = dummy_key(seed, at);
        PlaceKernel::Args a = {};
        a.key[0] = static_cast<uint32_t>(key);
        a.key[1] = static_cast<uint32_t>(key >> 32);
        a.place = place_of(m_, at);
        a.cols = static_cast<uint32_t>(shape.cols);
        a.rows = static_cast<uint32_t>(shape.rows);
        launch_place(a);
      } else {
        const std::vector<float> ones(shape.cols, 1.0f);
        backend_.copy_in(vector_of(m_, at), ones.data(), shape.cols * sizeof(float));
      }
      mark(at);
      return true;
    });
  }

  std::string set_rope(const float* cos, const float* sin, uint64_t count) {
    const uint64_t want =
        (uint64_t{m_.max_model_len} + m_.config.rope_switch_len) * (m_.config.rotary_dim / 2);
    if (count != want) {
      return "rope tables have " + std::to_string(count) + " entries, expected " +
             std::to_string(want) + " ((max_model_len + rope_switch_len) * rotary_dim / 2)";
    }
    if (cos == nullptr || sin == nullptr) return "rope tables: a pointer is null";
    backend_.copy_in(m_.cos, cos, count * sizeof(float));
    backend_.copy_in(m_.sin, sin, count * sizeof(float));
    rope_given_ = true;
    return "";
  }

  std::string missing_tensor() const {
    std::string missing;
    for_each_needed([&](const TensorPlace& at) {
      if (given_.count(key_of(at)) == 0) missing = tensor_name(at);
      return missing.empty();
    });
    if (!missing.empty()) return missing;
    return rope_given_ ? "" : "rope tables";
  }

 private:
  using Key = std::tuple<uint32_t, uint32_t, uint32_t>;
  static Key key_of(const TensorPlace& at) { return {at.role, at.layer, at.expert}; }
  void mark(const TensorPlace& at) { given_.insert(key_of(at)); }

  /// f(place) for each tensor that a model must have, until one returns false.
  template <class F>
  void for_each_needed(F&& f) const {
    for (uint32_t role = 0; role < SAC_NUM_TENSOR_ROLES; ++role) {
      if (tensor_role(role).optional) continue;
      const uint32_t layers = tensor_role(role).per_layer ? m_.config.num_layers : 1;
      for (uint32_t l = 0; l < layers; ++l) {
        if (!tensor_used(m_.config, role, l)) continue;
        for (uint32_t e = 0; e < num_copies(m_.config, role); ++e) {
          if (!f(TensorPlace{role, l, e})) return;
        }
      }
    }
  }

  /// As many rows at once as the staging buffer holds.
  void place_matrix(const TensorPlace& at, uint32_t dtype, const void* data, const float* scales) {
    const TensorShape shape = tensor_shape(m_.config, at.role);
    PlaceKernel::Args a = {};
    a.place = place_of(m_, at);
    a.cols = static_cast<uint32_t>(shape.cols);
    a.source = backend_.staging();
    const auto fit = static_cast<uint32_t>(kStagingHalves / a.cols);
    std::vector<Half> halves;
    for (uint32_t row = 0; row < shape.rows; row += a.rows) {
      a.first_row = row;
      a.rows = min_u32(fit, static_cast<uint32_t>(shape.rows) - row);
      halves.resize(size_t{a.rows} * a.cols);
      if (scales != nullptr) {
        read_scaled_halves(data, scales, row, a.rows, a.cols, halves.data());
      } else {
        read_halves(data, dtype, size_t{row} * a.cols, halves.size(), halves.data());
      }
      backend_.copy_in(backend_.staging(), halves.data(), halves.size() * sizeof(Half));
      launch_place(a);
    }
  }
  void launch_place(const PlaceKernel::Args& a) {
    for (uint32_t done = 0; done < a.rows; done += kMaxGridY) {
      PlaceKernel::Args part = a;
      part.first_row = a.first_row + done;
      part.rows = min_u32(kMaxGridY, a.rows - done);
      if (a.source != nullptr) part.source = a.source + size_t{done} * a.cols;
      backend_.template launch<PlaceKernel>(
          Grid{ceil_div(a.cols, PlaceKernel::kThreads), part.rows}, part);
    }
  }
  static constexpr uint32_t kMaxGridY = 65535;

  const ModelView& m_;
  Backend& backend_;
  std::set<Key> given_;
  bool rope_given_ = false;
};

}  // namespace saccade::gpu
