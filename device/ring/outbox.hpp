// Status words on their way to the frontends. They are collected while a tick decides or commits,
// and written together behind one fence: across a bus a fence costs as much as a read, so there
// must not be one per request.
#pragma once
#include "ring/ring_view.hpp"

namespace saccade {

struct StatusWrite {
  uint64_t word;
  uint32_t slot;
};

struct Outbox {
  StatusWrite* writes;  // [capacity]
  uint32_t capacity;
  uint32_t count;
};

/// Writes what was collected.
SAC_HD inline void send(const RingView& ring, Outbox& box) {
  if (box.count == 0) return;
  // SYNC: release, with the token reader's acquire of a status word: the records that it counts,
  // and the progress next to it, are visible.
  fence_release();
  for (uint32_t i = 0; i < box.count; ++i)
    store_relaxed(&ring.status[box.writes[i].slot].word, box.writes[i].word);
  box.count = 0;
}

/// Collects one word; the words of a slot reach its reader in this order.
SAC_HD inline void post(const RingView& ring, Outbox& box, uint32_t slot, uint64_t word) {
  if (box.count == box.capacity) send(ring, box);
  box.writes[box.count++] = {word, slot};
}

}  // namespace saccade
