// steady: the common tick. Every seated request decodes one token, none waits, and nothing is
// copied. Then the tick only has to decide who needs a block, and does most of the rest seat by
// seat. Its decisions are those of the general way. So are those of a tick without a request, which
// only must not keep the next one from being seen.
#pragma once
#include "sched/choose.hpp"
#include "sched/rotate.hpp"
#include "sched/seatwise.hpp"

namespace saccade {

/// As far as that can be told without looking at each seat.
SAC_HD inline bool may_be_steady(const Scheduler& s) {
  const uint32_t running = s.seats.num_running;
  const bool calm =
      running != 0 && s.waiting.count == 0 && s.kv.store.copies.idle() && s.fetch.num_loading == 0;
  // Tenants over their shares take turns.
  return calm && s.shares.over == 0 && running <= s.limits.max_num_batched_tokens &&
         s.report.log.has_room(running) && may_pass(s.desk.policy, s.desk.state, 0);
}

/// Gives the seats that the survey marked their blocks. False if one could not get its block: then
/// not all of them are in the batch.
SAC_HD_INLINE bool grow_marked(const Preemption& p) {
  uint32_t promised = 0;
  bool all = true;
  for_marked(p.seats.marks[1], p.seats.num_running, [&](uint32_t i) {
    grow(p, i, promised);
    const Seat& seat = p.seats[p.seats.running[i]];
    all &= seat.num_tokens <= seat.num_blocks * p.kv.block_size;
  });
  return all;
}

/// The batch of step number `step`, in which every seated request decodes a token.
template <class Env>
SAC_HD void batch_decodes(Scheduler& s, Env& env, uint64_t step) {
  const uint32_t count = s.seats.num_running;
  StepBatch& b = s.launch.batch;
  b.step = step;
  b.num_seqs = b.num_rows = b.num_samples = count;
  b.num_prompt_seqs = 0;
  b.num_adapter_seqs = s.seats.num_adapted;
  s.launch.num_decodes = count;
  s.launch.pause_before = 0;
  note_all_decodes(s.shares, s.seats);
  env.each_seat(s, SeatVerb::kDecode, count);
  s.report.log.keep(count);
}

/// Decides the tick if it is a steady one, and makes its batch. False: it is not, and nothing was
/// done.
template <class Env>
SAC_HD bool decide_steady(Scheduler& s, Env& env) {
  if (!may_be_steady(s)) return false;
  env.each_seat(s, SeatVerb::kSurvey, s.seats.num_running);
  if (count_marks(s.seats.marks[0], s.seats.num_running) != 0) return false;
  if (count_marks(s.seats.marks[1], s.seats.num_running) > s.kv.device().num_free()) return false;
  pass_policy(s.desk, s.kv, s.seats, s.course);
  const uint64_t step = s.course.step + 1;
  if (grow_marked({s.kv, s.seats, s.course, s.report})) {
    batch_decodes(s, env, step);
    s.course.step = step;
  } else if (batch(s.limits, s.seats, s.kv, s.launch, s.report, s.course, s.shares)) {
    s.course.step = step;
  }
  return true;
}

/// No request is seated, waits for a seat, or is parked; then none of the verbs from share to batch
/// would find anything to do. A policy that keeps time is asked all the same.
SAC_HD inline bool is_empty(const Scheduler& s) {
  return s.seats.num_running == 0 && s.waiting.count == 0 && s.parking.num_parked == 0 &&
         s.desk.policy != Policy::kGoodput;
}

}  // namespace saccade
