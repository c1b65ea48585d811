// Weights in e4m3 as products read them. A unit is 16 outputs by 128 inputs, and a scale for each
// of the outputs: what a warp multiplies at once. Its numbers are in the order in which the warp's
// registers take them, so that 16 bytes a lane, four times, bring a unit in; scales follow, so that
// one bulk copy brings both. Units of a tile of outputs are neighbours for each 128 inputs.
#pragma once
#include <cmath>

#include "cuda/model/product.hpp"

namespace saccade::gpu {

inline constexpr uint32_t kUnitOutputs = 16;
inline constexpr uint32_t kUnitInputs = SAC_SCALE_GROUP;
inline constexpr uint32_t kUnitSteps = kUnitInputs / kStep;
inline constexpr uint32_t kUnitCodes = kUnitOutputs * kUnitInputs;  // bytes
inline constexpr uint32_t kUnitBytes = kUnitCodes + kUnitOutputs * sizeof(float);
inline constexpr uint32_t kTileUnits = kTileOutputs / kUnitOutputs;

/// Bytes of a matrix of n outputs and k inputs, multiples of kTileOutputs and kUnitInputs.
SAC_HD constexpr size_t unit_matrix_bytes(uint32_t n, uint32_t k) {
  return size_t{n / kUnitOutputs} * (k / kUnitInputs) * kUnitBytes;
}

/// Where the unit of an output and an input begins, in a matrix with k inputs.
SAC_HD inline size_t unit_at(uint32_t k, uint32_t output, uint32_t input) {
  const size_t groups = k / kUnitInputs;
  const size_t tile = output / kTileOutputs * groups + input / kUnitInputs;
  return (tile * kTileUnits + output % kTileOutputs / kUnitOutputs) * kUnitBytes;
}
/// Where two numbers of an output are in its unit, those of `input` and of the 8th after it, joined
/// (join_fp8). A lane's 16 bytes are two mma steps of 16 inputs; in a step's eight, what
/// widen_joined_fp8 makes a's registers of: row g, inputs 2 t and the next and the same 8 on; then
/// row g + 8.
SAC_HD inline uint32_t pair_at(uint32_t output, uint32_t input) {
  const uint32_t row = output % kUnitOutputs, in = input % kUnitInputs;
  const uint32_t lane = row % 8 * 4 + in % 8 / 2;
  return in / 32 * (kWarpThreads * 16) + lane * 16 + in % 32 / 16 * 8 + row / 8 * 4 + in % 2 * 2;
}
/// A number of a unit.
SAC_HD inline Fp8Code code_of(const unsigned char* unit, uint32_t output, uint32_t input) {
  const uint32_t first = input / 16 * 16 + input % 8;
  const auto* joined = reinterpret_cast<const uint16_t*>(unit + pair_at(output, first));
  return split_fp8(*joined, input % 16 / 8);
}
/// Where an output's scale is in its unit: a lane's two are neighbours.
SAC_HD inline uint32_t scale_at(uint32_t output) {
  const uint32_t row = output % kUnitOutputs;
  return kUnitCodes + (row % 8 * 2 + row / 8) * uint32_t{sizeof(float)};
}

/// Units as a ring's stages take them: for each 128 inputs those of the block's outputs.
template <uint32_t kOutputs>
struct UnitPieces {
  static constexpr uint32_t kSteps = kUnitSteps;
  static constexpr uint32_t kBytes = kOutputs / kUnitOutputs * kUnitBytes;
  static constexpr uint32_t kStride = kTileUnits * kUnitBytes;

  SAC_DEVICE static const unsigned char* first(const ProductArgs& a, const ProductTile& tile) {
    return a.units + tile.expert * a.expert_stride + unit_at(a.steps * kStep, tile.first_output, 0);
  }
};

/// A lane's part of a unit.
struct LaneUnit {
  Word4 words[4];  // each of two mma steps
  Float2 scales;   // of its two outputs

  SAC_DEVICE void load(const unsigned char* unit, uint32_t lane) {
    SAC_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      words[i] = *reinterpret_cast<const Word4*>(unit + (i * kWarpThreads + lane) * sizeof(Word4));
    }
    scales = *reinterpret_cast<const Float2*>(unit + kUnitCodes + lane / 4 * sizeof(Float2));
  }
  /// a of the step-th mma of 16 inputs.
  template <class Block>
  SAC_DEVICE void widen(const Block& b, uint32_t step, uint32_t (&a)[4]) const {
    const Word4& w = words[step / 2];
    SAC_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {  // rows g and g + 8
      uint32_t pairs[2];
      b.widen_joined_fp8(w.v[step % 2 * 2 + half], pairs);
      a[half] = pairs[0], a[2 + half] = pairs[1];
    }
  }
};

/// total += scale * sums, of one unit's chain: results of rows g and g + 8 of the lane.
template <uint32_t kEights>
SAC_DEVICE void add_scaled(float (&total)[kEights][4], const Float2& scales,
                           const float (&sums)[kEights][4]) {
  SAC_UNROLL
  for (uint32_t j = 0; j < kEights; ++j) {
    SAC_UNROLL
    for (uint32_t e = 0; e < 4; ++e) {
      total[j][e] = fmaf(scales.v[e / 2], sums[j][e], total[j][e]);
    }
  }
}

}  // namespace saccade::gpu
