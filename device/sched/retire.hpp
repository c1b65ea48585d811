// retire: requests that ended leave; their blocks and seats are free for this tick's admissions.
#pragma once
#include "sched/kv_tiers.hpp"
#include "sched/report.hpp"
#include "sched/seats.hpp"
#include "sched/slots.hpp"

namespace saccade {

/// Gives back the device blocks of a seat.
SAC_HD inline uint32_t release_blocks(KvTiers& kv, Seats& seats, uint32_t seat_index) {
  Seat& seat = seats[seat_index];
  const uint32_t* table = kv.block_table(seat_index);
  for (uint32_t i = 0; i < seat.num_blocks; ++i) {
    if (i + kBlocksAhead < seat.num_blocks) kv.pool.expect(table[i + kBlocksAhead]);
    kv.pool.release(table[i], seat.last_step, kv.copies);
  }
  const uint32_t freed = seat.num_blocks;
  seat.num_blocks = 0;
  return freed;
}

/// Gives back the host blocks of a seat but the first `keep`.
SAC_HD inline void release_host_blocks(KvTiers& kv, Seats& seats, uint32_t seat_index,
                                       uint32_t keep) {
  Seat& seat = seats[seat_index];
  if (seat.num_host <= keep) return;  // and there may be no table
  const uint32_t* table = kv.host_table(seat_index);
  for (; seat.num_host > keep; --seat.num_host) {
    if (seat.num_host > keep + kBlocksAhead)
      kv.host_pool.expect(table[seat.num_host - 1 - kBlocksAhead]);
    kv.host_pool.release(table[seat.num_host - 1], 0, kv.copies);
  }
}

/// The last word on a request: state, finish reason and count. Written in the tick that ends it, so
/// a reader does not wait for the next one; the seat follows in retire.
SAC_HD inline void publish_seat_end(Slots& slots, Seat& seat, Report& report) {
  seat.state = slots[seat.slot].state = SAC_STATE_DECODE_COMPLETED;
  report.ring.write_progress(seat.slot, seat.num_computed, 0);
  report.post_status(seat.slot,
                     sac_status_word(seat.ticket, seat.state, seat.finish, seat.num_records));
  report.note(Decision::kFinish, seat.slot, seat.finish);
  ++report.stats.requests_finished;
}

SAC_HD inline void retire_seat(Slots& slots, Seats& seats, KvTiers& kv, Report& report,
                               uint32_t seat_index) {
  Seat& seat = seats[seat_index];
  if (seat.state != SAC_STATE_DECODE_COMPLETED) publish_seat_end(slots, seat, report);
  const uint32_t freed = release_blocks(kv, seats, seat_index);
  release_host_blocks(kv, seats, seat_index, 0);
  report.note(Decision::kRetire, seat.slot, freed);
  slots[seat.slot].seat = kNone;
  forget_cursor(seats.cursors, seat_index);
  seats.free[seats.num_free++] = seat_index;
}

SAC_HD inline void retire(Slots& slots, Seats& seats, KvTiers& kv, Report& report) {
  if (seats.num_ended == 0) return;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const uint32_t seat_index = seats.running[i];
    if (has_ended(seats[seat_index])) {
      retire_seat(slots, seats, kv, report, seat_index);
    } else {
      seats.running[kept++] = seat_index;
    }
  }
  seats.num_running = kept;
  seats.num_ended = 0;
}

}  // namespace saccade
