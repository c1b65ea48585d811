// Tensors into device memory: converted to bf16 on the host, copied as they are, and put into the
// tiles of the products by a kernel.
//
//   Backend: launch<Kernel>(Grid, args), copy_in(void* device, const void* host, size_t bytes),
//            staging(), a buffer of device memory of kStagingHalves
#pragma once
#include <set>
#include <tuple>

#include "cuda/model/fp8_units.hpp"
#include "cuda/model/layout.hpp"
#include "cuda/model/sequence_shape.hpp"

namespace saccade::gpu {

inline constexpr size_t kStagingHalves = size_t{1} << 23;

/// The CPU's random weights: uniform in +-0.035, a function of the key and of the place in the
/// row-major matrix.
SAC_DEVICE float dummy_weight(const uint32_t (&key)[2], uint32_t row, uint32_t column) {
  uint32_t h = (row * 0x9E3779B1u) ^ (column * 0x85EBCA77u) ^ key[0];
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = ((h ^ (h >> 13)) + key[1]) * 0xC2B2AE35u;
  h = h ^ (h >> 16);
  return (static_cast<float>(static_cast<int32_t>(h)) * 4.656612873e-10f) * 0.034641016f;
}

/// What is written into a matrix: rows of a tensor.
struct PlaceArgs {
  const Half* source;    // [rows][cols]; null: codes, or random ones
  const Fp8Code* codes;  // [rows][cols]
  const float* scales;   // of codes: [rows][ceil(cols / SAC_SCALE_GROUP)]
  uint32_t key[2];       // of random ones
  uint32_t first_row;    // of the tensor
  uint32_t rows;
  uint32_t cols;
  MatrixPlace place;

  SAC_DEVICE uint32_t to_row(uint32_t row) const {
    return place.gated ? gated_row(row, place.which) : place.first + row;
  }
  SAC_DEVICE Half value(uint32_t row, uint32_t column) const {
    return source != nullptr ? source[size_t{row} * cols + column]
                             : narrow(dummy_weight(key, first_row + row, column));
  }
};

/// Writes rows of a matrix into its tiles: from `source`, or random ones. A thread per element.
struct PlaceKernel {
  using Args = PlaceArgs;
  static constexpr uint32_t kThreads = 256;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kSharedBytes = 0;

  /// Grid: ceil(cols / kThreads), rows.
  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t column = b.x() * kThreads + b.thread();
    if (column >= a.cols) return;
    const uint32_t to = a.to_row(a.first_row + b.y());
    a.place.matrix.data[weight_at(a.place.matrix.k, to, column)] = a.value(b.y(), column);
  }
};

/// Writes rows of a matrix into its units: `codes` as they are, or other values brought into e4m3
/// with a scale for each row and 128 columns, by the CPU's rules (cpu/fp8_impl.hpp). A thread for
/// each such group. Columns beyond the tensor's are zero already.
struct PlaceUnitsKernel {
  using Args = PlaceArgs;
  static constexpr uint32_t kThreads = 64;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kSharedBytes = 0;

  /// Grid: ceil(groups / kThreads), rows.
  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t group = b.x() * kThreads + b.thread(), groups = ceil_div(a.cols, kUnitInputs);
    if (group >= groups) return;
    const uint32_t to = a.to_row(a.first_row + b.y()), begin = group * kUnitInputs;
    const uint32_t end = min_u32(begin + kUnitInputs, a.cols);
    unsigned char* unit = a.place.matrix.units + unit_at(a.place.matrix.k, to, begin);
    const float scale = a.codes != nullptr ? copy_group(a, unit, b.y(), to, begin, end)
                                           : narrow_group(a, unit, b.y(), to, begin, end);
    *reinterpret_cast<float*>(unit + scale_at(to)) = scale;
  }

 private:
  static constexpr float kMax = 448.0f;
  static constexpr float kLeast = 1e-30f;  // below it, the inverse is no float

  template <class Code>
  SAC_DEVICE static void write(unsigned char* unit, uint32_t to, uint32_t begin, uint32_t end,
                               const Code& code) {
    for (uint32_t i = begin; i < end; i += i % 8 < 7 ? 1 : 9) {
      const Fp8Code second = i + 8 < end ? code(i + 8) : Fp8Code{0};
      *reinterpret_cast<uint16_t*>(unit + pair_at(to, i)) = join_fp8(code(i), second);
    }
  }
  /// A group with e4m3's NaN has the scale NaN and numbers 0.
  SAC_DEVICE static float copy_group(const Args& a, unsigned char* unit, uint32_t row, uint32_t to,
                                     uint32_t begin, uint32_t end) {
    const Fp8Code* codes = a.codes + size_t{row} * a.cols;
    bool sound = true;
    for (uint32_t i = begin; i < end; ++i) sound &= (codes[i] & 0x7fu) != 0x7fu;
    write(unit, to, begin, end, [&](uint32_t i) { return sound ? codes[i] : Fp8Code{0}; });
    const float scale = a.scales[size_t{row} * ceil_div(a.cols, kUnitInputs) + begin / kUnitInputs];
    return sound ? scale : __builtin_bit_cast(float, 0x7fc00000u);
  }
  SAC_DEVICE static float narrow_group(const Args& a, unsigned char* unit, uint32_t row,
                                       uint32_t to, uint32_t begin, uint32_t end) {
    float top = 0, doubt = 0;
    for (uint32_t i = begin; i < end; ++i) {
      const float v = widen(a.value(row, i));
      top = max_f(top, v < 0 ? -v : v);
      doubt += v * 0.0f;  // NaN for infinity and NaN
    }
    const bool sound = doubt == 0 && top >= kLeast;
    const float inverse = sound ? kMax / top : 0.0f;
    write(unit, to, begin, end,
          [&](uint32_t i) { return narrow_fp8(sound ? widen(a.value(row, i)) * inverse : 0.0f); });
    return doubt == 0 ? top * (1.0f / kMax) : doubt;
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

/// A of a pair, in units for k inputs; see shrink_at.
std::vector<Half> pack_a(const sac_adapter_pair& pair, uint32_t k);
/// B of a pair, in units for `outputs`; see expand_at.
std::vector<Half> pack_b(const sac_adapter_pair& pair, uint32_t outputs);

template <class Backend>
class ModelLoader {
 public:
  ModelLoader(const ModelView& model, Backend& backend) : m_(model), backend_(backend) {
    use_.roles.resize(m_.layers.size());
    for (const LayerView& w : m_.layers) has_experts_.push_back(w.has_experts);
  }

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
        PlaceArgs a = {};
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

  std::string set_adapter_pair(uint32_t adapter, const sac_adapter_pair& pair) {
    const std::string wrong =
        check_adapter_pair(m_.config, has_experts_, m_.adapters, adapter, pair);
    if (!wrong.empty()) return wrong;
    const AdaptedView& v = adapted_of(m_.layers[pair.layer], pair.role);
    const uint32_t matrix = pair.role - v.first_role;
    const AdapterEntry entry = {round_up(pair.rank, kFragmentRows), pair.scaling};
    const std::vector<Half> a = pack_a(pair, v.k), b = pack_b(pair, v.outputs(matrix));
    backend_.copy_in(v.a_of(adapter, matrix), a.data(), a.size() * sizeof(Half));
    backend_.copy_in(v.b_of(adapter, matrix), b.data(), b.size() * sizeof(Half));
    backend_.copy_in(v.entries + v.index(adapter, matrix), &entry, sizeof(entry));
    use_.roles[pair.layer] |= 1u << pair.role;
    use_.ranks = max_u32(use_.ranks, entry.rank);
    return "";
  }
  const AdapterUse& adapter_use() const { return use_; }

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
    PlaceArgs a = {};
    a.place = place_of(m_, at);
    a.cols = static_cast<uint32_t>(shape.cols);
    if (scales != nullptr && a.place.matrix.units != nullptr) {
      return place_codes(a, static_cast<uint32_t>(shape.rows), data, scales);
    }
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
  /// The same of e4m3 that stays so: scales, then codes, in the staging buffer.
  void place_codes(PlaceArgs a, uint32_t rows, const void* data, const float* scales) {
    const uint32_t groups = ceil_div(a.cols, kUnitInputs);
    const size_t row_bytes = a.cols + size_t{groups} * sizeof(float);
    const auto fit = static_cast<uint32_t>(kStagingHalves * sizeof(Half) / row_bytes);
    auto* staged = reinterpret_cast<float*>(backend_.staging());
    for (uint32_t row = 0; row < rows; row += a.rows) {
      a.first_row = row;
      a.rows = min_u32(fit, rows - row);
      const size_t num_scales = size_t{a.rows} * groups;
      auto* codes = reinterpret_cast<Fp8Code*>(staged + num_scales);
      backend_.copy_in(staged, scales + size_t{row} * groups, num_scales * sizeof(float));
      backend_.copy_in(codes, static_cast<const Fp8Code*>(data) + size_t{row} * a.cols,
                       size_t{a.rows} * a.cols);
      a.scales = staged;
      a.codes = codes;
      launch_place(a);
    }
  }
  void launch_place(const PlaceArgs& a) {
    for (uint32_t done = 0; done < a.rows; done += kMaxGridY) {
      PlaceArgs part = a;
      part.first_row = a.first_row + done;
      part.rows = min_u32(kMaxGridY, a.rows - done);
      if (a.source != nullptr) part.source = a.source + size_t{done} * a.cols;
      if (a.codes != nullptr) {
        part.codes = a.codes + size_t{done} * a.cols;
        part.scales = a.scales + size_t{done} * ceil_div(a.cols, kUnitInputs);
      }
      if (a.place.matrix.units != nullptr) {
        launch_place<PlaceUnitsKernel>(part, ceil_div(a.cols, kUnitInputs));
      } else {
        launch_place<PlaceKernel>(part, a.cols);
      }
    }
  }
  template <class Kernel>
  void launch_place(const PlaceArgs& a, uint32_t threads_of_row) {
    backend_.template launch<Kernel>(Grid{ceil_div(threads_of_row, Kernel::kThreads), a.rows}, a);
  }
  static constexpr uint32_t kMaxGridY = 65535;

  const ModelView& m_;
  Backend& backend_;
  std::set<Key> given_;
  bool rope_given_ = false;
  std::vector<bool> has_experts_;  // [layer]
  AdapterUse use_;
};

}  // namespace saccade::gpu
