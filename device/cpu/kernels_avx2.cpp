// The kernels compiled for AVX2, in use only where the processor has it. Everything that is not
// written per instruction set is included before the pragma, so that no shared inline function is
// compiled with it.
#include <math.h>

#include "cpu/kernels.hpp"
#include "cpu/target.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

SAC_TARGET("avx2,fma,f16c")
#define SAC_ISA avx2
#include "cpu/simd_avx2.hpp"
//
#include "cpu/attention_impl.hpp"
#include "cpu/products_float.hpp"
#include "cpu/products_fp8.hpp"
#include "cpu/products_int8_avx2.hpp"

namespace saccade {
inline namespace SAC_ISA {
using Int8Products = Avx2Int8Products;
using Fp8Products = PlainFp8Products;
using Fp8Bf16Attention = Attention<Fp8>;
}  // namespace SAC_ISA
}  // namespace saccade
//
#include "cpu/kernels_impl.hpp"
SAC_TARGET_END

namespace saccade {

const Kernels* avx2_kernels() {
  static constexpr Kernels kKernels = make_kernels("avx2");
  const bool supported = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return supported ? &kKernels : nullptr;
}

}  // namespace saccade
#else
namespace saccade {
const Kernels* avx2_kernels() { return nullptr; }
}  // namespace saccade
#endif
