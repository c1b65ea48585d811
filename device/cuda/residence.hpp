// Where the leader works. What every tick touches is in the block's own memory while the
// scheduler's code runs, and at home, in device memory, between two runs. The leader is one thread
// of a GPU: a word of device memory costs it some 280 cycles unless the first cache, which every
// fence empties, has it; a word of its own costs some 30, and a tick touches thousands.
//
// What steps read stays at home: they find it in StepMail and in the tables.
#pragma once
#include <stdexcept>

#include "cuda/live.hpp"

namespace saccade {

inline constexpr uint32_t kNumHotArrays = 10;
/// Of a block's own memory; above this, the arrays stay at home.
inline constexpr size_t kMostOwnBytes = 96 * 1024;

/// The beginning of the block's own memory; the arrays follow.
struct OwnMemory {
  Life life;
  LifeState state;
  Fetch spans[kNumHotArrays];
  void* homes[kNumHotArrays];
  uint64_t bytes;  // of all of it
};

/// Calls f(pointer, count) for each array that every tick walks over.
template <class F>
SAC_HD void for_each_hot(Scheduler& s, F& f) {
  const uint32_t seats = s.limits.num_seats;
  f(s.seats.seats, seats);
  f(s.seats.wishes, seats);
  f(s.seats.running, seats);
  f(s.seats.free, seats);
  f(s.seats.cursors.read, seats);
  f(s.seats.cursors.slots, seats);
  f(s.launch.seqs, seats);
  f(s.report.statuses.writes, s.report.statuses.capacity);
  f(s.seats.marks[0], ceil_div(seats, 32));
  f(s.seats.marks[1], ceil_div(seats, 32));
}

SAC_HD constexpr size_t own_room(size_t bytes) { return (bytes + 15) / 16 * 16; }

struct HotBytes {
  size_t sum;
  uint32_t num_arrays;
  template <class T>
  SAC_HD void operator()(T*&, uint32_t count) {
    sum += own_room(count * sizeof(T));
    ++num_arrays;
  }
};

/// Bytes of own memory with room for the arrays; above kMostOwnBytes, without it.
inline size_t own_bytes(const Limits& limits) {
  Scheduler s = {};
  s.limits = limits;
  s.report.statuses.capacity = kOutboxWrites;
  HotBytes bytes = {own_room(sizeof(OwnMemory)), 0};
  for_each_hot(s, bytes);
  if (bytes.num_arrays != kNumHotArrays)
    throw std::logic_error("kNumHotArrays is not the number of hot arrays");
  return bytes.sum <= kMostOwnBytes ? bytes.sum : own_room(sizeof(OwnMemory));
}

SAC_HD inline Fetch span_of(void* to, const void* from, size_t bytes) {
  return {static_cast<uint32_t*>(to), static_cast<const uint32_t*>(from),
          static_cast<uint32_t>(bytes / sizeof(uint32_t)), 0};
}

/// Notes the copies of all arrays into own memory, which are used from then on.
struct MoveIn {
  OwnMemory& own;
  unsigned char* at;
  uint32_t num_spans;
  template <class T>
  SAC_HD void operator()(T*& array, uint32_t count) {
    own.homes[num_spans] = array;
    own.spans[num_spans++] = span_of(at, array, count * sizeof(T));
    array = reinterpret_cast<T*>(at);
    at += own_room(count * sizeof(T));
  }
};

/// Notes the copies back, and names the arrays at home again.
struct MoveOut {
  OwnMemory& own;
  uint32_t num_spans;
  template <class T>
  SAC_HD void operator()(T*& array, uint32_t count) {
    T* home = static_cast<T*>(own.homes[num_spans]);
    own.spans[num_spans++] = span_of(home, array, count * sizeof(T));
    array = home;
  }
};

/// One run of the scheduler's code: takes the state from home when it begins. `own` is memory that
/// the whole team reaches, of own_bytes().
template <class Crew>
class Residence {
 public:
  SAC_HD Residence(const Life& life, OwnMemory& own, size_t bytes, TeamBoard& board, Crew& crew)
      : own_(own), home_(life.state), board_(board), crew_(crew) {
    own.life = life;
    own.life.state = &own.state;
    own.bytes = bytes;
    own.spans[0] = span_of(&own.state, home_, sizeof(LifeState));
    fetch_by_team(board, crew, own.spans, 1);
    if (!has_arrays()) return;
    auto* arrays = reinterpret_cast<unsigned char*>(&own) + own_room(sizeof(OwnMemory));
    MoveIn move = {own, arrays, 0};
    for_each_hot(own.state.scheduler, move);
    fetch_by_team(board, crew, own.spans, move.num_spans);
  }
  SAC_HD const Life& life() const { return own_.life; }

  /// Brings the state home. The life must not be used afterwards.
  SAC_HD void check_in() {
    if (crew_.failed()) return;  // the team no longer comes
    if (has_arrays()) {
      MoveOut move = {own_, 0};
      for_each_hot(own_.state.scheduler, move);
      fetch_by_team(board_, crew_, own_.spans, move.num_spans);
    }
    own_.spans[0] = span_of(home_, &own_.state, sizeof(LifeState));
    fetch_by_team(board_, crew_, own_.spans, 1);
  }

 private:
  SAC_HD bool has_arrays() const { return own_.bytes > own_room(sizeof(OwnMemory)); }

  OwnMemory& own_;
  LifeState* const home_;
  TeamBoard& board_;
  Crew& crew_;
};

}  // namespace saccade
