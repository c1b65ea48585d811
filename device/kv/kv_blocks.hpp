// KV blocks: what one holds, where it is, and who uses it. A block has a place in device memory, in
// host memory, or in both; seats use it at one of them. Fixed memory.
//
// A block is private to the seat that fills it, or findable: then seats that have the same prefix
// use it too. A findable block that no seat uses stays where it is and counts as free; when room is
// needed, the one that was given back first leaves, cold blocks (kv/eviction.hpp) before others.
// Seats give back a chain from its end, and a block is cold only if all that continue it are, so
// that a block always leaves before the block that it continues.
//
// In each tier: where a findable block is, the block that it continues is too. So the oldest block
// that no seat uses may always leave, and no block is findable whose parent is gone.
//
// A findable block is pending while one seat computes it. Only that seat uses it then.
#pragma once
#include "kv/block_pool.hpp"
#include "kv/events.hpp"
#include "kv/eviction.hpp"
#include "kv/lists.hpp"
#include "kv/prefix_table.hpp"

namespace saccade {

inline constexpr uint32_t kDeviceTier = 0;
inline constexpr uint32_t kHostTier = 1;
inline constexpr uint32_t kNumTiers = 2;

enum class BlockKind : uint32_t {
  kNone = 0,     // not in use
  kPrivate = 1,  // of the one seat that uses it
  kPending = 2,  // findable, and being filled by the one seat that uses it
  kFull = 3,     // findable
};

struct KvBlock {
  uint32_t places[kNumTiers];  // in each tier's memory, or kNoBlock
  uint32_t users[kNumTiers];   // seats that use it there; host: while they are rotated out
  BlockKind kind;
  uint32_t children[kNumTiers];       // findable blocks that continue it and are in that tier
  uint32_t filler;                    // pending: the seat that computes it
  uint32_t cold_children[kNumTiers];  // of these, the cold ones
  uint8_t unsettled;                  // bit by tier: it is idle there, and a copy touches its place
  uint8_t cold;    // bit by tier: it is idle there, and leaves before blocks that are not cold
  uint8_t reused;  // 1: another request has found it
  uint8_t told;    // bit by tier: routers know that it is there
  uint32_t next;   // not in use: the next one that is not
};

/// One tier's places, and the blocks there that no seat uses.
struct KvTier {
  BlockPool pool;
  Recency idle;
  Recency cold;            // idle too, and first to leave; a block is in one of the two lists
  uint32_t num_unsettled;  // of all: a copy touches the place, which is free when that is done

  SAC_HD uint32_t num_idle() const { return idle.count + cold.count; }
  SAC_HD bool is_idle(uint32_t block) const { return idle.contains(block); }
  /// Places that can be taken now.
  SAC_HD uint32_t num_free() const { return pool.num_free + num_idle() - num_unsettled; }
  /// And places that can be taken when the copies in flight are done.
  SAC_HD uint32_t num_coming() const { return pool.num_free + pool.num_in_transit + num_idle(); }
  SAC_HD uint32_t used() const { return pool.num_blocks - pool.num_free - num_idle(); }
};

struct KvBlocks {
  KvTier tiers[kNumTiers];
  Copies copies;
  uint64_t step_done;  // number of the last committed launch
  KvBlock* blocks;     // [num_blocks]: as many as there are places
  uint32_t num_blocks;
  uint32_t first_unused;
  uint64_t num_evicted;  // findable blocks that left both tiers
  PrefixTable table;
  Eviction eviction;
  KvEvents events;
};

SAC_HD inline bool is_findable(const KvBlock& b) {
  return b.kind == BlockKind::kPending || b.kind == BlockKind::kFull;
}

/// No seat needs the block to be in this tier.
SAC_HD inline bool is_idle_in(const KvBlock& b, uint32_t tier) {
  return b.places[tier] != kNoBlock && b.users[kDeviceTier] == 0 &&
         (tier == kDeviceTier || b.users[kHostTier] == 0);
}

SAC_HD inline bool is_still_in(const KvBlocks& kv, uint32_t block, uint32_t tier) {
  return kv.tiers[tier].pool.is_still(kv.blocks[block].places[tier], kv.copies);
}

/// The block that this one continues, if it is findable and continues one; else kNoEntry.
SAC_HD inline uint32_t parent_of(const KvBlocks& kv, uint32_t block) {
  return is_findable(kv.blocks[block]) ? kv.table.entry(block).parent : kNoEntry;
}

/// A block becomes cold in a tier, or is so no longer.
SAC_HD inline void set_cold(KvBlocks& kv, uint32_t block, uint32_t tier, bool cold) {
  const uint32_t parent = parent_of(kv, block);
  kv.blocks[block].cold ^= static_cast<uint8_t>(1u << tier);
  if (parent != kNoEntry) kv.blocks[parent].cold_children[tier] += cold ? 1u : ~0u;
}

/// The block is idle in a tier: it leaves after all that are there, or after the cold ones.
SAC_HD inline void join_idle(KvBlocks& kv, uint32_t block, uint32_t tier, bool kept) {
  KvTier& t = kv.tiers[tier];
  KvBlock& b = kv.blocks[block];
  if (kept || b.children[tier] != b.cold_children[tier]) {
    t.idle.add_newest(block);
  } else {
    t.cold.add_newest(block);
    set_cold(kv, block, tier, true);
  }
  if (is_still_in(kv, block, tier)) return;
  b.unsettled |= static_cast<uint8_t>(1u << tier);
  ++t.num_unsettled;
}
SAC_HD inline void count_settled(KvBlocks& kv, uint32_t block, uint32_t tier) {
  KvBlock& b = kv.blocks[block];
  kv.tiers[tier].num_unsettled -= b.unsettled >> tier & 1;
  b.unsettled &= static_cast<uint8_t>(~(1u << tier));
}
SAC_HD inline void leave_idle(KvBlocks& kv, uint32_t block, uint32_t tier) {
  KvTier& t = kv.tiers[tier];
  if (!t.is_idle(block)) return;
  if ((kv.blocks[block].cold >> tier & 1) != 0) {
    t.cold.remove(block);
    set_cold(kv, block, tier, false);
  } else {
    t.idle.remove(block);
  }
  count_settled(kv, block, tier);
}

// ---- what routers are told ----------------------------------------------------------------------

/// An event is lost: all that was told is void.
SAC_HD inline void lose_event(KvBlocks& kv) {
  ++kv.events.dropped;
  kv.events.tell_anew();
}

SAC_HD inline bool write_event(KvBlocks& kv, uint32_t block, uint32_t tier, uint32_t kind) {
  const PrefixEntry& e = kv.table.entry(block);
  sac_kv_event event = {};
  event.key = e.key;
  event.parent_key = e.parent == kNoEntry ? 0 : kv.table.entry(e.parent).key;
  event.salt = e.owner.salt;
  event.kind = kind;
  event.tier = tier;
  event.adapter = e.owner.adapter;
  const uint32_t* tokens = kind == SAC_KV_STORED ? kv.table.tokens_of(block) : nullptr;
  return kv.events.write(event, tokens, kv.table.block_size);
}

/// Tells that a full block is in a tier, unless that is known. Where its parent was not told, it is
/// told later, behind it.
SAC_HD inline void tell_stored(KvBlocks& kv, uint32_t block, uint32_t tier) {
  KvBlock& b = kv.blocks[block];
  if (!kv.events.enabled() || kv.events.is_void() || b.kind != BlockKind::kFull ||
      b.places[tier] == kNoBlock)
    return;
  const uint32_t bit = 1u << tier, parent = parent_of(kv, block);
  if ((b.told & bit) != 0) return;
  if (parent != kNoEntry && (kv.blocks[parent].told & bit) == 0) {
    kv.events.skipped = 1;
    return;
  }
  if (!write_event(kv, block, tier, SAC_KV_STORED)) return lose_event(kv);
  b.told |= static_cast<uint8_t>(bit);
}

/// Takes that back, before the block leaves the tier.
SAC_HD inline void tell_removed(KvBlocks& kv, uint32_t block, uint32_t tier) {
  KvBlock& b = kv.blocks[block];
  if ((b.told >> tier & 1) == 0) return;
  b.told &= static_cast<uint8_t>(~(1u << tier));
  if (kv.events.is_void()) return;
  if (!write_event(kv, block, tier, SAC_KV_REMOVED)) lose_event(kv);
}

/// Tells a block that is not known in a tier, and before it the blocks that it continues.
SAC_HD inline void tell_chain(KvBlocks& kv, uint32_t block, uint32_t tier) {
  while (kv.blocks[block].kind == BlockKind::kFull && (kv.blocks[block].told >> tier & 1) == 0 &&
         kv.blocks[block].places[tier] != kNoBlock && kv.events.retelling != 0) {
    uint32_t first = block;
    for (uint32_t p = parent_of(kv, first); p != kNoEntry && (kv.blocks[p].told >> tier & 1) == 0;
         p = parent_of(kv, p))
      first = p;
    if (kv.events.room() == 0) return;
    tell_stored(kv, first, tier);
  }
}

/// Goes on resending the table.
SAC_HD inline void retell(KvBlocks& kv) {
  KvEvents& events = kv.events;
  if (events.retelling == 0 || events.room() < events.num_events / 2) return;
  if (events.cleared == 0) {
    events.cleared = 1;
    for (uint32_t b = 0; b < kv.num_blocks; ++b) kv.blocks[b].told = 0;
    sac_kv_event cleared = {};
    cleared.kind = SAC_KV_CLEARED;
    events.write(cleared, nullptr, 0);
  }
  for (uint32_t i = 0; i < kRetoldBlocks && events.next < kv.num_blocks; ++i) {
    for (uint32_t tier = 0; tier < kNumTiers; ++tier) tell_chain(kv, events.next, tier);
    if (events.room() == 0) return;  // goes on with this one
    ++events.next;
  }
  if (events.next != kv.num_blocks) return;
  events.retelling = events.skipped;
  events.next = events.skipped = 0;
}

/// A findable block came to a tier, or left it (`by` = 1 or -1): the block that it continues knows.
SAC_HD inline void count_child(KvBlocks& kv, uint32_t block, uint32_t tier, int32_t by) {
  const uint32_t parent = parent_of(kv, block);
  if (parent != kNoEntry) kv.blocks[parent].children[tier] += static_cast<uint32_t>(by);
}

/// Takes a block out of the table. Nothing that continues it is findable.
SAC_HD inline void forget(KvBlocks& kv, uint32_t block) {
  for (uint32_t tier = 0; tier < kNumTiers; ++tier)
    if (kv.blocks[block].places[tier] != kNoBlock) count_child(kv, block, tier, -1);
  kv.table.remove(block);
  kv.blocks[block].kind = BlockKind::kPrivate;
}

/// Gives up a block's place in a tier; without any, the block is no more.
SAC_HD inline void vacate(KvBlocks& kv, uint32_t block, uint32_t tier) {
  KvBlock& b = kv.blocks[block];
  KvTier& t = kv.tiers[tier];
  tell_removed(kv, block, tier);
  leave_idle(kv, block, tier);
  count_child(kv, block, tier, -1);
  const uint32_t place = b.places[tier];
  b.places[tier] = kNoBlock;
  t.pool.release(place, t.pool.states[place].fence, kv.copies);
  if (b.places[kDeviceTier] != kNoBlock || b.places[kHostTier] != kNoBlock) return;
  if (is_findable(b)) {
    forget(kv, block);
    ++kv.num_evicted;
  }
  b.kind = BlockKind::kNone;
  b.next = kv.first_unused;
  kv.first_unused = block;
}

/// Evicts blocks from a tier until a place is free. False: there is none.
SAC_HD inline bool make_room(KvBlocks& kv, uint32_t tier) {
  KvTier& t = kv.tiers[tier];
  if (t.num_free() == 0) return false;
  while (t.pool.num_free == 0) {
    if (t.num_idle() == 0) return false;
    vacate(kv, t.cold.count != 0 ? t.cold.oldest : t.idle.oldest, tier);
  }
  return true;
}

/// Gives a block a place in a tier. False: there is none, or a step still touches the next one.
SAC_HD inline bool settle_in(KvBlocks& kv, uint32_t block, uint32_t tier) {
  if (!make_room(kv, tier)) return false;
  const uint32_t place = kv.tiers[tier].pool.allocate(block, kv.step_done);
  if (place == kNoBlock) return false;
  kv.blocks[block].places[tier] = place;
  count_child(kv, block, tier, 1);
  tell_stored(kv, block, tier);
  return true;
}

/// A new private block on the device, used by one seat; kNoBlock if there is no place.
SAC_HD inline uint32_t new_block(KvBlocks& kv) {
  if (!make_room(kv, kDeviceTier)) return kNoBlock;
  const uint32_t block = kv.first_unused;
  KvBlock& b = kv.blocks[block];
  const uint32_t next = b.next;
  b = KvBlock{};
  b.places[kDeviceTier] = b.places[kHostTier] = kNoBlock;
  b.users[kDeviceTier] = 1;
  b.kind = BlockKind::kPrivate;
  b.filler = kNoOwner;
  if (!settle_in(kv, block, kDeviceTier)) {
    b.users[kDeviceTier] = 0;
    b.kind = BlockKind::kNone;
    b.next = next;
    return kNoBlock;
  }
  kv.first_unused = next;
  return block;
}

/// A seat uses a block that is in this tier.
SAC_HD inline void use(KvBlocks& kv, uint32_t block, uint32_t tier) {
  leave_idle(kv, block, kHostTier);  // copies of blocks in use are not evicted
  if (tier == kDeviceTier) leave_idle(kv, block, kDeviceTier);
  KvBlock& b = kv.blocks[block];
  if (b.kind == BlockKind::kFull) b.reused = 1;
  ++b.users[tier];
}

/// A seat uses a block no longer in this tier; `last_step`: the last launch that touched it there.
/// A chain is given back from its end. Unless `kept`, a block that no other request has found is
/// cold.
SAC_HD inline void give_back(KvBlocks& kv, uint32_t block, uint32_t tier, uint64_t last_step,
                             bool kept = true) {
  KvBlock& b = kv.blocks[block];
  if (tier == kDeviceTier) {
    uint64_t& fence = kv.tiers[tier].pool.states[b.places[tier]].fence;
    fence = last_step > fence ? last_step : fence;
  }
  --b.users[tier];
  if (b.kind == BlockKind::kPending && b.users[kDeviceTier] == 0) forget(kv, block);
  const bool unused = b.users[kDeviceTier] == 0 && b.users[kHostTier] == 0;
  for (uint32_t i = 0; i < kNumTiers; ++i) {
    if (!is_idle_in(b, i)) continue;
    if (unused && b.kind == BlockKind::kPrivate) {
      vacate(kv, block, i);
    } else if (!kv.tiers[i].is_idle(block)) {
      join_idle(kv, block, i, kept || b.reused != 0);
    }
  }
}

/// `from`, private to one seat on the device, gives its place there to `to`, which has none and
/// holds the same. The seat uses `to` from now on; `from` is no more.
SAC_HD inline void move_place(KvBlocks& kv, uint32_t from, uint32_t to) {
  if (kv.blocks[from].places[kHostTier] != kNoBlock) vacate(kv, from, kHostTier);
  KvBlock& b = kv.blocks[from];
  const uint32_t place = b.places[kDeviceTier];
  kv.blocks[to].places[kDeviceTier] = place;
  count_child(kv, to, kDeviceTier, 1);
  tell_stored(kv, to, kDeviceTier);
  kv.tiers[kDeviceTier].pool.states[place].owner = to;
  use(kv, to, kDeviceTier);
  b.places[kDeviceTier] = kNoBlock;
  b.users[kDeviceTier] = 0;
  b.kind = BlockKind::kNone;
  b.next = kv.first_unused;
  kv.first_unused = from;
}

/// One of the copies that touch a place was counted.
SAC_HD inline void note_copied(KvBlocks& kv, uint32_t place, uint32_t tier) {
  KvTier& t = kv.tiers[tier];
  const uint32_t owner = t.pool.states[place].owner;
  if (owner == kInTransit) return t.pool.settle(place, kv.copies);
  if (owner == kNoOwner || t.num_unsettled == 0) return;
  if (t.pool.is_still(place, kv.copies)) count_settled(kv, owner, tier);
}

}  // namespace saccade
