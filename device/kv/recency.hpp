// Blocks that no seat uses, in the order in which they may be evicted: a doubly linked list through
// arrays. Blocks that are given back join at the newer end, a chain's last block before its first,
// so that a block is always evicted before the block that it continues.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

inline constexpr uint32_t kNoEntry = UINT32_MAX;

/// One entry's neighbours. Not in the list: both are the entry itself.
struct RecencyLinks {
  uint32_t older;
  uint32_t newer;
};

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

}  // namespace saccade
