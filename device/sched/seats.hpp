// Seats: the requests that take part in steps, each with its tokens and parameters. Their KV blocks
// are in kv/kv_tiers.hpp.
#pragma once
#include "kv/prefix_table.hpp"
#include "platform/layout.hpp"
#include "ring/peers.hpp"
#include "sched/limits.hpp"
#include "step/step.hpp"

namespace saccade {

/// What of a request's parameters every token of it is held against.
struct Asked {
  uint32_t flags;  // SAC_REQ_*
  uint32_t prompt_len;
  uint32_t max_tokens;
  uint32_t min_tokens;
  uint32_t num_stop_ids;
  uint32_t grammar_words;
  uint32_t forced_words;  // of those: the forced tokens; 0: its tokens are all drawn
};

/// One admitted request. A seat without blocks is preempted: what host memory holds of its KV comes
/// back when it resumes, the rest is recomputed. The states of rotation follow from the fields, see
/// sched/tiers.hpp.
struct Seat {
  uint64_t arrival;         // as of its request
  uint64_t last_step;       // last launch that it was part of
  uint64_t moved_ns;        // when it last got its blocks, or gave them up
  uint64_t first_token_ns;  // 0: none yet
  uint64_t last_token_ns;
  uint64_t down_fence;  // last copy of one of its blocks to host memory
  uint64_t up_fence;    // last copy of one of its blocks from there
  uint64_t cache_salt;  // of its prefix
  PrefixOwner owner;    // the same, as routers are told
  uint32_t slot;
  uint32_t ticket;
  uint32_t state;         // SAC_STATE_*
  uint32_t finish;        // SAC_FINISH_*; not NONE: to be retired
  uint32_t num_tokens;    // known: prompt and produced
  uint32_t num_computed;  // positions with KV in its blocks, or in host memory if it has none
  uint32_t num_blocks;    // entries of its table that it uses on the device
  // Rotated out: entries of its table that it uses in host memory. On the device: leading entries
  // that had a copy there when that was looked at last.
  uint32_t num_host;
  uint32_t num_filed;         // leading entries that are findable, full or pending
  uint32_t num_ahead;         // leading entries that were filed, or shall not be filed ahead
  uint32_t places;            // on the device, that it lacked when it was to come back last
  uint32_t num_cached;        // prompt tokens whose KV was there when it came in
  uint32_t shares;            // 1: its blocks may change for those of others, see prefix.hpp
  uint32_t follows;           // 1: another seat is computing its next block
  uint32_t fetch;             // 1 + the entry of the load that fills its blocks; 0: none does
  uint32_t num_at_hand;       // blocks that it had when that began
  uint32_t num_fetched;       // tokens whose KV came from a store, and all before them
  uint32_t starved;           // 1: its next token waits for a block that is in transit
  uint32_t held;              // 1: gave up its blocks for its reader's sake; see is_behind
  uint32_t num_produced;      // tokens sampled, or forced by its grammar
  uint32_t num_forced;        // of those, forced
  uint32_t entered_produced;  // num_produced when it last got its blocks
  uint32_t num_records;       // written to the output ring: prompt records, then produced tokens
  uint32_t stride;            // words per record
  uint32_t capacity;          // records the output ring holds
  uint32_t was_computed;      // highest num_computed ever: what lies below is recomputation
  Asked asked;
};

/// All but the last token are computed: the next row yields a token.
SAC_HD inline bool is_decode(const Seat& seat) { return seat.num_tokens == seat.num_computed + 1; }

/// Nothing is computed again, and no prompt: the next rows yield a token. More than one row where
/// the last tokens were forced.
SAC_HD inline bool goes_on(const Seat& seat) {
  return seat.num_produced != 0 && seat.num_computed >= seat.was_computed;
}

SAC_HD inline uint32_t running_state(const Seat& seat) {
  return is_decode(seat) || goes_on(seat) ? SAC_STATE_DECODE_PROCESSING
                                          : SAC_STATE_PREFILL_PROCESSING;
}

/// Tokens that a request with these flags needs room for to go on: all that it has, and its next
/// one, unless its prompt is all of it.
SAC_HD inline uint32_t tokens_to_hold(uint32_t flags, uint32_t num_tokens) {
  return embeds(flags) ? num_tokens : num_tokens + 1;
}

/// Its rows are changed by an adapter. Every adapter has a name, so this needs no look at the
/// parameters, which on a GPU are far from the tick.
SAC_HD inline bool has_adapter(const Seat& seat) { return seat.owner.adapter != 0; }

SAC_HD inline bool has_ended(const Seat& seat) { return seat.finish != SAC_FINISH_NONE; }

/// Records that may still be written before the reader, whose cursor is `read`, must take some. A
/// cursor that claims more than was written, or lags by more than the ring holds, is not believed:
/// no room.
SAC_HD inline uint32_t room_of(const Seat& seat, uint32_t read) {
  const uint32_t unread = seat.num_records - read;
  return unread <= seat.capacity ? seat.capacity - unread : 0;
}

/// A request that gave up its KV for its reader's sake comes back when one in this many records of
/// its ring may be written: its tokens are computed again for that many.
inline constexpr uint32_t kReturnShare = 2;

SAC_HD inline bool has_made_room(const Seat& seat, uint32_t read) {
  return kReturnShare * room_of(seat, read) >= seat.capacity;
}

/// The time since its last token was its reader's: no target counts it.
SAC_HD inline void pass_hold(Seat& seat, uint64_t now_ns) {
  if (seat.first_token_ns == 0 || now_ns <= seat.last_token_ns) return;
  seat.first_token_ns += now_ns - seat.last_token_ns;
  seat.last_token_ns = now_ns;
}

/// What a seated request asks of the policy: the same for as long as it lives.
struct Wishes {
  uint64_t arrival_ns;
  uint64_t slo_ttft_ns;
  uint64_t slo_tbt_ns;
  int32_t priority;
  uint32_t tenant;
};

struct Seats {
  uint32_t num_seats;
  uint32_t max_model_len;  // tokens
  uint32_t max_grammar_words;
  uint32_t embedding_size;  // values
  uint32_t num_eos_ids;
  uint32_t num_free;
  uint32_t num_running;
  uint32_t num_ended;    // running requests to retire in the next tick
  uint32_t num_sharing;  // running requests with Seat::shares set
  uint32_t num_held;     // running requests with Seat::held set
  uint32_t num_adapted;  // running requests with an adapter
  Seat* seats;           // [num_seats]
  Wishes* wishes;        // [num_seats]
  uint32_t* free;        // [num_seats]: stack
  uint32_t* running;     // [num_seats]: seated, oldest first
  SeatParams* params;    // [num_seats]
  uint32_t* history;     // [num_seats][max_model_len]
  LogitBias* logit_bias;
  uint32_t* stop_ids;
  uint32_t* automata;       // [num_seats][max_grammar_words]
  GrammarPlace* places;     // [num_seats]
  const TokenVocab* vocab;  // null: grammars are refused
  ReaderCursors cursors;
  uint32_t* marks[2];  // [ceil(num_seats / 32)]: what the last SeatVerb said of each seat
  uint32_t eos_ids[kMaxEosIds];

  SAC_HD Seat& operator[](uint32_t index) { return seats[index]; }
  SAC_HD const Seat& operator[](uint32_t index) const { return seats[index]; }
  SAC_HD uint32_t* tokens(uint32_t index) const {
    return history + static_cast<size_t>(index) * max_model_len;
  }
  SAC_HD LogitBias* bias(uint32_t index) const {
    return logit_bias + static_cast<size_t>(index) * SAC_MAX_LOGIT_BIAS;
  }
  SAC_HD uint32_t* stops(uint32_t index) const {
    return stop_ids + static_cast<size_t>(index) * SAC_MAX_STOP_IDS;
  }
  SAC_HD uint32_t* automaton(uint32_t index) const {
    return automata + size_t{index} * max_grammar_words;
  }
  /// Records that steps may still write before the reader must take some. There is room for forced
  /// tokens behind each: whether a token is forced or drawn does not depend on the reader.
  SAC_HD uint32_t reader_room(uint32_t index) const {
    const uint32_t room = room_of(seats[index], cursors.read[index]);
    const uint32_t forced = seats[index].asked.forced_words == 0 ? 0 : SAC_MAX_FORCED_TOKENS;
    return room - min_u32(room, forced);
  }
  /// Its reader leaves no room; or left none, and has yet to make enough for it to come back.
  SAC_HD bool is_behind(uint32_t index) const {
    return seats[index].held != 0 || reader_room(index) == 0;
  }
  /// Puts a seat into the running list, which is in order of arrival.
  SAC_HD void add_running(uint32_t index) {
    uint32_t at = num_running++;
    num_adapted += has_adapter(seats[index]) ? 1 : 0;
    for (; at > 0 && seats[running[at - 1]].arrival > seats[index].arrival; --at)
      running[at] = running[at - 1];
    running[at] = index;
  }
  /// Takes the seat at this place off the running list.
  SAC_HD void remove_running(uint32_t at) {
    num_adapted -= has_adapter(seats[running[at]]) ? 1 : 0;
    for (--num_running; at < num_running; ++at) running[at] = running[at + 1];
  }
};

SAC_HD inline void begin_hold(Seats& seats, Seat& seat) {
  seats.num_held += 1 - seat.held;
  seat.held = 1;
}
SAC_HD inline void end_hold(Seats& seats, Seat& seat) {
  seats.num_held -= seat.held;
  seat.held = 0;
}
/// Requests whose readers have made room may have blocks again.
SAC_HD inline void lift_holds(Seats& seats, uint64_t now_ns) {
  for (uint32_t i = 0; i < seats.num_running && seats.num_held != 0; ++i) {
    Seat& seat = seats[seats.running[i]];
    if (seat.held == 0 || !has_made_room(seat, seats.cursors.read[seats.running[i]])) continue;
    end_hold(seats, seat);
    pass_hold(seat, now_ns);
  }
}

/// The blocks of a seat are its own from now on.
SAC_HD inline void end_sharing(Seats& seats, uint32_t seat_index) {
  seats.num_sharing -= seats[seat_index].shares;
  seats[seat_index].shares = 0;
}

inline void lay_out(Seats& s, const Limits& l, Layout& at) {
  const size_t seats = l.num_seats;
  s.cursors.read = at.take<uint32_t>(seats);
  s.cursors.slots = at.take<uint32_t>(seats);
  s.seats = at.take<Seat>(seats);
  s.wishes = at.take<Wishes>(seats);
  s.free = at.take<uint32_t>(seats);
  s.running = at.take<uint32_t>(seats);
  s.params = at.take<SeatParams>(seats);
  s.history = at.take<uint32_t>(seats * l.max_model_len);
  s.logit_bias = at.take<LogitBias>(seats * SAC_MAX_LOGIT_BIAS);
  s.stop_ids = at.take<uint32_t>(seats * SAC_MAX_STOP_IDS);
  s.automata = at.take<uint32_t>(seats * l.grammar_words);
  s.places = at.take<GrammarPlace>(l.grammar_words == 0 ? 0 : seats);
  for (uint32_t*& line : s.marks) line = at.take<uint32_t>(ceil_div(l.num_seats, 32));
}

/// eos_ids: [limits.num_eos_ids].
SAC_HD inline void reset(Seats& s, const Limits& l, const uint32_t* eos_ids) {
  s.num_seats = l.num_seats;
  s.max_model_len = l.max_model_len;
  s.max_grammar_words = l.grammar_words;
  s.embedding_size = l.embedding_size;
  s.num_eos_ids = l.num_eos_ids;
  for (uint32_t i = 0; i < l.num_eos_ids; ++i) s.eos_ids[i] = eos_ids[i];
  for (uint32_t i = 0; i < l.num_seats; ++i) {
    s.seats[i] = Seat{};
    s.free[i] = l.num_seats - 1 - i;
  }
  s.num_free = l.num_seats;
  s.num_running = s.num_ended = s.num_sharing = s.num_held = s.num_adapted = 0;
  reset(s.cursors, l.num_seats);
}

}  // namespace saccade
