// Requests that share prefixes in every way that there is, drawn from a seed, and how much of each
// prompt must be found when they are served one by one.
#pragma once
#include <algorithm>

#include "tests/random.hpp"
#include "tests/test_frontend.hpp"

namespace saccade::test {

/// `turn_of`: its prompt is that request's prompt and answer, and `tail`. It is empty until the
/// answer is known.
struct PrefixRequest {
  Ask ask;
  std::vector<uint32_t> tail = {};
  int turn_of = -1;

  bool shares() const { return (ask.flags & SAC_REQ_PROMPT_LOGPROBS) == 0; }
};

inline constexpr uint32_t kLongestAnswer = 12;
/// Tokens that no request exceeds, prompt and answer.
constexpr uint32_t longest_request(uint32_t block_size) {
  return std::max(5 * block_size + 5 + kLongestAnswer, 3 * block_size + 2 * 4 + 3 * kLongestAnswer);
}

class PrefixRequests {
 public:
  PrefixRequests(uint64_t seed, uint32_t block_size, uint32_t vocab)
      : block_size_(block_size), vocab_(vocab), random_(seed * 0x9e3779b97f4a7c15ull + 101) {
    const std::vector<uint32_t> text = random_tokens(5 * block_size + 5);
    const auto begin = [&text](uint32_t count) {
      return std::vector<uint32_t>(text.begin(), text.begin() + count);
    };
    const uint32_t b = block_size;
    add(begin(3 * b));      // exact blocks: the last one holds the last token
    add(begin(3 * b + 1));  // the same blocks, all before the last token
    add(begin(2 * b - 1), random_.in(1, b));
    add(begin(3 * b + 1), 5);
    add(begin(5 * b + 5));  // longest: what was there is its beginning
    add_choices(begin(5 * b), 4);
    add_conversation(random_tokens(2 * b + random_.in(0, b)));
    logprobs_of_prompt(add(begin(3 * b + 1)));
    add(begin(4 * b));
    for (uint64_t salt : {77u, 77u, 78u}) add(begin(3 * b + 1)).ask.cache_salt = salt;
    for (uint32_t adapter : {1u, 1u, 2u}) add(begin(3 * b + 1)).ask.adapter = adapter;
    std::vector<uint32_t> other = begin(3 * b + 1);
    other[b + random_.in(0, b - 1)] ^= 1;
    add(other);
    add(begin(random_.in(2, b)));  // less than there is to share
    add(begin(1));
  }
  std::vector<PrefixRequest> all = {};

 private:
  std::vector<uint32_t> random_tokens(uint32_t count) {
    std::vector<uint32_t> tokens(count);
    for (uint32_t& t : tokens) t = random_.in(0, vocab_ - 2);  // even after ^= 1 a token
    return tokens;
  }
  /// With parameters of its own: greedy or drawn, few alternatives or many, penalties.
  PrefixRequest& add(std::vector<uint32_t> prompt, uint32_t own_tokens = 0) {
    Ask ask;
    ask.prompt = std::move(prompt);
    for (uint32_t token : random_tokens(own_tokens)) ask.prompt.push_back(token);
    ask.max_tokens = random_.in(4, kLongestAnswer);
    ask.flags |= random_.one_in(4) ? 0 : SAC_REQ_LOGPROBS;
    ask.num_top_logprobs = random_.pick({0u, 2u, 5u, 20u});
    ask.seed = random_.next();
    ask.temperature = random_.pick({0.0f, 0.7f, 1.5f});
    ask.top_p = random_.pick({1.0f, 0.9f});
    ask.repetition_penalty = random_.pick({1.0f, 1.0f, 1.2f});
    all.push_back({ask});
    return all.back();
  }
  /// One prompt, several seeds, as `n` makes of a request.
  void add_choices(const std::vector<uint32_t>& prompt, uint32_t count) {
    Ask ask = add(prompt, 4).ask;
    ask.temperature = all.back().ask.temperature = 1.0f;
    for (uint32_t i = 1; i < count; ++i) {
      ask.seed = random_.next();
      all.push_back({ask});
    }
  }
  /// Three turns, each with the answer before it.
  void add_conversation(const std::vector<uint32_t>& prompt) {
    for (uint32_t turn = 0; turn < 3; ++turn) {
      PrefixRequest& r = add(turn == 0 ? prompt : std::vector<uint32_t>());
      r.ask.max_tokens = random_.in(kLongestAnswer / 2, kLongestAnswer);
      if (turn == 0) continue;
      r.tail = random_tokens(random_.in(1, 4));
      r.turn_of = static_cast<int>(all.size()) - 2;
    }
  }
  static void logprobs_of_prompt(PrefixRequest& r) { r.ask.flags |= SAC_REQ_PROMPT_LOGPROBS; }

  uint32_t block_size_;
  uint32_t vocab_;
  Random random_;
};

/// How many tokens of each prompt are found when all are served in order, each after the last has
/// ended, by a device that evicts nothing. `served[i]`: prompt and answer of request i. Prompts
/// share nothing with those on the other side of `rope_switch_len`; 0: there are no sides.
inline std::vector<uint32_t> found_in_order(const std::vector<PrefixRequest>& requests,
                                            const std::vector<std::vector<uint32_t>>& served,
                                            uint32_t block_size, uint32_t rope_switch_len) {
  const auto is_long = [&](const Ask& ask) {
    return rope_switch_len != 0 && ask.prompt.size() > rope_switch_len;
  };
  std::vector<uint32_t> found(requests.size(), 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<uint32_t>& prompt = requests[i].ask.prompt;
    for (size_t j = 0; j < i && requests[i].shares(); ++j) {
      const Ask &a = requests[i].ask, &b = requests[j].ask;
      const bool apart = a.cache_salt != b.cache_salt || a.adapter != b.adapter;
      if (!requests[j].shares() || apart || is_long(a) != is_long(b)) continue;
      // The last token of either has no KV that could be used.
      const size_t most = std::min(prompt.size(), served[j].size()) - 1;
      size_t same = 0;
      while (same < most && prompt[same] == served[j][same]) ++same;
      found[i] = std::max(found[i], static_cast<uint32_t>(same / block_size * block_size));
    }
  }
  return found;
}

}  // namespace saccade::test
