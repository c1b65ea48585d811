// Lists through arrays, in fixed memory: entries in the order in which they may leave, and entries
// found by their keys.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

inline constexpr uint32_t kNoEntry = UINT32_MAX;

/// One entry's neighbours. Not in the list: both are the entry itself.
struct RecencyLinks {
  uint32_t older;
  uint32_t newer;
};

/// Entries from the one to evict first to the one to evict last. Blocks that are given back join at
/// the newer end, a chain's last block before its first, so that a block is always evicted before
/// the block that it continues.
struct Recency {
  RecencyLinks* links;  // [num_entries]
  uint32_t oldest;
  uint32_t newest;
  uint32_t count;

  SAC_HD void reset(uint32_t num_entries) {
    for (uint32_t i = 0; i < num_entries; ++i) links[i] = {i, i};
    oldest = newest = kNoEntry;
    count = 0;
  }
  SAC_HD bool contains(uint32_t entry) const { return links[entry].older != entry; }

  SAC_HD void add_newest(uint32_t entry) {
    links[entry] = {newest, kNoEntry};
    (newest == kNoEntry ? oldest : links[newest].newer) = entry;
    newest = entry;
    ++count;
  }
  SAC_HD void add_oldest(uint32_t entry) {
    links[entry] = {kNoEntry, oldest};
    (oldest == kNoEntry ? newest : links[oldest].older) = entry;
    oldest = entry;
    ++count;
  }
  SAC_HD void remove(uint32_t entry) {
    const RecencyLinks l = links[entry];
    (l.older == kNoEntry ? oldest : links[l.older].newer) = l.newer;
    (l.newer == kNoEntry ? newest : links[l.newer].older) = l.older;
    links[entry] = {entry, entry};
    --count;
  }
};

/// Entries of a bucket that a look-up compares. With at least as many buckets as entries, and keys
/// that clients cannot choose, a bucket of this length does not happen.
inline constexpr uint32_t kBucketWalk = 16;

/// Chained buckets. An `Entry` has its `key`, and `next` and `prev` for the chain. The walk through
/// a bucket is bounded: what lies beyond the bound is not found.
template <class Entry>
struct Buckets {
  uint32_t mask;    // buckets - 1; the number of buckets is a power of two
  uint32_t* first;  // [buckets]
  Entry* entries;

  SAC_HD void reset() {
    for (uint32_t b = 0; b <= mask; ++b) first[b] = kNoEntry;
  }
  /// The entry of this key for which `is_it(entry)`; kNoEntry: there is none.
  template <class IsIt>
  SAC_HD uint32_t find(uint64_t key, IsIt is_it) const {
    uint32_t at = first[key & mask];
    for (uint32_t i = 0; i < kBucketWalk && at != kNoEntry; ++i, at = entries[at].next)
      if (entries[at].key == key && is_it(at)) return at;
    return kNoEntry;
  }
  /// Chains an entry, whose key is set, to its bucket.
  SAC_HD void insert(uint32_t at) {
    uint32_t& head = first[entries[at].key & mask];
    entries[at].next = head;
    entries[at].prev = kNoEntry;
    if (head != kNoEntry) entries[head].prev = at;
    head = at;
  }
  SAC_HD void remove(uint32_t at) {
    const Entry& e = entries[at];
    (e.prev == kNoEntry ? first[e.key & mask] : entries[e.prev].next) = e.next;
    if (e.next != kNoEntry) entries[e.next].prev = e.prev;
  }
};

}  // namespace saccade
