// The kernels for any processor of the target, and the choice among all sets.
#define SAC_ISA portable
#include "cpu/simd_portable.hpp"
//
#include "cpu/attention_impl.hpp"
#include "cpu/products_float.hpp"
#include "cpu/products_fp8.hpp"
#include "cpu/products_int8.hpp"

namespace saccade {
inline namespace SAC_ISA {
using Int8Products = PlainInt8Products;
using Fp8Products = PlainFp8Products;
using Fp8Bf16Attention = Attention<Fp8>;
}  // namespace SAC_ISA
}  // namespace saccade
//
#include "cpu/kernels_impl.hpp"

namespace saccade {

const Kernels* portable_kernels() {
  static constexpr Kernels kKernels = make_kernels("portable");
  return &kKernels;
}

std::vector<const Kernels*> available_kernels() {
  std::vector<const Kernels*> sets;
  for (const Kernels* k : {amx_kernels(), avx512_bf16_kernels(), avx512_kernels(), avx2_kernels(),
                           portable_kernels()}) {
    if (k != nullptr) sets.push_back(k);
  }
  return sets;
}

const Kernels& best_kernels() { return *available_kernels().front(); }

}  // namespace saccade
