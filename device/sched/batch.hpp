// batch: which rows the next step computes. Decodes first, one row each, of tenants over their
// shares as many as turns.hpp allows; then prompts in chunks, oldest first, while the token budget
// lasts, and what pacing.hpp makes of it; then the prompts of tenants that are over their shares.
// Under the inline policy, decodes pause while prompts are computed. A request whose reader is
// behind is left out, so that it stalls only itself.
#pragma once
#include "sched/course.hpp"
#include "sched/launch.hpp"
#include "sched/pacing.hpp"
#include "sched/tiers.hpp"
#include "sched/turns.hpp"

namespace saccade {

/// Prompt records still owed before the first produced token.
SAC_HD inline uint32_t prompt_records_owed(const Seat& seat) {
  const Asked& p = seat.asked;
  if ((p.flags & SAC_REQ_PROMPT_LOGPROBS) == 0 || seat.num_produced != 0) return 0;
  return p.prompt_len - 1 - seat.num_records;
}

SAC_HD inline void pause(Seat& seat, Report& report) {
  seat.state = SAC_STATE_DECODE_PAUSED;
  report.post_status(seat.slot,
                     sac_status_word(seat.ticket, seat.state, SAC_FINISH_NONE, seat.num_records));
}
/// For its reader's sake.
SAC_HD inline void stall(Seat& seat, Report& report) {
  if (seat.state == SAC_STATE_DECODE_PAUSED) return;
  ++report.stats.reader_stalls;
  report.note(Decision::kStall, seat.slot, seat.capacity);
  pause(seat, report);
}

/// Rows that this seat could compute now: within the budget, and within what its reader has room
/// for.
SAC_HD inline uint32_t rows_possible(const Seats& seats, uint32_t seat_index, uint32_t budget) {
  const Seat& seat = seats[seat_index];
  uint32_t rows = min_u32(budget, seat.num_tokens - seat.num_computed);
  const uint32_t room = seats.reader_room(seat_index);
  // rotate gives it no block: forced tokens wait with the one that is drawn behind them.
  if (room == 0 && goes_on(seat)) return 0;
  const uint32_t owed = prompt_records_owed(seat);
  // Row p writes the prompt record of token p + 1; the records start at position num_records.
  const uint32_t recordless =
      owed != 0 && seat.num_records > seat.num_computed ? seat.num_records - seat.num_computed : 0;
  if (owed != 0) rows = min_u32(rows, recordless + room);
  const bool samples = seat.num_computed + rows == seat.num_tokens;
  const uint32_t writes = min_u32(owed, rows - min_u32(rows, recordless)) + (samples ? 1 : 0);
  return writes > room && samples ? rows - 1 : rows;
}

/// The rows that this seat gets of the step; where its reader leaves it none, it is stalled.
SAC_HD inline uint32_t rows_for(Seats& seats, Report& report, uint32_t seat_index,
                                uint32_t budget) {
  const uint32_t rows = rows_possible(seats, seat_index, budget);
  if (rows == 0) stall(seats[seat_index], report);
  return rows;
}

SAC_HD inline void add_rows(Seats& seats, Launch& launch, Report& report, uint32_t seat_index,
                            uint32_t rows) {
  Seat& seat = seats[seat_index];
  StepBatch& batch = launch.batch;
  const bool samples = seat.num_computed + rows == seat.num_tokens;
  StepSeq& q = launch.seqs[batch.num_seqs++];
  q.seat = seat_index;
  q.first_position = seat.num_computed;
  q.num_rows = rows;
  q.first_row = batch.num_rows;
  q.sample = samples ? 1 : 0;
  q.prompt_logprobs = prompt_records_owed(seat) != 0 ? 1 : 0;
  batch.num_rows += rows;
  batch.num_samples += q.sample;
  batch.num_prompt_seqs += q.prompt_logprobs;
  batch.num_adapter_seqs += has_adapter(seat) ? 1 : 0;
  seat.last_step = batch.step;
  seat.state = running_state(seat);
  report.note(Decision::kRun, seat.slot, rows);
}

SAC_HD inline bool can_run(const KvTiers& kv, const Seat& seat) {
  return is_resident(kv, seat) && seat.starved == 0 && !has_ended(seat);
}

/// Rows of its prompt can be computed.
SAC_HD inline bool can_prefill(const KvTiers& kv, const Seat& seat) {
  return !is_decode(seat) && can_run(kv, seat);
}

/// A prompt that arrived before `arrival` is being computed, of a tenant within its share.
SAC_HD inline bool prompts_pending(const Seats& seats, const KvTiers& kv, uint64_t arrival,
                                   const Shares& shares) {
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const Seat& seat = seats[seats.running[i]];
    if (seat.arrival >= arrival) return false;  // oldest first
    if (shares.is_over(seats.wishes[seats.running[i]].tenant)) continue;
    if (can_prefill(kv, seat) && !goes_on(seat) && seat.state != SAC_STATE_DECODE_PAUSED)
      return true;
  }
  return false;
}

/// Inline policy: is this step for prompts only? A pause covers the prompts that had seats when it
/// began; after it the decodes get a step, so that a stream of prompts cannot starve them.
SAC_HD inline bool decodes_pause(const Limits& limits, const Seats& seats, const KvTiers& kv,
                                 const Shares& shares, Launch& launch) {
  if (limits.prefill_policy != PrefillPolicy::kInline || seats.num_running == 0) return false;
  if (launch.pause_before == 0)
    launch.pause_before = seats[seats.running[seats.num_running - 1]].arrival + 1;
  if (prompts_pending(seats, kv, launch.pause_before, shares)) return true;
  launch.pause_before = 0;
  return false;
}

/// Adds rows of requests, oldest first, until the step has `most_rows`: of each as many as
/// `allowance(seat_index)` says; `note(seat_index, rows)` hears what it got.
template <class Allowance, class Note>
SAC_HD inline void add_all(Seats& seats, const KvTiers& kv, Launch& launch, Report& report,
                           uint32_t most_rows, const Allowance& allowance, const Note& note) {
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const uint32_t budget = most_rows - launch.batch.num_rows;
    if (budget == 0) return;
    const uint32_t seat_index = seats.running[i];
    if (!can_run(kv, seats[seat_index]) || seats[seat_index].follows != 0) continue;
    const uint32_t allowed = min_u32(budget, allowance(seat_index));
    if (allowed == 0) continue;
    const uint32_t rows = rows_for(seats, report, seat_index, allowed);
    if (rows == 0) continue;
    add_rows(seats, launch, report, seat_index, rows);
    note(seat_index, rows);
  }
}

/// A request of a tenant within its share can be computed.
SAC_HD inline bool serves_within(const Seats& seats, const KvTiers& kv, const Shares& shares) {
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const uint32_t seat_index = seats.running[i];
    if (!shares.is_over(seats.wishes[seat_index].tenant) && can_run(kv, seats[seat_index]) &&
        !seats.is_behind(seat_index))
      return true;
  }
  return false;
}

/// What forming a step touches.
struct Forming {
  Seats& seats;
  const KvTiers& kv;
  Launch& launch;
  Report& report;
  const Course& course;
  Shares& shares;

  SAC_HD uint32_t tenant(uint32_t seat_index) const { return seats.wishes[seat_index].tenant; }
};

/// Decodes of a tenant over its share, as many as it may have, each request in its turn.
SAC_HD inline void add_turns(const Forming& f, uint32_t tenant, double others_ns,
                             uint32_t most_rows) {
  uint32_t left = save_for_turns(f.shares, tenant, others_ns);
  const uint64_t last = f.shares.turns[tenant].last;
  for (const bool behind_last : {true, false})
    add_all(
        f.seats, f.kv, f.launch, f.report, most_rows,
        [&](uint32_t i) {
          const bool its = is_decode(f.seats[i]) && f.tenant(i) == tenant;
          return its && left != 0 && (f.seats[i].arrival > last) == behind_last ? 1u : 0u;
        },
        [&](uint32_t i, uint32_t) {
          --left;
          note_turn(f.shares, tenant, f.seats[i].arrival, others_ns);
        });
}

SAC_HD inline void add_decodes(const Forming& f, uint32_t most_rows) {
  const bool turns = f.shares.over != 0 && serves_within(f.seats, f.kv, f.shares);
  add_all(
      f.seats, f.kv, f.launch, f.report, most_rows,
      [&](uint32_t i) {
        return is_decode(f.seats[i]) && !(turns && f.shares.is_over(f.tenant(i))) ? 1u : 0u;
      },
      [&](uint32_t i, uint32_t) {
        if (f.shares.mixed != 0) note_decode(f.shares, f.tenant(i));
      });
  const double others_ns = turns ? f.shares.costs.decodes_ns(f.shares.rows()) : 0;
  for (uint32_t t = 0; t < f.shares.num_tenants && turns && has_turns(f.launch.batch.step); ++t)
    if (f.shares.is_over(t) && f.shares.seated[t] != 0) add_turns(f, t, others_ns, most_rows);
  f.launch.num_decodes = f.launch.batch.num_seqs;
}

/// Bit by tenant: a prompt of it can be computed.
SAC_HD inline uint64_t tenants_with_prompts(const Seats& seats, const KvTiers& kv) {
  uint64_t tenants = 0;
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const uint32_t seat_index = seats.running[i];
    if (can_prefill(kv, seats[seat_index]))
      tenants |= uint64_t{1} << seats.wishes[seat_index].tenant;
  }
  return tenants;
}

SAC_HD inline void add_prompts(const Forming& f, uint32_t most_rows) {
  if (f.shares.mixed == 0)
    return add_all(
        f.seats, f.kv, f.launch, f.report, most_rows,
        [&](uint32_t i) { return is_decode(f.seats[i]) ? 0u : UINT32_MAX; },
        [](uint32_t, uint32_t) {});
  for (uint64_t left = tenants_with_prompts(f.seats, f.kv); left != 0;) {
    const uint32_t tenant = first_of(f.shares, left);
    left &= ~(uint64_t{1} << tenant);
    add_all(
        f.seats, f.kv, f.launch, f.report, most_rows,
        [&](uint32_t i) {
          const bool its = !is_decode(f.seats[i]) && f.tenant(i) == tenant;
          return its ? prompt_allowance(f.shares, tenant, f.course.cost) : 0;
        },
        [&](uint32_t, uint32_t rows) { note_prompt(f.shares, tenant, rows); });
  }
}

/// The batch of the next step, as it is before anything is added.
SAC_HD inline void begin_batch(const Course& course, Launch& launch, Shares& shares) {
  StepBatch& b = launch.batch;
  b.step = course.step + 1;
  b.num_seqs = b.num_rows = b.num_samples = launch.num_decodes = 0;
  b.num_prompt_seqs = b.num_adapter_seqs = 0;
  begin_step(shares);
}

/// Forms the batch of the next step. False: it is empty.
SAC_HD inline bool batch(const Limits& limits, Seats& seats, const KvTiers& kv, Launch& launch,
                         Report& report, const Course& course, Shares& shares) {
  const uint32_t most_rows = limits.max_num_batched_tokens;
  const StepBatch& b = launch.batch;
  begin_batch(course, launch, shares);
  const Forming f = {seats, kv, launch, report, course, shares};
  const bool prompts_only = decodes_pause(limits, seats, kv, shares, launch);
  if (!prompts_only) add_decodes(f, most_rows);
  const auto is_prompt = [&](uint32_t i) { return can_prefill(kv, seats[i]); };
  const uint32_t prompt_rows = limits.prefill_policy == PrefillPolicy::kPaced
                                   ? paced_rows(course.cost, seats, launch, shares.over, most_rows,
                                                course.tick_ns, is_prompt)
                                   : most_rows - b.num_rows;
  add_prompts(f, b.num_rows + prompt_rows);
  // Prompts that all wait for their readers must not hold the decodes that paused for them.
  if (prompts_only && b.num_seqs == 0) add_decodes(f, most_rows);
  return b.num_seqs != 0;
}

}  // namespace saccade
