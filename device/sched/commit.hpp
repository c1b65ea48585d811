// commit and publish: what a finished step changed, first in the scheduler's own state, then in the
// ring, where a frontend sees it.
#pragma once
#include "sched/batch.hpp"
#include "sched/retire.hpp"

namespace saccade {

/// Records of a step are asked for so many before they are read.
inline constexpr uint32_t kRecordsAhead = 4;

SAC_HD inline bool is_stop(const Scheduler& s, uint32_t seat_index, uint32_t token) {
  const Asked& p = s.seats[seat_index].asked;
  if ((p.flags & SAC_REQ_IGNORE_EOS) == 0)
    for (uint32_t i = 0; i < s.limits.num_eos_ids; ++i)
      if (s.eos_ids[i] == token) return true;
  const uint32_t* stops = s.tables.stops(seat_index);
  for (uint32_t i = 0; i < p.num_stop_ids; ++i)
    if (stops[i] == token) return true;
  return false;
}

SAC_HD inline uint32_t finish_reason(const Scheduler& s, uint32_t seat_index, uint32_t token) {
  const Seat& seat = s.seats[seat_index];
  const Asked& p = seat.asked;
  if (seat.num_produced > p.min_tokens && is_stop(s, seat_index, token)) return SAC_FINISH_STOP;
  if (seat.num_produced >= p.max_tokens || seat.num_tokens >= s.limits.max_model_len)
    return SAC_FINISH_LENGTH;
  return SAC_FINISH_NONE;
}

SAC_HD inline void write_record(Scheduler& s, Seat& seat, const uint64_t* record) {
  uint64_t* to = s.ring.record(seat.slot, seat.num_records, seat.stride, seat.capacity);
  for (uint32_t w = 0; w < seat.stride; ++w) store_relaxed(to + w, record[w]);
  ++seat.num_records;
}

/// Records of prompt tokens that these rows computed for the first time.
SAC_HD inline void write_prompt_records(Scheduler& s, const StepSeq& q) {
  Seat& seat = s.seats[q.seat];
  const uint32_t last = seat.asked.prompt_len - 1;
  for (uint32_t r = 0; r < q.num_rows; ++r) {
    const uint32_t position = q.first_position + r;
    if (position < seat.num_records || position >= last) continue;
    write_record(s, seat,
                 s.outputs.prompt_records + static_cast<size_t>(q.first_row + r) * kRecordWords);
  }
}

SAC_HD inline void commit_token(Scheduler& s, const StepSeq& q, const uint64_t* record) {
  Seat& seat = s.seats[q.seat];
  const uint32_t token = static_cast<uint32_t>(record[0]);
  s.tokens(q.seat)[seat.num_tokens++] = token;
  ++seat.num_produced;
  seat.last_token_ns = s.step_done_ns;
  if (seat.num_produced == 1) seat.first_token_ns = s.step_done_ns;
  write_record(s, seat, record);
  seat.finish = finish_reason(s, q.seat, token);
  if (seat.finish != SAC_FINISH_NONE) ++s.num_ended;
}

/// One sequence of a finished step. Records reach the ring here; nobody reads them before publish
/// writes the status that counts them.
SAC_HD inline void commit_seq(Scheduler& s, uint32_t index) {
  const StepSeq& q = s.effects.seqs[index];
  Seat& seat = s.seats[q.seat];
  const bool decode = is_decode(seat);
  seat.num_computed += q.num_rows;
  if (decode && seat.num_produced != 0) {
    ++s.stats.decode_tokens;
  } else {
    s.stats.prefill_tokens += q.num_rows;
  }
  if (seat.was_computed > q.first_position)
    s.stats.recomputed_tokens += min_u32(seat.was_computed, seat.num_computed) - q.first_position;
  seat.was_computed = max_u32(seat.was_computed, seat.num_computed);
  if (q.prompt_logprobs != 0) write_prompt_records(s, q);
  if (q.sample != 0)
    commit_token(s, q, s.outputs.sampled + static_cast<size_t>(index) * kRecordWords);
}

SAC_HD inline void commit(Scheduler& s) {
  const StepBatch& b = s.effects.batch;
  for (uint32_t i = 0; i < b.num_seqs; ++i) {
    fetch_line(s.outputs.sampled + size_t{i + kRecordsAhead} * kRecordWords);
    commit_seq(s, i);
  }
  s.step_done = b.step;
  ++s.stats.steps;
  s.stats.last_step_tokens = b.num_rows;
  s.stats.last_step_seqs = b.num_seqs;
}

/// Status words of everyone the step advanced.
SAC_HD inline void publish(Scheduler& s) {
  const StepBatch& b = s.effects.batch;
  for (uint32_t i = 0; i < b.num_seqs; ++i) {
    Seat& seat = s.seats[s.effects.seqs[i].seat];
    if (seat.finish != SAC_FINISH_NONE) {
      publish_seat_end(s, seat);
      continue;
    }
    const uint32_t state =
        is_decode(seat) ? SAC_STATE_DECODE_PROCESSING : SAC_STATE_PREFILL_PROCESSING;
    seat.state = s.requests[seat.slot].state = state;
    s.ring.write_progress(seat.slot, seat.num_computed, 0);
    post_status(s, seat.slot,
                sac_status_word(seat.ticket, state, SAC_FINISH_NONE, seat.num_records));
  }
  send_statuses(s);
}

}  // namespace saccade
