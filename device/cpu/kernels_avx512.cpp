// The kernels compiled for AVX512, in use only where the processor has it. Everything that is not
// written per instruction set is included before the pragma, so that no shared inline function is
// compiled with it.
#include <math.h>

#include "cpu/kernels.hpp"
#include "cpu/target.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

SAC_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#define SAC_ISA avx512
#include "cpu/simd_avx512.hpp"
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

const Kernels* avx512_kernels() {
  static constexpr Kernels kKernels = make_kernels("avx512");
  const bool supported =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return supported ? &kKernels : nullptr;
}

}  // namespace saccade
#else
namespace saccade {
const Kernels* avx512_kernels() { return nullptr; }
}  // namespace saccade
#endif
