// rotate: makes room in device memory. Every request that is about to produce a token needs a block
// for it; when none is free, requests with slow readers give theirs up, then the youngest, to be
// computed again later. The oldest request that can run is never a victim and one request always
// fits the pool, so somebody always finishes: no deadlock; and age orders everyone, so no
// starvation.
#pragma once
#include "sched/preempt.hpp"

namespace saccade {

SAC_HD inline void rotate(Scheduler& s) {
  for (uint32_t i = 0; i < s.num_running; ++i) {
    const uint32_t seat_index = s.running[i];
    const Seat& seat = s.seats[seat_index];
    if (seat.num_blocks == 0 || reader_room(s, seat) == 0) continue;
    while (!reserve_blocks(s, seat_index, seat.num_tokens)) {
      if (preempt_stalled(s) || preempt_younger(s, i)) continue;
      preempt(s, seat_index);  // everyone who runs is older
      break;
    }
  }
}

}  // namespace saccade
