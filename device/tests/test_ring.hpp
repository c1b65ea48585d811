// A ring region in memory, laid out as its creator would, for tests of the device plane.
#pragma once
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "ring/ring_view.hpp"

namespace saccade::test {

struct RingShape {
  uint32_t num_slots = 64;
  uint32_t num_frontends = 1;
  uint32_t out_ring_words = SAC_MIN_OUT_RING_WORDS;
  uint64_t arena_bytes = 256 * 1024;
};

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};
/// Zeroed memory on a 128-byte line, exactly `bytes` long, so that a sanitizer sees the first byte
/// beyond it.
using AlignedBytes = std::unique_ptr<unsigned char, FreeDeleter>;
inline AlignedBytes aligned_bytes(size_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, SAC_LINE_BYTES, bytes) != 0) throw std::bad_alloc();
  std::memset(p, 0, bytes);
  return AlignedBytes(static_cast<unsigned char*>(p));
}

/// Offsets in order, each on a line of its own.
class Offsets {
 public:
  uint64_t take(uint64_t bytes) {
    const uint64_t at = next_;
    next_ = (next_ + bytes + SAC_LINE_BYTES - 1) / SAC_LINE_BYTES * SAC_LINE_BYTES;
    return at;
  }
  uint64_t bytes() const { return next_; }

 private:
  uint64_t next_ = 0;
};

inline sac_region_header region_header(const RingShape& shape) {
  sac_region_header h = {};
  h.abi_version = SAC_ABI_VERSION;
  h.header_bytes = sizeof(h);
  h.layout_hash = SAC_LAYOUT_HASH;
  h.instance_id = 1;
  h.num_slots = shape.num_slots;
  h.num_frontends = shape.num_frontends;
  h.out_ring_words = shape.out_ring_words;
  h.arena_bytes = shape.arena_bytes;
  const uint64_t n = shape.num_slots;
  Offsets at;
  at.take(sizeof(h));
  h.device_offset = at.take(sizeof(sac_device_line));
  h.roof_offset = at.take(sizeof(sac_device_roof));
  h.stats_offset = at.take(sizeof(sac_device_stats));
  h.fetch_stats_offset = at.take(sizeof(sac_fetch_stats));
  h.acks_offset = at.take(sizeof(sac_frontend_ack) * shape.num_frontends);
  h.wake_offset = at.take(sizeof(sac_wake));
  h.frontends_offset = at.take(sizeof(sac_frontend_line) * shape.num_frontends);
  h.doorbells_offset = at.take(4 * n);
  h.cursors_offset = at.take(4 * n);
  h.status_offset = at.take(sizeof(sac_status) * n);
  h.descriptors_offset = at.take(sizeof(sac_descriptor) * n);
  h.out_ring_offset = at.take(8 * n * shape.out_ring_words);
  h.arena_offset = at.take(shape.arena_bytes);
  h.region_bytes = at.bytes();
  return h;
}

/// The region and both sides' way to it: `view` is the device's, the `*_mut` words the frontends'.
class TestRing {
 public:
  /// `memory`: zeroed, on a line, as long as region_header(shape) says, and outliving the ring;
  /// null for memory of its own.
  explicit TestRing(const RingShape& ring_shape, void* memory = nullptr) : shape(ring_shape) {
    header_ = region_header(shape);
    if (memory == nullptr) owned_ = aligned_bytes(header_.region_bytes);
    memory_ = memory == nullptr ? owned_.get() : static_cast<unsigned char*>(memory);
    auto* live = reinterpret_cast<sac_region_header*>(memory_);
    *live = header_;
    // SYNC: release, with open_ring's acquire: the header is whole.
    store_release(&live->magic, uint64_t{SAC_MAGIC});
    if (const char* wrong = open_ring(memory_, header_.region_bytes, &view))
      throw std::runtime_error(wrong);
  }
  void* region() const { return memory_; }
  uint64_t region_bytes() const { return header_.region_bytes; }

  uint32_t* doorbell_mut(uint32_t slot) const {
    return at<uint32_t>(header_.doorbells_offset, slot);
  }
  uint32_t* cursor_mut(uint32_t slot) const { return at<uint32_t>(header_.cursors_offset, slot); }
  sac_descriptor* descriptor_mut(uint32_t slot) const {
    return at<sac_descriptor>(header_.descriptors_offset, slot);
  }
  sac_frontend_line* frontend_mut(uint32_t frontend) const {
    return at<sac_frontend_line>(header_.frontends_offset, frontend);
  }
  /// Bytes of a slot's private part of the arena: its frontend's share, divided evenly.
  uint64_t extent_bytes(uint32_t slot) const {
    const uint32_t f = view.frontend_of(slot);
    const uint64_t share = view.first_arena_byte(f + 1) - view.first_arena_byte(f);
    const uint32_t slots = view.first_slot(f + 1) - view.first_slot(f);
    return share / slots / SAC_ARENA_ALIGN_BYTES * SAC_ARENA_ALIGN_BYTES;
  }
  /// Where that part begins, counted from the start of the arena.
  uint64_t extent(uint32_t slot) const {
    const uint32_t f = view.frontend_of(slot);
    return view.first_arena_byte(f) + (slot - view.first_slot(f)) * extent_bytes(slot);
  }
  uint32_t* extent_mut(uint32_t slot) const {
    return reinterpret_cast<uint32_t*>(arena_mut() + extent(slot));
  }
  unsigned char* arena_mut() const { return memory_ + header_.arena_offset; }
  uint64_t status_word(uint32_t slot) const { return load_acquire(&view.status[slot].word); }

  const RingShape shape;
  RingView view = {};

 private:
  template <class T>
  T* at(uint64_t offset, uint32_t index) const {
    return reinterpret_cast<T*>(memory_ + offset) + index;
  }

  sac_region_header header_ = {};
  AlignedBytes owned_;
  unsigned char* memory_ = nullptr;
};

}  // namespace saccade::test
