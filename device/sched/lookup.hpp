// Finding the blocks in which the tokens of a sequence already are.
#pragma once
#include "sched/kv_tiers.hpp"

namespace saccade {

/// Where a chain is continued: the key of what is before, and the block that ends it.
struct ChainEnd {
  uint64_t key;
  uint64_t salt;
  uint32_t parent;
};

SAC_HD inline ChainEnd chain_begin(const KvTiers& kv, uint64_t salt) {
  return {chain_root(kv.seed, salt), salt, kNoEntry};
}

/// The name of the block that continues a chain with these tokens, [block_size].
SAC_HD inline PrefixName next_name(const KvTiers& kv, const ChainEnd& end, const uint32_t* tokens) {
  const uint64_t own = hash_tokens(tokens, kv.block_size, kv.seed);
  return {chain_key(end.key, own), end.salt, end.parent, tokens};
}

/// Full blocks that a sequence of `num_tokens` may take from others: its last token is computed.
SAC_HD inline uint32_t blocks_to_share(const KvTiers& kv, uint32_t num_tokens) {
  return num_tokens == 0 ? 0 : (num_tokens - 1) / kv.block_size;
}

/// Blocks that were found from the front on.
struct Found {
  uint32_t blocks;
  uint32_t in_use;   // of these: on the device, and used by a request
  uint32_t fetched;  // of these: in host memory only, behind all that are on the device
};

/// The KV of a full block can be used, or asked for: no copy down is still writing the one place
/// that it has.
SAC_HD inline bool can_be_used(const KvTiers& kv, const KvBlock& b) {
  if (b.kind != BlockKind::kFull) return false;
  if (b.places[kDeviceTier] != kNoBlock) return true;
  return kv.host().pool.states[b.places[kHostTier]].down_fence <= kv.store.copies.down.done;
}

/// Without what is computed sooner than it comes up from host memory.
SAC_HD inline Found worth_using(const KvTiers& kv, Found found) {
  if (found.fetched == 0) return found;
  const uint32_t queued = kv.store.copies.up.in_flight();
  if (kv.break_even.fetching_pays(queued, found.fetched, found.fetched * kv.block_size))
    return found;
  return {found.blocks - found.fetched, found.in_use, 0};
}

/// Looks up the full blocks of a sequence that are worth using; writes them to `table` if that is
/// given.
SAC_HD inline Found look_up(const KvTiers& kv, const uint32_t* tokens, uint32_t num_tokens,
                            uint64_t salt, uint32_t* table) {
  Found found = {0, 0, 0};
  ChainEnd end = chain_begin(kv, salt);
  const uint32_t most = blocks_to_share(kv, num_tokens);
  for (; found.blocks < most; ++found.blocks, tokens += kv.block_size) {
    const PrefixName name = next_name(kv, end, tokens);
    const uint32_t block = kv.store.table.find(name);
    if (block == kNoEntry || !can_be_used(kv, kv.store.blocks[block])) break;
    const KvBlock& b = kv.store.blocks[block];
    found.in_use += b.users[kDeviceTier] != 0 ? 1 : 0;
    found.fetched += b.places[kDeviceTier] == kNoBlock ? 1 : 0;
    if (table != nullptr) table[found.blocks] = block;
    end = {name.key, salt, block};
  }
  return worth_using(kv, found);
}

}  // namespace saccade
