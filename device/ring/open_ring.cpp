#include <cstring>

#include "ring/ring_view.hpp"

namespace saccade {
namespace {

/// An array of `count` elements of `size` bytes at `offset` lies inside the region, on a line.
bool fits(uint64_t offset, uint64_t count, uint64_t size, uint64_t region_bytes) {
  return offset % SAC_LINE_BYTES == 0 && offset <= region_bytes && count <= UINT32_MAX &&
         count * size <= region_bytes - offset;
}

const char* check_limits(const sac_region_header& h) {
  if (h.num_frontends < 1 || h.num_frontends > SAC_MAX_FRONTENDS)
    return "ring header: num_frontends is outside 1 .. SAC_MAX_FRONTENDS";
  if (h.num_slots > SAC_MAX_SLOTS || h.num_slots % SAC_SLOT_GRANULE != 0 ||
      h.num_slots < h.num_frontends * SAC_SLOT_GRANULE)
    return "ring header: num_slots is not a multiple of SAC_SLOT_GRANULE within num_frontends * "
           "SAC_SLOT_GRANULE .. SAC_MAX_SLOTS";
  if (h.out_ring_words < SAC_MIN_OUT_RING_WORDS || h.out_ring_words > SAC_MAX_OUT_RING_WORDS ||
      h.out_ring_words % (SAC_LINE_BYTES / 8) != 0)
    return "ring header: out_ring_words is not a multiple of 16 within SAC_MIN_OUT_RING_WORDS .. "
           "SAC_MAX_OUT_RING_WORDS";
  return nullptr;
}

const char* check_offsets(const sac_region_header& h) {
  const uint64_t n = h.num_slots;
  const uint64_t all = h.region_bytes;
  const bool ok = fits(h.device_offset, 1, sizeof(sac_device_line), all) &&
                  fits(h.stats_offset, 1, sizeof(sac_device_stats), all) &&
                  fits(h.roof_offset, 1, sizeof(sac_device_roof), all) &&
                  fits(h.fetch_stats_offset, 1, sizeof(sac_fetch_stats), all) &&
                  fits(h.acks_offset, h.num_frontends, sizeof(sac_frontend_ack), all) &&
                  fits(h.wake_offset, 1, sizeof(sac_wake), all) &&
                  fits(h.frontends_offset, h.num_frontends, sizeof(sac_frontend_line), all) &&
                  fits(h.doorbells_offset, n, 4, all) && fits(h.cursors_offset, n, 4, all) &&
                  fits(h.status_offset, n, sizeof(sac_status), all) &&
                  fits(h.descriptors_offset, n, sizeof(sac_descriptor), all) &&
                  fits(h.out_ring_offset, n * h.out_ring_words, 8, all) &&
                  h.arena_offset % SAC_LINE_BYTES == 0 && h.arena_offset <= all &&
                  h.arena_bytes <= all - h.arena_offset;
  return ok ? nullptr : "ring header: an offset lies outside the region or off its line";
}

}  // namespace

const char* open_ring(void* region, uint64_t region_bytes, RingView* view) {
  if (region == nullptr || reinterpret_cast<uintptr_t>(region) % SAC_LINE_BYTES != 0)
    return "ring region: the address is null or not on a 128-byte line";
  if (region_bytes < sizeof(sac_region_header)) return "ring region: smaller than its header";
  auto* base = static_cast<unsigned char*>(region);
  const auto* live = reinterpret_cast<const sac_region_header*>(base);
  // SYNC: acquire, with the creator's release of magic, written last.
  if (load_acquire(&live->magic) != SAC_MAGIC) return "ring region: magic is not SACCADE1";
  sac_region_header h;
  std::memcpy(&h, live, sizeof(h));  // constant since magic was written; the checked copy is used
  if (h.abi_version != SAC_ABI_VERSION || h.header_bytes != sizeof(h))
    return "ring region: made by another version of the abi";
  if (h.layout_hash != SAC_LAYOUT_HASH) return "ring region: layout hash differs from this build's";
  if (h.region_bytes > region_bytes) return "ring region: shorter than its header says";
  if (const char* wrong = check_limits(h)) return wrong;
  if (const char* wrong = check_offsets(h)) return wrong;

  view->num_slots = h.num_slots;
  view->num_frontends = h.num_frontends;
  view->out_ring_words = h.out_ring_words;
  view->arena_bytes = h.arena_bytes;
  view->device = reinterpret_cast<sac_device_line*>(base + h.device_offset);
  view->stats = reinterpret_cast<sac_device_stats*>(base + h.stats_offset);
  view->roof = reinterpret_cast<sac_device_roof*>(base + h.roof_offset);
  view->fetch_stats = reinterpret_cast<sac_fetch_stats*>(base + h.fetch_stats_offset);
  view->acks = reinterpret_cast<sac_frontend_ack*>(base + h.acks_offset);
  view->wake = reinterpret_cast<sac_wake*>(base + h.wake_offset);
  view->frontends = reinterpret_cast<const sac_frontend_line*>(base + h.frontends_offset);
  view->doorbells = reinterpret_cast<const uint32_t*>(base + h.doorbells_offset);
  view->cursors = reinterpret_cast<const uint32_t*>(base + h.cursors_offset);
  view->status = reinterpret_cast<sac_status*>(base + h.status_offset);
  view->descriptors = reinterpret_cast<const sac_descriptor*>(base + h.descriptors_offset);
  view->out_rings = reinterpret_cast<uint64_t*>(base + h.out_ring_offset);
  view->arena = base + h.arena_offset;
  return nullptr;
}

}  // namespace saccade
