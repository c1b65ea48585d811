// A cache without its contents: the keys of some blocks, in the order in which a policy would evict
// them. It says how many blocks that policy would have found. Fixed memory; equal keys count as
// equal blocks, since nothing is read from here.
#pragma once
#include "kv/lists.hpp"

namespace saccade {

struct ShadowEntry {
  uint64_t key;
  uint32_t next;
  uint32_t prev;
};

struct Shadow {
  uint32_t capacity;
  uint32_t count;
  Buckets<ShadowEntry> buckets;  // entries: [capacity]
  Recency order;

  SAC_HD void reset(uint32_t entries_available) {
    capacity = entries_available;
    count = 0;
    buckets.reset();
    order.reset(capacity);
  }

  /// A request has used the block of this key; true if it is here. A new one becomes the newest, or
  /// the next to leave if it is not to be `kept`.
  SAC_HD bool access(uint64_t key, bool kept) {
    const uint32_t at = buckets.find(key, [](uint32_t) { return true; });
    if (at != kNoEntry) {
      order.remove(at);
      order.add_newest(at);
      return true;
    }
    if (kept || count < capacity) insert(key, kept);
    return false;
  }

 private:
  SAC_HD void insert(uint64_t key, bool kept) {
    const uint32_t at = count < capacity ? count++ : evict();
    buckets.entries[at].key = key;
    buckets.insert(at);
    if (kept) {
      order.add_newest(at);
    } else {
      order.add_oldest(at);
    }
  }
  SAC_HD uint32_t evict() {
    const uint32_t at = order.oldest;
    buckets.remove(at);
    order.remove(at);
    return at;
  }
};

}  // namespace saccade
