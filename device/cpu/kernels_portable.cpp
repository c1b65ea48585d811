// The kernels for any processor of the target, and the choice among all sets.
#define SAC_ISA portable
#include "cpu/simd_portable.hpp"
//
#include "cpu/kernels_impl.hpp"

namespace saccade {

const Kernels* portable_kernels() {
  static constexpr Kernels kKernels = make_kernels("portable");
  return &kKernels;
}

const Kernels& best_kernels() {
  if (const Kernels* k = avx512_kernels()) return *k;
  if (const Kernels* k = avx2_kernels()) return *k;
  return *portable_kernels();
}

}  // namespace saccade
