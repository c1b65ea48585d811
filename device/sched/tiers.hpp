// The second tier: KV of requests that gave up device memory is kept in host memory, and comes back
// from there. What each seat is doing follows from its fields:
//
//   num_blocks  num_host, fences                 the request
//   > 0         up_fence done                    is resident: it may run
//   > 0         up_fence not done                is rotating in: its blocks are being written
//   > 0         fetch                            the same, from a store (fetch/load.hpp)
//   0           num_host > 0, down_fence done    is rotated out
//   0           num_host > 0, not done           is rotating out: its blocks are being read
//   0           num_host = 0                     holds nothing: all of it is computed again
//
// A block that is full never changes again, so it is copied down as soon as it fills, as background
// traffic, and once however many seats use it; a request that gives up its blocks then only sends
// the rest, at most the partial last one unless the background is behind. A block stays on the
// device after its last seat has rotated out, until its room is needed.
#pragma once
#include "sched/retire.hpp"

namespace saccade {

SAC_HD inline bool is_rotating_in(const KvTiers& kv, const Seat& seat) {
  return seat.num_blocks != 0 && (seat.up_fence > kv.store.copies.up.done || seat.fetch != 0);
}
SAC_HD inline bool is_rotating_out(const KvTiers& kv, const Seat& seat) {
  return seat.num_blocks == 0 && seat.down_fence > kv.store.copies.down.done;
}
/// Its KV is in device memory.
SAC_HD inline bool is_resident(const KvTiers& kv, const Seat& seat) {
  return seat.num_blocks != 0 && !is_rotating_in(kv, seat);
}

/// Takes note of the copies that are done, and frees the places that waited for them. A count that
/// falls, or that exceeds what was asked for, is not believed.
SAC_HD inline void count_done(CopyQueue& queue, uint64_t claimed) {
  if (claimed > queue.done && claimed <= queue.asked) queue.done = claimed;
}
SAC_HD inline void settle_places(KvBlocks& store, const CopyQueue& queue, uint64_t done_before) {
  uint32_t at = queue.place(done_before + 1);
  for (uint64_t n = done_before; n < queue.done; ++n) {
    note_copied(store, queue.ring[at].device_block, kDeviceTier);
    // Places behind those of host memory are in frames (fetch/desk.hpp).
    if (queue.ring[at].host_block < store.tiers[kHostTier].pool.num_blocks)
      note_copied(store, queue.ring[at].host_block, kHostTier);
    at = queue.next_place(at);
  }
}
/// `since_ns`: time since the last tick.
template <class Engine>
SAC_HD void settle(KvTiers& kv, Engine& engine, uint64_t since_ns) {
  KvBlocks& store = kv.store;
  Copies& c = store.copies;
  if (c.idle()) return;
  const uint64_t down_before = c.down.done, up_before = c.up.done;
  const bool up = c.up.in_flight() != 0;
  count_done(c.down, engine.down_done());
  count_done(c.up, engine.up_done());
  if (c.down.done != down_before) settle_places(store, c.down, down_before);
  if (c.up.done != up_before) settle_places(store, c.up, up_before);
  if (up) kv.break_even.note_copies(since_ns, c.up.done - up_before, c.up.in_flight() != 0);
}

SAC_HD inline bool is_in(const KvTiers& kv, uint32_t block, uint32_t tier) {
  return kv.store.blocks[block].places[tier] != kNoBlock;
}

/// The fences of a block's places.
SAC_HD inline BlockState& state_in(KvBlocks& store, uint32_t block, uint32_t tier) {
  return store.tiers[tier].pool.states[store.blocks[block].places[tier]];
}

/// Asks for a copy of a block that host memory has not. False if no place is free there.
SAC_HD inline bool copy_down(KvBlocks& store, uint32_t block, bool urgent, Report& report) {
  if (!settle_in(store, block, kHostTier)) return false;
  const KvBlock& b = store.blocks[block];
  const BlockCopy copy = {b.places[kDeviceTier], b.places[kHostTier]};
  const uint64_t number = store.copies.down.ask(copy, urgent);
  state_in(store, block, kDeviceTier).down_fence = number;
  state_in(store, block, kHostTier).down_fence = number;
  ++(urgent ? report.stats.blocks_down_urgent : report.stats.blocks_down_eager);
  return true;
}

/// How far one search for copies to drop has come: what it has passed is not looked at again for
/// each block, but once more from the front if anything was dropped, which may free what it was
/// continued by.
struct DropSearch {
  uint32_t at = 0;  // place of the running list
  bool dropped = false;
};

/// Drops the next copy of the pass that `search` is in; false at its end.
SAC_HD inline bool drop_in_pass(KvTiers& kv, Seats& seats, uint32_t for_seat, DropSearch& search) {
  for (; search.at < seats.num_running; ++search.at) {
    const uint32_t seat_index = seats.running[search.at];
    Seat& seat = seats[seat_index];
    if (seat_index == for_seat || seat.num_blocks == 0) continue;
    for (; seat.num_host > 0; --seat.num_host) {
      const uint32_t block = kv.table(seat_index)[seat.num_host - 1];
      const KvBlock& b = kv.store.blocks[block];
      if (b.places[kHostTier] == kNoBlock) continue;  // dropped for another that uses it too
      const bool needed = b.users[kHostTier] != 0 || b.children[kHostTier] != 0;
      if (needed || !is_still_in(kv.store, block, kHostTier)) break;
      vacate(kv.store, block, kHostTier);
      --seat.num_host;
      return true;
    }
  }
  return false;
}

/// Host memory is full: gives up the last background copy of the oldest other request that is
/// resident, since that one is the nearest to its end. False if no such copy is done.
SAC_HD inline bool drop_background_copy(KvTiers& kv, Seats& seats, uint32_t for_seat,
                                        DropSearch& search) {
  for (;;) {
    if (drop_in_pass(kv, seats, for_seat, search)) return search.dropped = true;
    if (!search.dropped) return false;
    search = DropSearch{};
  }
}

/// Sends down what host memory has not yet of a seat's KV, and uses it there from now on. What
/// finds no room is forgotten: then num_computed falls to what host memory has. Returns the blocks
/// that were sent. The seat's device blocks are still its own.
SAC_HD inline uint32_t send_down(KvTiers& kv, Seats& seats, Report& report, uint32_t seat_index) {
  Seat& seat = seats[seat_index];
  CopyQueue& down = kv.store.copies.down;
  const uint32_t filled = kv.blocks_for(seat.num_computed);
  uint32_t sent = 0;
  DropSearch search;
  for (seat.num_host = 0; seat.num_host < filled; ++seat.num_host) {
    const uint32_t block = kv.table(seat_index)[seat.num_host];
    if (!is_in(kv, block, kHostTier)) {
      while (!copy_down(kv.store, block, true, report))
        if (!drop_background_copy(kv, seats, seat_index, search)) break;
      if (!is_in(kv, block, kHostTier)) break;
      ++sent;
    }
    use(kv.store, block, kHostTier);
    const uint64_t fence = state_in(kv.store, block, kHostTier).down_fence;
    if (fence > seat.down_fence) seat.down_fence = fence;
  }
  if (seat.num_host < filled) seat.num_computed = seat.num_host * kv.block_size;
  // Copies that began in the background are waited for now.
  if (seat.down_fence > down.urgent) down.urgent = seat.down_fence;
  return sent;
}

/// Free places on the device that these blocks take when they are brought up.
SAC_HD inline uint32_t places_for(const KvBlocks& store, const uint32_t* blocks, uint32_t count) {
  uint32_t places = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const KvBlock& b = store.blocks[blocks[i]];
    const bool counts_as_free =
        store.tiers[kDeviceTier].is_idle(blocks[i]) && (b.unsettled >> kDeviceTier & 1) == 0;
    places += b.places[kDeviceTier] == kNoBlock || counts_as_free ? 1 : 0;
  }
  return places;
}

/// Asks for the KV of a block that is in host memory only. False if there is no place.
SAC_HD inline bool copy_up(KvBlocks& store, uint32_t block, Report& report) {
  if (!settle_in(store, block, kDeviceTier)) return false;
  const KvBlock& b = store.blocks[block];
  const uint64_t number = store.copies.up.ask({b.places[kDeviceTier], b.places[kHostTier]}, true);
  state_in(store, block, kDeviceTier).up_fence = number;
  state_in(store, block, kHostTier).up_fence = number;
  ++report.stats.blocks_up;
  return true;
}

/// A seat uses the first `count` blocks of its table on the device; what is in host memory only is
/// asked for. False if there are no places: then nothing has changed. See places_for.
SAC_HD inline bool bring_up(KvTiers& kv, Seats& seats, Report& report, uint32_t seat_index,
                            uint32_t count) {
  Seat& seat = seats[seat_index];
  KvBlocks& store = kv.store;
  const uint32_t* table = kv.table(seat_index);
  if (places_for(store, table, count) > kv.device().num_free()) return false;
  // First the blocks that are there, so that none of them is evicted for the others.
  for (uint32_t i = 0; i < count; ++i)
    if (store.blocks[table[i]].places[kDeviceTier] != kNoBlock) use(store, table[i], kDeviceTier);
  for (uint32_t i = 0; i < count; ++i) {
    if (store.blocks[table[i]].users[kDeviceTier] != 0) continue;
    // A step may still touch the places that are free: try again when it is done.
    if (!copy_up(store, table[i], report)) {
      for (uint32_t j = count; j > 0; --j) {
        const bool used = j - 1 < i || store.blocks[table[j - 1]].users[kDeviceTier] != 0;
        if (used) give_back(store, table[j - 1], kDeviceTier, 0);
      }
      return false;
    }
    use(store, table[i], kDeviceTier);
  }
  for (uint32_t i = 0; i < count; ++i) {
    const KvBlock& b = store.blocks[table[i]];
    const uint64_t fence = state_in(store, table[i], kDeviceTier).up_fence;
    if (fence > seat.up_fence) seat.up_fence = fence;
    kv.block_table(seat_index)[i] = b.places[kDeviceTier];
    if (seat.num_filed == i && b.kind == BlockKind::kFull) ++seat.num_filed;
  }
  seat.num_blocks = count;
  return true;
}

/// A seat that is rotated out and whose blocks are on the device again uses them there.
SAC_HD inline void leave_host(KvTiers& kv, Seats& seats, uint32_t seat_index) {
  Seat& seat = seats[seat_index];
  const uint32_t* table = kv.table(seat_index);
  for (uint32_t i = seat.num_host; i > 0; --i) give_back(kv.store, table[i - 1], kHostTier, 0);
  // The partial block will change: its copy ends with this one.
  const uint32_t full = seat.num_computed / kv.block_size;
  if (full < seat.num_host) vacate(kv.store, table[full], kHostTier);
  seat.num_host = min_u32(seat.num_host, full);
}

/// Copies down blocks that have filled, while no request waits for copies in that direction and the
/// window has room. An eighth of the host blocks is left to requests that need one at once.
SAC_HD inline void copy_ahead(KvTiers& kv, Seats& seats, Report& report) {
  const CopyQueue& down = kv.store.copies.down;
  if (kv.eager_window == 0 || down.urgent > down.done) return;
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const uint32_t seat_index = seats.running[i];
    Seat& seat = seats[seat_index];
    if (!is_resident(kv, seat) || has_ended(seat)) continue;
    // Others may have dropped copies of blocks that they use too.
    while (seat.num_host > 0 && !is_in(kv, kv.table(seat_index)[seat.num_host - 1], kHostTier))
      --seat.num_host;
    for (; seat.num_host < seat.num_computed / kv.block_size; ++seat.num_host) {
      const uint32_t block = kv.table(seat_index)[seat.num_host];
      if (is_in(kv, block, kHostTier)) continue;
      if (down.in_flight() >= kv.eager_window) return;
      if (kv.host().num_free() <= kv.num_host_blocks / 8) return;
      if (!copy_down(kv.store, block, false, report)) return;
    }
  }
}

}  // namespace saccade
