// Binds one copy of the kernels together. Included by one file per instruction set, after SAC_ISA,
// the target pragma and that set's simd header.
#pragma once
#include "cpu/attention_impl.hpp"
#include "cpu/matmul_impl.hpp"
#include "cpu/pack_impl.hpp"
#include "cpu/rows_impl.hpp"
#include "sample/sampler.hpp"

namespace saccade {
inline namespace SAC_ISA {

constexpr Kernels make_kernels(const char* name) {
  using P = Products<Bf16>;
  return {name, P::kRows,   P::kTiledActivations, matmul, attention,  rms_norm, rotate,
          pack, pack_dummy, unpack_row,           widen,  sample_row, score_row};
}

}  // namespace SAC_ISA
}  // namespace saccade
