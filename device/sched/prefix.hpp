// prefix: who shares what. A request that comes in uses the blocks in which its tokens already are,
// and computes the rest. What it computes is filed, block by block as they fill, and is found by
// requests after it; a prompt's blocks are filed as pending when their computation begins, so that
// a request with the same prefix waits for them (follows) instead of computing them too. It waits
// only while their filler is in every step; and the last token of a prompt is always computed,
// because its logits are wanted.
#pragma once
#include "sched/batch.hpp"
#include "sched/preempt.hpp"

namespace saccade {

/// Notes in a seat's table the full blocks in which its tokens already are; uses none of them yet.
SAC_HD inline uint32_t match(const KvTiers& kv, const Seats& seats, uint32_t seat_index) {
  const Seat& seat = seats[seat_index];
  if (!shares_blocks(kv, seat)) return 0;
  return look_up(kv, seats.tokens(seat_index), seat.num_tokens, seat.cache_salt,
                 kv.table(seat_index))
      .blocks;
}

/// Files as pending the blocks of a prompt that this seat is about to compute.
SAC_HD inline void file_ahead(KvTiers& kv, Seats& seats, uint32_t seat_index) {
  Seat& seat = seats[seat_index];
  const uint32_t full = seat.num_tokens / kv.block_size;
  seat.num_ahead = max_u32(seat.num_ahead, seat.num_filed);
  for (; seat.num_ahead < full; ++seat.num_ahead) {
    const PrefixName name = name_of(kv, seats, seat_index, seat.num_ahead);
    if (kv.store.table.find(name) != kNoEntry) return;
    file_block(kv, seats, seat_index, seat.num_ahead, name, BlockKind::kPending);
  }
}

/// The seat that computes a pending block had rows in the last step, or came in since.
SAC_HD inline bool makes_progress(const Seats& seats, const KvTiers& kv, const Course& course,
                                  uint32_t filler) {
  const Seat& seat = seats[filler];
  if (seat.fetch != 0) return !has_ended(seat);
  return can_run(kv, seat) && seats.reader_room(filler) != 0 &&
         (seat.last_step == course.step || seat.moved_ns == course.tick_ns);
}

/// A seat whose next block begins: takes over what others have filled, and follows a seat that is
/// filling it; else begins to fill it itself.
SAC_HD inline void catch_up(KvTiers& kv, Seats& seats, const Course& course, Report& report,
                            uint32_t seat_index) {
  Seat& seat = seats[seat_index];
  seat.follows = 0;
  if (seat.num_computed != seat.num_filed * kv.block_size) return;
  const uint32_t most = blocks_to_share(kv, seat.num_tokens);
  for (; seat.num_filed < most; ++seat.num_filed, seat.num_computed += kv.block_size) {
    const uint32_t depth = seat.num_filed;
    if (kv.store.blocks[kv.table(seat_index)[depth]].kind == BlockKind::kPending) return;
    const uint32_t twin = kv.store.table.find(name_of(kv, seats, seat_index, depth));
    if (twin == kNoEntry) break;
    if (!is_at_hand(kv, twin)) {
      const KvBlock& b = kv.store.blocks[twin];
      seat.follows = b.kind == BlockKind::kPending && b.filler != seat_index &&
                             makes_progress(seats, kv, course, b.filler)
                         ? 1
                         : 0;
      return;
    }
    replace_block(kv, seats, seat_index, depth, twin);
    if (seat.num_produced == 0) {
      seat.num_cached += kv.block_size;
      report.stats.prefix_hit_tokens += kv.block_size;
    }
  }
  seat.was_computed = max_u32(seat.was_computed, seat.num_computed);
  file_ahead(kv, seats, seat_index);
}

/// The blocks of a request change while its prompt is computed: share() looks at it.
SAC_HD inline void begin_sharing(const KvTiers& kv, Seats& seats, uint32_t seat_index) {
  Seat& seat = seats[seat_index];
  if (!shares_blocks(kv, seat) || is_decode(seat)) return;
  seat.shares = 1;
  ++seats.num_sharing;
}

/// Files what requests that have ended computed, before they give it back.
SAC_HD inline void file_ended(KvTiers& kv, Seats& seats) {
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const Seat& seat = seats[seats.running[i]];
    if (has_ended(seat) && is_resident(kv, seat) && shares_blocks(kv, seat))
      file_filled(kv, seats, seats.running[i]);
  }
}

/// Once a tick, while no step is in flight. Requests that only decode are left alone: what they
/// produce is filed when they end, or give up their blocks.
SAC_HD inline void share(KvTiers& kv, Seats& seats, const Course& course, Report& report) {
  if (kv.shares == 0) return;
  if (seats.num_ended != 0) file_ended(kv, seats);
  if (seats.num_sharing == 0) return;
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const uint32_t seat_index = seats.running[i];
    Seat& seat = seats[seat_index];
    if (seat.shares == 0 || has_ended(seat) || !is_resident(kv, seat)) continue;
    file_filled(kv, seats, seat_index);
    if (is_decode(seat)) {
      end_sharing(seats, seat_index);
    } else {
      catch_up(kv, seats, course, report, seat_index);
    }
  }
}

}  // namespace saccade
