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
  return {chain_root(kv.seed, salt), salt, kNoParent};
}

SAC_HD inline uint64_t next_key(const KvTiers& kv, const ChainEnd& end, const uint32_t* tokens) {
  return chain_key(end.key, hash_tokens(tokens, kv.block_size, kv.seed));
}

/// Full blocks that a sequence of `num_tokens` may take from others: its last token is computed.
SAC_HD inline uint32_t blocks_to_share(const KvTiers& kv, uint32_t num_tokens) {
  return num_tokens == 0 ? 0 : (num_tokens - 1) / kv.block_size;
}

/// Blocks that were found from the front on.
struct Found {
  uint32_t blocks;
  uint32_t in_use;  // of these: on the device, and used by a request
};

/// The KV of a full block can be used, or asked for: no copy down is still writing the one place
/// that it has.
SAC_HD inline bool can_be_used(const KvTiers& kv, const KvBlock& b) {
  if (b.kind != BlockKind::kFull) return false;
  if (b.places[kDeviceTier] != kNoBlock) return true;
  return kv.host().pool.states[b.places[kHostTier]].down_fence <= kv.store.copies.down.done;
}

/// Looks up the full blocks of a sequence; writes them to `table` if that is given.
SAC_HD inline Found look_up(const KvTiers& kv, const uint32_t* tokens, uint32_t num_tokens,
                            uint64_t salt, uint32_t* table) {
  Found found = {0, 0};
  ChainEnd end = chain_begin(kv, salt);
  const uint32_t most = blocks_to_share(kv, num_tokens);
  for (; found.blocks < most; ++found.blocks, tokens += kv.block_size) {
    end.key = next_key(kv, end, tokens);
    end.parent = kv.store.table.find(end.key, salt, end.parent, tokens);
    if (end.parent == kNoParent) break;
    const KvBlock& b = kv.store.blocks[end.parent];
    if (!can_be_used(kv, b)) break;
    found.in_use += b.users[kDeviceTier] != 0 ? 1 : 0;
    if (table != nullptr) table[found.blocks] = end.parent;
  }
  return found;
}

}  // namespace saccade
