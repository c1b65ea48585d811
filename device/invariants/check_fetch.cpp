// What is lent to the fetch plane, and for whom.
#include <vector>

#include "invariants/check.hpp"

namespace saccade {
namespace {

bool is_lent(const FetchFrame& frame) {
  return frame.use == FrameUse::kLoading || frame.use == FrameUse::kStoring;
}

const char* check_frame(const Scheduler& s, const FetchFrame& frame, std::vector<uint32_t>& lent) {
  const FetchDesk& desk = s.fetch;
  if (frame.entry == kNone)
    return frame.use == FrameUse::kRaising ? nullptr : "a frame is of no entry";
  if (frame.entry >= desk.limits.num_entries) return "a frame is of an entry that does not exist";
  const FetchEntry& entry = desk.entries[frame.entry];
  if (is_lent(frame)) ++lent[frame.entry];
  const bool stores = frame.use == FrameUse::kLowering || frame.use == FrameUse::kStoring;
  if (stores && entry.use != EntryUse::kStoring) return "a frame is stored for no entry";
  if (frame.use == FrameUse::kRaising && entry.use != EntryUse::kLoading)
    return "a frame is copied for a load that has ended";
  return nullptr;
}

const char* check_frames(const Scheduler& s, std::vector<uint32_t>& lent) {
  const FetchDesk& desk = s.fetch;
  uint32_t uses[5] = {}, listed = 0;
  for (uint32_t f = 0; f < desk.limits.num_frames; ++f) {
    const FetchFrame& frame = desk.frames[f];
    ++uses[static_cast<uint32_t>(frame.use)];
    if (frame.use == FrameUse::kFree) continue;
    if (const char* wrong = check_frame(s, frame, lent)) return wrong;
  }
  for (uint32_t i = 0; i < 5; ++i)
    if (uses[i] != desk.uses[i]) return "the uses of frames were not counted";
  for (uint32_t f = desk.free_frame; f != kNone; f = desk.frames[f].next_free)
    if (desk.frames[f].use != FrameUse::kFree || ++listed > desk.limits.num_frames)
      return "the list of free frames is broken";
  return listed == uses[0] ? nullptr : "a frame is lost";
}

/// An entry serves the request that names it.
const char* check_owner(const Scheduler& s, const FetchEntry& entry, uint32_t index) {
  if (entry.use == EntryUse::kLookup || entry.use == EntryUse::kFound) {
    const Request& r = s.slots[entry.slot];
    return r.fetch == index + 1 && r.state == SAC_STATE_PREFILL_PENDING && r.seat == kNone
               ? nullptr
               : "an entry waits for no request";
  }
  if (entry.use != EntryUse::kLoading) return nullptr;
  const Seat& seat = s.seats[entry.seat];
  if (seat.fetch != index + 1) return "a load is for no seat";
  if (entry.landed > entry.asked || entry.chunks * s.limits.fetch.chunk_tokens >= seat.num_tokens)
    return "a load is of more than its prompt";
  return seat.num_blocks >= s.kv.blocks_for(seat.num_tokens) ? nullptr
                                                             : "a load has no blocks to fill";
}

const char* check_entries(const Scheduler& s, std::vector<uint32_t>& lent) {
  const FetchDesk& desk = s.fetch;
  uint32_t used = 0, aside = 0, loading = 0, in_flight = 0;
  for (uint32_t e = 0; e < desk.limits.num_entries; ++e) {
    const FetchEntry& entry = desk.entries[e];
    lent[e] += entry.command != 0 ? 1 : 0;
    if (lent[e] != entry.lent) return "what is lent of an entry was not counted";
    in_flight += entry.lent;
    used += entry.use != EntryUse::kFree ? 1 : 0;
    aside += entry.use == EntryUse::kLookup ? 1 : 0;
    loading += entry.use == EntryUse::kLoading ? 1 : 0;
    const bool left = entry.use == EntryUse::kLeft || entry.use == EntryUse::kFree;
    if (left && (entry.use == EntryUse::kLeft) != (entry.lent != 0))
      return "an entry is free while something of it is lent, or is lost";
    if (const char* wrong = check_owner(s, entry, e)) return wrong;
  }
  const bool counted = used == desk.num_entries_used && aside == desk.num_aside &&
                       loading == desk.num_loading && in_flight == desk.in_flight;
  return counted ? nullptr : "entries were not counted";
}

/// Requests and seats name entries that serve them.
const char* check_named(const Scheduler& s) {
  const FetchDesk& desk = s.fetch;
  for (uint32_t i = 0; i < s.seats.num_running; ++i) {
    const Seat& seat = s.seats[s.seats.running[i]];
    if (seat.fetch == 0) continue;
    const FetchEntry& entry = desk.entries[seat.fetch - 1];
    if (entry.use != EntryUse::kLoading || entry.seat != s.seats.running[i])
      return "a seat waits for a load that there is not";
  }
  for (uint32_t slot = 0; slot < s.limits.num_slots; ++slot) {
    const Request& r = s.slots[slot];
    if (r.state != SAC_STATE_PREFILL_PENDING || r.fetch == 0) continue;
    const FetchEntry& entry = desk.entries[r.fetch - 1];
    const bool waits = entry.use == EntryUse::kLookup || entry.use == EntryUse::kFound;
    if (!waits || entry.slot != slot) return "a request waits for an answer that will not come";
  }
  return nullptr;
}

/// Copies in flight that touch a frame belong to it.
const char* check_frame_copies(const Scheduler& s, const CopyQueue& queue, FrameUse use) {
  const uint32_t host = s.limits.num_host_blocks;
  for (uint64_t n = queue.done + 1; n <= queue.asked; ++n) {
    const uint32_t place = queue.at(n).host_block;
    if (place < host) continue;
    const FetchFrame& frame = s.fetch.frames[(place - host) / s.limits.blocks_per_chunk()];
    if (frame.use != use || frame.fence < n) return "a frame does not wait for its copies";
  }
  return nullptr;
}

}  // namespace

const char* check_fetches(const Scheduler& s) {
  if (!s.limits.fetch.enabled()) return nullptr;
  std::vector<uint32_t> lent(s.limits.fetch.num_entries, 0);
  if (const char* wrong = check_frames(s, lent)) return wrong;
  if (const char* wrong = check_entries(s, lent)) return wrong;
  if (const char* wrong = check_named(s)) return wrong;
  const Copies& copies = s.kv.store.copies;
  if (const char* wrong = check_frame_copies(s, copies.up, FrameUse::kRaising)) return wrong;
  return check_frame_copies(s, copies.down, FrameUse::kLowering);
}

}  // namespace saccade
