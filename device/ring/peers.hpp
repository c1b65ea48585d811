// What peers write into the ring, as the device reads it: all of it once per tick, at one moment,
// into memory of the device's own. Where the ring is across a bus, that is one round trip instead
// of one per word; a team of threads shares it (cuda/team.hpp), a host reads alone.
#pragma once
#include "platform/scan.hpp"
#include "ring/ring_view.hpp"

namespace saccade {

inline constexpr uint32_t kNoSlotOfSeat = UINT32_MAX;

/// The device's own copy of what peers write, as it was read last.
struct Peers {
  uint32_t* rung;        // [num_slots]: doorbells; equals what was seen where nothing is new
  uint32_t* cursors;     // [num_seats]: reader cursor of each seat's slot
  uint32_t* seat_slots;  // [num_seats]: whose cursor that is; kNoSlotOfSeat: a free seat
  uint32_t seats_end;    // all seats from here on are free
  uint32_t epochs[SAC_MAX_FRONTENDS];
  uint64_t heartbeats[SAC_MAX_FRONTENDS];
};

/// A seat is taken by the request of a slot, whose frontend wrote cursor 0 before it rang.
SAC_HD inline void follow_cursor(Peers& p, uint32_t seat, uint32_t slot) {
  p.seat_slots[seat] = slot;
  p.cursors[seat] = 0;
  p.seats_end = max_u32(p.seats_end, seat + 1);
}
SAC_HD inline void forget_cursor(Peers& p, uint32_t seat) {
  p.seat_slots[seat] = kNoSlotOfSeat;
  while (p.seats_end != 0 && p.seat_slots[p.seats_end - 1] == kNoSlotOfSeat) --p.seats_end;
}

/// One reading: from where, and to where.
struct PeerReading {
  RingView ring;
  Peers* peers;
  const uint32_t* seen;  // [num_slots]: doorbells that were acted upon
};

/// A reading that was made beside a step.
struct ReadAhead {
  uint64_t at_ns;  // when it began; 0: there is none
  uint32_t found;  // slots whose doorbell had changed
};

/// A word of a peer that was asked for, on its way while others are asked for too.
struct Look {
  uint32_t index;
  uint32_t word;
};

/// The cursor of one seat's slot; of a free seat none.
SAC_HD inline Look look_at_cursor(const PeerReading& r, uint32_t seat) {
  const uint32_t slot = seat < r.peers->seats_end ? r.peers->seat_slots[seat] : kNoSlotOfSeat;
  if (slot == kNoSlotOfSeat) return {kNoSlotOfSeat, 0};
  return {seat, load_relaxed(r.ring.cursors + slot)};
}
/// True if it has moved: then an acquire fence comes before the records that it frees are written.
SAC_HD inline bool note_cursor(const PeerReading& r, const Look& look) {
  if (look.index == kNoSlotOfSeat || r.peers->cursors[look.index] == look.word) return false;
  r.peers->cursors[look.index] = look.word;
  return true;
}

/// The line of one frontend. True if its epoch has moved: then an acquire fence comes before a
/// reading that is to see the doorbells of its earlier lives.
SAC_HD inline bool read_frontend(const PeerReading& r, uint32_t frontend) {
  const sac_frontend_line& line = r.ring.frontends[frontend];
  const uint64_t heartbeat = load_relaxed(&line.heartbeat);
  const uint32_t epoch = load_relaxed(&line.epoch);
  const bool moved = epoch != r.peers->epochs[frontend];
  r.peers->heartbeats[frontend] = heartbeat;
  r.peers->epochs[frontend] = epoch;
  return moved;
}

/// What of a reading is not a doorbell, by one thread.
inline void read_lines_alone(const PeerReading& r) {
  for (uint32_t f = 0; f < r.ring.num_frontends; ++f) read_frontend(r, f);
  for (uint32_t seat = 0; seat < r.peers->seats_end; ++seat)
    note_cursor(r, look_at_cursor(r, seat));
}

/// The reading by one thread. Writes to `changed` the slots whose doorbell differs from what was
/// seen, lowest first; returns how many.
inline uint32_t read_peers_alone(const PeerReading& r, uint32_t* changed) {
  read_lines_alone(r);
  const uint32_t found = scan_changed(r.ring.doorbells, r.seen, r.ring.num_slots, changed);
  for (uint32_t i = 0; i < found; ++i)
    r.peers->rung[changed[i]] = load_relaxed(r.ring.doorbells + changed[i]);
  // SYNC: acquire, with the frontends' releases of cursors, doorbells and epochs: records below a
  // cursor have been read, descriptor and arena extent behind a doorbell are visible, and so are
  // the doorbells of earlier lives to the next reading.
  fence_acquire();
  return found;
}

/// A span of words that a peer has written, to be copied. What is copied is checked afterwards:
/// what was checked is what is used.
struct Fetch {
  uint32_t* to;
  const uint32_t* from;
  uint32_t words;
  uint32_t most;  // result: the largest of the words
};

/// All of `fetches` by one thread. The peer may be writing: each word is untorn.
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

/// What an environment whose one thread does everything itself has of a tick's reads.
struct ReadsAlone {
  uint32_t read_peers(const PeerReading& reading, uint32_t* changed) const {
    return read_peers_alone(reading, changed);
  }
  void fetch(Fetch* fetches, uint32_t count) const { fetch_alone(fetches, count); }
  /// It reads its own caches: a fresh reading is no trip.
  bool takes(const ReadAhead&) const { return false; }
};

}  // namespace saccade
