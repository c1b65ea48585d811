#include "cuda/model/load.hpp"

#include <cstring>

#include "cpu/dtype.hpp"

namespace saccade::gpu {
namespace {

template <class T>
float read_as(const void* data, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const unsigned char*>(data) + index * sizeof(T), sizeof(T));
  return to_float(value);
}

float read_element(const void* data, uint32_t dtype, size_t index) {
  if (dtype == SAC_DTYPE_BF16) return read_as<Bf16>(data, index);
  if (dtype == SAC_DTYPE_F16) return read_as<F16>(data, index);
  return read_as<float>(data, index);
}

/// splitmix64's mixer.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

void read_halves(const void* data, uint32_t dtype, size_t index, size_t n, Half* out) {
  if (dtype == SAC_DTYPE_BF16) {
    std::memcpy(out, static_cast<const unsigned char*>(data) + index * sizeof(Half),
                n * sizeof(Half));
    return;
  }
  for (size_t i = 0; i < n; ++i) out[i] = narrow(read_element(data, dtype, index + i));
}

void read_scaled_halves(const void* data, const float* scales, uint32_t first_row, uint32_t rows,
                        uint32_t cols, Half* out) {
  const uint32_t groups = ceil_div(cols, SAC_SCALE_GROUP);
  for (uint32_t row = first_row; row < first_row + rows; ++row) {
    for (uint32_t i = 0; i < cols; ++i) {
      const float scale = scales[size_t{row} * groups + i / SAC_SCALE_GROUP];
      *out++ = narrow(read_as<Fp8>(data, size_t{row} * cols + i) * scale);
    }
  }
}

void read_floats(const void* data, uint32_t dtype, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = read_element(data, dtype, i);
}

std::vector<Half> pack_a(const sac_adapter_pair& pair, uint32_t k) {
  const size_t units = size_t{ceil_div(pair.rank, kFragmentRows)} * (k / kStep);
  std::vector<Half> out(units * kShrinkHalves), row(pair.in);
  for (uint32_t r = 0; r < pair.rank; ++r) {
    read_halves(pair.a, pair.a_dtype, r * pair.in, pair.in, row.data());
    Half* to = out.data() + size_t{r / kFragmentRows} * (k / kStep) * kShrinkHalves;
    for (uint32_t i = 0; i < pair.in; ++i)
      to[i / kStep * kShrinkHalves + shrink_at(r % kFragmentRows, i % kStep)] = row[i];
  }
  return out;
}

std::vector<Half> pack_b(const sac_adapter_pair& pair, uint32_t outputs) {
  const size_t rank_units = ceil_div(pair.rank, kFragmentRows);
  std::vector<Half> out(outputs / kFragmentRows * rank_units * kExpandHalves), row(pair.rank);
  for (uint32_t o = 0; o < pair.out; ++o) {
    read_halves(pair.b, pair.b_dtype, size_t{o} * pair.rank, pair.rank, row.data());
    Half* to = out.data() + o / kFragmentRows * rank_units * kExpandHalves;
    for (uint32_t r = 0; r < pair.rank; ++r) {
      to[r / kFragmentRows * kExpandHalves + expand_at(o % kFragmentRows, r % kFragmentRows)] =
          row[r];
    }
  }
  return out;
}

uint64_t dummy_key(uint64_t seed, const TensorPlace& at) {
  return mix(mix(seed) ^ (uint64_t{at.role} << 32 | at.expert << 16 | at.layer));
}

}  // namespace saccade::gpu
