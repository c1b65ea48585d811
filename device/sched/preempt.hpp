// Who gives up blocks, and how: the pieces that admit and rotate share.
#pragma once
#include "sched/tiers.hpp"

namespace saccade {

/// Records that may still be written before the reader must take some. A cursor that claims more
/// than was written, or lags by more than the ring holds, is not believed: no room.
SAC_HD inline uint32_t reader_room(const Scheduler& s, const Seat& seat) {
  const uint32_t unread = seat.num_records - s.peers.cursors[&seat - s.seats];
  return unread <= seat.capacity ? seat.capacity - unread : 0;
}

/// Grows a seat's block table to cover `tokens`. False if the blocks are not there: then nothing
/// was taken, or (when a step still touches free ones) what was taken stays with the seat.
SAC_HD inline bool reserve_blocks(Scheduler& s, uint32_t seat_index, uint32_t tokens) {
  Seat& seat = s.seats[seat_index];
  const uint32_t needed = s.limits.blocks_for(tokens);
  if (needed <= seat.num_blocks) return true;
  if (needed - seat.num_blocks > s.pool.num_free) return false;
  uint32_t* table = s.block_table(seat_index);
  while (seat.num_blocks < needed) {
    const uint32_t block = s.pool.allocate(seat_index, s.step_done);
    if (block == kNoBlock) return false;
    table[seat.num_blocks++] = block;
  }
  return true;
}

/// Takes all blocks of a seat. It keeps its tokens; its KV goes down to host memory, and what finds
/// no room there is computed again when it resumes.
SAC_HD inline void preempt(Scheduler& s, uint32_t seat_index) {
  Seat& seat = s.seats[seat_index];
  const uint32_t computed = seat.num_computed;
  const uint32_t sent = send_down(s, seat_index);
  const uint32_t freed = release_blocks(s, seat_index);
  seat.state = s.requests[seat.slot].state = SAC_STATE_DECODE_PAUSED;
  seat.moved_ns = s.tick_ns;
  seat.starved = 0;
  if (seat.num_host != 0) {
    ++s.stats.rotations;
    s.log.add(s.tick, Decision::kRotateOut, seat.slot, sent);
  }
  if (seat.num_host == 0 || seat.num_computed < computed) {
    ++s.stats.preemptions;
    s.log.add(s.tick, Decision::kPreempt, seat.slot, freed);
  }
  s.ring.write_progress(seat.slot, 0, 0);
  post_status(s, seat.slot,
              sac_status_word(seat.ticket, seat.state, SAC_FINISH_NONE, seat.num_records));
}

/// Takes the blocks of the youngest request whose reader is behind, whatever its age: a slow reader
/// must not hold memory that others wait for. False if there is none.
SAC_HD inline bool preempt_stalled(Scheduler& s) {
  for (uint32_t i = s.num_running; i > 0; --i) {
    const uint32_t seat_index = s.running[i - 1];
    const Seat& seat = s.seats[seat_index];
    if (!is_resident(s, seat) || reader_room(s, seat) != 0) continue;
    preempt(s, seat_index);
    return true;
  }
  return false;
}

/// Takes the blocks of the youngest request that stands behind position `keeper` of the running
/// list. False if there is none.
SAC_HD inline bool preempt_younger(Scheduler& s, uint32_t keeper) {
  for (uint32_t i = s.num_running; i > keeper + 1; --i) {
    const uint32_t seat_index = s.running[i - 1];
    if (!is_resident(s, s.seats[seat_index])) continue;
    preempt(s, seat_index);
    return true;
  }
  return false;
}

}  // namespace saccade
