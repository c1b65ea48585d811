// Filing: what a seat has computed becomes findable, block by block as they fill.
#pragma once
#include "sched/lookup.hpp"
#include "sched/seats.hpp"

namespace saccade {

/// Whether a request's blocks are shared at all.
SAC_HD inline bool shares_blocks(const KvTiers& kv, const Seat& seat) {
  // The logprobs of a prompt want each of its rows computed.
  return kv.shares != 0 && (seat.asked.flags & SAC_REQ_PROMPT_LOGPROBS) == 0;
}

/// Behind the first `depth` blocks of a seat, which are findable.
SAC_HD inline ChainEnd chain_end(const KvTiers& kv, const Seat& seat, uint32_t seat_index,
                                 uint32_t depth) {
  if (depth == 0) return chain_begin(kv, seat.cache_salt);
  const uint32_t parent = kv.table(seat_index)[depth - 1];
  return {kv.store.table.entry(parent).key, seat.cache_salt, parent};
}

/// What a seat's block at `depth` holds, or will hold.
SAC_HD inline PrefixName name_of(const KvTiers& kv, const Seats& seats, uint32_t seat_index,
                                 uint32_t depth) {
  const ChainEnd end = chain_end(kv, seats[seat_index], seat_index, depth);
  return next_name(kv, end, seats.tokens(seat_index) + size_t{depth} * kv.block_size);
}

/// Makes a seat's block at `depth` findable behind the ones before it, which are.
SAC_HD inline void file_block(KvTiers& kv, const Seats& seats, uint32_t seat_index, uint32_t depth,
                              const PrefixName& name, BlockKind kind) {
  const uint32_t block = kv.table(seat_index)[depth];
  KvBlock& b = kv.store.blocks[block];
  // Its copy would be in host memory without the copy of the block that it continues.
  if (name.parent != kNoEntry && b.places[kHostTier] != kNoBlock &&
      kv.store.blocks[name.parent].places[kHostTier] == kNoBlock)
    vacate(kv.store, block, kHostTier);
  kv.store.table.insert(block, name, seats[seat_index].owner);
  b.kind = kind;
  b.filler = seat_index;
  for (uint32_t tier = 0; tier < kNumTiers; ++tier)
    if (b.places[tier] != kNoBlock) count_child(kv.store, block, tier, 1);
}

/// Is this full block usable on the device now?
SAC_HD inline bool is_at_hand(const KvTiers& kv, uint32_t block) {
  const KvBlock& b = kv.store.blocks[block];
  return b.kind == BlockKind::kFull && b.places[kDeviceTier] != kNoBlock &&
         kv.device().pool.states[b.places[kDeviceTier]].up_fence <= kv.store.copies.up.done;
}

/// A seat uses `twin` in place of its own private block. No step is in flight.
SAC_HD inline void replace_block(KvTiers& kv, Seats& seats, uint32_t seat_index, uint32_t depth,
                                 uint32_t twin) {
  uint32_t& entry = kv.table(seat_index)[depth];
  use(kv.store, twin, kDeviceTier);
  give_back(kv.store, entry, kDeviceTier, seats[seat_index].last_step);
  entry = twin;
  kv.block_table(seat_index)[depth] = kv.store.blocks[twin].places[kDeviceTier];
}

/// The block at `num_filed` of a seat is full and findable. What came from a store is there.
SAC_HD inline void note_full(KvTiers& kv, const Seat& seat, uint32_t block) {
  for (uint32_t tier = 0; tier < kNumTiers; ++tier) tell_stored(kv.store, block, tier);
  if ((seat.num_filed + 1) * kv.block_size <= seat.num_fetched) return;
  kv.write_behind.note(block, seat.num_filed, kv.store.table.entry(block).key);
}

/// Files the blocks of a seat that have filled. A block that another seat filled with the same
/// tokens is used in place of the seat's own; while another is filling one, nothing is filed.
SAC_HD inline void file_filled(KvTiers& kv, Seats& seats, uint32_t seat_index) {
  Seat& seat = seats[seat_index];
  for (; (seat.num_filed + 1) * kv.block_size <= seat.num_computed; ++seat.num_filed) {
    const uint32_t block = kv.table(seat_index)[seat.num_filed];
    KvBlock& b = kv.store.blocks[block];
    if (b.kind == BlockKind::kPending) {
      b.kind = BlockKind::kFull;
      note_full(kv, seat, block);
    }
    if (b.kind == BlockKind::kPrivate) {
      const PrefixName name = name_of(kv, seats, seat_index, seat.num_filed);
      const uint32_t twin = kv.store.table.find(name);
      if (twin == kNoEntry) {
        file_block(kv, seats, seat_index, seat.num_filed, name, BlockKind::kFull);
        note_full(kv, seat, block);
      } else if (is_at_hand(kv, twin)) {
        replace_block(kv, seats, seat_index, seat.num_filed, twin);
      } else if (kv.store.blocks[twin].places[kDeviceTier] == kNoBlock) {
        move_place(kv.store, block, twin);
        kv.table(seat_index)[seat.num_filed] = twin;
      } else {
        return;
      }
    }
  }
}

}  // namespace saccade
