// Grammars and a vocabulary, small enough to be told from their definitions.
#pragma once
#include <string>
#include <vector>

#include "grammar/mask.hpp"
#include "grammar/token_tables.hpp"
#include "tests/random.hpp"

namespace saccade::test {

struct TestEdge {
  uint32_t low, high, target;
  uint32_t push = SAC_GRAMMAR_NO_PUSH;
};
struct TestState {
  std::vector<TestEdge> edges = {};
  bool is_final = false;
  uint32_t need = 0;
  uint32_t plain = 0;
  int32_t other = -1;  // the state whose edges cover all other bytes
};

inline std::vector<uint32_t> grammar_of(const std::vector<TestState>& states) {
  std::vector<uint32_t> words = {static_cast<uint32_t>(states.size()), 0};
  for (const TestState& s : states) {
    words.push_back(words[1] | (s.is_final ? SAC_GRAMMAR_FINAL : 0) |
                    (s.other < 0 ? 0 : SAC_GRAMMAR_DEFAULT) | s.plain << SAC_GRAMMAR_PLAIN_SHIFT |
                    s.need << SAC_GRAMMAR_NEED_SHIFT);
    words[1] += static_cast<uint32_t>(s.edges.size()) + (s.other < 0 ? 0 : 1);
  }
  words.push_back(words[1]);
  for (const TestState& s : states) {
    for (const TestEdge& e : s.edges) {
      words.push_back(e.low | e.high << 8 | e.target << 16);
      words.push_back(e.push);
    }
    if (s.other < 0) continue;
    words.push_back(static_cast<uint32_t>(s.other) << 16);
    words.push_back(SAC_GRAMMAR_NO_PUSH);
  }
  return words;
}

/// S = 'x' | '(' [ S { ',' S } ] ')' | '[' S ';' S ']'
inline std::vector<uint32_t> nested_grammar() {
  return grammar_of({{{{'(', '(', 2}, {'[', '[', 5}, {'x', 'x', 1}}},
                     {{}, true},
                     {{{'(', '(', 2, 3}, {')', ')', 1}, {'[', '[', 5, 3}, {'x', 'x', 1, 3}}},
                     {{{')', ')', 1}, {',', ',', 4}}},
                     {{{'(', '(', 2, 3}, {'[', '[', 5, 3}, {'x', 'x', 1, 3}}, false, 1},
                     {{{'(', '(', 2, 6}, {'[', '[', 5, 6}, {'x', 'x', 1, 6}}, false, 1},
                     {{{';', ';', 7}}, false, 1},
                     {{{'(', '(', 2, 8}, {'[', '[', 5, 8}, {'x', 'x', 1, 8}}, false, 1},
                     {{{']', ']', 1}}}});
}

/// '"', any characters but '"', '\\' and controls, '"'
inline std::vector<uint32_t> text_grammar() {
  const uint32_t c1 = 3, c2 = 4, e0 = 5, ed = 6, f0 = 7, f1 = 8, f4 = 9;
  return grammar_of({{{{'"', '"', 1}}},
                     {{{0x20, 0x21, 1},
                       {'"', '"', 2},
                       {0x23, 0x5b, 1},
                       {0x5d, 0x7f, 1},
                       {0xc2, 0xdf, c1},
                       {0xe0, 0xe0, e0},
                       {0xe1, 0xec, c2},
                       {0xed, 0xed, ed},
                       {0xee, 0xef, c2},
                       {0xf0, 0xf0, f0},
                       {0xf1, 0xf3, f1},
                       {0xf4, 0xf4, f4}},
                      false,
                      0,
                      SAC_GRAMMAR_PLAIN_BYTES},
                     {{}, true},
                     {{{0x80, 0xbf, 1}}},
                     {{{0x80, 0xbf, c1}}},
                     {{{0xa0, 0xbf, c1}}},
                     {{{0x80, 0x9f, c1}}},
                     {{{0x90, 0xbf, c2}}},
                     {{{0x80, 0xbf, c2}}},
                     {{{0x80, 0x8f, c2}}}});
}

/// text_grammar(), but a text that begins with "ax" must be over: the states at the beginning tell
/// `a` and `x` apart, by all their edges or by one and a default.
inline std::vector<uint32_t> no_ax_grammar(bool by_default) {
  const uint32_t c1 = 3, c2 = 4, e0 = 5, ed = 6, f0 = 7, f1 = 8, f4 = 9, first = 10, behind_a = 11;
  const std::vector<TestEdge> text = {{0x20, 0x21, 1},  {'"', '"', 2},    {0x23, 0x5b, 1},
                                      {0x5d, 0x7f, 1},  {0xc2, 0xdf, c1}, {0xe0, 0xe0, e0},
                                      {0xe1, 0xec, c2}, {0xed, 0xed, ed}, {0xee, 0xef, c2},
                                      {0xf0, 0xf0, f0}, {0xf1, 0xf3, f1}, {0xf4, 0xf4, f4}};
  const auto but = [&](uint32_t byte, uint32_t target) {
    TestState s;
    if (by_default) return TestState{{{byte, byte, target}}, false, 0, 0, 1};
    for (const TestEdge& e : text) {
      if (e.low > byte || e.high < byte) {
        s.edges.push_back(e);
        continue;
      }
      s.edges.push_back({e.low, byte - 1, e.target});
      s.edges.push_back({byte, byte, target});
      s.edges.push_back({byte + 1, e.high, e.target});
    }
    return s;
  };
  return grammar_of({{{{'"', '"', first}}},
                     {text, false, 0, SAC_GRAMMAR_PLAIN_BYTES},
                     {{}, true},
                     {{{0x80, 0xbf, 1}}},
                     {{{0x80, 0xbf, c1}}},
                     {{{0xa0, 0xbf, c1}}},
                     {{{0x80, 0x9f, c1}}},
                     {{{0x90, 0xbf, c2}}},
                     {{{0x80, 0xbf, c2}}},
                     {{{0x80, 0x8f, c2}}},
                     but('a', behind_a),
                     but('x', 12),
                     {{{'"', '"', 2}}}});
}

/// '"', at most `most` such characters, '"'. Behind a character of several bytes its rule returns.
inline std::vector<uint32_t> bounded_text_grammar(uint32_t most) {
  const uint32_t first = 2, done = first + most + 1;
  const uint32_t c1 = done + 1, c2 = done + 2, e0 = done + 3, ed = done + 4;
  const uint32_t f0 = done + 5, f1 = done + 6, f4 = done + 7;
  std::vector<TestState> states = {{{{'"', '"', first}}}, {{}, true}};
  for (uint32_t i = 0; i < most; ++i) {
    const uint32_t next = first + i + 1;
    states.push_back({{{0x20, 0x21, next},
                       {'"', '"', 1},
                       {0x23, 0x5b, next},
                       {0x5d, 0x7f, next},
                       {0xc2, 0xdf, c1, next},
                       {0xe0, 0xe0, e0, next},
                       {0xe1, 0xec, c2, next},
                       {0xed, 0xed, ed, next},
                       {0xee, 0xef, c2, next},
                       {0xf0, 0xf0, f0, next},
                       {0xf1, 0xf3, f1, next},
                       {0xf4, 0xf4, f4, next}},
                      false,
                      0,
                      min_u32(most - i, SAC_GRAMMAR_PLAIN_BYTES)});
  }
  const std::vector<TestState> rest = {
      {{{'"', '"', 1}}},    {{}, true},           {{{0x80, 0xbf, done}}},
      {{{0x80, 0xbf, c1}}}, {{{0xa0, 0xbf, c1}}}, {{{0x80, 0x9f, c1}}},
      {{{0x90, 0xbf, c2}}}, {{{0x80, 0xbf, c2}}}, {{{0x80, 0x8f, c2}}}};
  states.insert(states.end(), rest.begin(), rest.end());
  return grammar_of(states);
}

/// The states of "[(x,x;" R "x(])" ( '"' | '\\' "[x;]x" ) ")];x", where R = ( 'a' | "x,(" )* ",;".
inline std::vector<TestState> told_states() {
  std::vector<TestState> states(1);
  const auto say = [&](const std::string& text) {
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      states.back().edges.push_back({byte, byte, static_cast<uint32_t>(states.size())});
      states.emplace_back();
    }
    return static_cast<uint32_t>(states.size()) - 1;
  };
  const uint32_t call = say("[(x,x;");
  const uint32_t back = static_cast<uint32_t>(states.size());
  states.emplace_back();
  const uint32_t either = say("x(])");
  states.emplace_back();
  const uint32_t join = say("[x;]x");
  const uint32_t end = say(")];x");
  states[end].is_final = true;
  states[either].edges = {{'"', '"', join}, {'\\', '\\', either + 1}};
  const uint32_t rule = end + 1;  // ( 'a' | "x,(" )* ",;"
  states.push_back({{{',', ',', rule + 3}, {'a', 'a', rule}, {'x', 'x', rule + 1}}});
  states.push_back({{{',', ',', rule + 2}}});
  states.push_back({{{'(', '(', rule}}});
  states.push_back({{{';', ';', rule + 4}}});
  states.push_back({{}, true});
  states[call].edges = {
      {',', ',', rule + 3, back}, {'a', 'a', rule, back}, {'x', 'x', rule + 1, back}};
  return states;
}

/// The tokens that these states force: of each text that they leave no choice of, as far as it goes
/// without the stack beneath it, the longest of the vocabulary that it begins with.
inline std::vector<uint32_t> forced_by(const std::vector<TestState>& states,
                                       const std::vector<std::string>& tokens) {
  std::vector<uint32_t> words;
  for (uint32_t first = 0; first < states.size(); ++first) {
    std::string text;
    for (uint32_t s = first; states[s].edges.size() == 1 && !states[s].is_final;
         s = states[s].edges[0].target)
      text += static_cast<char>(states[s].edges[0].low);
    uint32_t best = 0;  // has no bytes
    for (uint32_t i = 0; i < tokens.size(); ++i)
      if (tokens[i].size() > tokens[best].size() && text.starts_with(tokens[i])) best = i;
    if (best != 0) words.insert(words.end(), {first, best});
  }
  return words;
}

inline std::vector<uint32_t> told_grammar(const std::vector<std::string>& tokens, bool forces) {
  std::vector<uint32_t> words = grammar_of(told_states());
  const std::vector<uint32_t> forced = forced_by(told_states(), tokens);
  if (forces) words.insert(words.end(), forced.begin(), forced.end());
  return words;
}

/// Whether a whole text is one of told_states().
inline bool is_told(const std::string& text) {
  std::string_view left = text;
  const auto take = [&](std::string_view part) {
    const bool has = left.starts_with(part);
    if (has) left.remove_prefix(part.size());
    return has;
  };
  if (!take("[(x,x;")) return false;
  while (take("a") || take("x,(")) {
  }
  if (!take(",;") || !take("x(])")) return false;
  if (!take("\"") && !take("\\[x;]x")) return false;
  return left == ")];x";
}

/// Whether a whole text is one of nested_grammar().
inline bool is_nested(const std::string& text) {
  size_t at = 0;
  const auto next = [&] { return at < text.size() ? text[at++] : '\0'; };
  const auto parse = [&](const auto& self) -> bool {
    if (at < text.size() && text[at] == 'x') return ++at, true;
    if (at >= text.size() || (text[at] != '(' && text[at] != '[')) return false;
    if (text[at++] == '[') return self(self) && next() == ';' && self(self) && next() == ']';
    if (at < text.size() && text[at] == ')') return ++at, true;
    while (self(self)) {
      if (at < text.size() && text[at] == ')') return ++at, true;
      if (at >= text.size() || text[at++] != ',') return false;
    }
    return false;
  };
  return parse(parse) && at == text.size();
}

/// Texts of up to `most` pieces, until there are `size` tokens.
template <size_t kCount>
void add_texts(std::vector<std::string>& tokens, uint32_t size, const char* const (&pieces)[kCount],
               uint32_t most, Random random) {
  while (tokens.size() < size) {
    std::string token;
    for (uint32_t i = random.in(1, most); i > 0; --i) token += random.pick(pieces);
    tokens.push_back(token);
  }
  tokens.resize(size);
}

/// Tokens below 10 are special; then come all bytes, then random texts, some of them twice.
inline std::vector<std::string> test_vocabulary(uint32_t size) {
  const char* const kPieces[] = {
      "(", ")", ",", "x", "[", ";", "]", "\"", "\\", "a", "é", "\xf0\x9f\x98", "\xe2"};
  std::vector<std::string> tokens(10);
  for (uint32_t byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  add_texts(tokens, size, kPieces, 6, Random(3));
  return tokens;
}

/// The pieces of nested_grammar() first, so that it never gets stuck; then texts of them.
inline std::vector<std::string> nested_vocabulary(uint32_t size) {
  const char* const kPieces[] = {"(", ")", ",", "x", "[", ";", "]"};
  std::vector<std::string> tokens(std::begin(kPieces), std::end(kPieces));
  add_texts(tokens, size, kPieces, 5, Random(4));
  return tokens;
}

inline TokenTables tables_of(const std::vector<std::string>& tokens) {
  std::vector<uint32_t> offsets = {0};
  std::string bytes;
  for (const std::string& token : tokens) {
    bytes += token;
    offsets.push_back(static_cast<uint32_t>(bytes.size()));
  }
  TokenTables tables;
  const std::string wrong =
      tables.build(offsets.data(), reinterpret_cast<const uint8_t*>(bytes.data()),
                   static_cast<uint32_t>(tokens.size()));
  if (!wrong.empty()) throw std::runtime_error(wrong);
  return tables;
}

}  // namespace saccade::test
