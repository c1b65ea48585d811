// load: chunks of a prompt that a store has are looked up, loaded into frames, and copied to the
// request's blocks.
//
// A store may cost a request no more than late_ns against computing: an answer that takes longer is
// not waited for, and a load is given up when it is that far behind a prompt that is computed.
#pragma once
#include "sched/course.hpp"
#include "sched/fetch/desk.hpp"
#include "sched/kv_tiers.hpp"
#include "sched/report.hpp"
#include "sched/seats.hpp"
#include "sched/waiting.hpp"

namespace saccade {

// ---- lookup
// ---------------------------------------------------------------------------------------

/// Chunks that a prompt could take from a store: its last token is computed.
SAC_HD inline uint32_t chunks_to_load(const FetchDesk& desk, uint32_t prompt_len) {
  return (prompt_len - 1) / desk.limits.chunk_tokens;
}

/// Asks which chunks of a prompt a store has. `num_cached`: tokens whose KV is here. False: it is
/// not worth asking, or cannot be asked; then nothing was done. `tokens`: the prompt.
SAC_HD inline bool begin_lookup(FetchDesk& desk, Report& report, Request& r, uint32_t slot,
                                const uint32_t* tokens, uint64_t salt, uint64_t now_ns) {
  if (!desk.limits.enabled()) return false;
  const uint32_t chunks = chunks_to_load(desk, r.descriptor.prompt_len);
  if (chunks * desk.limits.chunk_tokens <= r.num_cached || !desk.is_served(now_ns)) return false;
  const uint32_t index = has_room(desk) ? take_entry(desk, EntryUse::kLookup, salt, slot) : kNone;
  if (index == kNone) {
    ++report.fetch.lookups_skipped;
    return false;
  }
  FetchEntry& entry = desk.entries[index];
  entry.num_tokens = chunks * desk.limits.chunk_tokens;
  entry.began_ns = now_ns;
  uint32_t* row = desk.view.row(index);
  for (uint32_t i = 0; i < entry.num_tokens; ++i) store_relaxed(row + i, tokens[i]);
  entry.command = ask(desk, {SAC_FETCH_LOOKUP, index, 0, 0, desk.limits.late_ns});
  ++desk.num_aside;
  r.fetch = index + 1;
  report.fetch.looked_up_tokens += entry.num_tokens;
  report.note(Decision::kLookup, slot, entry.num_tokens);
  return true;
}

/// A request that waits for the answer to a lookup: it is not in the waiting line.
SAC_HD inline bool is_aside(const FetchDesk& desk, const Request& r) {
  return r.fetch != 0 && desk.entries[r.fetch - 1].use == EntryUse::kLookup;
}

/// A request that was set aside joins the line, with what was found.
SAC_HD inline void end_lookup(FetchDesk& desk, Slots& slots, WaitingLine& waiting, uint32_t index) {
  FetchEntry& entry = desk.entries[index];
  const uint32_t slot = entry.slot;
  Request& r = slots[slot];
  if (entry.chunks * desk.limits.chunk_tokens > r.num_cached) {
    r.num_cached = entry.chunks * desk.limits.chunk_tokens;
    entry.use = EntryUse::kFound;
    --desk.num_aside;
  } else {
    leave_entry(desk, index);
    r.fetch = 0;
  }
  waiting_insert(waiting, slots, slot);
}

/// A request that waits, or is set aside, wants nothing of a store any more.
SAC_HD inline void forget_lookup(FetchDesk& desk, Request& r) {
  if (r.fetch == 0) return;
  drop_entry(desk, r.fetch - 1);
  r.fetch = 0;
}

// ---- load
// -----------------------------------------------------------------------------------------

/// What computing tokens takes, by what steps took of late.
SAC_HD inline uint64_t computing_ns(const KvTiers& kv, uint32_t tokens) {
  return kv.break_even.rows.cost_ns(tokens);
}

/// Tokens at the beginning of a waiting request's prompt that a store has.
SAC_HD inline uint32_t found_tokens(const FetchDesk& desk, const Request& r) {
  return r.fetch == 0 ? 0 : desk.entries[r.fetch - 1].chunks * desk.limits.chunk_tokens;
}

/// Chunks that come before those of a new load of `chunks`: shorter loads go first, and what was
/// asked for.
SAC_HD inline uint32_t chunks_before(const FetchDesk& desk, uint32_t chunks) {
  uint32_t before = 0;
  for (uint32_t e = 0; e < desk.limits.num_entries && desk.num_loading != 0; ++e) {
    const FetchEntry& entry = desk.entries[e];
    if (entry.use != EntryUse::kLoading) continue;
    const uint32_t left = entry.chunks - min_u32(entry.chunks, entry.landed);
    const bool first = desk.limits.first_come != 0 || left <= chunks;
    before += first ? left : min_u32(left, entry.asked - entry.landed);
  }
  return before;
}

/// Loading is expected to be faster than computing. What was never measured is tried.
SAC_HD inline bool loading_pays(const FetchDesk& desk, const KvTiers& kv, uint32_t chunks,
                                uint32_t tokens) {
  if (desk.limits.always != 0 || kv.break_even.rows.units == 0) return true;
  return desk.pace.cost_ns(uint64_t{chunks_before(desk, chunks)} + chunks) <=
         computing_ns(kv, tokens);
}

/// A request that was just seated, with `num_computed` tokens at hand and blocks for all, begins to
/// load what a store has of the rest. False: that is nothing, or not worth it.
SAC_HD inline bool begin_load(FetchDesk& desk, Seats& seats, const KvTiers& kv,
                              const Course& course, Report& report, Request& r,
                              uint32_t seat_index) {
  if (r.fetch == 0) return false;
  Seat& seat = seats[seat_index];
  const uint32_t index = r.fetch - 1;
  FetchEntry& entry = desk.entries[index];
  const uint32_t end = entry.chunks * desk.limits.chunk_tokens;
  const uint32_t first = seat.num_computed / desk.limits.chunk_tokens;
  // What another request is filling comes sooner than from afar.
  const bool wants = end > seat.num_computed && seat.follows == 0 && desk.is_served(course.tick_ns);
  if (!wants || !loading_pays(desk, kv, entry.chunks - first, end - seat.num_computed)) {
    if (wants) {
      ++report.fetch.loads_refused;
      desk.pace.ns -= desk.pace.ns / 16;  // a store that was slow once is tried again
    }
    forget_lookup(desk, r);
    return false;
  }
  r.fetch = 0;
  entry.use = EntryUse::kLoading;
  entry.seat = seat_index;
  entry.began_ns = entry.moved_ns = course.tick_ns;
  entry.asked = entry.landed = first;
  for (uint32_t w = 0; w < desk.landed_words; ++w) desk.landed_bits(index)[w] = 0;
  if (desk.num_loading++ == 0) desk.waited_ns = 0;
  ++report.fetch.requests_loaded;
  seat.fetch = index + 1;
  seat.num_at_hand = seat.num_computed / kv.block_size;
  seat.state = SAC_STATE_FETCH_PENDING;
  report.note(Decision::kLoad, seat.slot, end - seat.num_computed);
  return true;
}

/// A loaded chunk is copied to the blocks that it is for. Blocks that were at hand are left alone:
/// others may be using them.
SAC_HD inline void raise_frame(FetchDesk& desk, Seats& seats, KvTiers& kv, uint32_t frame_index) {
  FetchFrame& frame = desk.frames[frame_index];
  const uint32_t seat_index = desk.entries[frame.entry].seat;
  Seat& seat = seats[seat_index];
  const uint32_t per_chunk = desk.limits.chunk_tokens / kv.block_size;
  const uint32_t from = frame.chunk * per_chunk;
  const uint32_t first_place = kv.num_host_blocks + frame_index * per_chunk;
  for (uint32_t i = 0; i < per_chunk; ++i) {
    if (from + i < seat.num_at_hand) continue;
    const uint32_t block = kv.table(seat_index)[from + i];
    const uint32_t place = kv.store.blocks[block].places[kDeviceTier];
    const uint64_t number = kv.store.copies.up.ask({place, first_place + i}, true);
    kv.device().pool.states[place].up_fence = number;
    seat.up_fence = frame.fence = number;
  }
  seat.state = SAC_STATE_FETCH_PROCESSING;
  set_use(desk, frame, FrameUse::kRaising);
}

/// A chunk's copies are done, for whom it was loaded.
SAC_HD inline void land(FetchDesk& desk, Seats& seats, const FetchFrame& frame, uint64_t now_ns) {
  FetchEntry& entry = desk.entries[frame.entry];
  uint32_t* bits = desk.landed_bits(frame.entry);
  bits[frame.chunk / 32] |= 1u << frame.chunk % 32;
  while (entry.landed < entry.chunks && (bits[entry.landed / 32] >> entry.landed % 32 & 1) != 0)
    ++entry.landed;
  entry.moved_ns = now_ns;
  Seat& seat = seats[entry.seat];
  seat.num_computed = max_u32(seat.num_computed, entry.landed * desk.limits.chunk_tokens);
}

/// Frames whose copies are done. `since_ns`: time since the last tick.
SAC_HD inline void land_frames(FetchDesk& desk, Seats& seats, const KvTiers& kv, uint64_t now_ns,
                               uint64_t since_ns) {
  const uint32_t raising = desk.num_frames_in(FrameUse::kRaising);
  if (desk.num_loading != 0) desk.waited_ns += since_ns;
  if (raising == 0) return;
  uint32_t landed = 0;
  for (uint32_t f = 0; f < desk.limits.num_frames && landed < raising; ++f) {
    const FetchFrame& frame = desk.frames[f];
    if (frame.use != FrameUse::kRaising || frame.fence > kv.store.copies.up.done) continue;
    if (frame.entry != kNone) land(desk, seats, frame, now_ns);
    free_frame(desk, f);
    ++landed;
  }
  if (landed == 0) return;
  desk.pace.note(desk.waited_ns, landed);
  desk.waited_ns = 0;
}

/// A load is further behind a prompt that is computed than a store may cost. Where it is not known
/// what computing takes, a load may go on as long as chunks come.
SAC_HD inline bool is_late(const FetchDesk& desk, const KvTiers& kv, const FetchEntry& entry,
                           const Seat& seat, uint64_t now_ns) {
  if (kv.break_even.rows.units == 0) return now_ns - entry.moved_ns > desk.limits.late_ns;
  const uint32_t came = seat.num_computed - seat.num_at_hand * kv.block_size;
  return now_ns - entry.began_ns > computing_ns(kv, came) + desk.limits.late_ns;
}

/// The seat computes what has not come. Its blocks may still be written by copies in flight: it is
/// rotating in until they are done.
SAC_HD inline void end_load(FetchDesk& desk, const KvTiers& kv, Report& report, Seat& seat) {
  drop_entry(desk, seat.fetch - 1);
  seat.fetch = 0;
  const uint32_t came = seat.num_computed - seat.num_at_hand * kv.block_size;
  seat.num_cached += came;
  seat.num_fetched = seat.num_computed;
  seat.was_computed = max_u32(seat.was_computed, seat.num_computed);
  seat.state = SAC_STATE_PREFILL_PROCESSING;
  report.stats.prefix_hit_tokens += came;
  report.fetch.fetched_tokens += came;
  report.note(Decision::kLoaded, seat.slot, came);
  report.ring.write_progress(seat.slot, seat.num_computed, seat.num_cached);
  report.post_status(seat.slot,
                     sac_status_word(seat.ticket, seat.state, SAC_FINISH_NONE, seat.num_records));
}

/// Loads that are complete, or too late.
SAC_HD inline void end_loads(FetchDesk& desk, Seats& seats, const KvTiers& kv, const Course& course,
                             Report& report) {
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    Seat& seat = seats[seats.running[i]];
    if (seat.fetch == 0 || has_ended(seat)) continue;
    const FetchEntry& entry = desk.entries[seat.fetch - 1];
    const bool late = is_late(desk, kv, entry, seat, course.tick_ns);
    if (entry.landed != entry.chunks && !late) continue;
    report.fetch.loads_given_up += entry.landed != entry.chunks ? 1 : 0;
    end_load(desk, kv, report, seat);
  }
}

/// A seat that ends while its blocks are filled.
SAC_HD inline void forget_load(FetchDesk& desk, Seat& seat) {
  if (seat.fetch == 0) return;
  drop_entry(desk, seat.fetch - 1);
  seat.fetch = 0;
}

/// Shorter loads put a load off for about this many times as long as it takes.
inline constexpr uint64_t kPatience = 8;

/// The load whose next chunk is asked for first: the one with the least left, less what it has
/// waited, so that a long one is not put off for ever; kNone if none has chunks to ask for.
SAC_HD inline uint32_t next_load(const FetchDesk& desk, const Seats& seats, const Course& course) {
  uint32_t best = kNone;
  int64_t least = INT64_MAX;
  for (uint32_t i = 0; i < seats.num_running; ++i) {
    const Seat& seat = seats[seats.running[i]];
    if (seat.fetch == 0 || has_ended(seat)) continue;
    const FetchEntry& entry = desk.entries[seat.fetch - 1];
    if (entry.asked >= entry.chunks) continue;
    if (desk.limits.first_come != 0) return seat.fetch - 1;  // in order of arrival
    const uint64_t left_ns = desk.pace.cost_ns(entry.chunks - entry.landed);
    const int64_t score = static_cast<int64_t>(kPatience * left_ns) -
                          static_cast<int64_t>(course.tick_ns - entry.began_ns);
    if (score >= least) continue;
    least = score;
    best = seat.fetch - 1;
  }
  return best;
}

/// A load for which it is not known what computing takes: the device gives it up sooner.
inline constexpr uint64_t kLongestLoadNs = 10'000'000'000;

/// By when computing all up to the next chunk of a load would have overtaken it.
SAC_HD inline uint64_t load_budget_ns(const FetchDesk& desk, const KvTiers& kv,
                                      const FetchEntry& entry) {
  if (kv.break_even.rows.units == 0) return kLongestLoadNs;
  const uint32_t tokens = (entry.asked + 1 - entry.landed) * desk.limits.chunk_tokens;
  return computing_ns(kv, tokens) + desk.limits.late_ns;
}

/// Asks for chunks while frames are free.
SAC_HD inline void ask_for_chunks(FetchDesk& desk, Seats& seats, const KvTiers& kv,
                                  const Course& course, Report& report) {
  while (desk.num_loading != 0 && desk.free_frame != kNone && has_room(desk)) {
    const uint32_t index = next_load(desk, seats, course);
    if (index == kNone) return;
    FetchEntry& entry = desk.entries[index];
    const uint32_t frame = take_frame(desk, FrameUse::kLoading, index, entry.asked);
    const uint64_t budget_ns = load_budget_ns(desk, kv, entry);
    desk.frames[frame].command =
        ask(desk, {SAC_FETCH_LOAD, index, entry.asked++, frame, budget_ns});
    Seat& seat = seats[entry.seat];
    if (seat.state != SAC_STATE_FETCH_PENDING) continue;
    report.post_status(seat.slot, sac_status_word(seat.ticket, seat.state, SAC_FINISH_NONE, 0));
  }
}

}  // namespace saccade
