// A grammar as a request brings it (abi/wire.h): a view of its words, and the check that makes them
// safe to walk. The words are in the device's own memory and constant while the request is seated.
#pragma once
#include "platform/hd.hpp"
#include "sample/isa.hpp"

namespace saccade {
inline namespace SAC_ISA {

struct GrammarEdge {
  uint32_t low;
  uint32_t high;
  uint32_t target;
  uint32_t push;  // SAC_GRAMMAR_NO_PUSH: none
};

/// Words that grammar_in_bounds() has checked.
struct Automaton {
  const uint32_t* words;

  SAC_HD uint32_t num_states() const { return words[0]; }
  SAC_HD uint32_t num_edges() const { return words[1]; }
  /// Words of states and edges; what is behind them is forced.hpp's.
  SAC_HD uint64_t num_words() const {
    return 3 + uint64_t{num_states()} + 2 * uint64_t{num_edges()};
  }
  SAC_HD uint32_t state(uint32_t s) const { return words[2 + s]; }
  SAC_HD uint32_t first_edge(uint32_t s) const { return state(s) & SAC_GRAMMAR_EDGE_MASK; }
  SAC_HD bool is_final(uint32_t s) const { return (state(s) & SAC_GRAMMAR_FINAL) != 0; }
  /// How much plain text may follow, where the stack has room.
  SAC_HD uint32_t plain(uint32_t s) const {
    return state(s) >> SAC_GRAMMAR_PLAIN_SHIFT & SAC_GRAMMAR_PLAIN_MASK;
  }
  /// Places of the stack that the way out of this state takes.
  SAC_HD uint32_t need(uint32_t s) const { return state(s) >> SAC_GRAMMAR_NEED_SHIFT; }
  SAC_HD GrammarEdge edge(uint32_t e) const {
    const uint32_t* at = words + 3 + num_states() + 2 * size_t{e};
    return {at[0] & 0xff, at[0] >> 8 & 0xff, at[0] >> 16, at[1]};
  }

  SAC_HD bool has_default(uint32_t s) const { return (state(s) & SAC_GRAMMAR_DEFAULT) != 0; }
  /// Behind the edges of a state that has one: the state whose edges cover all other bytes.
  SAC_HD uint32_t default_of(uint32_t s) const { return edge(first_edge(s + 1) - 1).target; }

  /// The edge of a state, or of its default, that covers a byte; num_edges() if none does.
  SAC_HD uint32_t find(uint32_t s, uint32_t byte) const {
    const uint32_t own = find_own(s, byte);
    return own == num_edges() && has_default(s) ? find_own(default_of(s), byte) : own;
  }
  SAC_HD uint32_t find_own(uint32_t s, uint32_t byte) const {
    uint32_t begin = first_edge(s);
    const uint32_t none = first_edge(s + 1) - (has_default(s) ? 1 : 0);
    uint32_t end = none;
    while (begin < end) {
      const uint32_t middle = (begin + end) / 2;
      if (edge(middle).high < byte) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin < none && edge(begin).low <= byte ? begin : num_edges();
  }
};

/// Whether `count` words, at least 1, are as long as they say. Only then may a state be looked at.
SAC_HD inline bool grammar_has_shape(const uint32_t* words, uint32_t count) {
  const Automaton a = {words};
  if (count < 4 || a.num_states() == 0 || a.num_states() > SAC_GRAMMAR_NO_PUSH ||
      a.num_edges() > SAC_GRAMMAR_EDGE_MASK)
    return false;
  if (count < a.num_words() || (count - a.num_words()) % 2 != 0) return false;
  return a.first_edge(0) == 0 && a.first_edge(a.num_states()) == a.num_edges();
}

/// The edges of one state: those behind the last state's, ascending, disjoint, between states that
/// there are; a default without one of its own. By itself: many threads may check a grammar, each
/// its own states.
SAC_HD inline bool state_in_bounds(const Automaton& a, uint32_t s) {
  const uint32_t begin = a.first_edge(s);
  uint32_t end = a.first_edge(s + 1);
  if (begin > end || end > a.num_edges()) return false;
  if (a.has_default(s)) {
    if (begin == end || a.default_of(s) >= a.num_states() || a.has_default(a.default_of(s)))
      return false;
    --end;
  }
  uint32_t above = 0;
  for (uint32_t e = begin; e < end; ++e) {
    const GrammarEdge edge = a.edge(e);
    const bool pushes = edge.push != SAC_GRAMMAR_NO_PUSH;
    if (edge.low < above || edge.high < edge.low || edge.target >= a.num_states() ||
        (pushes && edge.push >= a.num_states()))
      return false;
    above = edge.high + 1;
  }
  return true;
}

/// Whether `count` words, at least 1, are a grammar: then no walk leaves them.
SAC_HD inline bool grammar_in_bounds(const uint32_t* words, uint32_t count) {
  if (!grammar_has_shape(words, count)) return false;
  const Automaton a = {words};
  for (uint32_t s = 0; s < a.num_states(); ++s)
    if (!state_in_bounds(a, s)) return false;
  return true;
}

}  // namespace SAC_ISA
}  // namespace saccade
