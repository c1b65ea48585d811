// How the device reads what peers write into the ring: all of it once per tick, at one moment, into
// the device's own memory. Where the ring is across a bus, that is one round trip instead of one
// per word. On a GPU a team of threads shares the reads (cuda/team.hpp); on a host one thread does
// them all.
#pragma once
#include "grammar/automaton.hpp"
#include "platform/scan.hpp"
#include "ring/ring_view.hpp"

namespace saccade {

inline constexpr uint32_t kNoSlotOfSeat = UINT32_MAX;

/// The device's own copy of what frontends write, as last read.
struct Peers {
  uint32_t* rung;  // [num_slots]: doorbells; equal to those seen where nothing is new
  uint32_t epochs[SAC_MAX_FRONTENDS];
  uint64_t heartbeats[SAC_MAX_FRONTENDS];
};

/// How far the readers of seated requests are, as last read.
struct ReaderCursors {
  uint32_t* read;   // [num_seats]: records taken, the reader cursor of each seat's slot
  uint32_t* slots;  // [num_seats]: the slot of that cursor; kNoSlotOfSeat: a free seat
  uint32_t end;     // all seats from here on are free
};

SAC_HD inline void reset(ReaderCursors& c, uint32_t num_seats) {
  for (uint32_t i = 0; i < num_seats; ++i) {
    c.slots[i] = kNoSlotOfSeat;
    c.read[i] = 0;
  }
  c.end = 0;
}
/// Gives a seat to the request of a slot, whose frontend wrote cursor 0 before it rang.
SAC_HD inline void follow_cursor(ReaderCursors& c, uint32_t seat, uint32_t slot) {
  c.slots[seat] = slot;
  c.read[seat] = 0;
  c.end = max_u32(c.end, seat + 1);
}
SAC_HD inline void forget_cursor(ReaderCursors& c, uint32_t seat) {
  c.slots[seat] = kNoSlotOfSeat;
  while (c.end != 0 && c.slots[c.end - 1] == kNoSlotOfSeat) --c.end;
}

/// Source and destination of one reading. Of the ring no more than a reading needs: it is handed to
/// a team each time.
struct PeerReading {
  uint32_t num_slots;
  uint32_t num_frontends;
  const uint32_t* doorbells;
  const uint32_t* reader_cursors;  // by slot
  const sac_frontend_line* frontends;
  Peers* peers;
  ReaderCursors* cursors;
  const uint32_t* seen;  // [num_slots]: doorbells already acted on
};
SAC_HD inline PeerReading reading_of(const RingView& ring, Peers& peers, ReaderCursors& cursors,
                                     const uint32_t* seen) {
  return {ring.num_slots, ring.num_frontends,
          ring.doorbells, ring.cursors,
          ring.frontends, &peers,
          &cursors,       seen};
}

/// A reading made during a step.
struct ReadAhead {
  uint64_t at_ns;  // when it began; 0: none
  uint32_t found;  // slots whose doorbell had changed
};

/// A peer's word whose load may still be in flight while others are issued.
struct Look {
  uint32_t index;
  uint32_t word;
};

/// Loads the cursor of one seat's slot; nothing for a free seat.
SAC_HD inline Look look_at_cursor(const PeerReading& r, uint32_t seat) {
  const uint32_t slot = seat < r.cursors->end ? r.cursors->slots[seat] : kNoSlotOfSeat;
  if (slot == kNoSlotOfSeat) return {kNoSlotOfSeat, 0};
  return {seat, load_relaxed(r.reader_cursors + slot)};
}
/// True if it has moved: then an acquire fence must precede writes to the records that it frees.
SAC_HD inline bool note_cursor(const PeerReading& r, const Look& look) {
  if (look.index == kNoSlotOfSeat || r.cursors->read[look.index] == look.word) return false;
  r.cursors->read[look.index] = look.word;
  return true;
}

/// Reads one frontend's line. True if its epoch has moved: then an acquire fence must precede a
/// reading that must see the doorbells of its earlier lives.
SAC_HD inline bool read_frontend(const PeerReading& r, uint32_t frontend) {
  const sac_frontend_line& line = r.frontends[frontend];
  const uint64_t heartbeat = load_relaxed(&line.heartbeat);
  const uint32_t epoch = load_relaxed(&line.epoch);
  const bool moved = epoch != r.peers->epochs[frontend];
  r.peers->heartbeats[frontend] = heartbeat;
  r.peers->epochs[frontend] = epoch;
  return moved;
}

/// All of a reading but the doorbells, by one thread.
inline void read_lines_alone(const PeerReading& r) {
  for (uint32_t f = 0; f < r.num_frontends; ++f) read_frontend(r, f);
  for (uint32_t seat = 0; seat < r.cursors->end; ++seat) note_cursor(r, look_at_cursor(r, seat));
}

/// The reading by one thread. Writes to `changed` the slots whose doorbell differs from what was
/// seen, lowest first; returns how many.
inline uint32_t read_peers_alone(const PeerReading& r, uint32_t* changed) {
  read_lines_alone(r);
  const uint32_t found = scan_changed(r.doorbells, r.seen, r.num_slots, changed);
  for (uint32_t i = 0; i < found; ++i)
    r.peers->rung[changed[i]] = load_relaxed(r.doorbells + changed[i]);
  // SYNC: acquire, with the frontends' releases of cursors, doorbells and epochs: records below a
  // cursor have been read, descriptor and arena extent behind a doorbell are visible, and the next
  // reading sees the doorbells of earlier lives.
  fence_acquire();
  return found;
}

/// A span of words that a peer has written, to be copied. Checks run on the copy: what was checked
/// is what is used.
struct Fetch {
  uint32_t* to;
  const uint32_t* from;
  uint32_t words;
  uint32_t most;  // result: the largest of the words
};

/// Makes all `fetches` by one thread. The peer may be writing: each word is untorn.
inline void fetch_alone(Fetch* fetches, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    Fetch& f = fetches[i];
    f.most = 0;
    for (uint32_t w = 0; w < f.words; ++w) {
      f.to[w] = load_relaxed(f.from + w);
      f.most = max_u32(f.most, f.to[w]);
    }
  }
}

/// A tick's reads in an environment whose one thread does everything.
struct ReadsAlone {
  uint32_t read_peers(const PeerReading& reading, uint32_t* changed) const {
    return read_peers_alone(reading, changed);
  }
  void fetch(Fetch* fetches, uint32_t count) const { fetch_alone(fetches, count); }
  bool is_grammar(const uint32_t* words, uint32_t count) const {
    return grammar_in_bounds(words, count);
  }
  /// It reads from its own caches: a fresh reading costs no round trip.
  bool takes(const ReadAhead&) const { return false; }
};

}  // namespace saccade
