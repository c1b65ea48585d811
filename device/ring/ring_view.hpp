// The device's side of the ring: where things are. ring/peers.hpp reads what peers write,
// ring/outbox.hpp writes what they wait for (abi/README.md has the table of orders). Nothing read
// is trusted; callers check what they copied.
#pragma once
#include "platform/atomics.hpp"
#include "platform/hd.hpp"

namespace saccade {

/// Pointers into a region whose header open_ring() has checked. Can be copied to a device as it is.
struct RingView {
  uint32_t num_slots;
  uint32_t num_frontends;
  uint32_t out_ring_words;
  uint64_t arena_bytes;
  sac_device_line* device;
  sac_device_roof* roof;
  sac_device_stats* stats;
  sac_fetch_stats* fetch_stats;
  sac_frontend_ack* acks;
  sac_wake* wake;
  const sac_frontend_line* frontends;
  const uint32_t* doorbells;
  const uint32_t* cursors;
  sac_status* status;
  const sac_descriptor* descriptors;
  uint64_t* out_rings;
  const unsigned char* arena;

  /// First and one-past-last slot of a frontend.
  SAC_HD uint32_t first_slot(uint32_t frontend) const {
    return sac_first_slot(num_slots, num_frontends, frontend);
  }
  /// First byte of a frontend's share of the arena, and one past the last of the share before it.
  SAC_HD uint64_t first_arena_byte(uint32_t frontend) const {
    return sac_first_arena_byte(arena_bytes, num_frontends, frontend);
  }
  SAC_HD uint32_t frontend_of(uint32_t slot) const {
    const uint32_t share = sac_first_slot(num_slots, num_frontends, 1);
    return min_u32(slot / share, num_frontends - 1);
  }

  SAC_HD const uint32_t* arena_words(uint64_t extent) const {
    return reinterpret_cast<const uint32_t*>(arena + extent);
  }
  SAC_HD uint64_t* record(uint32_t slot, uint32_t index, uint32_t stride, uint32_t capacity) const {
    return out_rings + static_cast<size_t>(slot) * out_ring_words +
           static_cast<size_t>(index % capacity) * stride;
  }
  SAC_HD void write_progress(uint32_t slot, uint32_t computed, uint32_t cached) const {
    store_relaxed(&status[slot].num_computed_tokens, computed);
    store_relaxed(&status[slot].num_cached_tokens, cached);
  }
};

/// Checks a region (magic, version, layout hash, every offset and bound) and fills the view.
/// Returns null, or a sentence that says what is wrong. Host only.
const char* open_ring(void* region, uint64_t region_bytes, RingView* view);

}  // namespace saccade
