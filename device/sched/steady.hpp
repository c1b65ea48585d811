// steady: the common tick. Every seated request decodes one token, none waits, and nothing is
// copied. Then the tick only has to decide who needs a block, and does most of the rest seat by
// seat. Its decisions are those of the general way.
#pragma once
#include "sched/choose.hpp"
#include "sched/rotate.hpp"
#include "sched/seatwise.hpp"

namespace saccade {

/// As far as that can be told without looking at each seat.
SAC_HD inline bool may_be_steady(const Scheduler& s) {
  const bool calm = s.num_running != 0 && s.num_waiting == 0 && s.copies.idle();
  return calm && s.num_running <= s.limits.max_num_batched_tokens &&
         s.log.has_room(s.num_running) && may_pass(s.limits.policy, s.policy_state, 0);
}

/// Gives the seats that the survey marked their blocks. False if one could not get its block: then
/// not everyone is in the batch.
SAC_HD inline bool grow_marked(Scheduler& s) {
  uint32_t promised = 0;
  bool all = true;
  for_marked(s.marks[1], s.num_running, [&](uint32_t i) {
    grow(s, i, promised);
    const Seat& seat = s.seats[s.running[i]];
    all &= seat.num_tokens <= seat.num_blocks * s.limits.block_size;
  });
  return all;
}

template <class Env>
SAC_HD void batch_decodes(Scheduler& s, Env& env) {
  const uint32_t count = s.num_running;
  StepBatch& b = s.effects.batch;
  s.step = b.step = s.step + 1;
  b.num_seqs = b.num_rows = b.num_samples = count;
  b.num_prompt_seqs = 0;
  s.pause_before = 0;
  env.each_seat(s, SeatVerb::kDecode, count);
  s.log.keep(count);
}

/// Decides the tick if it is a steady one, and makes its batch. False: it is not, and nothing was
/// done.
template <class Env>
SAC_HD bool decide_steady(Scheduler& s, Env& env) {
  if (!may_be_steady(s)) return false;
  env.each_seat(s, SeatVerb::kSurvey, s.num_running);
  if (count_marks(s.marks[0], s.num_running) != 0) return false;
  if (count_marks(s.marks[1], s.num_running) > s.pool.num_free) return false;
  pass(s.limits.policy, describe_device(s), s.pool.used(), s.policy_state);
  if (grow_marked(s)) {
    batch_decodes(s, env);
  } else {
    batch(s);
  }
  return true;
}

}  // namespace saccade
