// rotate: makes room in device memory. Every request that is about to produce a token needs a block
// for it; when none is free, requests with slow readers give theirs up, then the youngest. Where
// the blocks given up are still being copied, the request waits for them, and is left out of this
// step. The oldest request that can run is never a victim and one request always fits the pool, so
// one of them always finishes: no deadlock; and age orders all of them, so no starvation.
#pragma once
#include "sched/preempt.hpp"

namespace saccade {

/// A request that is rotating in holds blocks that cannot be taken yet.
SAC_HD inline bool any_rotating_in(const Preemption& p) {
  if (p.kv.store.copies.up.asked > p.kv.store.copies.up.done) return true;
  for (uint32_t i = 0; i < p.seats.num_running; ++i)
    if (p.seats[p.seats.running[i]].fetch != 0) return true;
  return false;
}

/// Gives the request at position `i` of the running list the block of its next token. `promised`
/// counts the blocks in transit that older requests wait for.
SAC_HD_INLINE void grow(const Preemption& p, uint32_t i, uint32_t& promised) {
  const uint32_t seat_index = p.seats.running[i];
  Seat& seat = p.seats[seat_index];
  seat.starved = 0;
  if (!is_resident(p.kv, seat) || p.seats.reader_room(seat_index) == 0) return;
  while (!reserve_blocks(p.kv, p.seats, seat_index, seat.num_tokens)) {
    const uint32_t missing = p.kv.blocks_for(seat.num_tokens) - seat.num_blocks;
    if (missing + promised > p.kv.device().num_coming()) {
      if (preempt_stalled(p) || preempt_younger(p, i)) continue;
      if (!any_rotating_in(p)) return preempt(p, seat_index);  // all others that run are older
    }
    seat.starved = 1;
    promised += missing;
    return;
  }
}

SAC_HD_INLINE void rotate(const Preemption& p) {
  uint32_t promised = 0;
  for (uint32_t i = 0; i < p.seats.num_running; ++i) grow(p, i, promised);
}

}  // namespace saccade
