// What the device tells others: statuses and records to frontends, counters to the metrics, and
// its decisions to a log. Verbs write here; none decides by what it finds.
#pragma once
#include "platform/layout.hpp"
#include "ring/outbox.hpp"
#include "sched/decision_log.hpp"
#include "sched/limits.hpp"

namespace saccade {

/// Statuses that wait for one fence; more are sent in several goes.
inline constexpr uint32_t kOutboxWrites = 256;

struct Report {
  RingView ring;
  Outbox statuses;
  // What the device has said of itself; nothing of it is read back from the ring.
  uint64_t heartbeat;
  uint32_t publish_count;
  uint32_t published;  // something was written to the ring since the last notification
  DecisionLog log;
  sac_fetch_stats fetch;   // of the traffic with the fetch plane; own copy too
  sac_device_stats stats;  // own copy, published once per tick; `ticks` counts the present one

  SAC_HD void beat() { store_relaxed(&ring.device->heartbeat, ++heartbeat); }
  /// Tells the frontend of a slot where its request is, with the next send_statuses.
  SAC_HD void post_status(uint32_t slot, uint64_t word) {
    post(ring, statuses, slot, word);
    published = 1;
  }
  SAC_HD void send_statuses() { send(ring, statuses); }
  SAC_HD void note(Decision kind, uint32_t slot, uint32_t detail) {
    log.add(stats.ticks, kind, slot, detail);
  }
};

inline void lay_out(Report& report, const Limits& l, Layout& at) {
  report.statuses.writes = at.take<StatusWrite>(kOutboxWrites);
  report.statuses.capacity = kOutboxWrites;
  report.log.words = at.take<uint64_t>(l.log_words);
}
SAC_HD inline void reset(Report& report, const Limits& l) {
  report.statuses.count = 0;
  report.published = 0;
  report.log.reset(l.log_words);
  report.stats = sac_device_stats{};
  report.fetch = sac_fetch_stats{};
}

}  // namespace saccade
