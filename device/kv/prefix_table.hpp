// Finds a block by what it holds. A look-up is verified: the block before it, the salt and the
// tokens themselves are compared, so that a collision of keys costs a miss.
#pragma once
#include "kv/chain.hpp"
#include "kv/lists.hpp"

namespace saccade {

/// What a full block is found by.
struct PrefixName {
  uint64_t key;
  uint64_t salt;
  uint32_t parent;         // the block before it; kNoEntry: it is the first
  const uint32_t* tokens;  // [block_size]
};

/// Whose prefix a block is of, as routers are told. It is kept by value: what a number of an
/// adapter means may change while the block is there. Blocks with equal salts have equal owners.
struct PrefixOwner {
  uint64_t salt;     // without what the adapter adds to it
  uint64_t adapter;  // the hash of its name; 0: the model as it is
};

/// What a findable block is known by.
struct PrefixEntry {
  uint64_t key;
  uint64_t salt;
  uint32_t parent;  // as in PrefixName
  uint32_t next;
  uint32_t prev;
  PrefixOwner owner;
};

struct PrefixTable {
  uint32_t block_size;           // tokens
  Buckets<PrefixEntry> buckets;  // entries: [num_blocks]
  uint32_t* tokens;              // [num_blocks][block_size]

  SAC_HD const PrefixEntry& entry(uint32_t block) const { return buckets.entries[block]; }
  SAC_HD const uint32_t* tokens_of(uint32_t block) const {
    return tokens + static_cast<size_t>(block) * block_size;
  }

  SAC_HD bool holds(uint32_t block, const PrefixName& name) const {
    const PrefixEntry& e = entry(block);
    if (e.parent != name.parent || e.salt != name.salt) return false;
    const uint32_t* own = tokens_of(block);
    for (uint32_t i = 0; i < block_size; ++i)
      if (own[i] != name.tokens[i]) return false;
    return true;
  }

  /// The block of this name; kNoEntry if there is none.
  SAC_HD uint32_t find(const PrefixName& name) const {
    return buckets.find(name.key, [&](uint32_t block) { return holds(block, name); });
  }

  /// Makes a block findable. It is not yet, and neither is another of this name.
  SAC_HD void insert(uint32_t block, const PrefixName& name, const PrefixOwner& owner) {
    uint32_t* to = tokens + static_cast<size_t>(block) * block_size;
    for (uint32_t i = 0; i < block_size; ++i) to[i] = name.tokens[i];
    buckets.entries[block] = {name.key, name.salt, name.parent, kNoEntry, kNoEntry, owner};
    buckets.insert(block);
  }

  /// The block is not found any more.
  SAC_HD void remove(uint32_t block) { buckets.remove(block); }
};

}  // namespace saccade
