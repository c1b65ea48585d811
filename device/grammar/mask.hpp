// Which tokens may come next: the tree of tokens is walked together with the grammar, and what does
// not fit is left out with all that begins like it. Where plain text may follow, the plain tokens
// are known beforehand.
#pragma once
#include "grammar/vocab.hpp"
#include "grammar/walk.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// A walk that can be taken back: one byte per level of the tree.
struct UndoWalk {
  GrammarPlace at;
  uint32_t num_pushed;
  uint16_t state[kMaxTokenBytes + 1];  // by level: after that many bytes
  uint16_t depth[kMaxTokenBytes + 1];
  uint16_t pushed[kMaxTokenBytes + 1];
  uint16_t place[kMaxTokenBytes];  // of the stack, overwritten by each push so far
  uint16_t value[kMaxTokenBytes];  // what was there

  SAC_HD void note(uint32_t level) {
    state[level] = at.state;
    depth[level] = at.depth;
    pushed[level] = static_cast<uint16_t>(num_pushed);
  }
  /// Back to where `level` bytes led.
  SAC_HD void go_back(uint32_t level) {
    for (; num_pushed > pushed[level]; --num_pushed)
      at.stack[place[num_pushed - 1]] = value[num_pushed - 1];
    at.state = state[level];
    at.depth = depth[level];
  }
  /// One byte more; each byte pushes at most once.
  SAC_HD bool take(const Automaton& a, uint32_t byte) {
    return take_byte(a, at, byte, [this](uint32_t index) {
      place[num_pushed] = static_cast<uint16_t>(index);
      value[num_pushed++] = at.stack[index];
    });
  }
};

/// Calls f(token) for each token of a tree that the answer may go on with. Returns how many nodes
/// it looked at.
template <class F>
SAC_HD_INLINE uint32_t for_each_legal(const Automaton& a, const GrammarPlace& from,
                                      const TokenNode* nodes, uint32_t count, F f) {
  UndoWalk walk;
  walk.at = from;
  walk.num_pushed = 0;
  walk.note(0);
  uint32_t looks = 0;
  for (uint32_t i = 0; i < count; ++looks) {
    const TokenNode node = nodes[i];
    walk.go_back(node.depth() - 1);
    if (!walk.take(a, node.byte())) {
      i += node.skip();
      continue;
    }
    walk.note(node.depth());
    if (node.token() != kNoToken) f(node.token());
    ++i;
  }
  return looks;
}

/// Characters of plain text that may follow; 0: that is not known.
SAC_HD inline uint32_t plain_from(const Automaton& a, const GrammarPlace& at) {
  const bool has_room = at.depth + SAC_GRAMMAR_PLAIN_PLACES <= SAC_GRAMMAR_STACK;
  return has_room ? a.plain(at.state) : 0;
}

/// Sets the bits of the tokens that the answer may go on with, and clears all others. Returns how
/// many nodes of the trees it looked at. mask: [ceil(num_tokens / 32)]
SAC_HD inline uint32_t fill_mask(const Automaton& a, GrammarPlace at, const TokenVocab& vocab,
                                 uint32_t* mask) {
  leave_rules(a, at);
  const uint32_t plain = plain_from(a, at);
  const uint32_t* known = vocab.plain_mask(plain);
  for (uint32_t w = 0; w < ceil_div(vocab.num_tokens, 32); ++w) mask[w] = known[w];
  const auto set = [mask](uint32_t token) { mask[token / 32] |= 1u << token % 32; };
  const uint32_t looks = plain == 0 ? for_each_legal(a, at, vocab.plain, vocab.num_plain, set) : 0;
  return looks + for_each_legal(a, at, vocab.rest, vocab.num_rest, set);
}

/// Whether the answer may go on with one token.
SAC_HD inline bool is_legal(const Automaton& a, GrammarPlace at, const TokenVocab& vocab,
                            uint32_t token) {
  return take_token(a, at, vocab, token);
}

}  // namespace SAC_ISA
}  // namespace saccade
