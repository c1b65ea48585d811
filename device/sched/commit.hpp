// commit and publish: what a finished step changed, first in the scheduler's own state, then in the
// ring, where a frontend sees it.
#pragma once
#include "sched/seatwise.hpp"

namespace saccade {

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
  if (q.sample == 0) return;
  commit_token(s, q, sampled_record(s, index));
  if (seat.finish != SAC_FINISH_NONE) ++s.num_ended;
}

/// Decodes are committed and published seat by seat; the others follow one after the other.
template <class Env>
SAC_HD void commit(Scheduler& s, Env& env) {
  const StepBatch& b = s.effects.batch;
  env.each_seat(s, SeatVerb::kCommit, b.num_seqs);
  s.stats.decode_tokens += b.num_seqs - count_marks(s.marks[0], b.num_seqs);
  s.num_ended += count_marks(s.marks[1], b.num_seqs);
  for_marked(s.marks[0], b.num_seqs, [&](uint32_t i) { commit_seq(s, i); });
  s.step_done = b.step;
  s.published = 1;
  ++s.stats.steps;
  s.stats.last_step_tokens = b.num_rows;
  s.stats.last_step_seqs = b.num_seqs;
}

SAC_HD inline void publish_seq(Scheduler& s, uint32_t index) {
  Seat& seat = s.seats[s.effects.seqs[index].seat];
  if (seat.finish != SAC_FINISH_NONE) return publish_seat_end(s, seat);
  const uint32_t state =
      is_decode(seat) ? SAC_STATE_DECODE_PROCESSING : SAC_STATE_PREFILL_PROCESSING;
  seat.state = s.requests[seat.slot].state = state;
  s.ring.write_progress(seat.slot, seat.num_computed, 0);
  post_status(s, seat.slot, sac_status_word(seat.ticket, state, SAC_FINISH_NONE, seat.num_records));
}

/// Status words of all sequences that commit did not publish seat by seat, in batch order.
SAC_HD inline void publish(Scheduler& s) {
  const uint32_t count = s.effects.batch.num_seqs;
  for (uint32_t w = 0; w < ceil_div(count, 32); ++w) s.marks[0][w] |= s.marks[1][w];
  for_marked(s.marks[0], count, [&](uint32_t i) { publish_seq(s, i); });
  send_statuses(s);
}

}  // namespace saccade
