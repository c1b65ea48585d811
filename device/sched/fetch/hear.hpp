// hear: what the fetch plane has answered since the last look, and whether it is alive.
#pragma once
#include "sched/fetch/load.hpp"

namespace saccade {

/// What the fetch plane's answers change.
struct Fetching {
  FetchDesk& desk;
  Slots& slots;
  WaitingLine& waiting;
  Seats& seats;
  KvTiers& kv;
  const Course& course;
  Report& report;
};

/// Why something came to nothing, by kind.
SAC_HD inline void count_detail(sac_fetch_stats& stats, const sac_fetch_completion& c) {
  const uint32_t kind = min_u32(c.detail, SAC_NUM_FETCH_DETAILS - 1);
  if (c.result == SAC_FETCH_REJECTED) ++stats.rejections[kind];
  if (c.result == SAC_FETCH_TROUBLE) ++stats.troubles[kind];
}

/// How many chunks of a prompt there are. What the plane claims beyond what it was asked is cut.
SAC_HD inline void note_lookup(const Fetching& f, const sac_fetch_completion& c) {
  const uint32_t index = index_of(c.id);
  FetchEntry& entry = f.desk.entries[index];
  entry.chunks = c.result == SAC_FETCH_DONE
                     ? min_u32(c.num_chunks, entry.num_tokens / f.desk.limits.chunk_tokens)
                     : 0;
  ++f.report.fetch.lookups[c.result];
  if (entry.use == EntryUse::kLookup) end_lookup(f.desk, f.slots, f.waiting, index);
}

/// A chunk's KV is in its frame, or will not come.
SAC_HD inline void note_load(const Fetching& f, const sac_fetch_completion& c) {
  const uint32_t index = index_of(c.id);
  FetchFrame& frame = f.desk.frames[index];
  FetchEntry& entry = f.desk.entries[frame.entry];
  ++f.report.fetch.loads[c.result];
  f.report.fetch.loaded_bytes += c.coded_bytes;
  if (entry.use != EntryUse::kLoading) return free_frame(f.desk, index);
  if (c.result == SAC_FETCH_DONE && frame.chunk < entry.chunks) {
    raise_frame(f.desk, f.seats, f.kv, index);
  } else {
    // What is behind a chunk that is missing is of no use.
    entry.chunks = min_u32(entry.chunks, frame.chunk);
    free_frame(f.desk, index);
  }
}

/// A chunk was stored, or not.
SAC_HD inline void note_store(const Fetching& f, const sac_fetch_completion& c) {
  ++f.report.fetch.stores[c.result];
  f.report.fetch.stored_bytes += c.coded_bytes;
  const uint32_t entry = f.desk.frames[index_of(c.id)].entry;
  free_frame(f.desk, index_of(c.id));
  leave_entry(f.desk, entry);
}

/// The entry that a completion is of, if there is a command of this id and kind; else kNone.
SAC_HD inline uint32_t entry_of(const FetchDesk& desk, const sac_fetch_completion& c) {
  const uint32_t index = index_of(c.id);
  if (c.result >= SAC_NUM_FETCH_RESULTS) return kNone;
  if (c.op == SAC_FETCH_LOOKUP) {
    const bool known = index < desk.limits.num_entries && desk.entries[index].lent != 0 &&
                       desk.entries[index].command == c.id;
    return known ? index : kNone;
  }
  const FrameUse use = c.op == SAC_FETCH_LOAD ? FrameUse::kLoading : FrameUse::kStoring;
  if (c.op != SAC_FETCH_LOAD && c.op != SAC_FETCH_STORE) return kNone;
  const bool known = index < desk.limits.num_frames && desk.frames[index].use == use &&
                     desk.frames[index].command == c.id;
  return known ? desk.frames[index].entry : kNone;
}

/// False: the plane says what cannot be true.
SAC_HD inline bool note_completion(const Fetching& f, const sac_fetch_completion& c) {
  const uint32_t index = entry_of(f.desk, c);
  if (index == kNone) return false;
  --f.desk.entries[index].lent;
  --f.desk.in_flight;
  count_detail(f.report.fetch, c);
  if (c.op == SAC_FETCH_LOOKUP) {
    f.desk.entries[index].command = 0;
    note_lookup(f, c);
  } else if (c.op == SAC_FETCH_LOAD) {
    note_load(f, c);
  } else {
    note_store(f, c);
  }
  free_if_left(f.desk, index);
  return true;
}

SAC_HD inline sac_fetch_completion read_completion(const FetchDesk& desk, uint32_t number) {
  sac_fetch_completion c;
  const auto* from =
      reinterpret_cast<const uint64_t*>(desk.view.completions + number % desk.limits.queue_len);
  auto* to = reinterpret_cast<uint64_t*>(&c);
  for (size_t w = 0; w < sizeof(c) / 8; ++w) to[w] = load_relaxed(from + w);
  return c;
}

/// A plane that breaks the protocol is not heard any more: what is lent to it stays lent until the
/// next one begins.
SAC_HD inline void hear_no_more(FetchDesk& desk, Report& report) {
  desk.broken = 1;
  ++report.fetch.planes_broken;
}

SAC_HD inline void read_completions(const Fetching& f) {
  FetchDesk& desk = f.desk;
  // SYNC: acquire, with the plane's release of completions_written: the completions are visible,
  // and so are the frames that they say are written.
  const uint32_t written = load_acquire(&desk.view.plane->completions_written);
  if (written == desk.completions_read) return;
  if (written - desk.completions_read > desk.in_flight) {
    // One that begins sets its counts back before it raises its epoch.
    if (desk.doubted_ns == 0) desk.doubted_ns = f.course.tick_ns;
    if (f.course.tick_ns - desk.doubted_ns > kFetchDoubtNs) hear_no_more(desk, f.report);
    return;
  }
  desk.doubted_ns = 0;
  while (desk.completions_read != written)
    if (!note_completion(f, read_completion(desk, desk.completions_read++)))
      return hear_no_more(desk, f.report);
  // SYNC: release, with the plane's acquire: the places of these completions may be written again.
  store_release(&desk.view.device->completions_read, desk.completions_read);
}

/// What was lent to a plane that is no more. Its process has ended: nothing of it is touched again.
SAC_HD inline void take_back(const Fetching& f) {
  FetchDesk& desk = f.desk;
  for (uint32_t i = 0; i < desk.limits.num_frames; ++i) {
    FetchFrame& frame = desk.frames[i];
    if (frame.use != FrameUse::kLoading && frame.use != FrameUse::kStoring) continue;
    FetchEntry& entry = desk.entries[frame.entry];
    if (frame.use == FrameUse::kLoading) entry.chunks = min_u32(entry.chunks, frame.chunk);
    --entry.lent;
    if (frame.use == FrameUse::kStoring) leave_entry(desk, frame.entry);
    free_if_left(desk, frame.entry);
    free_frame(desk, i);
    ++f.report.fetch.commands_lost;
  }
  for (uint32_t e = 0; e < desk.limits.num_entries; ++e) {
    FetchEntry& entry = desk.entries[e];
    if (entry.command == 0) continue;
    entry.command = 0;
    --entry.lent;
    ++f.report.fetch.commands_lost;
    if (entry.use == EntryUse::kLookup) end_lookup(desk, f.slots, f.waiting, e);
    free_if_left(desk, e);
  }
  desk.in_flight = 0;
}

/// A plane has joined, the first or another one.
SAC_HD inline void begin_plane(const Fetching& f, uint32_t epoch) {
  FetchDesk& desk = f.desk;
  take_back(f);
  desk.epoch = epoch;
  desk.broken = desk.commands_written = desk.completions_read = 0;
  desk.doubted_ns = 0;
  desk.alive_ns = f.course.tick_ns;
  f.kv.store.events.tell_anew();
  ++f.report.fetch.planes_joined;
  sac_fetch_device_line* line = desk.view.device;
  store_relaxed(&line->commands_written, 0u);
  store_relaxed(&line->completions_read, 0u);
  // SYNC: release, with the plane's acquire of acked_epoch: both queues begin at 0.
  store_release(&line->acked_epoch, epoch);
}

SAC_HD inline void watch_plane(const Fetching& f) {
  FetchDesk& desk = f.desk;
  const sac_fetch_plane_line* line = desk.view.plane;
  const uint64_t heartbeat = load_relaxed(&line->heartbeat);
  if (heartbeat != desk.heartbeat) {
    desk.heartbeat = heartbeat;
    desk.alive_ns = f.course.tick_ns;
  }
  desk.breaker = load_relaxed(&line->breaker);
  desk.stores = load_relaxed(&line->stores);
  // SYNC: acquire, with the plane's release of its epoch: its counts are 0.
  const uint32_t epoch = load_acquire(&line->epoch);
  if (epoch != desk.epoch) begin_plane(f, epoch);
}

/// Requests that have waited long enough for an answer go on without it.
SAC_HD inline void end_late_lookups(const Fetching& f) {
  FetchDesk& desk = f.desk;
  for (uint32_t e = 0; e < desk.limits.num_entries && desk.num_aside != 0; ++e) {
    FetchEntry& entry = desk.entries[e];
    if (entry.use != EntryUse::kLookup) continue;
    if (f.course.tick_ns - entry.began_ns <= desk.limits.late_ns) continue;
    ++f.report.fetch.lookups_given_up;
    withdraw(desk, entry.command);
    end_lookup(desk, f.slots, f.waiting, e);
  }
}

/// `since_ns`: time since the last tick.
SAC_HD inline void hear(const Fetching& f, uint64_t since_ns) {
  FetchDesk& desk = f.desk;
  if (desk.view.device == nullptr) return;
  if (desk.is_quiet() && f.course.tick_ns - desk.looked_ns < kFetchLookNs) return;
  desk.looked_ns = f.course.tick_ns;
  watch_plane(f);
  if (desk.broken == 0 && desk.in_flight != 0) read_completions(f);
  if (desk.num_aside != 0) end_late_lookups(f);
  land_frames(desk, f.seats, f.kv, f.course.tick_ns, since_ns);
  if (desk.num_loading != 0) end_loads(desk, f.seats, f.kv, f.course, f.report);
}

}  // namespace saccade
