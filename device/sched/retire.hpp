// retire: requests that ended leave; their blocks and seats are free for this tick's admissions.
#pragma once
#include "sched/fetch/load.hpp"
#include "sched/kv_tiers.hpp"
#include "sched/report.hpp"
#include "sched/seats.hpp"
#include "sched/slots.hpp"

namespace saccade {

/// Gives back the device blocks of a seat, from the last to the first. `kept`: see give_back.
SAC_HD inline uint32_t release_blocks(KvTiers& kv, Seats& seats, uint32_t seat_index,
                                      bool kept = true) {
  Seat& seat = seats[seat_index];
  const uint32_t* table = kv.table(seat_index);
  const uint32_t freed = seat.num_blocks;
  for (; seat.num_blocks > 0; --seat.num_blocks)
    give_back(kv.store, table[seat.num_blocks - 1], kDeviceTier, seat.last_step, kept);
  seat.num_filed = seat.num_ahead = 0;
  end_sharing(seats, seat_index);
  return freed;
}

/// Gives back the host blocks of a seat that is rotated out.
SAC_HD inline void release_host_blocks(KvTiers& kv, Seats& seats, uint32_t seat_index, bool kept) {
  Seat& seat = seats[seat_index];
  const uint32_t* table = kv.table(seat_index);
  for (; seat.num_host > 0; --seat.num_host)
    give_back(kv.store, table[seat.num_host - 1], kHostTier, 0, kept);
}

/// Tells the eviction policy what a request has used, and what of it was found.
SAC_HD inline void note_chain(KvTiers& kv, const Seat& seat, uint32_t seat_index) {
  const uint32_t found = seat.num_cached / kv.block_size;
  const uint32_t* table = kv.table(seat_index);
  begin_request(kv.store.eviction, seat.arrival);
  for (uint32_t i = seat.num_blocks != 0 ? seat.num_blocks : seat.num_host; i > 0; --i)
    if (is_findable(kv.store.blocks[table[i - 1]]))
      note_block(kv.store.eviction, kv.store.table.entry(table[i - 1]).key, i <= found);
  note_request(kv.store.eviction);
}

/// The last word on a request: state, finish reason and count. Written in the tick that ends it, so
/// a reader does not wait for the next one; the seat follows in retire.
SAC_HD inline void publish_seat_end(Slots& slots, Seat& seat, Report& report) {
  seat.state = slots[seat.slot].state = SAC_STATE_DECODE_COMPLETED;
  report.ring.write_progress(seat.slot, seat.num_computed, seat.num_cached);
  report.post_status(seat.slot,
                     sac_status_word(seat.ticket, seat.state, seat.finish, seat.num_records));
  report.note(Decision::kFinish, seat.slot, seat.finish);
  ++report.stats.requests_finished;
  report.stats.forced_tokens += seat.num_forced;
}

SAC_HD inline void retire_seat(Slots& slots, Seats& seats, KvTiers& kv, FetchDesk& fetch,
                               Report& report, uint32_t seat_index) {
  Seat& seat = seats[seat_index];
  forget_load(fetch, seat);
  end_hold(seats, seat);
  if (seat.state != SAC_STATE_DECODE_COMPLETED) publish_seat_end(slots, seat, report);
  const bool resident = seat.num_blocks != 0;
  if (kv.shares != 0) note_chain(kv, seat, seat_index);
  const bool kept = keeps(kv.store.eviction, seat.arrival);
  const uint32_t freed = release_blocks(kv, seats, seat_index, kept);
  if (!resident) release_host_blocks(kv, seats, seat_index, kept);
  report.note(Decision::kRetire, seat.slot, freed);
  slots[seat.slot].seat = kNone;
  forget_cursor(seats.cursors, seat_index);
  seats.free[seats.num_free++] = seat_index;
}

SAC_HD inline void retire(Slots& slots, Seats& seats, KvTiers& kv, FetchDesk& fetch,
                          Report& report) {
  if (seats.num_ended == 0) return;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const uint32_t seat_index = seats.running[i];
    if (has_ended(seats[seat_index])) {
      seats.num_adapted -= has_adapter(seats[seat_index]) ? 1 : 0;
      retire_seat(slots, seats, kv, fetch, report, seat_index);
    } else {
      seats.running[kept++] = seat_index;
    }
  }
  seats.num_running = kept;
  seats.num_ended = 0;
}

}  // namespace saccade
