// A team that reads the ring for the tick, and does what is done seat by seat: a leader, which runs
// the tick, and members that wait for its orders. The tick stays one logical thread: members touch
// nothing but the board and what the order names, and only between two meetings.
//
//   leader:  writes the order   meet             meet   continues with what was read
//   member:                     meet   its share meet
//
// Crew: rank() (0 .. size() - 1 of a member), size() (members, without the leader, at most
// kMaxTeam), width() and lane() (threads of a member, and which of them this is), meet(site)
// (returns when the leader and all members have come, false when the budget of the site ran out),
// look(doorbells, seen) and note(granule, rung) (one granule: reading apart from comparing, so that
// many reads are in flight at once; note returns the mask of changed doorbells and writes their
// words to rung), any(bool), most(word), merge(mask) (over the threads of a member: or, largest,
// all bits), is_scribe() (true for the one thread of a member that writes), settle() (what the
// scribe wrote is visible to the other threads of the member). A member is a warp on a GPU and a
// thread on a host.
#pragma once
#include "platform/bits.hpp"
#include "platform/wait_site.hpp"
#include "ring/peers.hpp"
#include "sched/seatwise.hpp"

namespace saccade {

inline constexpr uint32_t kMaxTeam = 16;
inline constexpr uint32_t kMaxGranules = SAC_MAX_SLOTS / SAC_SLOT_GRANULE;
/// Granules whose doorbells a member reads before it compares the first: with 7 members, one round
/// trip to the memory of the ring for 4096 slots.
inline constexpr uint32_t kLooks = 19;
static_assert(7 * kLooks >= kMaxGranules && kLooks <= 32);
/// Rounds of looks that one member alone would need.
inline constexpr uint32_t kMaxRounds = ceil_div(kMaxGranules, kLooks);
/// Cursors that each thread requests before it compares the first: 448 seats in the same trip.
inline constexpr uint32_t kCursorsAhead = 2;
/// Words of a fetch that each thread has in flight at once.
inline constexpr uint32_t kFetchAhead = 8;

enum class TeamOrder : uint32_t {
  kDismissed = 0,  // members leave
  kRead = 1,       // a PeerReading
  kFetch = 2,      // Fetches
  kSeats = 3,      // a SeatVerb
  kGrammar = 4,    // an Automaton, to be checked
};

/// Where the team meets; in shared memory on a GPU. Writer of the order: leader. Writer of
/// found[r], of hits[][r] and of every size()-th mask from r on: member r.
struct TeamBoard {
  TeamOrder order;
  PeerReading reading;
  const uint64_t* word_at;  // read along by the first thread; null: none
  uint64_t word;
  Fetch* fetches;
  uint32_t num_fetches;
  Scheduler* scheduler;
  SeatVerb verb;
  uint32_t num_seats;
  Automaton grammar;                    // has the shape of one
  uint32_t found[kMaxTeam];             // of a grammar, 1: not one
  uint32_t hits[kMaxRounds][kMaxTeam];  // bit i: a member's look i of that round found a change
  uint32_t masks[kMaxGranules];         // of those, bit i of mask g: slot 32 * g + i changed
};

SAC_HD inline uint32_t num_rounds(uint32_t num_slots, uint32_t members) {
  return max_u32(1, ceil_div(num_slots, SAC_SLOT_GRANULE * kLooks * members));
}
/// The granule of a member's look.
SAC_HD inline uint32_t granule_of(uint32_t round, uint32_t look, uint32_t rank, uint32_t members) {
  return (round * kLooks + look) * members + rank;
}

/// Compares the doorbells of a member's granules. True if any has changed. `meanwhile` runs when
/// the first of them are in flight.
template <class Crew, class Meanwhile>
SAC_HD_INLINE bool read_doorbells(TeamBoard& board, const PeerReading& r, Crew& crew,
                                  Meanwhile meanwhile) {
  const uint32_t num_granules = r.num_slots / SAC_SLOT_GRANULE;
  const uint32_t rounds = num_rounds(r.num_slots, crew.size());
  uint32_t found = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    typename Crew::Granule looks[kLooks] = {};
    for (uint32_t i = 0; i < kLooks; ++i) {
      const uint32_t granule = granule_of(round, i, crew.rank(), crew.size());
      if (granule < num_granules)
        looks[i] = crew.look(r.doorbells + granule * SAC_SLOT_GRANULE,
                             r.seen + granule * SAC_SLOT_GRANULE);
    }
    if (round == 0) meanwhile();
    uint32_t hits = 0;
    for (uint32_t i = 0; i < kLooks; ++i) {
      const uint32_t granule = granule_of(round, i, crew.rank(), crew.size());
      if (granule >= num_granules) break;
      const uint32_t mask = crew.note(looks[i], r.peers->rung + granule * SAC_SLOT_GRANULE);
      if (mask == 0) continue;
      hits |= 1u << i;
      if (crew.is_scribe()) board.masks[granule] = mask;
    }
    if (crew.is_scribe()) board.hits[round][crew.rank()] = hits;
    found |= hits;
  }
  return found != 0;
}

/// A member's share of a reading.
template <class Crew>
SAC_HD void read_share(TeamBoard& board, Crew& crew) {
  const PeerReading r = board.reading;  // each access to the ring would read it from there again
  const uint32_t thread = crew.rank() * crew.width() + crew.lane();
  const uint32_t threads = crew.size() * crew.width();
  Look cursors[kCursorsAhead];
  for (uint32_t i = 0; i < kCursorsAhead; ++i) cursors[i] = look_at_cursor(r, thread + i * threads);
  bool moved = false;
  const bool found = read_doorbells(board, r, crew, [&] {
    // From the last thread on: each thread waits for one of these trips at most.
    for (uint32_t f = threads - 1 - thread; f < r.num_frontends; f += threads)
      moved |= read_frontend(r, f);
    if (thread == 0 && board.word_at != nullptr) {
      const uint64_t word = load_relaxed(board.word_at);
      moved |= word != board.word;
      board.word = word;
    }
    for (uint32_t i = 0; i < kCursorsAhead; ++i) moved |= note_cursor(r, cursors[i]);
  });
  for (uint32_t seat = thread + kCursorsAhead * threads; seat < r.cursors->end; seat += threads)
    moved |= note_cursor(r, look_at_cursor(r, seat));
  // SYNC: acquire, as in read_peers_alone; where nothing moved, nothing new is ordered.
  if (crew.any(moved || found)) fence_acquire();
}

/// A member's share of a span: every size()-th piece from its rank on.
template <class Crew>
SAC_HD uint32_t fetch_pieces(const Fetch& f, uint32_t first_piece, Crew& crew) {
  const uint32_t piece_words = crew.width() * kFetchAhead;
  const uint32_t skip = (crew.rank() + crew.size() - first_piece % crew.size()) % crew.size();
  uint32_t most = 0;
  for (uint32_t begin = skip * piece_words; begin < f.words; begin += crew.size() * piece_words) {
    uint32_t words[kFetchAhead] = {};
    for (uint32_t i = 0; i < kFetchAhead; ++i) {
      const uint32_t w = begin + i * crew.width() + crew.lane();
      if (w < f.words) words[i] = load_relaxed(f.from + w);
    }
    for (uint32_t i = 0; i < kFetchAhead; ++i) {
      const uint32_t w = begin + i * crew.width() + crew.lane();
      if (w < f.words) f.to[w] = words[i];
      most = max_u32(most, words[i]);
    }
  }
  return most;
}

/// Pieces are numbered through all fetches, so that many short ones are shared out as well.
template <class Crew>
SAC_HD void fetch_share(TeamBoard& board, Crew& crew) {
  uint32_t piece = 0;
  for (uint32_t i = 0; i < board.num_fetches; ++i) {
    const Fetch f = board.fetches[i];
    const uint32_t most = crew.most(fetch_pieces(f, piece, crew));
    if (crew.is_scribe() && most != 0) raise_to(&board.fetches[i].most, most);
    piece += ceil_div(f.words, crew.width() * kFetchAhead);
  }
}

/// A member's share of the seats: those of every size()-th word of the marks.
template <class Crew>
SAC_HD void seats_share(TeamBoard& board, Crew& crew) {
  Scheduler& s = *board.scheduler;
  const SeatVerb verb = board.verb;
  const uint32_t count = board.num_seats, words = ceil_div(count, 32);
  for (uint32_t w = crew.rank(); w < words; w += crew.size()) {
    uint32_t signs[2] = {};
    do_seats(s, verb, w, crew.lane(), crew.width(), count, signs);
    for (uint32_t line = 0; line < 2; ++line) {
      const uint32_t merged = crew.merge(signs[line]);
      if (crew.is_scribe()) s.seats.marks[line][w] = merged;
    }
  }
  if (verb != SeatVerb::kCommit || crew.rank() >= words) return;
  crew.settle();
  // SYNC: release, as in each_seat_alone; a fence for each thread's own records.
  fence_release();
  for (uint32_t w = crew.rank(); w < words; w += crew.size())
    publish_seats(s, w, crew.lane(), crew.width(), count);
}

/// A member's share of a grammar: each thread checks its own states.
template <class Crew>
SAC_HD void grammar_share(TeamBoard& board, Crew& crew) {
  const Automaton a = board.grammar;
  bool wrong = false;
  for (uint32_t s = crew.rank() * crew.width() + crew.lane(); s < a.num_states();
       s += crew.size() * crew.width())
    wrong |= !state_in_bounds(a, s);
  wrong = crew.any(wrong);
  if (crew.is_scribe()) board.found[crew.rank()] = wrong ? 1 : 0;
}

/// A member's life: takes orders until it is dismissed or a wait runs out.
template <class Crew>
SAC_HD void serve_team(TeamBoard& board, Crew& crew) {
  while (crew.meet(WaitSite::kTeamOrder) && board.order != TeamOrder::kDismissed) {
    switch (board.order) {
      case TeamOrder::kRead:
        read_share(board, crew);
        break;
      case TeamOrder::kFetch:
        fetch_share(board, crew);
        break;
      case TeamOrder::kGrammar:
        grammar_share(board, crew);
        break;
      default:
        seats_share(board, crew);
    }
    if (!crew.meet(WaitSite::kTeamDone)) return;
  }
}

/// Has an order carried out. False when the team did not come; the crew then reports it.
template <class Crew>
SAC_HD bool lead(TeamBoard& board, Crew& crew, TeamOrder order) {
  board.order = order;
  return crew.meet(WaitSite::kTeamTaken) && crew.meet(WaitSite::kTeamDone);
}

/// Writes to `changed` the slots that the masks name, lowest first; returns how many. Looks only
/// where a member found something: most readings find a slot or none.
SAC_HD inline uint32_t gather_masks(const TeamBoard& board, uint32_t members, uint32_t* changed) {
  const uint32_t rounds = num_rounds(board.reading.num_slots, members);
  uint32_t count = 0;
  for (uint32_t round = 0; round < rounds; ++round) {
    const uint32_t* hits = board.hits[round];
    uint32_t looks = 0;
    for (uint32_t rank = 0; rank < members; ++rank) looks |= hits[rank];
    for (; looks != 0; looks &= looks - 1) {
      const uint32_t look = lowest_bit(looks);
      uint32_t ranks = 0;
      for (uint32_t rank = 0; rank < members; ++rank) ranks |= (hits[rank] >> look & 1) << rank;
      for (; ranks != 0; ranks &= ranks - 1) {
        const uint32_t granule = granule_of(round, look, lowest_bit(ranks), members);
        for (uint32_t mask = board.masks[granule]; mask != 0; mask &= mask - 1)
          changed[count++] = granule * SAC_SLOT_GRANULE + lowest_bit(mask);
      }
    }
  }
  return count;
}

/// As read_peers_alone, by the team. Finds nothing when the team did not come.
template <class Crew>
SAC_HD uint32_t read_peers_by_team(TeamBoard& board, Crew& crew, const PeerReading& reading,
                                   uint32_t* changed) {
  board.reading = reading;
  if (!lead(board, crew, TeamOrder::kRead)) return 0;
  return gather_masks(board, crew.size(), changed);
}

/// As fetch_alone, by the team.
template <class Crew>
SAC_HD void fetch_by_team(TeamBoard& board, Crew& crew, Fetch* fetches, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) fetches[i].most = 0;
  board.fetches = fetches;
  board.num_fetches = count;
  lead(board, crew, TeamOrder::kFetch);
}

/// As grammar_in_bounds, by the team. False when the team did not come.
template <class Crew>
SAC_HD bool check_grammar_by_team(TeamBoard& board, Crew& crew, const uint32_t* words,
                                  uint32_t count) {
  if (!grammar_has_shape(words, count)) return false;
  board.grammar = {words};
  if (!lead(board, crew, TeamOrder::kGrammar)) return false;
  uint32_t wrong = 0;
  for (uint32_t rank = 0; rank < crew.size(); ++rank) wrong |= board.found[rank];
  return wrong == 0;
}

/// As each_seat_alone, by the team.
template <class Crew>
SAC_HD void each_seat_by_team(TeamBoard& board, Crew& crew, Scheduler& s, SeatVerb verb,
                              uint32_t count) {
  board.scheduler = &s;
  board.verb = verb;
  board.num_seats = count;
  lead(board, crew, TeamOrder::kSeats);
}

/// Lets the members go; the leader must not give orders afterwards.
template <class Crew>
SAC_HD void dismiss(TeamBoard& board, Crew& crew) {
  board.order = TeamOrder::kDismissed;
  crew.meet(WaitSite::kTeamTaken);
}

}  // namespace saccade
