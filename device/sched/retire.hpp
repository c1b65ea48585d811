// retire: requests that ended leave; their blocks and seats are free for this tick's admissions.
#pragma once
#include "sched/state.hpp"

namespace saccade {

/// Gives back the device blocks of a seat.
SAC_HD inline uint32_t release_blocks(Scheduler& s, uint32_t seat_index) {
  Seat& seat = s.seats[seat_index];
  const uint32_t* table = s.block_table(seat_index);
  for (uint32_t i = 0; i < seat.num_blocks; ++i) {
    if (i + kBlocksAhead < seat.num_blocks) s.pool.expect(table[i + kBlocksAhead]);
    s.pool.release(table[i], seat.last_step, s.copies);
  }
  const uint32_t freed = seat.num_blocks;
  seat.num_blocks = 0;
  return freed;
}

/// Gives back the host blocks of a seat but the first `keep`.
SAC_HD inline void release_host_blocks(Scheduler& s, uint32_t seat_index, uint32_t keep) {
  Seat& seat = s.seats[seat_index];
  if (seat.num_host <= keep) return;  // and there may be no table
  const uint32_t* table = s.host_table(seat_index);
  for (; seat.num_host > keep; --seat.num_host) {
    if (seat.num_host > keep + kBlocksAhead)
      s.host_pool.expect(table[seat.num_host - 1 - kBlocksAhead]);
    s.host_pool.release(table[seat.num_host - 1], 0, s.copies);
  }
}

/// The last word on a request: state, finish reason and count. Written in the tick that ends it, so
/// a reader does not wait for the next one; the seat follows in retire.
SAC_HD inline void publish_seat_end(Scheduler& s, Seat& seat) {
  seat.state = SAC_STATE_DECODE_COMPLETED;
  s.requests[seat.slot].state = seat.state;
  s.ring.write_progress(seat.slot, seat.num_computed, 0);
  post_status(s, seat.slot,
              sac_status_word(seat.ticket, seat.state, seat.finish, seat.num_records));
  s.log.add(s.tick, Decision::kFinish, seat.slot, seat.finish);
  ++s.stats.requests_finished;
}

SAC_HD inline void retire_seat(Scheduler& s, uint32_t seat_index) {
  Seat& seat = s.seats[seat_index];
  if (seat.state != SAC_STATE_DECODE_COMPLETED) publish_seat_end(s, seat);
  const uint32_t freed = release_blocks(s, seat_index);
  release_host_blocks(s, seat_index, 0);
  s.log.add(s.tick, Decision::kRetire, seat.slot, freed);
  s.requests[seat.slot].seat = kNone;
  forget_cursor(s.peers, seat_index);
  s.free_seats[s.num_free_seats++] = seat_index;
}

SAC_HD inline void retire(Scheduler& s) {
  if (s.num_ended == 0) return;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < s.num_running; ++i) {
    const uint32_t seat_index = s.running[i];
    if (s.seats[seat_index].finish == SAC_FINISH_NONE) {
      s.running[kept++] = seat_index;
    } else {
      retire_seat(s, seat_index);
    }
  }
  s.num_running = kept;
  s.num_ended = 0;
}

}  // namespace saccade
