// A block of threads as a team that reads the ring: the first thread leads, all warps but the first
// are members. The other lanes of the first warp have nothing to do and exit at once, so that the
// tick never runs in a warp whose lanes must reconverge.
#pragma once
#include "cuda/control.hpp"
#include "cuda/cuda_memory.hpp"
#include "cuda/residence.hpp"
#include "platform/shared_word.cuh"

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

/// By the first thread, before the others use it.
__device__ inline void prepare(BlockShared& shared) {
  shared.arrived = 0;
  for (uint32_t r = 0; r <= kMembers; ++r) shared.reached[r] = 0;
  shared.board.word_at = nullptr;
  shared.crashed = 0;
  shared.tick = 0;
}

/// The first wait that runs out leaves the record; later ones are its consequence.
__device__ __forceinline__ void leave_record(BlockShared& shared, CrashRecord* crash, WaitSite site,
                                             uint32_t who, uint32_t late, uint64_t expected,
                                             uint64_t observed, uint64_t waited_ns) {
  if (atomicCAS(&shared.crashed, 0u, 1u) != 0) return;
  store_relaxed(&crash->who, who);
  store_relaxed(&crash->late, late);
  store_relaxed(&crash->expected, expected);
  store_relaxed(&crash->observed, observed);
  store_relaxed(&crash->tick, load_relaxed(&shared.tick));
  store_relaxed(&crash->waited_ns, waited_ns);
  // SYNC: release, with the host's acquire of site: the record is whole.
  store_release(&crash->site, static_cast<uint32_t>(site));
}
/// The same of a meeting that did not take place. Out of line, since the tick has more than a
/// hundred meetings: instructions that the first caches do not hold take as long to come as data.
static __device__ __noinline__ void leave_record_of_meeting(BlockShared& shared, CrashRecord* crash,
                                                            WaitSite site, uint32_t who,
                                                            uint32_t meeting, uint64_t waited_ns) {
  uint32_t late = 0, observed = load_relaxed_shared(&shared.reached[0]);
  for (uint32_t r = 1; r <= kMembers; ++r) {
    const uint32_t reached = load_relaxed_shared(&shared.reached[r]);
    if (reached >= observed) continue;
    late = r;
    observed = reached;
  }
  leave_record(shared, crash, site, who, late, meeting, observed, waited_ns);
}

/// The leader, or a member: known to the compiler, so that the leader's code has no member's in it.
template <bool kLeads>
class BlockCrew {
 public:
  /// A lane's doorbell.
  struct Granule {
    uint32_t now;
    uint32_t seen;
  };

  __device__ BlockCrew(BlockShared& shared, CrashRecord* crash)
      : shared_(shared),
        crash_(crash),
        rank_(kLeads ? kMembers : threadIdx.x / kWarp - 1),
        lane_(kLeads ? 0 : threadIdx.x % kWarp) {}

  __device__ uint32_t rank() const { return kLeads ? kMembers : rank_; }
  __device__ uint32_t size() const { return kMembers; }
  __device__ uint32_t width() const { return kWarp; }
  __device__ uint32_t lane() const { return kLeads ? 0 : lane_; }
  __device__ bool is_scribe() const { return lane() == 0; }
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
    if (kLeads) return arrive(site);
    __syncwarp();  // all lanes have read and written before the scribe says so
    bool came = true;
    if (is_scribe()) came = arrive(site);
    came = __shfl_sync(kAllLanes, came ? 1 : 0, 0) != 0;
    __syncwarp();  // and none reads before the scribe has seen the others come
    return came;
  }

  __device__ void report(WaitSite site, uint32_t late, uint64_t expected, uint64_t observed,
                         uint64_t waited_ns) {
    failed_ = true;
    leave_record(shared_, crash_, site, rank(), late, expected, observed, waited_ns);
  }

 private:
  static constexpr unsigned kAllLanes = 0xffffffffu;
  static constexpr unsigned kNapNs = 200;  // an idle device leaves the bus to others
  /// Looks at a meeting for each look at the clock, which is only there for waits without an end.
  static constexpr uint32_t kLooksPerClock = 64;

  /// A counter that all raise and all watch. The library's barrier suspends the warps that wait.
  __device__ bool arrive(WaitSite site) {
    const uint32_t meeting = ++meetings_;
    store_relaxed_shared(&shared_.reached[rank()], meeting);
    // SYNC: release and acquire within the block, with every thread that meets: what each wrote
    // before is visible to all after.
    add_release_shared(&shared_.arrived, 1);
    const uint32_t all = meeting * (kMembers + 1);
    uint64_t begin_ns = 0;
    for (uint32_t looks = 1; static_cast<int32_t>(load_acquire_shared(&shared_.arrived) - all) < 0;
         ++looks) {
      if (looks % kLooksPerClock != 0) continue;
      const uint64_t now_ns = monotonic_ns();
      if (begin_ns == 0) begin_ns = now_ns;
      if (now_ns - begin_ns <= budget_ns(site)) continue;
      failed_ = true;
      leave_record_of_meeting(shared_, crash_, site, rank(), meeting, now_ns - begin_ns);
      return false;
    }
    return true;
  }

  BlockShared& shared_;
  CrashRecord* crash_;
  const uint32_t rank_;
  const uint32_t lane_;
  uint32_t meetings_ = 0;
  bool failed_ = false;
};
using BlockLeader = BlockCrew<true>;
using BlockMember = BlockCrew<false>;

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
  if (threadIdx.x == 0) prepare(shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    BlockLeader leader(shared, crash);
    lead_with(shared.board, leader);
  } else if (threadIdx.x >= kWarp) {
    BlockMember member(shared, crash);
    serve_team(shared.board, member);
  }
}

}  // namespace saccade
