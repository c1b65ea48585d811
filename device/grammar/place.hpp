// Where in its grammar an answer is. Plain data: it is kept with the request, on its seat or
// parked.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

/// A state and the stack beneath it; all zero is the start.
struct GrammarPlace {
  uint16_t state;
  uint16_t depth;  // places of the stack in use
  uint16_t stack[SAC_GRAMMAR_STACK];
};

}  // namespace saccade
