// commit and publish: what a finished step changed, first in the scheduler's own state, then in the
// ring, where a frontend sees it.
#pragma once
#include "sched/retire.hpp"
#include "sched/seatwise.hpp"

namespace saccade {

/// What a finished step changes.
struct Results {
  Slots& slots;
  Seats& seats;
  const Launch& launch;
  uint64_t done_ns;  // when they stood
  Report& report;
};

/// Records of prompt tokens that these rows computed for the first time.
SAC_HD inline void write_prompt_records(const Results& r, const StepSeq& q) {
  Seat& seat = r.seats[q.seat];
  const uint32_t last = seat.asked.prompt_len - 1;
  for (uint32_t row = 0; row < q.num_rows; ++row) {
    const uint32_t position = q.first_position + row;
    if (position < seat.num_records || position >= last) continue;
    write_record(r.report.ring, seat, r.launch.prompt_record(q.first_row + row));
  }
}

/// The embedding of a request whose prompt is computed: its one record, and its end.
SAC_HD inline void commit_embedding(const Results& r, Seat& seat, const float* values) {
  const uint32_t size = r.seats.embedding_size;
  uint64_t* to = r.report.ring.record(seat.slot, seat.num_records, seat.stride, seat.capacity);
  for (uint32_t w = 0; w < seat.stride; ++w) {
    const float high = 2 * w + 1 < size ? values[2 * w + 1] : 0.0f;
    store_relaxed(to + w, embedding_word(values[2 * w], high));
  }
  ++seat.num_records;
  seat.finish = SAC_FINISH_STOP;
}

/// One sequence of a finished step. Records reach the ring here; they are not read before publish
/// writes the status that counts them.
SAC_HD inline void commit_seq(const Results& r, uint32_t index) {
  const StepSeq& q = r.launch.seqs[index];
  Seat& seat = r.seats[q.seat];
  sac_device_stats& stats = r.report.stats;
  uint64_t& tokens = goes_on(seat) ? stats.decode_tokens : stats.prefill_tokens;
  tokens += q.num_rows;
  seat.num_computed += q.num_rows;
  if (seat.was_computed > q.first_position)
    stats.recomputed_tokens += min_u32(seat.was_computed, seat.num_computed) - q.first_position;
  seat.was_computed = max_u32(seat.was_computed, seat.num_computed);
  if (q.prompt_logprobs != 0) write_prompt_records(r, q);
  if (q.sample == 0) return;
  if (embeds(seat.asked.flags)) {
    commit_embedding(r, seat, r.launch.embedding(index));
  } else {
    commit_token(r.seats, q.seat, r.launch.sampled_record(index), r.done_ns, r.report.ring);
  }
  if (has_ended(seat)) ++r.seats.num_ended;
}

/// What the decodes left to do, after they were committed and published seat by seat.
SAC_HD inline void commit_rest(const Results& r) {
  const StepBatch& b = r.launch.batch;
  Seats& seats = r.seats;
  sac_device_stats& stats = r.report.stats;
  stats.decode_tokens += b.num_seqs - count_marks(seats.marks[0], b.num_seqs);
  seats.num_ended += count_marks(seats.marks[1], b.num_seqs);
  for_marked(seats.marks[0], b.num_seqs, [&](uint32_t i) { commit_seq(r, i); });
  r.report.published = 1;
  ++stats.steps;
  stats.last_step_tokens = b.num_rows;
  stats.last_step_seqs = b.num_seqs;
}

SAC_HD inline void publish_seq(const Results& r, uint32_t index) {
  Seat& seat = r.seats[r.launch.seqs[index].seat];
  if (has_ended(seat)) return publish_seat_end(r.slots, seat, r.report);
  seat.state = running_state(seat);
  r.report.ring.write_progress(seat.slot, seat.num_computed, seat.num_cached);
  r.report.post_status(seat.slot,
                       sac_status_word(seat.ticket, seat.state, SAC_FINISH_NONE, seat.num_records));
}

/// Status words of all sequences that commit did not publish seat by seat, in batch order.
SAC_HD inline void publish(const Results& r) {
  const uint32_t count = r.launch.batch.num_seqs;
  uint32_t* const* marks = r.seats.marks;
  for (uint32_t w = 0; w < ceil_div(count, 32); ++w) marks[0][w] |= marks[1][w];
  for_marked(marks[0], count, [&](uint32_t i) { publish_seq(r, i); });
  r.report.send_statuses();
}

}  // namespace saccade
