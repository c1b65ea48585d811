// The link between device and host memory as two queues of equal blocks. Each direction has its own
// rate, and both together one more (DRAM that serves reads and writes); a link that is not duplex
// lets nothing go up while anything goes down.
#pragma once
#include <algorithm>
#include <cstdint>

#include "sim/saccade_sim.h"

namespace saccade::sim {

enum class Way : uint32_t { kDown = 0, kUp = 1 };

/// Times are nanoseconds of the caller's clock and must not go back.
class LinkModel {
 public:
  LinkModel() = default;
  LinkModel(const sac_sim_hardware& h, double block_bytes)
      : alone_(h.link_bytes_per_s / block_bytes / 1e9),
        both_(std::min(h.link_bytes_per_s, h.link_both_bytes_per_s / 2) / block_bytes / 1e9),
        duplex_(h.link_duplex != 0) {}

  /// `total` blocks have been requested this way since the start; it never decreases.
  void submit(Way way, uint64_t total, uint64_t now_ns) {
    advance(now_ns);
    ways_[index(way)].submitted = total;
  }
  /// Blocks of this way that have arrived; never decreases.
  uint64_t completed(Way way, uint64_t now_ns) {
    advance(now_ns);
    return static_cast<uint64_t>(ways_[index(way)].done + kRounding);
  }
  bool busy() const { return left(Way::kDown) > 0 || left(Way::kUp) > 0; }

  /// When the next block arrives, if nothing more is submitted; UINT64_MAX: nothing is in flight.
  uint64_t next_arrival_ns() const {
    uint64_t next = UINT64_MAX;
    for (const Way way : {Way::kDown, Way::kUp}) {
      if (left(way) <= 0 || rate(way) <= 0) continue;
      const double done = ways_[index(way)].done;
      const double missing =
          static_cast<double>(static_cast<uint64_t>(done + kRounding)) + 1 - done;
      next = std::min(next, now_ns_ + 1 + static_cast<uint64_t>(missing / rate(way)));
    }
    return next;
  }
  /// Blocks that will move within `ns` from now, both ways.
  double moved_within(uint64_t ns) const {
    LinkModel later = *this;
    later.advance(now_ns_ + ns);
    return later.ways_[0].done + later.ways_[1].done - ways_[0].done - ways_[1].done;
  }
  void advance(uint64_t now_ns) {
    double span = now_ns > now_ns_ ? static_cast<double>(now_ns - now_ns_) : 0;
    now_ns_ = std::max(now_ns_, now_ns);
    // Each round empties a way or uses the span up.
    for (uint32_t round = 0; round < 3 && span > 0 && busy(); ++round) span = flow(span);
  }

 private:
  struct Lane {
    uint64_t submitted = 0;
    double done = 0;  // blocks, with the part of the one in flight
  };
  // A sum of products of rates and times may end this far below its integer.
  static constexpr double kRounding = 1e-6;

  static uint32_t index(Way way) { return static_cast<uint32_t>(way); }
  double left(Way way) const {
    const Lane& lane = ways_[index(way)];
    const double blocks = static_cast<double>(lane.submitted) - lane.done;
    return blocks > kRounding ? blocks : 0;
  }
  /// Blocks per nanosecond.
  double rate(Way way) const {
    const bool other_busy = left(way == Way::kDown ? Way::kUp : Way::kDown) > 0;
    if (!other_busy) return alone_;
    if (duplex_) return both_;
    return way == Way::kDown ? alone_ : 0;
  }
  /// Moves blocks until `span` ends or a way runs empty; returns what is left of the span.
  double flow(double span) {
    double until = span;
    double rates[2] = {0, 0};
    for (const Way way : {Way::kDown, Way::kUp}) {
      if (left(way) <= 0) continue;
      rates[index(way)] = rate(way);
      if (rates[index(way)] > 0) until = std::min(until, left(way) / rates[index(way)]);
    }
    for (const Way way : {Way::kDown, Way::kUp}) {
      Lane& lane = ways_[index(way)];
      if (left(way) > 0)
        lane.done =
            std::min(static_cast<double>(lane.submitted), lane.done + rates[index(way)] * until);
    }
    return span - until;
  }

  double alone_ = 0;
  double both_ = 0;
  bool duplex_ = true;
  uint64_t now_ns_ = 0;
  Lane ways_[2];
};

}  // namespace saccade::sim
