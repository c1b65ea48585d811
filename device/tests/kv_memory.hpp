// Memory behind the blocks of a test device, so that a block which is used too early or copied too
// late is seen: each row writes a word that all tokens up to its own decide, and reads those of
// every position below it. And an engine that copies between the tiers when its seed says so.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "kv/copies.hpp"
#include "step/step.hpp"
#include "tests/random.hpp"

namespace saccade::test {

struct KvMemory {
  uint32_t block_size = 0;
  std::vector<uint64_t> device = {};  // [blocks][block_size]
  std::vector<uint64_t> host = {};

  /// What a position has whose predecessor has `before`: KV depends on all tokens so far.
  static uint64_t word(uint64_t before, uint32_t token) {
    return Random(before ^ token).next() | 1;
  }
  /// Writes what the rows of a step write, then reads what they read.
  void run(const StepBatch& batch, const SeatTables& tables) {
    for (uint32_t i = 0; i < batch.num_seqs; ++i) {
      const StepSeq& q = batch.seqs[i];
      const uint32_t end = q.first_position + q.num_rows;
      uint64_t right = 0;
      for (uint32_t p = 0; p < end; ++p) {
        const uint32_t block = tables.block_table(q.seat)[p / block_size];
        uint64_t& at = device.at(size_t{block} * block_size + p % block_size);
        right = word(right, tables.tokens(q.seat)[p]);
        if (p >= q.first_position) at = right;
        if (at != right) throw std::runtime_error("a step read KV that is not its own");
      }
    }
  }
  void down(const BlockCopy& c) { move(device, c.device_block, host, c.host_block); }
  void up(const BlockCopy& c) { move(host, c.host_block, device, c.device_block); }

 private:
  void move(const std::vector<uint64_t>& from, uint32_t f, std::vector<uint64_t>& to, uint32_t t) {
    std::copy_n(from.begin() + size_t{f} * block_size, block_size,
                to.begin() + size_t{t} * block_size);
  }
};

/// How an engine behaves; odds are "one in n per tick", 0 = never.
struct CopySpeed {
  uint32_t per_tick = UINT32_MAX;  // copies of each direction that end between two ticks
  uint32_t stop_odds = 0;          // that a direction stands still for some ticks
  uint32_t lie_odds = 0;           // that a count is claimed which cannot be true
};

/// Copies whenever it likes: the bytes of one copy move when it is asked for, those of another only
/// just before it is counted. Memory: down(copy) and up(copy) move one block.
template <class Memory>
class SeededCopies {
 public:
  SeededCopies(Memory& memory, const CopySpeed& copy_speed, uint64_t seed)
      : speed(copy_speed), memory_(memory), random_(seed) {}

  void submit(const CopyQueue& down, const CopyQueue& up) {
    take(down, down_, [this](const BlockCopy& c) { memory_.down(c); });
    take(up, up_, [this](const BlockCopy& c) { memory_.up(c); });
  }
  uint64_t down_done() { return claim(down_); }
  uint64_t up_done() { return claim(up_); }

  /// Time passes: some copies end.
  void advance() {
    advance(down_, [this](const BlockCopy& c) { memory_.down(c); });
    advance(up_, [this](const BlockCopy& c) { memory_.up(c); });
  }

  CopySpeed speed;

 private:
  struct Pending {
    BlockCopy copy;
    bool moved;
  };
  struct Lane {
    std::vector<Pending> pending = {};  // in order; the first is number done + 1
    uint64_t asked = 0;
    uint64_t done = 0;
    uint32_t still_ticks = 0;
  };

  template <class Move>
  void take(const CopyQueue& queue, Lane& lane, Move move) {
    while (lane.asked < queue.asked) {
      const BlockCopy copy = queue.at(++lane.asked);
      const bool now = random_.one_in(2);
      if (now) move(copy);
      lane.pending.push_back({copy, now});
    }
  }
  template <class Move>
  void advance(Lane& lane, Move move) {
    if (random_.one_in(speed.stop_odds)) lane.still_ticks = random_.in(1, 20);
    if (lane.still_ticks != 0) {
      --lane.still_ticks;
      return;
    }
    const size_t count = std::min<size_t>(lane.pending.size(), random_.in(0, speed.per_tick));
    for (size_t i = 0; i < count; ++i)
      if (!lane.pending[i].moved) move(lane.pending[i].copy);
    lane.pending.erase(lane.pending.begin(), lane.pending.begin() + static_cast<long>(count));
    lane.done += count;
  }
  uint64_t claim(const Lane& lane) {
    if (random_.one_in(speed.lie_odds))
      return random_.one_in(2) ? random_.in(0, 1) * (lane.done / 2) : lane.asked + random_.in(1, 9);
    return lane.done;
  }

  Memory& memory_;
  Random random_;
  Lane down_, up_;
};
using TestCopies = SeededCopies<KvMemory>;

}  // namespace saccade::test
