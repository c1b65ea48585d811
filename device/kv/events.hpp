// What is findable, told to routers: an event when a block can be found in a tier, and one when it
// cannot any more (abi/fetch.h). A block is told after the block that it continues, and taken back
// before it.
//
// When the ring is full, events are lost: then a reader is told to forget everything, and is told
// the whole table again, some blocks a tick. The same when another reader begins.
#pragma once
#include "abi/fetch.h"
#include "platform/atomics.hpp"
#include "platform/hd.hpp"

namespace saccade {

/// Blocks that are looked at in a tick, while the table is resent.
inline constexpr uint32_t kRetoldBlocks = 256;

struct KvEvents {
  unsigned char* ring;  // [num_events][event_bytes]; null: no events
  uint32_t num_events;  // a power of two
  uint32_t event_bytes;
  uint64_t written;
  uint64_t read;       // by the other side, as of the start of the tick
  uint64_t dropped;    // could not be told
  uint32_t retelling;  // 1: the table is being resent
  uint32_t cleared;    // 1: readers were told to forget
  uint32_t next;       // blocks before this one were told
  uint32_t skipped;    // 1: one of these came since, behind a block that was not told yet

  SAC_HD bool enabled() const { return ring != nullptr; }
  SAC_HD uint64_t room() const { return num_events - (written - read); }

  /// What was told is void, and readers do not know yet: an event now would add to what they hold.
  SAC_HD bool is_void() const { return retelling != 0 && cleared == 0; }
  /// All that was told is void; what is there is told from now on.
  SAC_HD void tell_anew() {
    retelling = 1;
    cleared = next = skipped = 0;
  }
  /// Writes an event, if there is room. `tokens`: of the block, [block_size], or null.
  SAC_HD bool write(const sac_kv_event& event, const uint32_t* tokens, uint32_t block_size) {
    if (room() == 0) return false;
    unsigned char* at = ring + written % num_events * event_bytes;
    const auto* from = reinterpret_cast<const uint64_t*>(&event);
    for (size_t w = 0; w < sizeof(event) / 8; ++w)
      store_relaxed(reinterpret_cast<uint64_t*>(at) + w, from[w]);
    auto* to = reinterpret_cast<uint32_t*>(at + sizeof(event));
    for (uint32_t i = 0; tokens != nullptr && i < block_size; ++i) store_relaxed(to + i, tokens[i]);
    ++written;
    return true;
  }
};

}  // namespace saccade
