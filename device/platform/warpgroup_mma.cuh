// Products by warpgroups (wgmma), under names that say what they do. Only GPUs of compute
// capability 9.0 have them, and only code for sm_90a: elsewhere kHasWarpgroupMma is false and
// nothing here may be called.
#pragma once
#include <cstdint>

namespace saccade {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

inline constexpr bool kHasWarpgroupMma = true;

/// Before the first product, and wherever its sums were written by other instructions.
__device__ inline void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Closes a group of products.
__device__ inline void warpgroup_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until all groups but the newest kLeft are done: sums written, operands read.
template <int kLeft>
__device__ void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

/// Registers of each thread of a warpgroup, a multiple of 8: more, once others have left theirs.
template <int kRegisters>
__device__ void warpgroup_take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void warpgroup_leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Operands of a thread's sums, four for each eight columns.
#define SAC_SUMS_8(d, j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define SAC_SUMS_32(d, j) \
  SAC_SUMS_8(d, j), SAC_SUMS_8(d, j + 1), SAC_SUMS_8(d, j + 2), SAC_SUMS_8(d, j + 3)
#define SAC_SUMS_64(d, j) SAC_SUMS_32(d, j), SAC_SUMS_32(d, j + 4)
#define SAC_SUMS_128(d, j) SAC_SUMS_64(d, j), SAC_SUMS_64(d, j + 8)
#define SAC_SUMS_256(d, j) SAC_SUMS_128(d, j), SAC_SUMS_128(d, j + 16)

/// d = a b, or d + a b: wgmma.m64nNk16 on bf16 with sums in float, both operands in shared memory
/// with k running along rows. Asynchronous: wait for its group before touching `d`. In warp w of
/// the group, with g = lane / 4 and t = lane % 4: d[j][0], [1] are row 16 w + g, columns 8 j + 2 t
/// and the next; d[j][2], [3] the same of row 16 w + g + 8.
__device__ inline void warpgroup_mma(float (&d)[1][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %6, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3},"
      " %4, %5, p, 1, 1, 0, 0;\n}"
      : SAC_SUMS_8(d, 0)
      : "l"(a), "l"(b), "r"(add ? 1 : 0));
}
__device__ inline void warpgroup_mma(float (&d)[4][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %18, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},"
      " %16, %17, p, 1, 1, 0, 0;\n}"
      : SAC_SUMS_32(d, 0)
      : "l"(a), "l"(b), "r"(add ? 1 : 0));
}
__device__ inline void warpgroup_mma(float (&d)[8][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %34, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
      " %32, %33, p, 1, 1, 0, 0;\n}"
      : SAC_SUMS_64(d, 0)
      : "l"(a), "l"(b), "r"(add ? 1 : 0));
}
__device__ inline void warpgroup_mma(float (&d)[16][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
      " %64, %65, p, 1, 1, 0, 0;\n}"
      : SAC_SUMS_128(d, 0)
      : "l"(a), "l"(b), "r"(add ? 1 : 0));
}
__device__ inline void warpgroup_mma(float (&d)[32][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %130, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
      "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
      "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
      "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
      "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127},"
      " %128, %129, p, 1, 1, 0, 0;\n}"
      : SAC_SUMS_256(d, 0)
      : "l"(a), "l"(b), "r"(add ? 1 : 0));
}

/// The same with `a` in registers, each warp's 16 rows as mma.m16n8k16 has them. kTransposed: k
/// runs down the rows of b.
template <bool kTransposed>
__device__ void warpgroup_mma(float (&d)[4][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %21, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},"
      " {%16,%17,%18,%19}, %20, p, 1, 1, %22;\n}"
      : SAC_SUMS_32(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0),
        "n"(kTransposed ? 1 : 0));
}
template <bool kTransposed>
__device__ void warpgroup_mma(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %37, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
      " {%32,%33,%34,%35}, %36, p, 1, 1, %38;\n}"
      : SAC_SUMS_64(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0),
        "n"(kTransposed ? 1 : 0));
}
template <bool kTransposed>
__device__ void warpgroup_mma(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b, bool add) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %69, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
      " {%64,%65,%66,%67}, %68, p, 1, 1, %70;\n}"
      : SAC_SUMS_128(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add ? 1 : 0),
        "n"(kTransposed ? 1 : 0));
}

#undef SAC_SUMS_8
#undef SAC_SUMS_32
#undef SAC_SUMS_64
#undef SAC_SUMS_128
#undef SAC_SUMS_256

#else

inline constexpr bool kHasWarpgroupMma = false;
template <int kRegisters>
__device__ void warpgroup_take_registers() {}
template <int kRegisters>
__device__ void warpgroup_leave_registers() {}
__device__ inline void warpgroup_fence() {}
__device__ inline void warpgroup_commit() {}
template <int kLeft>
__device__ void warpgroup_wait() {}
template <int kEights>
__device__ void warpgroup_mma(float (&)[kEights][4], uint64_t, uint64_t, bool) {}
template <bool kTransposed, int kEights>
__device__ void warpgroup_mma(float (&)[kEights][4], const uint32_t (&)[4], uint64_t, bool) {}

#endif

}  // namespace saccade
