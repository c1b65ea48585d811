// A block of threads as a team that reads the ring: the first thread leads, all warps but the first
// are members. The other lanes of the first warp have nothing to do and exit at once, so that the
// tick never runs in a warp whose lanes must reconverge.
#pragma once
#include <cuda/atomic>

#include "cuda/control.hpp"
#include "cuda/cuda_memory.hpp"
#include "cuda/residence.hpp"

namespace saccade {

inline constexpr uint32_t kWarp = 32;
static_assert(kWarp == SAC_SLOT_GRANULE, "a warp looks at one granule of slots, a slot per lane");
inline constexpr uint32_t kBlockThreads = 256;
inline constexpr uint32_t kMembers = kBlockThreads / kWarp - 1;
static_assert(kMembers <= kMaxTeam && kMembers * kLooks >= kMaxGranules);

/// The team's shared memory.
struct BlockShared {
  TeamBoard board;
  uint32_t arrived;                // arrivals at all meetings so far, modulo 2^32
  uint32_t reached[kMembers + 1];  // meetings that each rank has reached; [kMembers]: the leader
  uint32_t crashed;                // 1: a crash record is being or was written
  uint64_t tick;
};

class BlockCrew {
 public:
  /// A lane's doorbell.
  struct Granule {
    uint32_t now;
    uint32_t seen;
  };

  /// By the first thread, before the others use it.
  __device__ static void prepare(BlockShared& shared) {
    shared.arrived = 0;
    for (uint32_t r = 0; r <= kMembers; ++r) shared.reached[r] = 0;
    shared.board.word_at = nullptr;
    shared.crashed = 0;
    shared.tick = 0;
  }
  __device__ BlockCrew(BlockShared& shared, CrashRecord* crash)
      : shared_(shared),
        crash_(crash),
        rank_(threadIdx.x == 0 ? kMembers : threadIdx.x / kWarp - 1),
        lane_(threadIdx.x % kWarp) {}

  __device__ uint32_t rank() const { return rank_; }
  __device__ uint32_t size() const { return kMembers; }
  __device__ uint32_t width() const { return kWarp; }
  __device__ uint32_t lane() const { return lane_; }
  __device__ bool is_scribe() const { return lane_ == 0; }
  __device__ bool failed() const { return failed_; }
  __device__ void set_tick(uint64_t tick) { shared_.tick = tick; }
  __device__ void nap() const { __nanosleep(kNapNs); }

  __device__ Granule look(const uint32_t* doorbells, const uint32_t* seen) const {
    return {load_relaxed(doorbells + lane_), seen[lane_]};
  }
  __device__ uint32_t note(const Granule& granule, uint32_t* rung) const {
    const bool changed = granule.now != granule.seen;
    if (changed) rung[lane_] = granule.now;
    return __ballot_sync(kAllLanes, changed);
  }
  __device__ bool any(bool here) const { return __any_sync(kAllLanes, here); }
  __device__ uint32_t most(uint32_t word) const { return __reduce_max_sync(kAllLanes, word); }
  __device__ uint32_t merge(uint32_t mask) const { return __reduce_or_sync(kAllLanes, mask); }
  __device__ void settle() const { __syncwarp(); }

  __device__ bool meet(WaitSite site) {
    if (rank_ == kMembers) return arrive(site);
    __syncwarp();  // all lanes have read and written before the scribe says so
    bool came = true;
    if (is_scribe()) came = arrive(site);
    came = __shfl_sync(kAllLanes, came ? 1 : 0, 0) != 0;
    __syncwarp();  // and none reads before the scribe has seen the others come
    return came;
  }

  /// The first wait that runs out leaves the record; later ones are its consequence.
  __device__ void report(WaitSite site, uint32_t late, uint64_t expected, uint64_t observed,
                         uint64_t waited_ns) {
    failed_ = true;
    if (atomicCAS(&shared_.crashed, 0u, 1u) != 0) return;
    store_relaxed(&crash_->who, rank_);
    store_relaxed(&crash_->late, late);
    store_relaxed(&crash_->expected, expected);
    store_relaxed(&crash_->observed, observed);
    store_relaxed(&crash_->tick, load_relaxed(&shared_.tick));
    store_relaxed(&crash_->waited_ns, waited_ns);
    // SYNC: release, with the host's acquire of site: the record is whole.
    store_release(&crash_->site, static_cast<uint32_t>(site));
  }

 private:
  static constexpr unsigned kAllLanes = 0xffffffffu;
  static constexpr unsigned kNapNs = 200;  // an idle device leaves the bus to others

  /// A counter that all raise and all watch. The library's barrier suspends the warps that wait.
  __device__ bool arrive(WaitSite site) {
    using Arrivals = cuda::atomic_ref<uint32_t, cuda::thread_scope_block>;
    const Arrivals arrived(shared_.arrived);
    const uint32_t meeting = ++meetings_;
    store_relaxed(&shared_.reached[rank_], meeting);
    const uint64_t begin_ns = monotonic_ns();
    // SYNC: release and acquire within the block, with every thread that meets: what each wrote
    // before is visible to all after.
    arrived.fetch_add(1, cuda::memory_order_release);
    const uint32_t all = meeting * (kMembers + 1);
    while (static_cast<int32_t>(arrived.load(cuda::memory_order_acquire) - all) < 0) {
      if (monotonic_ns() - begin_ns <= budget_ns(site)) continue;
      return miss(site, meeting, monotonic_ns() - begin_ns);
    }
    return true;
  }
  /// Leaves the record of a meeting that did not take place.
  __device__ bool miss(WaitSite site, uint32_t meeting, uint64_t waited_ns) {
    uint32_t late = 0;
    for (uint32_t r = 1; r <= kMembers; ++r)
      if (reached(r) < reached(late)) late = r;
    report(site, late, meeting, reached(late), waited_ns);
    return false;
  }
  __device__ uint32_t reached(uint32_t rank) const { return load_relaxed(&shared_.reached[rank]); }

  BlockShared& shared_;
  CrashRecord* crash_;
  const uint32_t rank_;
  const uint32_t lane_;
  uint32_t meetings_ = 0;
  bool failed_ = false;
};

/// The block's dynamic shared memory.
__device__ inline OwnMemory& own_memory() {
  extern __shared__ __align__(16) unsigned char own_words[];
  return *reinterpret_cast<OwnMemory*>(own_words);
}
/// Call before launching `kernel` with more of it than every kernel may have.
inline void allow_own_memory(const void* kernel) {
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kMostOwnBytes)),
          "cudaFuncSetAttribute");
}

/// Sets up the team and runs each thread's part: `lead_with(board, crew)` on the first thread. All
/// threads of the block must call it.
template <class LeadWith>
__device__ __forceinline__ void run_block(CrashRecord* crash, LeadWith lead_with) {
  __shared__ BlockShared shared;
  if (threadIdx.x == 0) BlockCrew::prepare(shared);
  __syncthreads();
  BlockCrew crew(shared, crash);
  if (threadIdx.x == 0) {
    lead_with(shared.board, crew);
  } else if (threadIdx.x >= kWarp) {
    serve_team(shared.board, crew);
  }
}

}  // namespace saccade
