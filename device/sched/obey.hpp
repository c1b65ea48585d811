// obey: an answer's place in its grammar follows each token.
#pragma once
#include "grammar/walk.hpp"
#include "sched/seats.hpp"

namespace saccade {

/// Moves a seat's place by a token that was drawn and does not end the answer. False: its grammar
/// does not allow the token, or the step found none that it allows.
SAC_HD inline bool follow_token(const Seats& seats, uint32_t seat_index, uint32_t token) {
  const TokenVocab& vocab = *seats.vocab;
  const uint32_t length = vocab.length(token);
  return length != 0 && take_bytes({seats.automaton(seat_index)}, seats.places[seat_index],
                                   vocab.bytes + vocab.offsets[token], length);
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
