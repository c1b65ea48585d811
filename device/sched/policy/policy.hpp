// What a scheduling policy sees and says: plain data in, plain data out, no scheduler types. A
// policy names the requests to bring onto the device and the requests to take off it; the scheduler
// does so as far as blocks, seats and fences allow, and asks again at the next tick.
//
// A policy never allocates, reads no clock, and does at most O(n log n) work for n candidates.
// Times are nanoseconds of one clock. Blocks are KV blocks of one size.
//
// What the scheduler owes a policy:
//   - Each live request is in `candidates` at most once. A request about which nothing can be
//     decided is left out: its reader is behind, or a copy still reads the blocks that it gave up.
//   - `free_blocks` counts what requests hold whose readers are behind: they give it up for others.
//   - A request whose blocks are being written (rotating in) is given as kRunning with `fixed` = 1.
//   - Candidates come in any order; decisions depend on their values alone, not on their place.
// What a policy owes the scheduler, checked by device/tests/policy_test.cpp:
//   - No candidate is listed twice in the two lists together; `bring_in` names only waiting and
//     rotated-out ones, `preempt` only running ones, and none that is `fixed`.
//   - Waiting requests in `bring_in` have seats: of their tenant's own, or spare ones. fcfs, and
//     all where everything fits, leave that to the scheduler: it passes over those without one.
//   - Requests of tenants that are over their shares come in behind those of all others, and leave
//     before them.
//   - The blocks of `bring_in` are at most the free blocks and those held by `preempt` together.
//   - `bring_in` is in order of preference: the scheduler may stop where something does not fit.
//   - When everything fits, no request is preempted and all come in, in order of arrival; only
//     goodput may then hold new requests back, while steps are longer than TBT targets allow or
//     prompts fill the next one.
//   - Every request is brought in within a bound: docs/policies.md has it for each policy.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

enum class Policy : uint32_t {
  kFcfs = 0,     // first come, first served
  kWf = 1,       // waiting first
  kSf = 2,       // swapped (rotated out) first
  kLvf = 3,      // largest virtual lag time first
  kGoodput = 4,  // requests that can still meet their targets first
  kChurn = 5,    // for tests: rotates whatever can be rotated, at every tick
};

enum class CandidateState : uint32_t {
  kWaiting = 0,     // never had blocks
  kRotatedOut = 1,  // had blocks and gave them up: its KV is in host memory, or is recomputed
  kRunning = 2,     // holds blocks
};

/// One request, as a policy sees it.
struct Candidate {
  uint64_t order;           // arrival number; smaller is older; unique
  uint64_t arrival_ns;      // when it was accepted
  uint64_t entered_ns;      // running: when it last came onto the device; else when it last left
                            // it, or arrival_ns if it was never on it
  uint64_t first_token_ns;  // 0: none yet
  uint64_t last_token_ns;   // 0: none yet
  uint64_t slo_ttft_ns;     // target of the time to the first token; > 0
  uint64_t slo_tbt_ns;      // target of the mean time between tokens; > 0
  CandidateState state;
  uint32_t fixed;               // 1: counted, but must not be moved now
  int32_t priority;             // class: lower is earlier; 0 is the normal one
  uint32_t tenant;              // below 64
  uint32_t blocks;              // waiting: whole prompt and first token; rotated out:
                                // all that it had and the next token; running: held
  uint32_t blocks_to_send;      // running: not yet in host memory, sent if it is preempted
  uint32_t produced;            // tokens
  uint32_t prompt_tokens_left;  // prompt tokens (or recomputed ones) still to be computed
  uint32_t rows;                // of the next step that it would take, if it had all of it
};

/// What an operator may set. Bounds are checked where flags are read (crates/saccade).
struct PolicySettings {
  float alpha = 3.0f;             // slope of the lag of rotated-out requests; 0 to 100
  float beta_f = 0.5f;            // share of the TTFT target before a waiting request lags; +-100
  float beta_b = 0.0f;            // same for the TBT target, rotated out; negative: a head start
  uint32_t b_xfer_blocks = 2400;  // blocks that may change hands per tick; >= 0
  uint64_t min_run_ns = 500'000'000;         // no request is preempted sooner after it came in
  uint64_t max_wait_ns = 60'000'000'000ull;  // requests that waited longer are brought in before
                                             // all others, oldest first (not under goodput); > 0
  uint32_t late_share = 16;  // goodput: one in this many blocks goes to late requests; >= 2
};

/// What a policy keeps from tick to tick. All zero at the start.
struct PolicyState {
  uint64_t late_credit;    // goodput: blocks that came in since a late request last had its turn
  uint64_t late_turn;      // goodput: 1 + order of the late request whose turn it is; 0 = none
  uint64_t last_tick_ns;   // goodput: when it last decided
  uint64_t least_step_ns;  // goodput: the shortest step_ns, forgotten under little load
};

/// Free seats, and whose they are: a seat of a tenant's share is not another's (sched/shares.hpp).
struct FreeSeats {
  uint32_t free;   // for waiting requests; a rotated-out one has its own
  uint32_t spare;  // of these, for any tenant
  uint32_t* own;   // by tenant: that its share allows it beyond what it has. Null: all are spare

  SAC_HD bool has_one_for(uint32_t tenant) const {
    return free != 0 && (own == nullptr || spare != 0 || own[tenant] != 0);
  }
  SAC_HD void take(uint32_t tenant) {
    --free;
    if (own != nullptr) --(own[tenant] != 0 ? own[tenant] : spare);
  }
};

struct PolicyInput {
  uint64_t now_ns;
  uint64_t step_ns;           // recent mean time from step to step; 0: not known
  uint32_t step_rows;         // most tokens that one step computes (max_num_batched_tokens)
  uint32_t free_blocks;       // of the device: free, or promised by copies in flight
  uint32_t free_host_blocks;  // of host memory
  uint32_t growth_blocks;     // that running requests need for their next token
  FreeSeats seats;            // a policy takes its entrants' seats
  uint64_t over;              // bit by tenant: it had more than its share, see sched/shares.hpp
  uint32_t* tenant_rows;      // by tenant, of the next step, that its running requests would take;
                              // a policy adds its entrants' rows. Null: there is one tenant
  uint32_t num_candidates;
  const Candidate* candidates;
  PolicySettings settings;
};

/// Arrays of the caller, each [num_candidates]. Entries are indices into `candidates`.
struct PolicyOutput {
  uint32_t* bring_in;
  uint32_t* preempt;
  uint32_t* scratch;  // no meaning outside a policy
  int64_t* keys;      // same
  uint32_t num_bring_in;
  uint32_t num_preempt;
};

}  // namespace saccade
