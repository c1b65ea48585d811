// The KV blocks of each seat. Fixed memory.
#pragma once
#include "kv/break_even.hpp"
#include "kv/kv_blocks.hpp"
#include "kv/write_behind.hpp"
#include "platform/layout.hpp"
#include "sched/limits.hpp"

namespace saccade {

struct KvTiers {
  uint32_t block_size;          // tokens
  uint32_t max_blocks_per_seq;  // entries of a seat's tables
  uint32_t num_host_blocks;
  uint32_t eager_window;   // background copies down in flight
  uint32_t shares;         // 1: blocks are findable
  uint64_t seed;           // of the keys of prefixes
  uint32_t* tables;        // [num_seats][max_blocks_per_seq]: blocks of the store
  uint32_t* block_tables;  // the same: their places on the device, for steps
  KvBlocks store;
  BreakEven break_even;
  WriteBehind write_behind;

  SAC_HD uint32_t blocks_for(uint32_t tokens) const { return ceil_div(tokens, block_size); }
  SAC_HD uint32_t* table(uint32_t seat) const {
    return tables + static_cast<size_t>(seat) * max_blocks_per_seq;
  }
  SAC_HD uint32_t* block_table(uint32_t seat) const {
    return block_tables + static_cast<size_t>(seat) * max_blocks_per_seq;
  }
  SAC_HD KvTier& device() { return store.tiers[kDeviceTier]; }
  SAC_HD const KvTier& device() const { return store.tiers[kDeviceTier]; }
  SAC_HD KvTier& host() { return store.tiers[kHostTier]; }
  SAC_HD const KvTier& host() const { return store.tiers[kHostTier]; }
};

inline void lay_out(KvTier& tier, uint32_t places, uint32_t num_kv_blocks, Layout& at) {
  tier.pool.free_ring = at.take<uint32_t>(places);
  tier.pool.states = at.take<BlockState>(places);
  tier.idle.links = tier.cold.links = at.take<RecencyLinks>(num_kv_blocks);
}

/// At least as many buckets as entries.
template <class Entry>
void lay_out(Buckets<Entry>& buckets, uint32_t num_entries, Layout& at) {
  uint32_t count = 1;
  while (count < num_entries) count *= 2;
  buckets.mask = count - 1;
  buckets.first = at.take<uint32_t>(count);
  buckets.entries = at.take<Entry>(num_entries);
}

inline void lay_out(Shadow& shadow, uint32_t num_entries, Layout& at) {
  lay_out(shadow.buckets, num_entries, at);
  shadow.order.links = at.take<RecencyLinks>(num_entries);
}

/// KV blocks that can be findable.
SAC_HD inline uint32_t findable_blocks(const Limits& l) {
  return l.prefix_caching != 0 ? l.num_blocks + l.num_host_blocks : 0;
}

/// Findable blocks that the larger tier has; the other has copies of the same.
SAC_HD inline uint32_t distinct_blocks(const Limits& l) {
  return l.prefix_caching != 0 ? max_u32(l.num_blocks, l.num_host_blocks) : 0;
}

inline void lay_out(KvTiers& kv, const Limits& l, Layout& at) {
  const size_t entries = size_t{l.num_seats} * l.max_blocks_per_seq();
  const uint32_t blocks = l.num_blocks + l.num_host_blocks;
  kv.tables = at.take<uint32_t>(entries);
  kv.block_tables = at.take<uint32_t>(entries);
  lay_out(kv.device(), l.num_blocks, blocks, at);
  lay_out(kv.host(), l.num_host_blocks, blocks, at);
  kv.store.copies.down.ring = at.take<BlockCopy>(l.num_host_blocks + l.num_frame_blocks());
  if (l.fetch.enabled()) kv.write_behind.ring = at.take<ComputedChunk>(kWriteBehindChunks);
  kv.store.copies.up.ring = at.take<BlockCopy>(l.num_blocks);
  kv.store.blocks = at.take<KvBlock>(blocks);
  lay_out(kv.store.table.buckets, findable_blocks(l), at);
  kv.store.table.tokens = at.take<uint32_t>(size_t{findable_blocks(l)} * l.block_size);
  for (Shadow& shadow : kv.store.eviction.shadows)
    lay_out(shadow, shadow_blocks(distinct_blocks(l)), at);
}

SAC_HD inline void reset(KvTier& tier, uint32_t places, uint32_t num_kv_blocks) {
  tier.pool.reset(places);
  tier.idle.reset(num_kv_blocks);
  tier.cold.reset(num_kv_blocks);
  tier.num_unsettled = 0;
}

SAC_HD inline void reset(KvTiers& kv, const Limits& l) {
  KvBlocks& store = kv.store;
  kv.block_size = l.block_size;
  kv.max_blocks_per_seq = l.max_blocks_per_seq();
  kv.num_host_blocks = l.num_host_blocks;
  kv.eager_window = l.num_host_blocks == 0 ? 0 : l.eager_window;  // nowhere to copy to
  kv.shares = l.prefix_caching;
  kv.seed = l.prefix_seed;
  kv.break_even = BreakEven{};
  store.num_blocks = l.num_blocks + l.num_host_blocks;
  store.step_done = store.num_evicted = 0;
  reset(kv.device(), l.num_blocks, store.num_blocks);
  reset(kv.host(), l.num_host_blocks, store.num_blocks);
  store.copies.down.reset(l.num_host_blocks + l.num_frame_blocks());
  kv.write_behind.reset(l.blocks_per_chunk());
  store.copies.up.reset(l.num_blocks);
  for (uint32_t i = 0; i < store.num_blocks; ++i) {
    store.blocks[i] = KvBlock{};
    store.blocks[i].places[kDeviceTier] = store.blocks[i].places[kHostTier] = kNoBlock;
    store.blocks[i].next = i + 1;
  }
  store.first_unused = 0;
  store.table.block_size = l.block_size;
  store.table.buckets.reset();
  reset(store.eviction, distinct_blocks(l));
  store.events = KvEvents{};
}

}  // namespace saccade
