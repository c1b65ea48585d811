// Finds a block by what it holds. Chained buckets in fixed memory; the walk through a bucket is
// bounded, and what lies beyond the bound is not found.
#pragma once
#include "kv/chain.hpp"

namespace saccade {

/// Entries of a bucket that a look-up compares. With at least as many buckets as blocks, and keys
/// that clients cannot choose, a bucket of this length does not happen.
inline constexpr uint32_t kBucketWalk = 16;
inline constexpr uint32_t kNoParent = UINT32_MAX;

/// What a findable block is known by.
struct PrefixEntry {
  uint64_t key;
  uint64_t salt;
  uint32_t parent;  // the block before it; kNoParent: it is the first
  uint32_t next;    // in its bucket; kNoParent: the last
  uint32_t prev;    // kNoParent: the first
};

struct PrefixTable {
  uint32_t block_size;   // tokens
  uint32_t bucket_mask;  // buckets - 1, a power of two
  uint32_t* buckets;     // [buckets]: the first entry of each
  PrefixEntry* entries;  // [num_blocks]
  uint32_t* tokens;      // [num_blocks][block_size]

  SAC_HD const uint32_t* tokens_of(uint32_t block) const {
    return tokens + static_cast<size_t>(block) * block_size;
  }
  SAC_HD uint32_t& bucket_of(uint64_t key) const { return buckets[key & bucket_mask]; }

  SAC_HD void reset() {
    for (uint32_t b = 0; b <= bucket_mask; ++b) buckets[b] = kNoParent;
  }

  SAC_HD bool holds(uint32_t block, uint64_t salt, uint32_t parent, const uint32_t* wanted) const {
    const PrefixEntry& e = entries[block];
    if (e.parent != parent || e.salt != salt) return false;
    const uint32_t* own = tokens_of(block);
    for (uint32_t i = 0; i < block_size; ++i)
      if (own[i] != wanted[i]) return false;
    return true;
  }

  /// The block behind `parent` that holds `wanted`, [block_size]; kNoParent if there is none.
  SAC_HD uint32_t find(uint64_t key, uint64_t salt, uint32_t parent, const uint32_t* wanted) const {
    uint32_t at = bucket_of(key);
    for (uint32_t i = 0; i < kBucketWalk && at != kNoParent; ++i, at = entries[at].next)
      if (entries[at].key == key && holds(at, salt, parent, wanted)) return at;
    return kNoParent;
  }

  /// Makes a block findable. It is not yet, and neither is another with the same prefix.
  SAC_HD void insert(uint32_t block, uint64_t key, uint64_t salt, uint32_t parent,
                     const uint32_t* own) {
    uint32_t* to = tokens + static_cast<size_t>(block) * block_size;
    for (uint32_t i = 0; i < block_size; ++i) to[i] = own[i];
    uint32_t& first = bucket_of(key);
    entries[block] = {key, salt, parent, first, kNoParent};
    if (first != kNoParent) entries[first].prev = block;
    first = block;
  }

  /// The block is not found any more.
  SAC_HD void remove(uint32_t block) {
    const PrefixEntry& e = entries[block];
    (e.prev == kNoParent ? bucket_of(e.key) : entries[e.prev].next) = e.next;
    if (e.next != kNoParent) entries[e.next].prev = e.prev;
  }
};

}  // namespace saccade
