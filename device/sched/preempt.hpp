// Who gives up blocks, and how: the pieces that admit and rotate share.
#pragma once
#include "sched/course.hpp"
#include "sched/filing.hpp"
#include "sched/tiers.hpp"

namespace saccade {

/// Grows a seat's table to cover `tokens`. False if the places are not there: then nothing was
/// taken, or (when a step still touches free ones) what was taken stays with the seat.
SAC_HD inline bool reserve_blocks(KvTiers& kv, Seats& seats, uint32_t seat_index, uint32_t tokens) {
  Seat& seat = seats[seat_index];
  const uint32_t needed = kv.blocks_for(tokens);
  if (needed <= seat.num_blocks) return true;
  if (needed - seat.num_blocks > kv.device().num_free()) return false;
  uint32_t* table = kv.table(seat_index);
  for (; seat.num_blocks < needed; ++seat.num_blocks) {
    const uint32_t block = new_block(kv.store);
    if (block == kNoBlock) return false;
    table[seat.num_blocks] = block;
    kv.block_table(seat_index)[seat.num_blocks] = kv.store.blocks[block].places[kDeviceTier];
  }
  return true;
}

/// What a preemption touches.
struct Preemption {
  KvTiers& kv;
  Seats& seats;
  const Course& course;
  Report& report;
};

/// Takes all blocks of a seat. It keeps its tokens; its KV goes down to host memory, and what finds
/// no room there is computed again when it resumes.
SAC_HD_APART void preempt(const Preemption& p, uint32_t seat_index) {
  Seat& seat = p.seats[seat_index];
  const uint32_t computed = seat.num_computed;
  if (shares_blocks(p.kv, seat)) file_filled(p.kv, p.seats, seat_index);
  const uint32_t sent = send_down(p.kv, p.seats, p.report, seat_index);
  const uint32_t freed = release_blocks(p.kv, p.seats, seat_index);
  seat.state = SAC_STATE_DECODE_PAUSED;
  seat.moved_ns = p.course.tick_ns;
  seat.starved = 0;
  seat.places = 0;
  if (seat.num_host != 0) {
    ++p.report.stats.rotations;
    p.report.note(Decision::kRotateOut, seat.slot, sent);
  }
  if (seat.num_host == 0 || seat.num_computed < computed) {
    ++p.report.stats.preemptions;
    p.report.note(Decision::kPreempt, seat.slot, freed);
  }
  p.report.ring.write_progress(seat.slot, 0, seat.num_cached);
  p.report.post_status(seat.slot,
                       sac_status_word(seat.ticket, seat.state, SAC_FINISH_NONE, seat.num_records));
}

/// Takes the blocks of the youngest request whose reader is behind, whatever its age: a slow reader
/// must not hold memory that others wait for. It comes back when its reader has made room. False if
/// there is none.
SAC_HD inline bool preempt_stalled(const Preemption& p) {
  for (uint32_t i = p.seats.num_running; i > 0; --i) {
    const uint32_t seat_index = p.seats.running[i - 1];
    if (!is_resident(p.kv, p.seats[seat_index]) || p.seats.reader_room(seat_index) != 0) continue;
    preempt(p, seat_index);
    begin_hold(p.seats, p.seats[seat_index]);
    return true;
  }
  return false;
}

/// Takes the blocks of the youngest request behind position `keeper` of the running list. False if
/// there is none.
SAC_HD inline bool preempt_younger(const Preemption& p, uint32_t keeper) {
  for (uint32_t i = p.seats.num_running; i > keeper + 1; --i) {
    const uint32_t seat_index = p.seats.running[i - 1];
    if (!is_resident(p.kv, p.seats[seat_index])) continue;
    preempt(p, seat_index);
    return true;
  }
  return false;
}

}  // namespace saccade
