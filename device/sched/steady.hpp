// steady: the common tick. Everyone who has a seat decodes one token on, nobody waits, nothing is
// copied: then there is nothing to decide but who needs a block, and most of what is left is done
// seat by seat. Its decisions are those of the general way.
#pragma once
#include "sched/choose.hpp"
#include "sched/rotate.hpp"
#include "sched/seatwise.hpp"

namespace saccade {

/// As far as that can be told without looking at each seat.
SAC_HD inline bool may_be_steady(const Scheduler& s) {
  const Limits& l = s.limits;
  const bool logged = s.log.has_room(s.num_running);
  const bool undecided = l.policy == Policy::kFcfs || may_pass(l.policy, s.policy_state, 0);
  return s.num_running != 0 && s.num_waiting == 0 && s.copies.idle() && logged && undecided &&
         s.num_running <= l.max_num_batched_tokens;
}

/// Gives their blocks to those that the survey marked. False if someone could not get one: then
/// the batch is not everyone's.
SAC_HD inline bool grow_marked(Scheduler& s) {
  uint32_t promised = 0;
  bool all = true;
  for (uint32_t w = 0; w < ceil_div(s.num_running, 32); ++w) {
    for (uint32_t mask = s.marks[1][w]; mask != 0; mask &= mask - 1) {
      const uint32_t i = w * 32 + lowest_bit(mask);
      grow(s, i, promised);
      const Seat& seat = s.seats[s.running[i]];
      all &= seat.num_tokens <= seat.num_blocks * s.limits.block_size;
    }
  }
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
