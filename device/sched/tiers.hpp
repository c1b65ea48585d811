// The second tier: KV blocks of requests that gave up device memory are kept in host memory, and
// come back from there. What each seat is doing follows from its fields:
//
//   num_blocks  num_host, fences                 the request
//   > 0         up_fence done                    is resident: it may run
//   > 0         up_fence not done                is rotating in: its blocks are being written
//   0           num_host > 0, down_fence done    is rotated out
//   0           num_host > 0, not done           is rotating out: its blocks are being read
//   0           num_host = 0                     holds nothing: all of it is computed again
//
// A block that is full never changes again, so it is copied down as soon as it fills, as background
// traffic; a request that gives up its blocks then only sends the rest, at most the partial last
// one unless the background is behind. The leading `num_host` blocks are the ones that host memory
// has. When a request comes back it keeps them there, but for the partial one, which will change.
#pragma once
#include "sched/retire.hpp"

namespace saccade {

SAC_HD inline bool is_rotating_in(const KvTiers& kv, const Seat& seat) {
  return seat.num_blocks != 0 && seat.up_fence > kv.copies.up.done;
}
SAC_HD inline bool is_rotating_out(const KvTiers& kv, const Seat& seat) {
  return seat.num_blocks == 0 && seat.down_fence > kv.copies.down.done;
}
/// Its KV is in device memory.
SAC_HD inline bool is_resident(const KvTiers& kv, const Seat& seat) {
  return seat.num_blocks != 0 && !is_rotating_in(kv, seat);
}

/// Takes note of the copies that are done, and frees the blocks that waited for them. A count that
/// falls, or that exceeds what was asked for, is not believed.
SAC_HD inline void count_done(CopyQueue& queue, uint64_t claimed) {
  if (claimed > queue.done && claimed <= queue.asked) queue.done = claimed;
}
SAC_HD inline void settle_blocks(KvTiers& kv, const CopyQueue& queue, uint64_t done_before) {
  uint32_t at = queue.place(done_before + 1);
  for (uint64_t n = done_before; n < queue.done; ++n) {
    if (n + kBlocksAhead < queue.done) {
      const BlockCopy& later = queue.ring[queue.place_behind(at, kBlocksAhead)];
      kv.pool.expect_settling(later.device_block);
      kv.host_pool.expect_settling(later.host_block);
    }
    kv.pool.settle(queue.ring[at].device_block, kv.copies);
    kv.host_pool.settle(queue.ring[at].host_block, kv.copies);
    at = queue.next_place(at);
  }
}
template <class Engine>
SAC_HD void settle(KvTiers& kv, Engine& engine) {
  Copies& c = kv.copies;
  if (c.idle()) return;
  const uint64_t down_before = c.down.done, up_before = c.up.done;
  count_done(c.down, engine.down_done());
  count_done(c.up, engine.up_done());
  if (c.down.done != down_before) settle_blocks(kv, c.down, down_before);
  if (c.up.done != up_before) settle_blocks(kv, c.up, up_before);
}

/// Asks for a copy of the first block of a seat that host memory has not. False if no host block is
/// free.
SAC_HD inline bool copy_down(KvTiers& kv, Seats& seats, Report& report, uint32_t seat_index,
                             bool urgent) {
  Seat& seat = seats[seat_index];
  const uint32_t to = kv.host_pool.allocate(seat_index, kv.step_done);
  if (to == kNoBlock) return false;
  const uint32_t from = kv.block_table(seat_index)[seat.num_host];
  seat.down_fence = kv.copies.down.ask({from, to}, urgent);
  kv.pool.states[from].down_fence = kv.host_pool.states[to].down_fence = seat.down_fence;
  kv.host_table(seat_index)[seat.num_host++] = to;
  ++(urgent ? report.stats.blocks_down_urgent : report.stats.blocks_down_eager);
  return true;
}

/// Host memory is full: gives up the last background copy of the oldest other request that is
/// resident, since that one is the nearest to its end. False if no such copy is done.
SAC_HD inline bool drop_background_copy(KvTiers& kv, Seats& seats, uint32_t for_seat) {
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const uint32_t seat_index = seats.running[i];
    const Seat& seat = seats[seat_index];
    if (seat_index == for_seat || seat.num_blocks == 0 || seat.num_host == 0) continue;
    if (!kv.host_pool.is_still(kv.host_table(seat_index)[seat.num_host - 1], kv.copies)) continue;
    release_host_blocks(kv, seats, seat_index, seat.num_host - 1);
    return true;
  }
  return false;
}

/// Sends down what host memory has not yet of a seat's KV. What finds no room is forgotten: then
/// num_computed falls to what host memory has. Returns the blocks that were sent.
SAC_HD inline uint32_t send_down(KvTiers& kv, Seats& seats, Report& report, uint32_t seat_index) {
  Seat& seat = seats[seat_index];
  CopyQueue& down = kv.copies.down;
  const uint32_t filled = kv.blocks_for(seat.num_computed);
  const uint32_t had = seat.num_host;
  while (seat.num_host < filled && (copy_down(kv, seats, report, seat_index, true) ||
                                    drop_background_copy(kv, seats, seat_index))) {
  }
  if (seat.num_host < filled) seat.num_computed = seat.num_host * kv.block_size;
  // Copies that began in the background are waited for now.
  if (seat.down_fence > down.urgent) down.urgent = seat.down_fence;
  return seat.num_host - had;
}

/// Fetches what host memory has of a seat's KV into its device blocks, which are reserved. Returns
/// the number of blocks.
SAC_HD inline uint32_t fetch_up(KvTiers& kv, Seats& seats, Report& report, uint32_t seat_index) {
  Seat& seat = seats[seat_index];
  const uint32_t count = seat.num_host;
  if (count == 0) return 0;  // and there may be no table
  const uint32_t* device_blocks = kv.block_table(seat_index);
  const uint32_t* host_blocks = kv.host_table(seat_index);
  for (uint32_t i = 0; i < count; ++i) {
    if (i + kBlocksAhead < count) kv.host_pool.expect(host_blocks[i + kBlocksAhead]);
    const BlockCopy copy = {device_blocks[i], host_blocks[i]};
    seat.up_fence = kv.copies.up.ask(copy, true);
    kv.pool.states[copy.device_block].up_fence = seat.up_fence;
    kv.host_pool.states[copy.host_block].up_fence = seat.up_fence;
  }
  report.stats.blocks_up += count;
  // The partial block will change: its copy ends with this one.
  release_host_blocks(kv, seats, seat_index, seat.num_computed / kv.block_size);
  return count;
}

/// Copies down blocks that have filled, while no request waits for copies in that direction and the
/// window has room. An eighth of the host blocks is left to requests that need one at once.
SAC_HD inline void copy_ahead(KvTiers& kv, Seats& seats, Report& report) {
  const CopyQueue& down = kv.copies.down;
  if (kv.eager_window == 0 || down.urgent > down.done) return;
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const uint32_t seat_index = seats.running[i];
    const Seat& seat = seats[seat_index];
    if (!is_resident(kv, seat) || has_ended(seat)) continue;
    while (seat.num_host < seat.num_computed / kv.block_size) {
      if (down.in_flight() >= kv.eager_window) return;
      if (kv.host_pool.num_free <= kv.num_host_blocks / 8) return;
      if (!copy_down(kv, seats, report, seat_index, false)) return;
    }
  }
}

}  // namespace saccade
