// The scheduler: its parts, each of which has one owner. Plain data with arrays of fixed size,
// handed out once by `lay_out`; it can live in a process's heap or in device memory alike. Verbs
// take the parts that they use; only what composes them (tick.hpp, steady.hpp, the teams of a GPU)
// takes it whole.
#pragma once
#include "sched/course.hpp"
#include "sched/fetch/desk.hpp"
#include "sched/idle.hpp"
#include "sched/inbox.hpp"
#include "sched/kv_tiers.hpp"
#include "sched/launch.hpp"
#include "sched/parking.hpp"
#include "sched/policy_desk.hpp"
#include "sched/report.hpp"
#include "sched/seats.hpp"
#include "sched/shares.hpp"
#include "sched/slots.hpp"
#include "sched/waiting.hpp"

namespace saccade {

struct Scheduler {
  Limits limits;
  Inbox inbox;          // what frontends wrote
  Slots slots;          // the request of each slot of the ring
  WaitingLine waiting;  // those without a seat
  Seats seats;          // those with one
  Parking parking;      // requests that gave theirs up because their readers are behind
  KvTiers kv;           // blocks of both tiers, and who holds them
  FetchDesk fetch;      // what the fetch plane was asked for
  PolicyDesk desk;      // what the policy keeps, and where it answers
  Launch launch;        // the step
  Course course;        // ticks and steps so far
  Shares shares;        // what each tenant had of them
  IdleMeter idle;       // what the step engine waits for
  Report report;        // what is told to others

  SAC_HD bool has_work() const {
    return seats.num_running != 0 || waiting.count != 0 || fetch.num_aside != 0 ||
           parking.num_parked != 0;
  }
  /// A request has ended whose blocks the next tick will free.
  SAC_HD bool has_finished() const { return seats.num_ended != 0; }
};

/// Hands out every array of `s` from `at`; call with a measuring Layout first. Limits must be set.
/// Host only, also for memory of a device: spans are computed, not touched.
inline void lay_out(Scheduler& s, Layout& at) {
  lay_out(s.inbox, s.limits, at);
  lay_out(s.slots, s.limits, at);
  lay_out(s.waiting, s.limits, at);
  lay_out(s.seats, s.limits, at);
  lay_out(s.parking, s.limits, at);
  lay_out(s.kv, s.limits, at);
  lay_out(s.fetch, s.limits, at);
  lay_out(s.desk, s.limits, at);
  lay_out(s.launch, s.limits, at);
  lay_out(s.report, s.limits, at);
}

SAC_HD inline SeatTables tables_of(const Seats& seats, const KvTiers& kv) {
  return {seats.num_seats,
          seats.max_model_len,
          kv.max_blocks_per_seq,
          seats.num_eos_ids,
          seats.params,
          seats.history,
          kv.block_tables,
          seats.logit_bias,
          seats.stop_ids,
          seats.eos_ids,
          {seats.max_grammar_words, seats.automata, seats.places, seats.vocab}};
}

/// First state of all parts; the ring and keys of adapters come from outside. eos_ids:
/// [limits.num_eos_ids].
SAC_HD inline void reset(Scheduler& s, const uint32_t* eos_ids) {
  reset(s.inbox, s.limits);
  reset(s.slots);
  reset(s.waiting, s.limits);
  reset(s.seats, s.limits, eos_ids);
  reset(s.parking, s.limits);
  reset(s.kv, s.limits);
  reset(s.fetch, s.limits);
  reset(s.desk, s.limits);
  reset(s.launch, tables_of(s.seats, s.kv));
  reset(s.report, s.limits);
  s.course = Course{};
  reset(s.shares);
  s.idle = IdleMeter{};
}

}  // namespace saccade
