// What a scheduling policy sees and says: plain data in, plain data out, no scheduler types. A
// policy names who shall come onto the device and who shall leave it; the scheduler carries that
// out as far as blocks, seats and fences allow, and asks again at the next tick.
//
// A policy never allocates, reads no clock, and does at most O(n log n) work for n candidates.
// Times are nanoseconds of one clock. Blocks are KV blocks of one size.
//
// What the scheduler owes a policy:
//   - Each live request stands in `candidates` at most once. Left out are those that nothing can be
//     decided about: a reader is behind, or a copy still reads the blocks that it gave up.
//   - A request whose blocks are being written (rotating in) is given as kRunning with `fixed` = 1.
//   - Candidates may stand in any order; decisions depend on their values alone, not on their
//     place.
// What a policy owes the scheduler, checked by device/tests/policy_test.cpp:
//   - No candidate stands twice in the two lists; `bring_in` names waiting and rotated-out ones
//     only, `preempt` running ones only, and none that is `fixed`.
//   - The blocks of `bring_in` are at most the free blocks and those held by `preempt` together.
//   - `bring_in` is in order of preference: the scheduler may stop where something does not fit.
//   - When everything fits, nobody is preempted and everyone comes in, in order of arrival; only
//     goodput may hold new requests back then, while steps are longer than TBT targets allow or
//     prompts fill the next one.
//   - Every request is brought in within a bound: docs/policies.md says which, policy by policy.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

enum class Policy : uint32_t {
  kFcfs = 0,     // first come, first served
  kWf = 1,       // waiting first
  kSf = 2,       // swapped (rotated out) first
  kLvf = 3,      // largest virtual lag time first
  kGoodput = 4,  // whoever can still meet its targets first
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
                            // it, or arrival_ns if it never was there
  uint64_t first_token_ns;  // 0: none yet
  uint64_t last_token_ns;   // 0: none yet
  uint64_t slo_ttft_ns;     // target of the time to the first token; > 0
  uint64_t slo_tbt_ns;      // target of the mean time between tokens; > 0
  CandidateState state;
  uint32_t fixed;               // 1: counted, but not to be moved now
  int32_t priority;             // class: lower is earlier; 0 is the normal one
  uint32_t blocks;              // waiting: whole prompt and first token; rotated out:
                                // all that it had and the next token; running: held
  uint32_t blocks_to_send;      // running: not yet in host memory, sent if it is preempted
  uint32_t produced;            // tokens
  uint32_t prompt_tokens_left;  // prompt tokens (or recomputed ones) still to be computed
  uint32_t rows;                // that it would take of the next step, if it had all of it
};

/// What an operator may set. Bounds are checked where flags are read (crates/saccade).
struct PolicySettings {
  float alpha = 3.0f;             // slope of the lag of rotated-out requests; 0 to 100
  float beta_f = 0.5f;            // share of the TTFT target that a waiting request lags not; +-100
  float beta_b = 0.0f;            // same of the TBT target, rotated out; negative: a head start
  uint32_t b_xfer_blocks = 2400;  // blocks that may change hands per tick; >= 0
  uint64_t min_run_ns = 500'000'000;         // nobody is preempted sooner after it came in
  uint64_t max_wait_ns = 60'000'000'000ull;  // who waited longer is brought in before all others,
                                             // oldest first (not under goodput); > 0
  uint32_t late_share = 16;  // goodput: one in so many blocks goes to late requests; >= 2
};

/// What a policy keeps from tick to tick. All zero at the start.
struct PolicyState {
  uint64_t late_credit;    // goodput: blocks that came in since a late request last had its turn
  uint64_t late_turn;      // goodput: 1 + order of the late request whose turn it is; 0 = nobody's
  uint64_t last_tick_ns;   // goodput: when it decided last
  uint64_t least_step_ns;  // goodput: the shortest step_ns, forgotten under little load
};

struct PolicyInput {
  uint64_t now_ns;
  uint64_t step_ns;           // recent mean time from step to step; 0: not known
  uint32_t step_rows;         // tokens that one step computes at most (max_num_batched_tokens)
  uint32_t free_blocks;       // of the device: free, or promised by copies under way
  uint32_t free_host_blocks;  // of host memory
  uint32_t free_seats;        // for waiting requests; who was on the device has one
  uint32_t growth_blocks;     // that running requests need for their next token
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
