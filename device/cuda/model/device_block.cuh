// A thread's view of its block on a GPU: thin names for the instructions that kernels use.
#pragma once
#include <cuda_runtime.h>

#include "cuda/model/block_ops.hpp"
#include "platform/bulk_copy.cuh"
#include "platform/warpgroup_mma.cuh"

namespace saccade::gpu {

class DeviceBlock {
 public:
  __device__ uint32_t thread() const { return threadIdx.x; }
  __device__ uint32_t lane() const { return threadIdx.x % kWarpThreads; }
  __device__ uint32_t warp() const { return threadIdx.x / kWarpThreads; }
  __device__ uint32_t x() const { return blockIdx.x; }
  __device__ uint32_t y() const { return blockIdx.y; }
  __device__ uint32_t z() const { return blockIdx.z; }
  __device__ uint32_t grid_x() const { return gridDim.x; }

  /// The block's shared memory, uninitialised, aligned to the 1,024 bytes after which wgmma's
  /// exchange of pieces repeats.
  __device__ unsigned char* shared() const {
    extern __shared__ __align__(1024) unsigned char memory[];
    return memory;
  }
  __device__ static uint32_t shared_address(const void* shared) {
    return saccade::shared_address(shared);
  }

  // Between kernels of one stream whose launches may overlap: sm_90 and later. The next kernel
  // begins as soon as all blocks of this one have begun, and waits before it reads what others
  // write.
  __device__ static void launch_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  }
  /// Waits until the previous kernel is over and, because each waits for its predecessor, all
  /// earlier ones.
  __device__ static void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }

  __device__ void sync() const { __syncthreads(); }
  __device__ void warp_sync() const { __syncwarp(); }

  template <class T>
  __device__ T shuffle_xor(T value, uint32_t mask) const {
    return __shfl_xor_sync(kAllLanes, value, static_cast<int>(mask));
  }
  template <class T>
  __device__ T shuffle(T value, uint32_t lane) const {
    return __shfl_sync(kAllLanes, value, static_cast<int>(lane));
  }
  template <class T>
  __device__ T shuffle_up(T value, uint32_t by) const {
    return __shfl_up_sync(kAllLanes, value, by);
  }
  __device__ uint32_t ballot(bool vote) const { return __ballot_sync(kAllLanes, vote); }

  __device__ static uint32_t popcount(uint32_t word) {
    return static_cast<uint32_t>(__popc(static_cast<int>(word)));
  }

  /// Orders what this thread and those that it met at sync() did before against what comes after,
  /// for all blocks.
  __device__ void fence() const { __threadfence(); }
  /// A word that another block of this kernel may have written: past the first cache, which does
  /// not see it.
  template <class T>
  __device__ T load_far(const T* at) const {
    return __ldcg(at);
  }

  // Atomics on integers only: what they leave does not depend on their order.
  __device__ uint32_t add(uint32_t* at, uint32_t value) const { return atomicAdd(at, value); }
  __device__ void add(uint64_t* at, uint64_t value) const {
    atomicAdd(reinterpret_cast<unsigned long long*>(at), value);
  }
  /// Nor does this one's, where only one thread adds to a place; it does not wait for the result.
  __device__ void add(float* at, float value) const { atomicAdd(at, value); }
  __device__ void max(uint32_t* at, uint32_t value) const { atomicMax(at, value); }
  __device__ void min(uint32_t* at, uint32_t value) const { atomicMin(at, value); }
  __device__ uint32_t exchange(uint32_t* at, uint32_t value) const { return atomicExch(at, value); }

  /// 16 bytes from global to shared memory, asynchronously; zeros when not `real`.
  __device__ void copy16(void* shared_to, const void* global_from, bool real = true) const {
    const uint32_t bytes = real ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared_to)),
                 "l"(global_from), "r"(bytes)
                 : "memory");
  }
  /// Closes a group of copies.
  __device__ void commit() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  /// Waits until all but the thread's newest kLeft groups have arrived.
  template <uint32_t kLeft>
  __device__ void wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
  }

  // Barriers in shared memory, and bulk copies that they count: sm_90 and later.
  /// `arrivals` a phase.
  __device__ void barrier_init(uint64_t* barrier, uint32_t arrivals) const {
    bulk_barrier_init(barrier, arrivals);
  }
  /// After the inits, before the block's sync().
  __device__ void barrier_fence() const { bulk_shared_fence(); }
  __device__ void barrier_arrive(uint64_t* barrier) const { bulk_barrier_arrive(barrier); }
  /// Arrives, and says how many bytes belong to the phase.
  __device__ void barrier_expect(uint64_t* barrier, uint32_t bytes) const {
    bulk_barrier_expect(barrier, bytes);
  }
  /// Waits until the phase of this parity is over; the next may be over too, the one after it not.
  __device__ void barrier_wait(uint64_t* barrier, uint32_t parity) const {
    for (uint32_t looks = 0; !bulk_barrier_passed(barrier, parity); ++looks) {
      if (looks == kMostLooks) __trap();
    }
  }
  /// From global to shared memory; addresses and size are multiples of 16.
  __device__ void bulk_copy(void* shared_to, const void* global_from, uint32_t bytes,
                            uint64_t* barrier) const {
    bulk_load(shared_to, global_from, bytes, barrier);
  }

  // Products of a warpgroup: warpgroup_mma.cuh. All its four warps call together.
  static constexpr bool kHasWarpgroupMma = saccade::kHasWarpgroupMma;
  __device__ void warpgroup_fence() const { saccade::warpgroup_fence(); }
  __device__ void warpgroup_commit() const { saccade::warpgroup_commit(); }
  template <int kLeft>
  __device__ void warpgroup_wait() const {
    saccade::warpgroup_wait<kLeft>();
  }
  template <uint32_t kEights>
  __device__ void warpgroup_mma(float (&d)[kEights][4], uint64_t a, uint64_t b, bool add) const {
    saccade::warpgroup_mma(d, a, b, add);
  }

  /// The same with the rows of `a` in registers, the warp's 16 as mma has them: they may not change
  /// before the product's group is over. kTransposed: k runs down the rows of b.
  template <bool kTransposed, uint32_t kEights>
  __device__ void warpgroup_mma(float (&d)[kEights][4], const uint32_t (&a)[4], uint64_t b,
                                bool add) const {
    saccade::warpgroup_mma<kTransposed>(d, a, b, add);
  }
  /// Of a warpgroup, whose threads all call: more registers than its share of the block's, once
  /// others leave theirs.
  template <uint32_t kRegisters>
  __device__ void take_registers() const {
    warpgroup_take_registers<kRegisters>();
  }
  template <uint32_t kRegisters>
  __device__ void leave_registers() const {
    warpgroup_leave_registers<kRegisters>();
  }
  /// Orders this thread's ordinary accesses to shared memory against bulk copies and wgmma.
  __device__ void shared_fence() const { bulk_shared_fence(); }

  /// Four 8x8 matrices of 16-bit elements; lane 8 m + r names row r of matrix m. Of each the lane
  /// receives elements 2 (lane % 4) and the next of row lane / 4.
  __device__ void load_matrices(uint32_t (&out)[4], const void* row) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
  /// The same of each matrix's transpose.
  __device__ void load_transposed(uint32_t (&out)[4], const void* row) const {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(shared_address(row))
                 : "memory");
  }
  /// d += a b, by mma.m16n8k16 on bf16 with sums in float. With g = lane / 4 and t = lane % 4:
  /// a: (row g, k 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..);
  /// b: (k 2t.., column g), (2t + 8.., g); d: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
  __device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) const {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  /// Two floats as a pair of bf16, the first in the low half.
  __device__ uint32_t pack(float low, float high) const {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }
  /// Four e4m3 numbers as bf16, exactly: pairs[0] has bytes 0 and 2, the first in the low half,
  /// pairs[1] bytes 1 and 3. All ones, e4m3's NaN, become 480 with their sign.
  __device__ void widen_fp8(uint32_t word, uint32_t (&pairs)[2]) const {
    pairs[0] = scale_up(spread_fp8(word << 8));
    pairs[1] = scale_up(spread_fp8(word));
  }
  /// Two joined pairs (join_fp8) as bf16: pairs[0] has the first numbers, pairs[1] the second ones.
  __device__ void widen_joined_fp8(uint32_t joined, uint32_t (&pairs)[2]) const {
    pairs[0] = scale_up(spread_first_fp8(joined));
    pairs[1] = scale_up(spread_second_fp8(joined));
  }
  /// 2^x by the special function unit: exact 1 for 0, 0 for -inf.
  __device__ float exp2(float x) const {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }

 private:
  /// A pair of bf16 times 2^120. By fma with -0, which changes no sign: sm_80 has no product alone.
  __device__ static uint32_t scale_up(uint32_t pair) {
    uint32_t scaled;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(scaled)
        : "r"(pair), "r"(0x7b807b80u), "r"(0x80008000u));
    return scaled;
  }
  /// At a barrier; one look may suspend the thread for some microseconds. Only a lost copy takes
  /// this many; then the process must end.
  static constexpr uint32_t kMostLooks = 1u << 27;
};

/// A kernel struct as a kernel.
template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, Kernel::kBlocksPerSm)
    entry(const __grid_constant__ typename Kernel::Args args) {
  const DeviceBlock block;
  run_kernel<Kernel>(block, args);
}

}  // namespace saccade::gpu
