// The kernels compiled for AVX-512 with BF16 and AMX tiles, in use only where the processor has it.
// Everything that is not written per instruction set is included before the pragma, so that no
// shared inline function is compiled with it.
#include <math.h>

#include "cpu/kernels.hpp"
#include "cpu/target.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

SAC_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,amx-tile,amx-bf16,amx-int8")
#define SAC_ISA amx
#define SAC_BF16_LANES
#include "cpu/simd_avx512.hpp"
//
#include "cpu/attention_amx.hpp"
#include "cpu/products_amx.hpp"
#include "cpu/products_float.hpp"
#include "cpu/products_fp8_bf16.hpp"
#include "cpu/products_int8_amx.hpp"

namespace saccade {
inline namespace SAC_ISA {
template <>
struct Products<Bf16> : AmxProducts {};
using Int8Products = AmxInt8Products;
using Fp8Products = Bf16Fp8Products;
using Fp8Bf16Attention = Bf16Attention<AmxTiles, Fp8>;
}  // namespace SAC_ISA
}  // namespace saccade
//
#include "cpu/kernels_impl.hpp"
SAC_TARGET_END

namespace saccade {

namespace {

/// CPUID leaf 7: AMX-BF16, AMX-TILE and AMX-INT8.
bool has_amx() {
  constexpr uint32_t kNeeded = 1u << 22 | 1u << 24 | 1u << 25;
  uint32_t a, b, c, d;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kNeeded) == kNeeded;
}

/// Linux keeps the tiles' state only for processes that ask (Documentation/arch/x86/xstate.rst).
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const Kernels* amx_kernels() {
  static constexpr Kernels kKernels = make_kernels("amx");
  static const bool supported = avx512_bf16_kernels() != nullptr && has_amx() && may_use_tiles();
  return supported ? &kKernels : nullptr;
}

}  // namespace saccade
#else
namespace saccade {
const Kernels* amx_kernels() { return nullptr; }
}  // namespace saccade
#endif
