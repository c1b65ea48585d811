// Copies of KV blocks between device memory and host memory: what the scheduler asks for, and what
// a copy engine promises.
//
// Each direction is one queue. Copies are numbered from 1 in the order in which they are asked for,
// and complete in that order; the two directions are independent. A block may be reused once the
// last step and the last copy that touch it are done: both are numbers, kept with the block
// (kv/block_pool.hpp).
//
// Engine:
//   submit(down, up)   The queues have grown since the last call; returns at once. Called by the
//                      thread of the tick, after the commit of one step and before the launch of
//                      the next, so every byte that a copy reads is written. Copies may begin at
//                      once and run during any later step: the scheduler launches no step that
//                      writes what a copy reads, or that touches what a copy writes. A ring entry
//                      does not change until its copy has been counted.
//   down_done(), up_done()
//                      Number of the last copy that is done along with all before it; never falls.
//                      What the counted copies wrote is visible to anything that the caller starts
//                      afterwards.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

/// One block, all layers, K and V: one contiguous extent on either side.
struct BlockCopy {
  uint32_t device_block;
  uint32_t host_block;  // places in the frames of the fetch plane come behind those of host memory
};

/// All copies of one direction that are asked for and not done. Plain memory, handed out by
/// `lay_out`.
struct CopyQueue {
  BlockCopy* ring;    // [capacity]; copy n is at (n - 1) % capacity until it is done
  uint32_t capacity;  // places of the tier that it writes: each is in at most one copy
  uint64_t asked;     // number of the last copy asked for
  uint64_t urgent;    // number of the last one that a request waits for; the others are background
  uint64_t done;      // number of the last copy done, as of the start of the tick
  uint32_t end;       // place of the next copy: asked % capacity, without the division

  SAC_HD void reset(uint32_t places) {
    capacity = places;
    asked = urgent = done = end = 0;
  }
  /// Ring place of copy n, n in 1 .. asked + 1; and the place after a place.
  SAC_HD uint32_t place(uint64_t n) const { return static_cast<uint32_t>((n - 1) % capacity); }
  SAC_HD uint32_t next_place(uint32_t place) const { return place_behind(place, 1); }
  /// The place `count` after `place`; count <= capacity.
  SAC_HD uint32_t place_behind(uint32_t place, uint32_t count) const {
    return place + count >= capacity ? place + count - capacity : place + count;
  }
  /// Copy n of done + 1 .. asked.
  SAC_HD const BlockCopy& at(uint64_t n) const { return ring[place(n)]; }
  SAC_HD uint32_t in_flight() const { return static_cast<uint32_t>(asked - done); }
  /// Appends a copy and returns its number. There is room: see capacity.
  SAC_HD uint64_t ask(BlockCopy copy, bool is_urgent) {
    ring[end] = copy;
    end = next_place(end);
    ++asked;
    if (is_urgent) urgent = asked;
    return asked;
  }
};

/// Both directions.
struct Copies {
  CopyQueue down;  // device to host
  CopyQueue up;    // host to device

  SAC_HD bool idle() const { return down.in_flight() == 0 && up.in_flight() == 0; }
};

/// The engine of a device with one tier, which asks for no copies.
struct NoCopies {
  SAC_HD void submit(const CopyQueue&, const CopyQueue&) const {}
  SAC_HD uint64_t down_done() const { return 0; }
  SAC_HD uint64_t up_done() const { return 0; }
};

/// The engine of a device whose blocks take no memory: a copy is done as soon as it is asked for.
struct InstantCopies {
  uint64_t down = 0;
  uint64_t up = 0;
  SAC_HD void submit(const CopyQueue& down_queue, const CopyQueue& up_queue) {
    down = down_queue.asked;
    up = up_queue.asked;
  }
  SAC_HD uint64_t down_done() const { return down; }
  SAC_HD uint64_t up_done() const { return up; }
};

}  // namespace saccade
