// Grammars: what the check lets pass can be walked, masks are what walking each token says, and
// answers obey, whatever happens to their requests.
#include <doctest/doctest.h>

#include <cstring>

#include "sample/sampler.hpp"
#include "tests/step_harness.hpp"
#include "tests/test_device.hpp"
#include "tests/test_grammar.hpp"

namespace saccade::test {
namespace {

constexpr uint32_t kVocab = 997;
constexpr uint32_t kFirstByte = 10;  // the token that is byte 0

TEST_CASE("words that pass the check are safe to walk, and single changes are mostly refused") {
  uint32_t refused = 0;
  for (const std::vector<uint32_t>& good :
       {nested_grammar(), text_grammar(), no_ax_grammar(true)}) {
    CHECK(grammar_in_bounds(good.data(), static_cast<uint32_t>(good.size())));
    CHECK_FALSE(grammar_in_bounds(good.data(), static_cast<uint32_t>(good.size()) - 1));
    Random random(5);
    for (uint32_t round = 0; round < 20000; ++round) {
      std::vector<uint32_t> words = good;
      for (uint32_t i = random.in(1, 3); i > 0; --i)
        words[random.in(0, static_cast<uint32_t>(words.size()) - 1)] ^= 1u << random.in(0, 31);
      if (!grammar_in_bounds(words.data(), static_cast<uint32_t>(words.size()))) {
        ++refused;
        continue;
      }
      GrammarPlace at = {};
      for (uint32_t i = 0; i < 200; ++i) {
        GrammarPlace next = at;
        if (take_byte(Automaton{words.data()}, next, random.in(0, 255), [](uint32_t) {})) at = next;
        REQUIRE(at.depth <= SAC_GRAMMAR_STACK);
      }
    }
  }
  CHECK(refused > 10000);
}

/// A place that a random walk by tokens leads to.
GrammarPlace random_place(const Automaton& a, const TokenVocab& vocab, Random& random) {
  GrammarPlace at = {};
  const uint32_t opening = random.in(0, 2);  // of three tokens, how many go deeper
  for (uint32_t i = random.in(0, 400); i > 0; --i) {
    const bool opens = random.in(0, 2) < opening;
    const uint32_t token = opens ? kFirstByte + '(' : random.in(0, vocab.num_tokens - 1);
    if (is_legal(a, at, vocab, token)) take_token(a, at, vocab, token);
  }
  return at;
}

TEST_CASE("a mask has the tokens whose bytes the grammar takes one after the other") {
  const TokenTables tables = tables_of(test_vocabulary(kVocab));
  const TokenVocab& vocab = tables.view();
  Random random(9);
  uint32_t deepest = 0;
  for (const std::vector<uint32_t>& words :
       {nested_grammar(), text_grammar(), no_ax_grammar(true)}) {
    const Automaton a = {words.data()};
    for (uint32_t round = 0; round < 300; ++round) {
      const GrammarPlace at = random_place(a, vocab, random);
      deepest = max_u32(deepest, at.depth);
      std::vector<uint32_t> mask(ceil_div(kVocab, 32), 0xffffffff);
      fill_mask(a, at, vocab, mask.data());
      for (uint32_t token = 0; token < kVocab; ++token) {
        const bool legal = is_legal(a, at, vocab, token);
        REQUIRE((mask[token / 32] >> token % 32 & 1) == (legal ? 1 : 0));
      }
    }
  }
  CHECK(deepest > 20);
}

TEST_CASE("a state's default has the edges that it does not have itself") {
  const std::vector<uint32_t> whole = no_ax_grammar(false), shared = no_ax_grammar(true);
  CHECK(shared.size() + 40 < whole.size());
  for (const std::vector<uint32_t>& words : {whole, shared})
    CHECK(grammar_in_bounds(words.data(), static_cast<uint32_t>(words.size())));
  const TokenTables tables = tables_of(test_vocabulary(kVocab));
  const Automaton a = {whole.data()}, b = {shared.data()};
  std::vector<uint32_t> of_whole(ceil_div(kVocab, 32)), of_shared(ceil_div(kVocab, 32));
  for (const char* text : {"", "\"", "\"a", "\"ax", "\"ax\"", "\"axa", "\"xa", "\"é", "\"a\xc3"}) {
    CAPTURE(text);
    GrammarPlace at = {}, there = {};
    const auto length = static_cast<uint32_t>(std::strlen(text));
    const auto* bytes = reinterpret_cast<const uint8_t*>(text);
    const bool taken = take_bytes(a, at, bytes, length);
    REQUIRE(take_bytes(b, there, bytes, length) == taken);
    REQUIRE(taken == (std::string(text) != "\"axa"));
    if (!taken) continue;
    fill_mask(a, at, tables.view(), of_whole.data());
    fill_mask(b, there, tables.view(), of_shared.data());
    CHECK(of_whole == of_shared);
  }
}

TEST_CASE("a default is a state without one") {
  const auto is_one = [](const std::vector<TestState>& states) {
    const std::vector<uint32_t> words = grammar_of(states);
    return grammar_in_bounds(words.data(), static_cast<uint32_t>(words.size()));
  };
  const TestState end = {{{'a', 'a', 1}}, true};
  CHECK(is_one({{{{'b', 'b', 1}}, false, 0, 0, 1}, end}));
  CHECK_FALSE(is_one({{{{'b', 'b', 1}}, false, 0, 0, 0}, end}));
  CHECK_FALSE(is_one({{{{'b', 'b', 1}}, false, 0, 0, 2}, end}));
  CHECK_FALSE(is_one({{{}, false, 0, 0, 2}, end, {{}, false, 0, 0, 1}}));
  std::vector<uint32_t> words = grammar_of({{}, end});
  words[2] |= SAC_GRAMMAR_DEFAULT;  // of a state without an entry
  CHECK_FALSE(grammar_in_bounds(words.data(), static_cast<uint32_t>(words.size())));
}

TEST_CASE("plain tokens that are longer than what may follow are walked") {
  std::vector<std::string> tokens = test_vocabulary(kVocab);
  for (uint32_t i = 0; i < 100; ++i) {
    std::string& token = tokens[kVocab - 1 - i];
    token.clear();
    for (uint32_t length = 0; length < 10 + i / 2; ++length) token += i % 2 == 0 ? "a" : "é";
  }
  const TokenTables tables = tables_of(tokens);
  const std::vector<uint32_t> words = bounded_text_grammar(70);
  CHECK(grammar_in_bounds(words.data(), static_cast<uint32_t>(words.size())));
  const Automaton a = {words.data()};
  std::vector<uint32_t> mask(ceil_div(kVocab, 32));
  for (uint32_t depth : {0u, SAC_GRAMMAR_STACK - SAC_GRAMMAR_PLAIN_PLACES, SAC_GRAMMAR_STACK}) {
    GrammarPlace at = {};
    at.depth = static_cast<uint16_t>(depth);
    std::fill(at.stack, at.stack + depth, static_cast<uint16_t>(1));
    REQUIRE(take_byte(a, at, '"', [](uint32_t) {}));
    for (uint32_t i = 0; i < 70; ++i) {
      fill_mask(a, at, tables.view(), mask.data());
      for (uint32_t token = 0; token < kVocab; ++token) {
        const bool legal = is_legal(a, at, tables.view(), token);
        REQUIRE((mask[token / 32] >> token % 32 & 1) == (legal ? 1 : 0));
      }
      const std::string next = i % 3 == 0 && depth < SAC_GRAMMAR_STACK ? "é" : "a";
      REQUIRE(take_bytes(a, at, reinterpret_cast<const uint8_t*>(next.data()),
                         static_cast<uint32_t>(next.size())));
    }
  }
}

TEST_CASE("plain tokens are whole characters without quotes, backslashes and controls") {
  for (const char* text : {"a", " x~", "é", "\xf0\x9f\x98\x80", "\xef\xbf\xbd"})
    CHECK(TokenTables::is_plain(text));
  for (const char* text : {"\"", "a\\", "\n", "\x7f", "\xc3", "\xa9", "\xed\xa0\x80", "\xc0\x80",
                           "\xf4\x90\x80\x80", "\xe0\x80\x80", "a\xf0\x9f\x98"})
    CHECK_FALSE(TokenTables::is_plain(text));
}

/// Draws from random rows until an answer ends; its text.
std::string sampled_text(const std::vector<uint32_t>& words, const TokenVocab& vocab,
                         const std::vector<std::string>& tokens, uint64_t seed, float temperature) {
  std::vector<uint32_t> counts(kVocab), ids(kVocab), weights(kVocab), members(kVocab);
  std::vector<uint32_t> bucket_count(kSelectBuckets), mask(ceil_div(kVocab, 32)), history = {0};
  std::vector<uint64_t> bucket_weight(kSelectBuckets), record(kRecordWords);
  std::vector<float> edited(kVocab), logits(kVocab);
  const SampleScratch scratch = {counts.data(),       edited.data(),  ids.data(),
                                 weights.data(),      members.data(), bucket_weight.data(),
                                 bucket_count.data(), mask.data()};
  SeatParams params = greedy(1);
  params.temperature = temperature;
  params.seed = seed;
  params.min_tokens = 3;  // the grammar decides
  params.grammar_words = static_cast<uint32_t>(words.size());
  const uint32_t eos[] = {5};
  const Automaton a = {words.data()};
  GrammarPlace at = {};
  Rng rng(static_cast<uint32_t>(seed));
  std::normal_distribution<float> normal;
  std::string text;
  while (history.size() < 200) {
    for (float& z : logits) z = 3 * normal(rng);
    if (seed % 5 == 0) logits.assign(kVocab, std::nanf(""));
    const SampleRow row = {&params,
                           history.data(),
                           static_cast<uint32_t>(history.size()),
                           kVocab,
                           nullptr,
                           nullptr,
                           eos,
                           1,
                           {words.data(), &at, &vocab}};
    sample_row(row, logits.data(), scratch, record.data());
    const auto token = static_cast<uint32_t>(record[0]);
    if (token == eos[0]) {
      REQUIRE(may_end(a, at));
      return text;
    }
    REQUIRE(is_legal(a, at, vocab, token));
    take_token(a, at, vocab, token);
    text += tokens[token];
    history.push_back(token);
    if (must_end(a, at)) return text;
  }
  return "";
}

TEST_CASE("what is drawn under a grammar is legal, whatever the logits say") {
  const std::vector<std::string> tokens = test_vocabulary(kVocab);
  const TokenTables tables = tables_of(tokens);
  uint32_t ended = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const float temperature = seed % 3 == 0 ? 0.0f : 1.5f;
    const std::string text =
        sampled_text(nested_grammar(), tables.view(), tokens, seed, temperature);
    if (!text.empty()) CHECK(is_nested(text));
    ended += text.empty() ? 0 : 1;
  }
  CHECK(ended > 30);
}

TEST_CASE("a mask that was kept is the one that would be found") {
  const std::vector<std::string> tokens = test_vocabulary(kVocab);
  const TokenTables tables = tables_of(tokens);
  const TokenVocab vocab = tables.view();
  const std::vector<uint32_t> grammars[] = {nested_grammar(), text_grammar(), no_ax_grammar(true)};
  constexpr uint32_t kWords = ceil_div(kVocab, 32), kEos[] = {5};
  Rng rng(7);
  KeptMask entries[kKeptMasks] = {};
  std::vector<uint32_t> kept_words(kKeptMasks * kWords), mask(kWords), found(kWords);
  SeatParams params = greedy(1);
  uint32_t hits = 0;
  // Requests on one seat, one after the other; each keeps the seat for a while.
  for (uint32_t request = 1; request <= 200; ++request) {
    const std::vector<uint32_t>& words = grammars[rng() % 3];
    const Automaton a = {words.data()};
    GrammarPlace at = {};
    params.request = request;
    params.grammar_words = static_cast<uint32_t>(words.size());
    for (uint32_t step = 0; step < 20 && !must_end(a, at); ++step) {
      SampleRow row = {
          &params, nullptr, 1, kVocab, nullptr, nullptr, kEos, 1, {words.data(), &at, &vocab}};
      std::vector<float> logits(kVocab), alike(kVocab);
      obey_grammar(row, alike.data(), found.data());
      row.kept = {entries, kept_words.data(), kWords, request % 2 == 0 ? 0u : 40u};
      hits += row.kept.find(request, at) != nullptr ? 1 : 0;
      obey_grammar(row, logits.data(), mask.data());
      REQUIRE(mask == found);
      REQUIRE(logits == alike);
      const uint32_t first = rng() % kVocab;
      for (uint32_t i = 0; i < kVocab; ++i) {
        const uint32_t token = (first + i) % kVocab;
        if (token == kEos[0] || (mask[token / 32] >> token % 32 & 1) == 0) continue;
        take_token(a, at, vocab, token);
        break;
      }
    }
  }
  CHECK(hits > 100);
}

TEST_CASE("a grammar that no token can obey has no token") {
  std::vector<std::string> tokens = test_vocabulary(kVocab);
  for (std::string& token : tokens)
    if (token.find_first_of("([x") != std::string::npos) token.clear();
  const TokenTables tables = tables_of(tokens);
  const std::vector<uint32_t> words = nested_grammar();
  const GrammarPlace at = {};
  std::vector<uint32_t> mask(ceil_div(kVocab, 32));
  fill_mask(Automaton{words.data()}, at, tables.view(), mask.data());
  CHECK(first_legal(mask.data(), kVocab) == kNothingLegal);
}

// ---- through the scheduler
// -----------------------------------------------------------------------

DeviceShape shape_with(const TokenTables& tables) {
  DeviceShape shape;
  shape.grammar_words = 256;
  shape.tokens = &tables;
  shape.eos_ids = {5};
  return shape;
}

Ask obeying(std::vector<uint32_t> grammar, uint32_t prompt_len, uint64_t seed) {
  Ask ask = ask_of(prompt_len, 60, static_cast<uint32_t>(seed));
  ask.flags = 0;
  ask.seed = seed;
  ask.grammar = std::move(grammar);
  return ask;
}

std::string text_of(const Ticket& t, const std::vector<std::string>& tokens) {
  std::string text;
  for (const uint32_t token : t.tokens())
    if (token != 5) text += tokens[token];
  return text;
}

/// What an answer is when its request is alone.
std::vector<uint64_t> alone(const Ask& ask, const DeviceShape& shape) {
  Bench b(shape);
  Ticket t = b.front.submit(ask);
  b.finish({&t}, 2000);
  return t.words;
}

TEST_CASE("answers obey and are the same in company, under preemption and with slow readers") {
  const std::vector<std::string> tokens = test_vocabulary(kVocab);
  const TokenTables tables = tables_of(tokens);
  for (const bool tight : {false, true}) {
    CAPTURE(tight);
    DeviceShape shape = shape_with(tables);
    if (tight) {
      shape.max_model_len = 80;
      shape.num_blocks = 12;
      shape.num_seats = 4;
    }
    Bench b(shape);
    std::vector<Ticket> tickets;
    for (uint32_t i = 0; i < 12; ++i) {
      Ask ask = obeying(i % 2 == 0 ? nested_grammar() : text_grammar(), 1 + i % 7, i + 1);
      if (i % 3 == 1) ask.grammar = told_grammar(tokens, true);
      if (i % 4 == 3) ask = ask_of(2 + i, 30, i);  // without one
      if (tight || i % 5 == 0) {  // few records fill the ring: their readers fall behind
        ask.flags |= SAC_REQ_LOGPROBS;
        ask.num_top_logprobs = 20;
      }
      tickets.push_back(b.front.submit(ask));
    }
    // A few records at a time, and for long none: requests are held, preempted and parked.
    for (uint32_t round = 0; round < 6000; ++round) {
      b.front.beat();
      b.device.now_ns += 1'000'000;
      b.device.tick();
      const bool reads = !tight || round % 200 > 150;
      for (Ticket& t : tickets)
        if (reads) b.front.read(t, tight ? 3 : UINT32_MAX);
      if (std::all_of(tickets.begin(), tickets.end(), [](const Ticket& t) { return t.complete(); }))
        break;
    }
    for (const Ticket& t : tickets) {
      REQUIRE(t.complete());
      CHECK(t.words == alone(t.ask, shape));
      if (t.ask.grammar.empty() || t.finish != SAC_FINISH_STOP) continue;
      const std::string text = text_of(t, tokens);
      if (t.ask.grammar == nested_grammar()) {
        CHECK_MESSAGE(is_nested(text), text);
      } else if (t.ask.grammar == told_grammar(tokens, true)) {
        CHECK_MESSAGE(is_told(text), text);
      } else {
        CHECK_MESSAGE((text.size() >= 2 && text.front() == '"' && text.back() == '"'), text);
      }
    }
    if (tight) {
      CHECK(b.device.decisions(Decision::kPreempt).size() > 0);
      CHECK(b.device.decisions(Decision::kReturn).size() > 3);
    }
    b.device.tick();
    CHECK(b.device.idle());
  }
}

// ---- forced tokens ------------------------------------------------------------------------------

TEST_CASE("forced tokens are looked up by their state, whatever the words are") {
  const std::vector<std::string> tokens = test_vocabulary(kVocab);
  std::vector<uint32_t> words = told_grammar(tokens, true);
  const auto count = static_cast<uint32_t>(words.size());
  const std::vector<uint32_t> expected = forced_by(told_states(), tokens);
  REQUIRE(grammar_in_bounds(words.data(), count));
  CHECK_FALSE(grammar_in_bounds(words.data(), count - 1));
  REQUIRE(forced_words(words.data(), count) == expected.size());
  REQUIRE(expected.size() > 40);
  uint32_t* forced = words.data() + count - expected.size();
  const auto size = static_cast<uint32_t>(expected.size());
  uint32_t found = 0;
  for (uint32_t state = 0; state < words[0]; ++state) {
    const uint32_t token = find_forced(forced, size, state);
    found += token != kNoToken ? 1 : 0;
    for (uint32_t i = 0; i < size; i += 2)
      if (expected[i] == state) CHECK(token == expected[i + 1]);
  }
  CHECK(found == size / 2);
  CHECK(find_forced(forced, 0, 0) == kNoToken);
  Random random(3);
  for (uint32_t round = 0; round < 2000; ++round) {
    forced[random.in(0, size - 1)] = random.in(0, 60);
    const uint32_t token = find_forced(forced, size, random.in(0, 60));
    CHECK((token == kNoToken || std::find(forced, forced + size, token) != forced + size));
  }
}

struct Told {
  std::vector<uint32_t> tokens;
  uint32_t finish;
  uint64_t steps, forced, decoded;
};

Told told(const Ask& ask, const DeviceShape& shape) {
  Bench b(shape);
  Ticket t = b.front.submit(ask);
  b.finish({&t}, 500);
  b.device.tick();
  CHECK(b.device.idle());
  const sac_device_stats& stats = b.device.s.report.stats;
  return {t.tokens(), t.finish, stats.steps, stats.forced_tokens, stats.decode_tokens};
}

TEST_CASE("tokens of which a grammar leaves no choice are appended, and not drawn") {
  const std::vector<std::string> tokens = test_vocabulary(kVocab);
  const TokenTables tables = tables_of(tokens);
  uint64_t forced = 0;
  for (const bool overlapped : {false, true}) {
    for (uint32_t seed = 1; seed <= 40; ++seed) {
      DeviceShape shape = shape_with(tables);
      shape.overlapped = overlapped;
      const Told t = told(obeying(told_grammar(tokens, true), 1 + seed % 5, seed), shape);
      REQUIRE(t.finish == SAC_FINISH_STOP);
      std::string text;
      for (const uint32_t token : t.tokens)
        if (token != 5) text += tokens[token];
      CHECK_MESSAGE(is_told(text), text);
      CHECK(t.steps + t.forced == t.tokens.size());
      CHECK(t.decoded <= t.tokens.size() - 1);
      forced += t.forced;
      CHECK(told(obeying(told_grammar(tokens, false), 1 + seed % 5, seed), shape).forced == 0);
    }
  }
  CHECK(forced > 2 * 40 * 4);
}

TEST_CASE("which tokens are forced does not depend on the reader") {
  const std::vector<std::string> tokens = test_vocabulary(kVocab);
  const TokenTables tables = tables_of(tokens);
  uint64_t stalls = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Ask ask = obeying(told_grammar(tokens, true), 40 + seed, seed);
    ask.flags |= SAC_REQ_PROMPT_LOGPROBS;  // their records fill most of the ring
    const std::vector<uint64_t> expected = alone(ask, shape_with(tables));
    Bench b(shape_with(tables));
    Ticket t = b.front.submit(ask);
    for (uint32_t round = 0; round < 2000 && !t.complete(); ++round) {
      b.front.beat();
      b.device.now_ns += 1'000'000;
      b.device.tick();
      if (round % 3 == 0) b.front.read(t, 1);
    }
    REQUIRE(t.complete());
    CHECK(t.words == expected);
    CHECK(b.device.s.report.stats.forced_tokens > 1);
    stalls += b.device.s.report.stats.reader_stalls;
  }
  CHECK(stalls > 20);
}

TEST_CASE("max_tokens ends an answer among forced tokens") {
  const std::vector<std::string> tokens = test_vocabulary(kVocab);
  const TokenTables tables = tables_of(tokens);
  const std::vector<uint32_t> whole =
      told(obeying(told_grammar(tokens, true), 3, 2), shape_with(tables)).tokens;
  REQUIRE(whole.size() > 6);
  for (uint32_t most = 1; most < whole.size(); ++most) {
    Ask ask = obeying(told_grammar(tokens, true), 3, 2);
    ask.max_tokens = most;
    const Told t = told(ask, shape_with(tables));
    CHECK(t.finish == SAC_FINISH_LENGTH);
    CHECK(t.tokens == std::vector<uint32_t>(whole.begin(), whole.begin() + most));
  }
}

TEST_CASE("an id that ends answers is never forced") {
  const std::vector<std::string> tokens = test_vocabulary(kVocab);
  const TokenTables tables = tables_of(tokens);
  const std::vector<uint32_t> forced = forced_by(told_states(), tokens);
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    Ask ask = obeying(told_grammar(tokens, true), 3, seed);
    for (uint32_t i = 1; i < forced.size(); i += 2) ask.stop_ids.push_back(forced[i]);
    const Told t = told(ask, shape_with(tables));
    CHECK(t.finish == SAC_FINISH_STOP);
    CHECK(t.forced == 0);
    for (const uint32_t token : t.tokens)
      CHECK(std::find(ask.stop_ids.begin(), ask.stop_ids.end(), token) == ask.stop_ids.end());
  }
}

TEST_CASE("requests that want every draw, and rings without room, have no forced tokens") {
  const std::vector<std::string> tokens = test_vocabulary(kVocab);
  const TokenTables tables = tables_of(tokens);
  const DeviceShape shape = shape_with(tables);
  const auto both = [&](auto change) {
    Ask forces = obeying(told_grammar(tokens, true), 3, 4), draws = forces;
    draws.grammar = told_grammar(tokens, false);
    change(forces);
    change(draws);
    const Told t = told(forces, shape);
    CHECK(t.tokens == told(draws, shape).tokens);
    return t.forced;
  };
  CHECK(both([](Ask& ask) { ask.flags |= SAC_REQ_LOGPROBS; }) == 0);
  CHECK(both([](Ask& ask) { ask.logit_bias = {{7, 1.0f}}; }) == 0);
  CHECK(both([](Ask& ask) {  // records of two words
          ask.flags |= SAC_REQ_PROMPT_LOGPROBS;
          ask.num_top_logprobs = 1;
        }) == 0);
  CHECK(both([](Ask& ask) {  // three records fill the ring
          ask.flags |= SAC_REQ_PROMPT_LOGPROBS;
          ask.num_top_logprobs = 20;
        }) == 0);
}

TEST_CASE("a token that was claimed to be forced and does not fit is not taken") {
  const std::vector<std::string> tokens = test_vocabulary(kVocab);
  const TokenTables tables = tables_of(tokens);
  const std::vector<uint32_t> draws =
      told(obeying(told_grammar(tokens, false), 3, 4), shape_with(tables)).tokens;
  for (const uint32_t token : {0u, 5u, kFirstByte + 'z', kVocab, kNoToken, UINT32_MAX}) {
    std::vector<uint32_t> words = told_grammar(tokens, false);
    for (uint32_t state = 0; state < words[0]; ++state) words.insert(words.end(), {state, token});
    const Told t = told(obeying(words, 3, 4), shape_with(tables));
    CHECK(t.tokens == draws);
    CHECK(t.forced == 0);
  }
}

TEST_CASE("no stream pauses for the forced tokens of another") {
  const std::vector<std::string> tokens = test_vocabulary(kVocab);
  const TokenTables tables = tables_of(tokens);
  for (const PrefillPolicy policy :
       {PrefillPolicy::kChunked, PrefillPolicy::kInline, PrefillPolicy::kPaced}) {
    DeviceShape shape = shape_with(tables);
    shape.policy = policy;
    Bench b(shape);
    Ticket stream = b.front.submit(ask_of(3, 100));
    for (uint32_t round = 0; round < 5; ++round) {
      Ticket other = b.front.submit(obeying(told_grammar(tokens, true), 3, 2));
      while (!other.complete()) {
        const uint32_t before = stream.records();
        const bool is_prompt = other.records() == 0;
        b.device.tick();
        b.front.read(stream);
        b.front.read(other);
        REQUIRE((is_prompt || stream.records() == before + 1));
      }
    }
    CHECK_FALSE(stream.complete());
    CHECK(b.device.s.report.stats.forced_tokens > 15);
  }
}

TEST_CASE("what is no grammar, or comes to a device without room, is refused before it runs") {
  const TokenTables tables = tables_of(test_vocabulary(kVocab));
  std::vector<uint32_t> broken = nested_grammar();
  broken.back() = 77;  // pushes a state that there is not
  const std::vector<uint32_t> large(257, 1);
  for (const bool has_room : {true, false}) {
    Bench b(has_room ? shape_with(tables) : DeviceShape{});
    for (const std::vector<uint32_t>& grammar : {broken, large, nested_grammar()}) {
      const bool good = has_room && grammar == nested_grammar();
      Ticket t = b.front.submit(obeying(grammar, 3, 1));
      b.finish({&t}, 500);
      CHECK((t.finish == SAC_FINISH_INVALID) == !good);
    }
    b.device.tick();
    CHECK(b.device.idle());
  }
}

TEST_CASE("an answer that no token can continue ends with an error, not with a wrong token") {
  std::vector<std::string> tokens = test_vocabulary(kVocab);
  for (std::string& token : tokens)
    if (token.find_first_of(")x") != std::string::npos) token.clear();
  const TokenTables tables = tables_of(tokens);
  Bench b(shape_with(tables));
  Ticket t = b.front.submit(obeying(nested_grammar(), 3, 1));
  b.finish({&t}, 500);
  CHECK(t.finish == SAC_FINISH_ERROR);
  for (const uint32_t token : t.tokens())
    CHECK(tokens[token].find_first_not_of("([,;") == std::string::npos);
  b.device.tick();
  CHECK(b.device.idle());
}

}  // namespace
}  // namespace saccade::test
