// batch: which rows the next step computes. Decodes first, one row each; then prompts in chunks,
// oldest first, while the token budget lasts. Under the inline policy, decodes pause while prompts
// are computed. A request whose reader is behind is left out, so that it stalls only itself.
#pragma once
#include "sched/preempt.hpp"

namespace saccade {

/// Prompt records still owed before the first produced token.
SAC_HD inline uint32_t prompt_records_owed(const Scheduler& s, uint32_t seat_index) {
  const Seat& seat = s.seats[seat_index];
  const Asked& p = seat.asked;
  if ((p.flags & SAC_REQ_PROMPT_LOGPROBS) == 0 || seat.num_produced != 0) return 0;
  return p.prompt_len - 1 - seat.num_records;
}

SAC_HD inline void stall(Scheduler& s, Seat& seat) {
  if (seat.state == SAC_STATE_DECODE_PAUSED) return;
  seat.state = s.requests[seat.slot].state = SAC_STATE_DECODE_PAUSED;
  ++s.stats.reader_stalls;
  s.log.add(s.tick, Decision::kStall, seat.slot, seat.capacity);
  post_status(s, seat.slot,
              sac_status_word(seat.ticket, seat.state, SAC_FINISH_NONE, seat.num_records));
}

/// Rows that this seat could compute now: within the budget, and within what its reader has room
/// for.
SAC_HD inline uint32_t rows_possible(const Scheduler& s, uint32_t seat_index, uint32_t budget) {
  const Seat& seat = s.seats[seat_index];
  uint32_t rows = min_u32(budget, seat.num_tokens - seat.num_computed);
  const uint32_t room = reader_room(s, seat);
  const uint32_t owed = prompt_records_owed(s, seat_index);
  // Row p writes the prompt record of token p + 1; the records start at position num_records.
  const uint32_t recordless =
      owed != 0 && seat.num_records > seat.num_computed ? seat.num_records - seat.num_computed : 0;
  if (owed != 0) rows = min_u32(rows, recordless + room);
  const bool samples = seat.num_computed + rows == seat.num_tokens;
  const uint32_t writes = min_u32(owed, rows - min_u32(rows, recordless)) + (samples ? 1 : 0);
  return writes > room && samples ? rows - 1 : rows;
}

/// The rows that this seat gets of the step; where its reader leaves it none, it is stalled.
SAC_HD inline uint32_t rows_for(Scheduler& s, uint32_t seat_index, uint32_t budget) {
  const uint32_t rows = rows_possible(s, seat_index, budget);
  if (rows == 0) stall(s, s.seats[seat_index]);
  return rows;
}

SAC_HD inline void add_rows(Scheduler& s, uint32_t seat_index, uint32_t rows) {
  Seat& seat = s.seats[seat_index];
  StepBatch& batch = s.effects.batch;
  const bool samples = seat.num_computed + rows == seat.num_tokens;
  StepSeq& q = s.effects.seqs[batch.num_seqs++];
  q.seat = seat_index;
  q.first_position = seat.num_computed;
  q.num_rows = rows;
  q.first_row = batch.num_rows;
  q.sample = samples ? 1 : 0;
  q.prompt_logprobs = prompt_records_owed(s, seat_index) != 0 ? 1 : 0;
  batch.num_rows += rows;
  batch.num_samples += q.sample;
  batch.num_prompt_seqs += q.prompt_logprobs;
  seat.last_step = batch.step;
  seat.state = is_decode(seat) ? SAC_STATE_DECODE_PROCESSING : SAC_STATE_PREFILL_PROCESSING;
  s.log.add(s.tick, Decision::kRun, seat.slot, rows);
}

SAC_HD inline bool can_run(const Scheduler& s, const Seat& seat) {
  return is_resident(s, seat) && seat.starved == 0 && seat.finish == SAC_FINISH_NONE;
}

/// A prompt that arrived before `arrival` is being computed.
SAC_HD inline bool prompts_pending(const Scheduler& s, uint64_t arrival) {
  for (uint32_t i = 0; i < s.num_running; ++i) {
    const Seat& seat = s.seats[s.running[i]];
    if (seat.arrival >= arrival) return false;  // oldest first
    if (can_run(s, seat) && !is_decode(seat) && seat.state != SAC_STATE_DECODE_PAUSED) return true;
  }
  return false;
}

/// Inline policy: is this step for prompts only? A pause covers the prompts that had seats when it
/// began; after it the decodes get a step, so that a stream of prompts cannot starve them.
SAC_HD inline bool decodes_pause(Scheduler& s) {
  if (s.limits.prefill_policy != PrefillPolicy::kInline || s.num_running == 0) return false;
  if (s.pause_before == 0) s.pause_before = s.seats[s.running[s.num_running - 1]].arrival + 1;
  if (prompts_pending(s, s.pause_before)) return true;
  s.pause_before = 0;
  return false;
}

SAC_HD inline void add_class(Scheduler& s, bool decodes) {
  for (uint32_t i = 0; i < s.num_running; ++i) {
    const uint32_t budget = s.limits.max_num_batched_tokens - s.effects.batch.num_rows;
    if (budget == 0) return;
    const uint32_t seat_index = s.running[i];
    const Seat& seat = s.seats[seat_index];
    if (!can_run(s, seat) || is_decode(seat) != decodes) continue;
    const uint32_t rows = rows_for(s, seat_index, budget);
    if (rows != 0) add_rows(s, seat_index, rows);
  }
}

SAC_HD inline void batch(Scheduler& s) {
  StepBatch& b = s.effects.batch;
  b.step = s.step + 1;
  b.num_seqs = b.num_rows = b.num_samples = b.num_prompt_seqs = 0;
  const bool prompts_only = decodes_pause(s);
  if (!prompts_only) add_class(s, true);
  add_class(s, false);
  // Prompts that all wait for their readers must not hold the decodes that paused for them.
  if (prompts_only && b.num_seqs == 0) add_class(s, true);
  if (b.num_seqs != 0) s.step = b.step;
}

}  // namespace saccade
