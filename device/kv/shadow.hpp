// A cache without its contents: the keys of some blocks, in the order in which a policy would evict
// them. It says how many blocks that policy would have found. Fixed memory; equal keys count as
// equal blocks, since nothing is read from here.
#pragma once
#include "kv/recency.hpp"

namespace saccade {

inline constexpr uint32_t kNoShadow = UINT32_MAX;

struct ShadowEntry {
  uint64_t key;
  uint32_t next;  // in its bucket; kNoShadow: the last
  uint32_t prev;  // kNoShadow: the first
};

struct Shadow {
  uint32_t capacity;
  uint32_t bucket_mask;  // buckets - 1, a power of two
  uint32_t count;
  uint32_t* buckets;     // [buckets]
  ShadowEntry* entries;  // [capacity]
  Recency order;

  SAC_HD void reset(uint32_t entries_available) {
    capacity = entries_available;
    count = 0;
    for (uint32_t b = 0; b <= bucket_mask; ++b) buckets[b] = kNoShadow;
    order.reset(capacity);
  }

  /// A request has used the block of this key; True if it is here. A new one becomes the newest, or
  /// if it is not to be `kept` the next to leave.
  SAC_HD bool access(uint64_t key, bool kept) {
    const uint32_t at = find(key);
    if (at != kNoShadow) {
      order.remove(at);
      order.add_newest(at);
      return true;
    }
    if (kept || count < capacity) insert(key, kept);
    return false;
  }

 private:
  SAC_HD uint32_t& bucket_of(uint64_t key) const { return buckets[key & bucket_mask]; }

  SAC_HD uint32_t find(uint64_t key) const {
    uint32_t at = bucket_of(key);
    while (at != kNoShadow && entries[at].key != key) at = entries[at].next;
    return at;
  }
  SAC_HD void insert(uint64_t key, bool kept) {
    const uint32_t at = count < capacity ? count++ : evict();
    uint32_t& first = bucket_of(key);
    entries[at] = {key, first, kNoShadow};
    if (first != kNoShadow) entries[first].prev = at;
    first = at;
    if (kept) {
      order.add_newest(at);
    } else {
      order.add_oldest(at);
    }
  }
  SAC_HD uint32_t evict() {
    const uint32_t at = order.oldest;
    const ShadowEntry& e = entries[at];
    (e.prev == kNoShadow ? bucket_of(e.key) : entries[e.prev].next) = e.next;
    if (e.next != kNoShadow) entries[e.next].prev = e.prev;
    order.remove(at);
    return at;
  }
};

}  // namespace saccade
