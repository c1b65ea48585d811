// rotate: makes room in device memory. Every request that is about to produce a token needs a block
// for it; when none is free, requests with slow readers give theirs up, then the youngest. Where
// the blocks given up are still being copied, the request waits for them, and is left out of this
// step. The oldest request that can run is never a victim and one request always fits the pool, so
// somebody always finishes: no deadlock; and age orders everyone, so no starvation.
#pragma once
#include "sched/preempt.hpp"

namespace saccade {

/// A request that is rotating in holds blocks that nobody can take yet.
SAC_HD inline bool any_rotating_in(const Scheduler& s) {
  return s.copies.up.asked > s.copies.up.done;
}

/// Gives the request at position `i` of the running list the block of its next token. `promised`
/// counts the blocks in transit that older requests wait for.
SAC_HD inline void grow(Scheduler& s, uint32_t i, uint32_t& promised) {
  const uint32_t seat_index = s.running[i];
  Seat& seat = s.seats[seat_index];
  seat.starved = 0;
  if (!is_resident(s, seat) || reader_room(s, seat) == 0) return;
  while (!reserve_blocks(s, seat_index, seat.num_tokens)) {
    const uint32_t missing = s.limits.blocks_for(seat.num_tokens) - seat.num_blocks;
    if (missing + promised > s.pool.num_coming()) {
      if (preempt_stalled(s) || preempt_younger(s, i)) continue;
      if (!any_rotating_in(s)) return preempt(s, seat_index);  // everyone who runs is older
    }
    seat.starved = 1;
    promised += missing;
    return;
  }
}

SAC_HD inline void rotate(Scheduler& s) {
  uint32_t promised = 0;
  for (uint32_t i = 0; i < s.num_running; ++i) grow(s, i, promised);
}

}  // namespace saccade
