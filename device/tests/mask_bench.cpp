// How long a mask takes under grammars from outside (bench/grammar/masks.py).
//
// Standard input, little-endian words: the number of tokens N, N + 1 offsets, the tokens' bytes
// (padded to a word); then for each case the number of words of its automaton, these, the number of
// tokens of its answer, and these. Standard output: a JSON list for each case, of nanoseconds per
// mask, one before each token and one behind the last.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "grammar/mask.hpp"
#include "grammar/token_tables.hpp"

namespace saccade::test {
namespace {

bool read_words(std::vector<uint32_t>& words, size_t count) {
  words.resize(count);
  return std::fread(words.data(), sizeof(uint32_t), count, stdin) == count;
}

/// A list that its length precedes.
bool read_list(std::vector<uint32_t>& words) {
  std::vector<uint32_t> length;
  return read_words(length, 1) && read_words(words, length[0]);
}

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "mask_bench: %s\n", what);
  std::exit(1);
}

TokenTables read_tables() {
  std::vector<uint32_t> count, offsets, bytes;
  if (!read_words(count, 1) || !read_words(offsets, count[0] + 1) ||
      !read_words(bytes, ceil_div(offsets.back(), 4)))
    fail("the vocabulary ends early");
  TokenTables tables;
  const std::string wrong =
      tables.build(offsets.data(), reinterpret_cast<const uint8_t*>(bytes.data()), count[0]);
  if (!wrong.empty()) fail(wrong.c_str());
  return tables;
}

void time_case(const TokenVocab& vocab, const std::vector<uint32_t>& words,
               const std::vector<uint32_t>& tokens) {
  using Clock = std::chrono::steady_clock;
  if (!grammar_in_bounds(words.data(), static_cast<uint32_t>(words.size()))) fail("no automaton");
  const Automaton a = {words.data()};
  GrammarPlace at = {};
  std::vector<uint32_t> mask(ceil_div(vocab.num_tokens, 32));
  std::printf("[");
  for (size_t i = 0; i <= tokens.size(); ++i) {
    const Clock::time_point start = Clock::now();
    fill_mask(a, at, vocab, mask.data());
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
    std::printf("%s%lld", i == 0 ? "" : ",", static_cast<long long>(ns.count()));
    if (i == tokens.size()) break;
    const uint32_t token = tokens[i];
    if (token >= vocab.num_tokens || (mask[token / 32] >> token % 32 & 1) == 0)
      fail("the mask lacks a token of the answer");
    take_token(a, at, vocab, token);
  }
  std::printf("]\n");
}

}  // namespace
}  // namespace saccade::test

int main() {
  using namespace saccade::test;
  const saccade::TokenTables tables = read_tables();
  std::vector<uint32_t> words, tokens;
  while (read_list(words)) {
    if (!read_list(tokens)) fail("a case ends early");
    time_case(tables.view(), words, tokens);
  }
}
