// What the scheduler knows of the fetch plane: what it was asked for and what is lent to it. An
// entry is a row of tokens that names chunks; a frame is where the KV of one chunk passes between
// blocks and the plane. Whatever a command names is lent until the command is completed, or a new
// life of the plane has begun (abi/fetch.h).
//
// A request's way: its prompt is looked up when it is accepted, and it is set aside until the
// answer is there; then it waits as others do, and is seated with all its blocks. Its chunks are
// loaded into frames, and copied from there to its blocks like blocks of host memory. It is not
// resident meanwhile, so no step runs on them and no preemption takes them.
#pragma once
#include "kv/break_even.hpp"
#include "kv/events.hpp"
#include "platform/bits.hpp"
#include "platform/layout.hpp"
#include "ring/fetch_view.hpp"
#include "sched/limits.hpp"

namespace saccade {

/// A plane whose heartbeat has not moved for this long is asked for nothing.
inline constexpr uint64_t kFetchLostNs = 2'000'000'000;
/// A plane whose count of completions cannot be true for this long has broken the protocol.
inline constexpr uint64_t kFetchDoubtNs = 100'000'000;
/// Without commands in flight, the plane is looked at this often.
inline constexpr uint64_t kFetchLookNs = 50'000'000;
/// One frame in this many, and at least one, may hold a chunk that is stored; the same of entries.
inline constexpr uint32_t kStoreShare = 4;

enum class EntryUse : uint32_t {
  kFree = 0,
  kLookup = 1,   // its request is set aside until the plane has answered
  kFound = 2,    // chunks were found; its request waits for a seat
  kLoading = 3,  // they are being loaded
  kStoring = 4,  // one chunk is being stored
  kLeft = 5,     // no request waits for it; free when nothing of it is lent
};

struct FetchEntry {
  uint64_t salt;
  uint64_t command;   // kLookup: the id of its command
  uint64_t began_ns;  // the lookup; later the load
  uint64_t moved_ns;  // kLoading: when a chunk landed last
  EntryUse use;
  uint32_t slot;        // whose prompt it is; kNone: of no request
  uint32_t seat;        // kLoading
  uint32_t num_tokens;  // whole chunks in its row
  uint32_t lent;        // commands in flight that name it
  uint32_t chunks;      // that were found, and that shall be loaded
  uint32_t asked;       // chunks before this one were asked for, or are there
  uint32_t landed;      // chunks before this one are in the request's blocks
};

enum class FrameUse : uint32_t {
  kFree = 0,
  kLoading = 1,   // lent: the plane writes it
  kRaising = 2,   // copied to blocks
  kLowering = 3,  // written from blocks
  kStoring = 4,   // lent: the plane reads it
};

struct FetchFrame {
  uint64_t command;  // id of the command it is lent for
  uint64_t fence;    // last of its copies
  uint32_t entry;    // kNone: its chunk is copied, and no request waits for it
  uint32_t chunk;
  FrameUse use;
  uint32_t next_free;
};

struct FetchDesk {
  FetchLimits limits;
  FetchView view;  // device is null until a region is attached
  FetchEntry* entries;
  FetchFrame* frames;
  uint32_t* landed;  // [num_entries][landed_words]: chunks that are in blocks, by bit
  uint32_t landed_words;
  uint32_t free_frame;   // list; kNone: none is free
  uint32_t num_aside;    // requests that wait for the answer to a lookup
  uint32_t num_loading;  // seats whose blocks are being filled
  uint32_t num_entries_used;
  uint32_t uses[5];    // frames by FrameUse
  uint32_t epoch;      // of the plane; 0: none has joined
  uint32_t broken;     // 1: this life of the plane broke the protocol, and is not heard any more
  uint32_t in_flight;  // commands that will have a completion
  uint32_t commands_written;
  uint32_t commands_told;  // of these, the ones that a waiting plane was woken for
  uint32_t completions_read;
  uint64_t last_id;
  uint64_t heartbeat;   // of the plane, as last seen
  uint64_t alive_ns;    // when it moved last
  uint64_t looked_ns;   // when the plane was looked at last
  uint64_t doubted_ns;  // since when its count of completions cannot be true; 0: it can
  uint64_t waited_ns;   // of loads, since one landed last
  Pace pace;            // of chunks that land
  uint32_t breaker;     // of the plane, as last seen
  uint32_t stores;

  /// Nothing is asked for, aside, or on its way.
  SAC_HD bool is_quiet() const {
    return in_flight == 0 && num_aside == 0 && num_loading == 0 &&
           uses[static_cast<uint32_t>(FrameUse::kLowering)] == 0;
  }
  SAC_HD uint32_t num_frames_in(FrameUse use) const { return uses[static_cast<uint32_t>(use)]; }
  /// The plane answers, as far as can be told.
  SAC_HD bool is_served(uint64_t now_ns) const {
    return view.device != nullptr && epoch != 0 && broken == 0 && breaker == 0 &&
           now_ns - alive_ns <= kFetchLostNs;
  }
  SAC_HD uint32_t* landed_bits(uint32_t entry) const {
    return landed + static_cast<size_t>(entry) * landed_words;
  }
  SAC_HD uint32_t frames_for_stores() const { return max_u32(1, limits.num_frames / kStoreShare); }
};

inline void lay_out(FetchDesk& desk, const Limits& l, Layout& at) {
  desk.landed_words =
      l.fetch.enabled() ? ceil_div(ceil_div(l.max_model_len, l.fetch.chunk_tokens), 32) : 0;
  desk.entries = at.take<FetchEntry>(l.fetch.num_entries);
  desk.frames = at.take<FetchFrame>(l.fetch.num_frames);
  desk.landed = at.take<uint32_t>(size_t{l.fetch.num_entries} * desk.landed_words);
}

SAC_HD inline void reset(FetchDesk& desk, const Limits& l) {
  FetchEntry* const entries = desk.entries;
  FetchFrame* const frames = desk.frames;
  uint32_t* const landed = desk.landed;
  const uint32_t words = desk.landed_words;
  desk = FetchDesk{};
  desk.entries = entries;
  desk.frames = frames;
  desk.landed = landed;
  desk.landed_words = words;
  desk.limits = l.fetch;
  for (uint32_t e = 0; e < l.fetch.num_entries; ++e) {
    entries[e] = FetchEntry{};
    entries[e].slot = kNone;
  }
  desk.free_frame = kNone;
  for (uint32_t f = l.fetch.num_frames; f > 0; --f) {
    frames[f - 1] = FetchFrame{};
    frames[f - 1].next_free = desk.free_frame;
    desk.free_frame = f - 1;
  }
  desk.uses[0] = l.fetch.num_frames;
}

/// Uses a region for a fetch plane, from the next tick on.
SAC_HD inline void open_fetch(FetchDesk& desk, KvEvents& events, const FetchView& view) {
  desk.view = view;
  if (view.num_events == 0) return;
  events.ring = view.events;
  events.num_events = view.num_events;
  events.event_bytes = view.event_bytes;
}

// ---- entries and frames -------------------------------------------------------------------------

/// An entry for `use`; kNone if all are taken.
SAC_HD inline uint32_t take_entry(FetchDesk& desk, EntryUse use, uint64_t salt, uint32_t slot) {
  for (uint32_t e = 0; e < desk.limits.num_entries; ++e) {
    FetchEntry& entry = desk.entries[e];
    if (entry.use != EntryUse::kFree) continue;
    entry = FetchEntry{};
    entry.use = use;
    entry.salt = salt;
    entry.slot = slot;
    entry.seat = kNone;
    ++desk.num_entries_used;
    return e;
  }
  return kNone;
}

/// Frees an entry that no request waits for, when nothing of it is lent.
SAC_HD inline void free_if_left(FetchDesk& desk, uint32_t index) {
  FetchEntry& entry = desk.entries[index];
  if (entry.use != EntryUse::kLeft || entry.lent != 0) return;
  entry.use = EntryUse::kFree;
  --desk.num_entries_used;
}

/// No request waits for an entry any more.
SAC_HD inline void leave_entry(FetchDesk& desk, uint32_t index) {
  FetchEntry& entry = desk.entries[index];
  desk.num_aside -= entry.use == EntryUse::kLookup ? 1 : 0;
  desk.num_loading -= entry.use == EntryUse::kLoading ? 1 : 0;
  entry.use = EntryUse::kLeft;
  entry.slot = entry.seat = kNone;
  free_if_left(desk, index);
}

SAC_HD inline void set_use(FetchDesk& desk, FetchFrame& frame, FrameUse use) {
  --desk.uses[static_cast<uint32_t>(frame.use)];
  ++desk.uses[static_cast<uint32_t>(use)];
  frame.use = use;
}
/// A free frame, which there is.
SAC_HD inline uint32_t take_frame(FetchDesk& desk, FrameUse use, uint32_t entry, uint32_t chunk) {
  const uint32_t index = desk.free_frame;
  FetchFrame& frame = desk.frames[index];
  desk.free_frame = frame.next_free;
  set_use(desk, frame, use);
  frame.entry = entry;
  frame.chunk = chunk;
  return index;
}
SAC_HD inline void free_frame(FetchDesk& desk, uint32_t index) {
  FetchFrame& frame = desk.frames[index];
  set_use(desk, frame, FrameUse::kFree);
  frame.next_free = desk.free_frame;
  desk.free_frame = index;
}

// ---- commands -----------------------------------------------------------------------------------

/// The plane has room for `more` commands, and for their completions.
SAC_HD inline bool has_room(const FetchDesk& desk, uint32_t more = 1) {
  const uint32_t unread = desk.commands_written - load_relaxed(&desk.view.plane->commands_read);
  const uint32_t most = desk.limits.queue_len - more;
  return desk.in_flight <= most && unread <= most;
}

/// Writes a command, which the plane may read at once. There is room.
SAC_HD inline void write_command(FetchDesk& desk, const sac_fetch_command& c) {
  const auto* from = reinterpret_cast<const uint64_t*>(&c);
  auto* to = reinterpret_cast<uint64_t*>(desk.view.commands +
                                         desk.commands_written % desk.limits.queue_len);
  for (size_t w = 0; w < sizeof(c) / 8; ++w) store_relaxed(to + w, from[w]);
  // SYNC: release, with the plane's acquire of commands_written: the command, its row and its frame
  // are visible.
  store_release(&desk.view.device->commands_written, ++desk.commands_written);
}

/// An id ends in the index of what its completion is looked up by: of a lookup the entry, else the
/// frame.
inline constexpr uint32_t kIdIndexBits = 16;
static_assert(SAC_MAX_FETCH_ENTRIES <= 1u << kIdIndexBits &&
              SAC_MAX_FETCH_FRAMES <= 1u << kIdIndexBits);
SAC_HD inline uint32_t index_of(uint64_t id) {
  return static_cast<uint32_t>(id & ((1u << kIdIndexBits) - 1));
}

/// What of a command differs from one to the next.
struct FetchAsk {
  uint32_t op;  // SAC_FETCH_*
  uint32_t entry;
  uint32_t chunk;
  uint32_t frame;  // 0 for a lookup
  uint64_t budget_ns;
};

/// Asks for something; there is room. Returns the command's id.
SAC_HD inline uint64_t ask(FetchDesk& desk, const FetchAsk& a) {
  FetchEntry& entry = desk.entries[a.entry];
  sac_fetch_command c = {};
  c.id = ++desk.last_id << kIdIndexBits | (a.op == SAC_FETCH_LOOKUP ? a.entry : a.frame);
  c.salt = entry.salt;
  c.op = a.op;
  c.entry = a.entry;
  c.num_tokens = entry.num_tokens;
  c.chunk = a.chunk;
  c.frame = a.frame;
  const uint64_t budget_us = a.budget_ns / 1000;
  c.budget_us = budget_us < UINT32_MAX ? static_cast<uint32_t>(budget_us) : UINT32_MAX;
  ++entry.lent;
  ++desk.in_flight;
  write_command(desk, c);
  return c.id;
}

/// Tells the plane that the answer to a command is not wanted. Where there is no room it comes all
/// the same.
SAC_HD inline void withdraw(FetchDesk& desk, uint64_t id) {
  if (!has_room(desk)) return;
  sac_fetch_command c = {};
  c.id = ++desk.last_id << kIdIndexBits;
  c.op = SAC_FETCH_CANCEL;
  c.target = id;
  write_command(desk, c);
}

/// No request waits for an entry any more: what is in flight for it is withdrawn.
SAC_HD inline void drop_entry(FetchDesk& desk, uint32_t index) {
  const FetchEntry& entry = desk.entries[index];
  if (entry.use == EntryUse::kLookup && entry.lent != 0) withdraw(desk, entry.command);
  if (entry.use == EntryUse::kLoading)
    for (uint32_t f = 0; f < desk.limits.num_frames; ++f) {
      FetchFrame& frame = desk.frames[f];
      if (frame.entry != index) continue;
      if (frame.use == FrameUse::kLoading) withdraw(desk, frame.command);
      if (frame.use == FrameUse::kRaising) frame.entry = kNone;
    }
  leave_entry(desk, index);
}

}  // namespace saccade
