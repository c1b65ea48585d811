// seatwise: what a tick does to each seat apart from all others. A host does it one after the
// other; where threads are many they share it, a seat each (cuda/team.hpp). The functions are the
// same, and so is what they leave behind.
#pragma once
#include "platform/bits.hpp"
#include "sched/obey.hpp"
#include "sched/state.hpp"

namespace saccade {

enum class SeatVerb : uint32_t {
  kSurvey = 0,  // of each seated request: does it decode on, does it need a block
  kDecode = 1,  // each seated request gets its one row of the batch
  kCommit = 2,  // of each sequence of a finished step: its token, its record, its status
};

/// What a verb says of one seat: a bit of each line of Seats::marks.
struct SeatSigns {
  bool first;
  bool second;
};

// ---- survey: first = it is more than a decode that runs on, second = it needs a block ----------

/// `settled_ns`: requests that came in later are still news to the policy.
SAC_HD inline SeatSigns survey(const Seats& seats, const KvTiers& kv, uint64_t settled_ns,
                               uint32_t i) {
  const uint32_t seat_index = seats.running[i];
  const Seat& seat = seats[seat_index];
  const bool decodes = seat.num_blocks != 0 && seat.starved == 0 && seat.num_produced != 0 &&
                       is_decode(seat) && !has_ended(seat);
  const uint32_t held = seat.num_blocks * kv.block_size;  // tokens
  const bool copied =
      kv.eager_window == 0 || (seat.num_host + 1) * kv.block_size > seat.num_computed;
  const bool fits = seat.num_tokens <= held + kv.block_size;
  const bool steady =
      decodes && seat.moved_ns < settled_ns && copied && fits && seats.reader_room(seat_index) != 0;
  return {!steady, seat.num_tokens > held};
}

// ---- decode -------------------------------------------------------------------------------------

/// As add_rows for the i-th of a batch of decodes alone.
SAC_HD inline void add_decode(Seats& seats, const Launch& launch, const Report& report,
                              uint32_t i) {
  const uint32_t seat_index = seats.running[i];
  Seat& seat = seats[seat_index];
  launch.seqs[i] = {seat_index, seat.num_computed, 1, i, 1, 0};
  seat.last_step = launch.batch.step;
  seat.state = SAC_STATE_DECODE_PROCESSING;
  report.log.put(i, report.stats.ticks, Decision::kRun, seat.slot, 1);
}

// ---- commit: first = left to the general way, second = its token was the last ------------------

SAC_HD inline bool is_stop(const Seats& seats, uint32_t seat_index, uint32_t token) {
  const Asked& p = seats[seat_index].asked;
  if ((p.flags & SAC_REQ_IGNORE_EOS) == 0)
    for (uint32_t i = 0; i < seats.num_eos_ids; ++i)
      if (seats.eos_ids[i] == token) return true;
  const uint32_t* stops = seats.stops(seat_index);
  for (uint32_t i = 0; i < p.num_stop_ids; ++i)
    if (stops[i] == token) return true;
  return false;
}

SAC_HD inline uint32_t finish_reason(const Seats& seats, uint32_t seat_index, uint32_t token) {
  const Seat& seat = seats[seat_index];
  const Asked& p = seat.asked;
  // A grammar decides where its answer may end.
  const bool obeys = p.grammar_words != 0;
  if ((obeys || seat.num_produced > p.min_tokens) && is_stop(seats, seat_index, token))
    return SAC_FINISH_STOP;
  if (obeys && answer_is_whole(seats, seat_index)) return SAC_FINISH_STOP;
  if (seat.num_produced >= p.max_tokens || seat.num_tokens >= seats.max_model_len)
    return SAC_FINISH_LENGTH;
  return SAC_FINISH_NONE;
}

SAC_HD inline void write_record(const RingView& ring, Seat& seat, const uint64_t* record) {
  uint64_t* to = ring.record(seat.slot, seat.num_records, seat.stride, seat.capacity);
  for (uint32_t w = 0; w < seat.stride; ++w) store_relaxed(to + w, record[w]);
  ++seat.num_records;
}

/// Whether a grammar, if there is one, lets a token be the next. Its place goes with it.
SAC_HD inline bool obeys(const Seats& seats, uint32_t seat_index, uint32_t token) {
  if (seats[seat_index].asked.grammar_words == 0) return true;
  if (is_stop(seats, seat_index, token)) return answer_may_end(seats, seat_index);
  return follow_token(seats, seat_index, token);
}

/// A sequence's next token and its record; it may be the last.
SAC_HD inline void append_token(Seats& seats, uint32_t seat_index, const uint64_t* record,
                                const RingView& ring) {
  Seat& seat = seats[seat_index];
  const auto token = static_cast<uint32_t>(record[0]);
  seats.tokens(seat_index)[seat.num_tokens++] = token;
  ++seat.num_produced;
  write_record(ring, seat, record);
  seat.finish = finish_reason(seats, seat_index, token);
}

/// Tokens of which a grammar leaves no choice follow the one that was drawn. The next step computes
/// them with it.
SAC_HD inline void append_forced(Seats& seats, uint32_t seat_index, const RingView& ring) {
  Seat& seat = seats[seat_index];
  const auto ends = [&](uint32_t token) { return is_stop(seats, seat_index, token); };
  for (uint32_t i = 0; i < SAC_MAX_FORCED_TOKENS && !has_ended(seat); ++i) {
    const uint32_t token = take_forced(seats, seat_index, ends);
    if (token == kNoToken) return;
    const uint64_t record = record_word(token, 0.0f);
    append_token(seats, seat_index, &record, ring);
    ++seat.num_forced;
  }
}

/// A sequence's next token, whose record the step left. A token that its grammar does not allow
/// ends the request before it is one.
SAC_HD inline void commit_token(Seats& seats, uint32_t seat_index, const uint64_t* record,
                                uint64_t done_ns, const RingView& ring) {
  Seat& seat = seats[seat_index];
  const uint32_t token = static_cast<uint32_t>(record[0]);
  if (!obeys(seats, seat_index, token)) {
    seat.finish = SAC_FINISH_ERROR;
    return;
  }
  seat.last_token_ns = done_ns;
  if (seat.num_produced == 0) seat.first_token_ns = done_ns;
  append_token(seats, seat_index, record, ring);
  if (seat.asked.forced_words != 0) append_forced(seats, seat_index, ring);
}

/// A decode that computed nothing twice. Whatever else a sequence is, commit_seq takes.
SAC_HD inline bool is_plain_decode(const Seat& seat, const StepSeq& q) {
  return q.num_rows == 1 && q.sample != 0 && q.prompt_logprobs == 0 && seat.num_produced != 0 &&
         is_decode(seat) && seat.was_computed <= q.first_position;
}

SAC_HD inline SeatSigns commit_decode(Seats& seats, const Launch& launch, uint64_t done_ns,
                                      const RingView& ring, uint32_t i) {
  const StepSeq& q = launch.seqs[i];
  Seat& seat = seats[q.seat];
  if (!is_plain_decode(seat, q)) return {true, false};
  seat.was_computed = ++seat.num_computed;
  commit_token(seats, q.seat, launch.sampled_record(i), done_ns, ring);
  if (has_ended(seat)) return {false, true};
  seat.state = SAC_STATE_DECODE_PROCESSING;
  ring.write_progress(seat.slot, seat.num_computed, seat.num_cached);
  return {false, false};
}

/// After a release fence that follows its commit.
SAC_HD inline void publish_decode(const Seat& seat, const RingView& ring) {
  store_relaxed(&ring.status[seat.slot].word,
                sac_status_word(seat.ticket, seat.state, SAC_FINISH_NONE, seat.num_records));
}

// ---- all of them --------------------------------------------------------------------------------

SAC_HD inline SeatSigns do_seat(Scheduler& s, SeatVerb verb, uint32_t i) {
  switch (verb) {
    case SeatVerb::kSurvey:
      return survey(s.seats, s.kv, s.desk.settled_ns(), i);
    case SeatVerb::kDecode:
      add_decode(s.seats, s.launch, s.report, i);
      return {};
    case SeatVerb::kCommit:
      return commit_decode(s.seats, s.launch, s.course.step_done_ns, s.report.ring, i);
  }
  return {};
}

/// The seats of one word of the marks, from bit `first` on, every `stride`-th; their signs are
/// or-ed into the two words.
SAC_HD inline void do_seats(Scheduler& s, SeatVerb verb, uint32_t word, uint32_t first,
                            uint32_t stride, uint32_t count, uint32_t (&signs)[2]) {
  for (uint32_t bit = first; bit < 32 && word * 32 + bit < count; bit += stride) {
    const SeatSigns of_seat = do_seat(s, verb, word * 32 + bit);
    signs[0] |= (of_seat.first ? 1u : 0u) << bit;
    signs[1] |= (of_seat.second ? 1u : 0u) << bit;
  }
}

/// The statuses of the seats that commit_decode took to their next token.
SAC_HD inline void publish_seats(Scheduler& s, uint32_t word, uint32_t first, uint32_t stride,
                                 uint32_t count) {
  const uint32_t marked = s.seats.marks[0][word] | s.seats.marks[1][word];
  for (uint32_t bit = first; bit < 32 && word * 32 + bit < count; bit += stride)
    if ((marked >> bit & 1) == 0)
      publish_decode(s.seats[s.launch.seqs[word * 32 + bit].seat], s.report.ring);
}

/// One verb for `count` seats, by one thread.
SAC_HD inline void each_seat_alone(Scheduler& s, SeatVerb verb, uint32_t count) {
  const uint32_t words = ceil_div(count, 32);
  for (uint32_t w = 0; w < words; ++w) {
    uint32_t signs[2] = {};
    do_seats(s, verb, w, 0, 1, count, signs);
    s.seats.marks[0][w] = signs[0];
    s.seats.marks[1][w] = signs[1];
  }
  if (verb != SeatVerb::kCommit) return;
  // SYNC: release, with the token reader's acquire of the status: the record is visible.
  fence_release();
  for (uint32_t w = 0; w < words; ++w) publish_seats(s, w, 0, 1, count);
}

/// What an environment of one thread has of them.
struct SeatsAlone {
  void each_seat(Scheduler& s, SeatVerb verb, uint32_t count) const {
    each_seat_alone(s, verb, count);
  }
};

/// Calls f(i) for each of `count` seats that a line of the marks names, lowest first.
template <class F>
SAC_HD_INLINE void for_marked(const uint32_t* line, uint32_t count, F f) {
  for (uint32_t w = 0; w < ceil_div(count, 32); ++w)
    for (uint32_t mask = line[w]; mask != 0; mask &= mask - 1) f(w * 32 + lowest_bit(mask));
}
/// How many those are.
SAC_HD inline uint32_t count_marks(const uint32_t* line, uint32_t count) {
  uint32_t sum = 0;
  for (uint32_t w = 0; w < ceil_div(count, 32); ++w) sum += popcount(line[w]);
  return sum;
}

}  // namespace saccade
