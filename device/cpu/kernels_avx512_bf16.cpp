// The kernels compiled for AVX-512 with BF16 (vdpbf16ps) and VNNI (vpdpbusd), in use only where the
// processor has both; every processor with the first has the second.
// Everything that is not written per instruction set is included before the pragma, so that no
// shared inline function is compiled with it.
#include <math.h>

#include "cpu/kernels.hpp"
#include "cpu/target.hpp"

#if defined(__x86_64__)
#include <immintrin.h>

SAC_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx512vnni")
#define SAC_ISA avx512_bf16
#define SAC_BF16_LANES
#include "cpu/simd_avx512.hpp"
//
#include "cpu/attention_avx512_bf16.hpp"
#include "cpu/products_avx512_bf16.hpp"
#include "cpu/products_float.hpp"
#include "cpu/products_fp8_bf16.hpp"
#include "cpu/products_int8_vnni.hpp"

namespace saccade {
inline namespace SAC_ISA {
template <>
struct Products<Bf16> : Bf16Products {};
using Int8Products = VnniInt8Products;
using Fp8Products = Bf16Fp8Products;
using Fp8Bf16Attention = DotAttention<Fp8>;
}  // namespace SAC_ISA
}  // namespace saccade
//
#include "cpu/kernels_impl.hpp"
SAC_TARGET_END

namespace saccade {

const Kernels* avx512_bf16_kernels() {
  static constexpr Kernels kKernels = make_kernels("avx512_bf16");
  const bool supported = avx512_kernels() != nullptr && __builtin_cpu_supports("avx512bf16") != 0 &&
                         __builtin_cpu_supports("avx512vnni") != 0;
  return supported ? &kKernels : nullptr;
}

}  // namespace saccade
#else
namespace saccade {
const Kernels* avx512_bf16_kernels() { return nullptr; }
}  // namespace saccade
#endif
