// Everything the scheduler knows. Arrays of fixed size, handed out once by `lay_out`; plain data
// that can live in a process's heap or in device memory alike.
#pragma once
#include "kv/block_pool.hpp"
#include "platform/hd.hpp"
#include "platform/layout.hpp"
#include "ring/outbox.hpp"
#include "ring/peers.hpp"
#include "sched/decision_log.hpp"
#include "sched/policy/policy.hpp"
#include "sched/step.hpp"

namespace saccade {

inline constexpr uint32_t kNone = UINT32_MAX;
inline constexpr uint32_t kMaxEosIds = 16;
/// Statuses that wait for one fence; more are sent in several goes.
inline constexpr uint32_t kOutboxWrites = 256;

enum class PrefillPolicy : uint32_t {
  kChunked = 0,  // chunks of prompts ride with the decodes under the token budget
  kInline = 1,   // decodes pause while admitted prompts are computed (Blink §4.2)
};

/// Every bound of a running device plane.
struct Limits {
  uint32_t num_slots;
  uint32_t num_frontends;
  uint32_t num_seats;               // = max_num_seqs: requests that hold a seat at one time
  uint32_t max_num_batched_tokens;  // rows of a step, >= num_seats
  uint32_t max_model_len;           // tokens of a sequence, prompt and output
  uint32_t block_size;              // tokens
  uint32_t num_blocks;              // >= ceil(max_model_len / block_size): one request always fits
  uint32_t num_host_blocks;  // of the second tier; 0 = none: preempted requests are recomputed
  uint32_t eager_window;     // copies down under way that no request waits for; 0 = none is made
  uint32_t vocab_size;
  uint32_t num_eos_ids;
  uint32_t log_words;  // of the decision log; 0 = none
  PrefillPolicy prefill_policy;
  Policy policy;
  PolicySettings policy_settings;
  uint64_t slo_ttft_ns;  // of requests that name no target of their own
  uint64_t slo_tbt_ns;

  SAC_HD uint32_t max_blocks_per_seq() const { return ceil_div(max_model_len, block_size); }
  SAC_HD uint32_t blocks_for(uint32_t tokens) const { return ceil_div(tokens, block_size); }
};

/// What of a request's parameters every token of it is held against.
struct Asked {
  uint32_t flags;  // SAC_REQ_*
  uint32_t prompt_len;
  uint32_t max_tokens;
  uint32_t min_tokens;
  uint32_t num_stop_ids;
};

/// One admitted request. A seat without blocks is preempted: what host memory holds of its KV comes
/// back when it resumes, the rest is recomputed. The states of rotation follow from the fields, see
/// tiers.hpp.
struct Seat {
  uint64_t arrival;         // order among all requests; the scheduler's only notion of age
  uint64_t last_step;       // last launch that it was part of
  uint64_t moved_ns;        // when it last got its blocks, or gave them up
  uint64_t first_token_ns;  // 0: none yet
  uint64_t last_token_ns;
  uint64_t down_fence;  // last copy of one of its blocks to host memory
  uint64_t up_fence;    // last copy of one of its blocks from there
  uint32_t slot;
  uint32_t ticket;
  uint32_t state;             // SAC_STATE_*
  uint32_t finish;            // SAC_FINISH_*; not NONE: to be retired
  uint32_t num_tokens;        // known: prompt and produced
  uint32_t num_computed;      // positions with KV in its blocks, or in host memory if it has none
  uint32_t num_blocks;        // of device memory
  uint32_t num_host;          // leading blocks that host memory has too, or will have by down_fence
  uint32_t starved;           // 1: its next token waits for a block that is in transit
  uint32_t num_produced;      // tokens sampled
  uint32_t entered_produced;  // num_produced when it last got its blocks
  uint32_t num_records;       // written to the output ring: prompt records, then produced tokens
  uint32_t stride;            // words per record
  uint32_t capacity;          // records the output ring holds
  uint32_t was_computed;      // highest num_computed ever: what lies below is recomputation
  Asked asked;
};

/// All but the last token are computed: the next row yields a token.
SAC_HD inline bool is_decode(const Seat& seat) { return seat.num_tokens == seat.num_computed + 1; }

/// What a seated request asks of the policy: the same for as long as it lives.
struct Wishes {
  uint64_t arrival_ns;
  uint64_t slo_ttft_ns;
  uint64_t slo_tbt_ns;
  int32_t priority;
};

/// A request that waits for a seat, or the free entry of a slot. Lists are linked through slots.
struct Request {
  sac_descriptor descriptor;  // private, checked copy
  uint64_t arrival;
  uint64_t arrival_ns;  // when it was accepted
  uint32_t ticket;
  uint32_t state;  // EMPTY, PREFILL_PENDING, or any later one while seated
  uint32_t seat;   // kNone unless seated
  uint32_t next;
  uint32_t prev;
  uint32_t copied;  // 1 + the ticket whose descriptor was copied before it was accepted; 0 = none
  uint32_t in_bounds;  // 1: the copied descriptor keeps every bound
  uint32_t candidate;  // while it waits: its place among the candidates
};

struct FrontendWatch {
  uint64_t heartbeat;
  uint64_t changed_ns;   // when the heartbeat last moved
  uint32_t acked_epoch;  // epoch whose predecessors hold nothing
  uint32_t lost;         // 1 while given up, until its heartbeat moves again
  uint32_t reclaimed;    // 1: given up, and nothing of it is left
};

/// What the step engine waits for between two steps; see idle.hpp.
enum class Idle : uint32_t {
  kNoWork = 0,
  kForHost = 1,
  kForReaders = 2,
  kForCopies = 3,
};

/// What one tick does to the world outside, made explicit: the step it launches, and what it tells
/// frontends of their requests.
struct Effects {
  StepBatch batch;
  StepSeq* seqs;  // [num_seats]
  Outbox statuses;
};

struct Scheduler {
  Limits limits;
  RingView ring;
  SeatTables tables;  // read-only view of the arrays below, for the step
  StepOutputs outputs;

  // What the device has said of itself; nothing of it is read back from the ring.
  uint64_t heartbeat;
  uint32_t epoch;
  uint32_t publish_count;

  // Slots.
  Peers peers;        // what frontends wrote, as read in this tick
  uint32_t* seen;     // [num_slots]: doorbell word acted upon
  uint32_t* changed;  // [num_slots]: slots whose doorbell differs from that, by the last reading
  ReadAhead ahead;
  Fetch* fetches;     // [num_slots]: scratch
  Request* requests;  // [num_slots]
  uint32_t waiting_head;
  uint32_t waiting_tail;
  uint32_t num_waiting;

  // Seats.
  Seat* seats;           // [num_seats]
  Wishes* wishes;        // [num_seats]
  uint32_t* free_seats;  // stack
  uint32_t num_free_seats;
  uint32_t* running;  // [num_seats]: seated, oldest first
  uint32_t num_running;
  uint32_t num_ended;  // of those: finish is set, to be retired in the next tick
  SeatParams* params;
  uint32_t* history;
  uint32_t* block_tables;
  uint32_t* host_tables;  // [num_seats][max_blocks_per_seq]: blocks of the second tier
  LogitBias* logit_bias;
  uint32_t* stop_ids;
  uint32_t eos_ids[kMaxEosIds];

  BlockPool pool;       // device memory
  BlockPool host_pool;  // host memory
  Copies copies;        // between them
  // What the policy is shown, and where it answers; see choose.hpp. All [num_slots]. The first
  // num_waiting candidates are those who wait for a seat, in any order; they stand here for as long
  // as they wait, since nothing about them changes.
  Candidate* candidates;
  uint32_t* candidate_slots;
  uint32_t* bring_in;
  uint32_t* preempt;
  uint32_t* policy_scratch;
  int64_t* policy_keys;
  uint32_t num_candidates;
  PolicyState policy_state;

  FrontendWatch watch[SAC_MAX_FRONTENDS];
  Effects effects;
  uint32_t* marks[2];  // [ceil(num_seats / 32)]: what the last SeatVerb said of each seat
  bool steady;         // this tick was decided by steady.hpp
  DecisionLog log;
  sac_device_stats stats;  // own copy; published once per tick

  uint64_t tick;
  uint64_t tick_ns;        // when this tick began
  uint64_t idle_since_ns;  // valid unless `idle` is kNoWork
  Idle idle;
  uint64_t step;          // number of the last launch
  uint64_t step_done;     // number of the last committed launch
  uint64_t step_done_ns;  // when its results stood
  uint64_t launch_ns;     // when the last step was launched
  uint64_t mean_step_ns;  // of recent ticks with a step, from their beginning to its results
  uint64_t next_arrival;
  uint64_t pause_before;  // inline policy: prompts older than this hold the decodes; 0 = no pause
  uint32_t published;     // something was written to the ring since the last notification

  SAC_HD uint32_t* tokens(uint32_t seat) {
    return history + static_cast<size_t>(seat) * limits.max_model_len;
  }
  SAC_HD uint32_t* block_table(uint32_t seat) {
    return block_tables + static_cast<size_t>(seat) * limits.max_blocks_per_seq();
  }
  SAC_HD uint32_t* host_table(uint32_t seat) {
    return host_tables + static_cast<size_t>(seat) * limits.max_blocks_per_seq();
  }
  SAC_HD bool has_work() const { return num_running != 0 || num_waiting != 0; }
  /// A request has ended whose blocks the next tick will free.
  SAC_HD bool has_finished() const { return num_ended != 0; }
};

inline void lay_out(BlockPool& pool, uint32_t blocks, Layout& at) {
  pool.free_ring = at.take<uint32_t>(blocks);
  pool.states = at.take<BlockState>(blocks);
}

/// Tells the frontend of a slot where its request is, with the next send_statuses.
SAC_HD inline void post_status(Scheduler& s, uint32_t slot, uint64_t word) {
  post(s.ring, s.effects.statuses, slot, word);
  s.published = 1;
}
SAC_HD inline void send_statuses(Scheduler& s) { send(s.ring, s.effects.statuses); }

/// Hands out every array of `s` from `at`; call with a measuring Layout first. Limits must be set.
/// Host only, also for memory of a device: spans are computed, not touched.
inline void lay_out(Scheduler& s, Layout& at) {
  const Limits& l = s.limits;
  const size_t seats = l.num_seats;
  s.seen = at.take<uint32_t>(l.num_slots);
  s.changed = at.take<uint32_t>(l.num_slots);
  s.fetches = at.take<Fetch>(l.num_slots);
  s.peers.rung = at.take<uint32_t>(l.num_slots);
  s.peers.cursors = at.take<uint32_t>(seats);
  s.peers.seat_slots = at.take<uint32_t>(seats);
  s.effects.statuses.writes = at.take<StatusWrite>(kOutboxWrites);
  s.effects.statuses.capacity = kOutboxWrites;
  s.requests = at.take<Request>(l.num_slots);
  s.seats = at.take<Seat>(seats);
  s.wishes = at.take<Wishes>(seats);
  s.free_seats = at.take<uint32_t>(seats);
  s.running = at.take<uint32_t>(seats);
  s.params = at.take<SeatParams>(seats);
  s.history = at.take<uint32_t>(seats * l.max_model_len);
  s.block_tables = at.take<uint32_t>(seats * l.max_blocks_per_seq());
  s.logit_bias = at.take<LogitBias>(seats * SAC_MAX_LOGIT_BIAS);
  s.stop_ids = at.take<uint32_t>(seats * SAC_MAX_STOP_IDS);
  lay_out(s.pool, l.num_blocks, at);
  if (l.num_host_blocks != 0) {
    s.host_tables = at.take<uint32_t>(seats * l.max_blocks_per_seq());
    lay_out(s.host_pool, l.num_host_blocks, at);
    s.copies.down.ring = at.take<BlockCopy>(l.num_host_blocks);
    s.copies.up.ring = at.take<BlockCopy>(l.num_host_blocks);
  }
  s.candidates = at.take<Candidate>(l.num_slots);
  s.candidate_slots = at.take<uint32_t>(l.num_slots);
  s.bring_in = at.take<uint32_t>(l.num_slots);
  s.preempt = at.take<uint32_t>(l.num_slots);
  s.policy_scratch = at.take<uint32_t>(l.num_slots);
  s.policy_keys = at.take<int64_t>(l.num_slots);
  s.effects.seqs = at.take<StepSeq>(seats);
  for (uint32_t*& line : s.marks) line = at.take<uint32_t>(ceil_div(l.num_seats, 32));
  s.outputs.sampled = at.take<uint64_t>(seats * kRecordWords);
  s.outputs.prompt_records = at.take<uint64_t>(size_t{l.max_num_batched_tokens} * kRecordWords);
  s.log.words = at.take<uint64_t>(l.log_words);
}

/// First state of all arrays; the ring is attached separately. eos_ids: [limits.num_eos_ids].
SAC_HD inline void reset(Scheduler& s, const uint32_t* eos_ids) {
  const Limits& l = s.limits;
  for (uint32_t i = 0; i < l.num_eos_ids; ++i) s.eos_ids[i] = eos_ids[i];
  for (uint32_t i = 0; i < l.num_seats; ++i) {
    s.seats[i] = Seat{};
    s.free_seats[i] = l.num_seats - 1 - i;
    s.peers.seat_slots[i] = kNoSlotOfSeat;
    s.peers.cursors[i] = 0;
  }
  s.peers.seats_end = 0;
  s.ahead = ReadAhead{};
  s.effects.statuses.count = 0;
  s.num_free_seats = l.num_seats;
  s.num_running = s.num_ended = 0;
  s.waiting_head = s.waiting_tail = kNone;
  s.num_waiting = 0;
  s.pool.reset(l.num_blocks);
  s.host_pool.reset(l.num_host_blocks);
  s.copies.down.reset(l.num_host_blocks);
  s.copies.up.reset(l.num_host_blocks);
  s.log.reset(l.log_words);
  s.stats = sac_device_stats{};
  s.tick = s.step = s.step_done = s.next_arrival = s.pause_before = 0;
  s.published = 0;
  s.steady = false;
  s.num_candidates = 0;
  s.policy_state = PolicyState{};
  s.tick_ns = s.idle_since_ns = s.step_done_ns = s.launch_ns = s.mean_step_ns = 0;
  s.idle = Idle::kNoWork;
  s.tables =
      SeatTables{l.num_seats, l.max_model_len, l.max_blocks_per_seq(), l.num_eos_ids, s.params,
                 s.history,   s.block_tables,  s.logit_bias,           s.stop_ids,    s.eos_ids};
  s.effects.batch = StepBatch{};
  s.effects.batch.seqs = s.effects.seqs;
}

}  // namespace saccade
