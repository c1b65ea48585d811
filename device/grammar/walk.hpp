// A place in a grammar, and how bytes move it. The same walk decides which tokens may come next
// (mask.hpp) and follows the one that came (sched/grammar.hpp). crates/grammar/src/walk.rs is the
// same in Rust.
#pragma once
#include "grammar/automaton.hpp"
#include "grammar/place.hpp"
#include "grammar/vocab.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Takes one edge. False: its way out does not fit the stack; then the place means nothing.
/// `on_push(index)` is called before a place of the stack is overwritten.
template <class OnPush>
SAC_HD_INLINE bool take_edge(const Automaton& a, GrammarPlace& at, const GrammarEdge& edge,
                             OnPush&& on_push) {
  if (edge.push != SAC_GRAMMAR_NO_PUSH) {
    if (at.depth >= SAC_GRAMMAR_STACK || at.depth + a.need(edge.push) > SAC_GRAMMAR_STACK)
      return false;
    on_push(at.depth);
    at.stack[at.depth++] = static_cast<uint16_t>(edge.push);
  }
  at.state = static_cast<uint16_t>(edge.target);
  return at.depth + a.need(edge.target) <= SAC_GRAMMAR_STACK;
}

/// Moves by one byte. False: no answer goes on like this; then the place means nothing. Ends: each
/// turn of the loop takes a place off the stack.
template <class OnPush>
SAC_HD_INLINE bool take_byte(const Automaton& a, GrammarPlace& at, uint32_t byte,
                             OnPush&& on_push) {
  for (;;) {
    const uint32_t edge = a.find(at.state, byte);
    if (edge != a.num_edges()) return take_edge(a, at, a.edge(edge), on_push);
    if (!a.is_final(at.state) || at.depth == 0) return false;
    at.state = at.stack[--at.depth];
  }
}

SAC_HD inline bool take_bytes(const Automaton& a, GrammarPlace& at, const uint8_t* bytes,
                              uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    if (!take_byte(a, at, bytes[i], [](uint32_t) {})) return false;
  return true;
}

/// Moves by a token. False: it has no bytes, or no answer goes on like this.
SAC_HD inline bool take_token(const Automaton& a, GrammarPlace& at, const TokenVocab& vocab,
                              uint32_t token) {
  const uint32_t length = vocab.length(token);
  return length != 0 && take_bytes(a, at, vocab.bytes + vocab.offsets[token], length);
}

/// The same place without rules that are over: only the next byte would leave them.
SAC_HD inline void leave_rules(const Automaton& a, GrammarPlace& at) {
  const auto is_over = [&](uint32_t s) {
    return a.is_final(s) && a.first_edge(s) == a.first_edge(s + 1);
  };
  while (at.depth > 0 && is_over(at.state)) at.state = at.stack[--at.depth];
}

/// The answer may end here.
SAC_HD inline bool may_end(const Automaton& a, const GrammarPlace& at) {
  bool end = a.is_final(at.state);
  for (uint32_t i = 0; i < at.depth; ++i) end &= a.is_final(at.stack[i]);
  return end;
}

/// The answer may end here, and cannot go on.
SAC_HD inline bool must_end(const Automaton& a, const GrammarPlace& at) {
  if (!may_end(a, at)) return false;
  uint32_t edges = a.first_edge(at.state + 1u) - a.first_edge(at.state);
  for (uint32_t i = 0; i < at.depth; ++i)
    edges += a.first_edge(at.stack[i] + 1u) - a.first_edge(at.stack[i]);
  return edges == 0;
}

}  // namespace SAC_ISA
}  // namespace saccade
