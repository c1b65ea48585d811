#include <cstring>

#include "ring/fetch_view.hpp"

namespace saccade {
namespace {

constexpr uint64_t kPageBytes = 4096;

/// Hands out the parts of a region one after the other.
class Parts {
 public:
  uint64_t take(uint64_t bytes, uint64_t align = SAC_LINE_BYTES) {
    end_ = (end_ + align - 1) / align * align;
    const uint64_t at = end_;
    end_ += bytes;
    return at;
  }
  uint64_t end() const { return (end_ + kPageBytes - 1) / kPageBytes * kPageBytes; }

 private:
  uint64_t end_ = sizeof(sac_fetch_header);
};

uint32_t event_bytes(uint32_t block_size) {
  constexpr uint32_t kAlign = 64;
  const auto bytes = static_cast<uint32_t>(sizeof(sac_kv_event) + block_size * sizeof(uint32_t));
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

sac_fetch_header header_of(const FetchShape& s) {
  sac_fetch_header h = {};
  h.version = SAC_FETCH_VERSION;
  h.header_bytes = sizeof(h);
  h.layout_hash = SAC_FETCH_LAYOUT_HASH;
  h.queue_len = s.queue_len;
  h.num_entries = s.num_entries;
  h.entry_tokens = s.entry_tokens;
  h.num_frames = s.num_frames;
  h.frame_bytes = s.block_bytes * (s.chunk_tokens / s.block_size);
  h.block_bytes = s.block_bytes;
  h.block_size = s.block_size;
  h.num_layers = s.num_layers;
  h.kv_heads = s.kv_heads;
  h.head_dim = s.head_dim;
  h.dtype = s.dtype;
  h.device_wakes = s.device_wakes;
  h.num_events = s.num_events;
  h.event_bytes = event_bytes(s.block_size);
  std::memcpy(h.model_id, s.model_id, sizeof(h.model_id));
  Parts at;
  h.device_offset = at.take(sizeof(sac_fetch_device_line));
  h.plane_offset = at.take(sizeof(sac_fetch_plane_line));
  h.commands_offset = at.take(uint64_t{s.queue_len} * sizeof(sac_fetch_command));
  h.completions_offset = at.take(uint64_t{s.queue_len} * sizeof(sac_fetch_completion));
  h.tokens_offset = at.take(uint64_t{s.num_entries} * s.entry_tokens * sizeof(uint32_t));
  h.events_offset = at.take(uint64_t{h.num_events} * h.event_bytes);
  h.frames_offset = at.take(h.frame_bytes * s.num_frames, kPageBytes);
  h.region_bytes = at.end();
  return h;
}

}  // namespace

uint64_t fetch_region_bytes(const FetchShape& shape) { return header_of(shape).region_bytes; }

void make_fetch_region(void* region, const FetchShape& shape, uint64_t instance_id,
                       FetchView* view) {
  auto* base = static_cast<unsigned char*>(region);
  auto* header = reinterpret_cast<sac_fetch_header*>(base);
  *header = header_of(shape);
  header->instance_id = instance_id;
  view->queue_len = shape.queue_len;
  view->entry_tokens = shape.entry_tokens;
  view->device = reinterpret_cast<sac_fetch_device_line*>(base + header->device_offset);
  view->plane = reinterpret_cast<sac_fetch_plane_line*>(base + header->plane_offset);
  view->commands = reinterpret_cast<sac_fetch_command*>(base + header->commands_offset);
  view->completions = reinterpret_cast<sac_fetch_completion*>(base + header->completions_offset);
  view->tokens = reinterpret_cast<uint32_t*>(base + header->tokens_offset);
  view->frames = base + header->frames_offset;
  view->events = base + header->events_offset;
  view->num_events = header->num_events;
  view->event_bytes = header->event_bytes;
  // SYNC: release, with the plane's acquire of magic: the header is whole.
  store_release(&header->magic, SAC_FETCH_MAGIC);
}

}  // namespace saccade
