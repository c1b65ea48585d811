// The device's side of the second ring: where things are (abi/fetch.h). Nothing read is trusted.
#pragma once
#include "abi/fetch.h"
#include "platform/atomics.hpp"
#include "platform/hd.hpp"

namespace saccade {

/// Pointers into a region that the device has laid out. Can be copied to a device as it is.
struct FetchView {
  uint32_t queue_len;
  uint32_t entry_tokens;
  sac_fetch_device_line* device;  // null: there is no region
  const sac_fetch_plane_line* plane;
  sac_fetch_command* commands;
  const sac_fetch_completion* completions;
  uint32_t* tokens;       // [num_entries][entry_tokens]
  unsigned char* frames;  // [num_frames][blocks of a chunk][bytes of a block]
  unsigned char* events;  // [num_events][event_bytes]
  uint32_t num_events;
  uint32_t event_bytes;

  SAC_HD uint32_t* row(uint32_t entry) const {
    return tokens + static_cast<size_t>(entry) * entry_tokens;
  }
};

/// What a region is made for.
struct FetchShape {
  uint32_t queue_len;
  uint32_t num_entries;
  uint32_t entry_tokens;
  uint32_t num_frames;
  uint32_t block_size;
  uint64_t block_bytes;  // a multiple of 64
  uint32_t num_layers;
  uint32_t kv_heads;
  uint32_t head_dim;
  uint32_t dtype;         // as in sac_fetch_header
  uint32_t chunk_tokens;  // SAC_CHUNK_TOKENS, but in tests
  uint32_t device_wakes;
  uint32_t num_events;  // a power of two; 0: no events are written
  uint8_t model_id[32];
};

/// Bytes of such a region.
uint64_t fetch_region_bytes(const FetchShape& shape);

/// Lays out a region in zeroed memory of that many bytes, magic last, and fills the view. Host
/// only.
void make_fetch_region(void* region, const FetchShape& shape, uint64_t instance_id,
                       FetchView* view);

}  // namespace saccade
