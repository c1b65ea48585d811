// Rotation of KV blocks between the tiers, driven by the tick without a host: the engine of
// kv/copies.hpp for a device. Each direction is a lane with a few workers of its own that never
// end: they poll for requested copies and make them, concurrently with the steps and with each
// other.
//
// A copy is divided among all workers of its lane, and every worker makes its share of every copy,
// in order. So a lane has done what its slowest worker has done: the count needs no atomic
// read-modify-write, never falls, and never runs ahead of a byte.
#pragma once
#include "kv/copies.hpp"
#include "platform/atomics.hpp"

namespace saccade {

inline constexpr uint32_t kMaxRotationWorkers = 16;
/// Shares begin at multiples of this, and blocks are multiples of it: the width of one access.
inline constexpr uint32_t kRotationUnitBytes = 16;

/// How many workers each lane has.
struct RotationWorkers {
  uint32_t down;
  uint32_t up;

  SAC_HD uint32_t total() const { return down + up; }
};
/// Of both lanes, where `up` workers bring KV up: few take it down. What goes down is stores, which
/// wait for nothing and share the way to the host with the requests of the loads that bring KV up.
/// As many workers down as up crowd those requests out, and both ways together become slower.
constexpr RotationWorkers rotation_workers(uint32_t up) { return {up < 4 ? 1 : up / 4, up}; }

/// Writer: the tick.
struct RotationOrder {
  SAC_ALIGNAS(128) uint64_t asked;  // number of the last copy asked for
};
/// Writer: one worker.
struct RotationProgress {
  SAC_ALIGNAS(128) uint64_t done;  // number of the last copy whose share is complete
};
/// One direction. Zeroed before use, in memory that the tick and the workers reach.
struct RotationLane {
  RotationOrder order;
  RotationProgress workers[kMaxRotationWorkers];
};
struct RotationLanes {
  RotationLane down;
  RotationLane up;
  SAC_ALIGNAS(128) uint32_t stop;  // writer: the tick; 1: workers leave when all is done
};

/// The tick's side. Copied to the device as it is; lanes may be null where nothing is ever copied.
struct RotationEngine {
  RotationLanes* lanes;
  RotationWorkers workers;

  SAC_HD void submit(const CopyQueue& down, const CopyQueue& up) const {
    ask(lanes->down, down.asked);
    ask(lanes->up, up.asked);
  }
  SAC_HD uint64_t down_done() const { return done(lanes->down, workers.down); }
  SAC_HD uint64_t up_done() const { return done(lanes->up, workers.up); }
  /// The tick requests nothing more: workers end when all requested copies are done.
  SAC_HD void stop() const {
    // SYNC: release, with the acquire of await_order: it then sees the last `asked`.
    if (lanes != nullptr) store_release(&lanes->stop, 1u);
  }

 private:
  SAC_HD static void ask(RotationLane& lane, uint64_t asked) {
    if (load_relaxed(&lane.order.asked) == asked) return;
    // SYNC: release, with the acquire of await_order: the ring entries up to `asked` are written,
    // and so is the KV that they name, by steps whose results were acquired before.
    store_release(&lane.order.asked, asked);
  }
  SAC_HD static uint64_t done(const RotationLane& lane, uint32_t num_workers) {
    uint64_t least = UINT64_MAX;
    for (uint32_t w = 0; w < num_workers; ++w) {
      // SYNC: acquire, with the release of serve_lane: the share's bytes are visible.
      const uint64_t done = load_acquire(&lane.workers[w].done);
      if (done < least) least = done;
    }
    return least;
  }
};

/// What a worker is given. Pools: block b is at base + b * block_bytes.
struct RotationWork {
  RotationLanes* lanes;
  const BlockCopy* ring;  // the queue's; copy n is at (n - 1) % capacity
  uint32_t capacity;
  uint32_t is_down;  // 1: device to host
  uint32_t worker;
  uint32_t num_workers;  // of this lane
  unsigned char* device_pool;
  unsigned char* host_pool;
  uint64_t block_bytes;  // a multiple of kRotationUnitBytes

  SAC_HD RotationLane& lane() const { return is_down != 0 ? lanes->down : lanes->up; }
};

/// The work of worker n of all, given that of each lane: those that take KV down come first.
SAC_HD inline RotationWork work_of(const RotationWork& down, const RotationWork& up, uint32_t n) {
  const bool is_down = n < down.num_workers;
  RotationWork work = is_down ? down : up;
  work.worker = is_down ? n : n - down.num_workers;
  return work;
}

/// A part of a block.
struct RotationShare {
  uint64_t offset;  // bytes
  uint64_t bytes;
};
SAC_HD inline RotationShare share_of(uint64_t block_bytes, uint32_t worker, uint32_t num_workers) {
  const uint64_t units = block_bytes / kRotationUnitBytes;
  const uint64_t first = units * worker / num_workers;
  const uint64_t end = units * (worker + 1) / num_workers;
  return {first * kRotationUnitBytes, (end - first) * kRotationUnitBytes};
}

/// Number of the last copy asked for, or 0 if there is none beyond `done` and the lane was stopped.
/// One thread.
template <class Nap>
SAC_HD uint64_t await_order(const RotationWork& work, uint64_t done, Nap nap) {
  for (;;) {
    // SYNC: acquire, with RotationEngine::ask.
    const bool last = load_acquire(&work.lanes->stop) != 0;  // SYNC: with RotationEngine::stop
    const uint64_t asked = load_acquire(&work.lane().order.asked);
    if (asked != done) return asked;
    if (last) return 0;
    nap();
  }
}

/// A worker's life. Copier: await(work, done) (as await_order, the same for all threads of the
/// worker), copy(to, from, bytes), and publish(word, n), which all threads call when their part is
/// done: one of them stores n with release, after the bytes of all.
template <class Copier>
SAC_HD void serve_lane(const RotationWork& work, Copier& copier) {
  const RotationShare share = share_of(work.block_bytes, work.worker, work.num_workers);
  uint64_t* progress = &work.lane().workers[work.worker].done;
  uint64_t done = load_relaxed(progress);
  for (;;) {
    const uint64_t asked = copier.await(work, done);
    if (asked == 0) return;
    for (; done != asked; ++done) {
      const BlockCopy c = work.ring[done % work.capacity];
      unsigned char* device = work.device_pool + c.device_block * work.block_bytes + share.offset;
      unsigned char* host = work.host_pool + c.host_block * work.block_bytes + share.offset;
      if (work.is_down != 0) {
        copier.copy(host, device, share.bytes);
      } else {
        copier.copy(device, host, share.bytes);
      }
      copier.publish(progress, done + 1);
    }
  }
}

}  // namespace saccade
