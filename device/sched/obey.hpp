// obey: an answer's place in its grammar follows each token.
#pragma once
#include "grammar/forced.hpp"
#include "sched/seats.hpp"

namespace saccade {

/// Moves a seat's place by a token that was drawn and does not end the answer. False: its grammar
/// does not allow the token, or the step found none that it allows.
SAC_HD inline bool follow_token(const Seats& seats, uint32_t seat_index, uint32_t token) {
  return take_token({seats.automaton(seat_index)}, seats.places[seat_index], *seats.vocab, token);
}

/// Takes the token that a seat's grammar leaves no choice of: its place moves with it. kNoToken:
/// the next one is drawn.
template <class IsStop>
SAC_HD inline uint32_t take_forced(const Seats& seats, uint32_t seat_index, const IsStop& is_stop) {
  const Asked& asked = seats[seat_index].asked;
  const Automaton a = {seats.automaton(seat_index)};
  const uint32_t* forced = a.words + (asked.grammar_words - asked.forced_words);
  GrammarPlace at = seats.places[seat_index];
  leave_rules(a, at);
  const uint32_t token = find_forced(forced, asked.forced_words, at.state);
  if (token == kNoToken) return kNoToken;
  // An id that ends answers may only be drawn. A token that does not fit was claimed wrongly.
  if (is_stop(token) || !take_token(a, at, *seats.vocab, token)) return kNoToken;
  seats.places[seat_index] = at;
  return token;
}

/// Its answer may end here.
SAC_HD inline bool answer_may_end(const Seats& seats, uint32_t seat_index) {
  return may_end({seats.automaton(seat_index)}, seats.places[seat_index]);
}
/// Its answer is whole: nothing may follow.
SAC_HD inline bool answer_is_whole(const Seats& seats, uint32_t seat_index) {
  return must_end({seats.automaton(seat_index)}, seats.places[seat_index]);
}

}  // namespace saccade
