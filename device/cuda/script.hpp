// A seeded script of two frontends, in lock step with the ticks of whatever serves them: the same
// requests, cancels and reads between the same ticks, so that decisions can be compared word for
// word.
#pragma once
#include <functional>

#include "platform/clock.hpp"
#include "tests/random.hpp"
#include "tests/test_device.hpp"
#include "tests/test_grammar.hpp"

namespace saccade::test {

inline constexpr uint32_t kScriptRounds = 120;
/// Requests that have not ended are a failure only once both limits are over: ticks may pass while
/// the threads that copy blocks have no core.
inline constexpr uint32_t kSettleTicks = 4000;
inline constexpr uint64_t kSettleNs = 30ull * 1000 * 1000 * 1000;
/// Serves the ring for this many ticks, and returns when they are done.
using RunTicks = std::function<void(uint64_t)>;

inline RingShape script_ring() {
  RingShape shape;
  shape.num_slots = 128;
  shape.num_frontends = 2;
  return shape;
}

inline std::vector<std::string> script_vocabulary() {
  return test_vocabulary(DeviceShape{}.vocab_size);
}
inline TokenTables script_tokens() { return tables_of(script_vocabulary()); }

/// Tight in seats, rows and blocks, so that requests wait, are chunked and are preempted.
inline DeviceShape script_device(uint64_t seed) {
  DeviceShape shape;
  shape.num_seats = 5;
  shape.max_num_batched_tokens = 40;
  shape.max_model_len = 96;
  shape.num_blocks = 24;
  shape.eos_ids = {3, 11};
  shape.log_words = 1 << 18;
  shape.prefix_caching = seed % 4 != 1;
  static const TokenTables kTokens = script_tokens();
  shape.tokens = &kTokens;
  shape.grammar_words = 256;
  shape.embedding_size = 21;                             // odd: the last word is half
  if (seed % 2 == 0) shape.adapter_keys = {71, 72, 71};  // the last one holds what the first does
  shape.policy = seed % 2 == 0 ? PrefillPolicy::kInline : PrefillPolicy::kChunked;
  return shape;
}

struct Scripted {
  uint32_t frontend;
  Ticket ticket;
  bool cancelled = false;
};

/// A grammar, now and then with a bit that was changed.
inline std::vector<uint32_t> draw_grammar(Random& random) {
  static const std::vector<uint32_t> kTold = told_grammar(script_vocabulary(), true);
  std::vector<uint32_t> words = random.one_in(2)   ? kTold
                                : random.one_in(2) ? nested_grammar()
                                : random.one_in(2) ? text_grammar()
                                                   : no_ax_grammar(true);
  if (random.one_in(4))
    words[random.in(0, static_cast<uint32_t>(words.size()) - 1)] ^= 1u << random.in(0, 31);
  return words;
}

inline Ask draw_ask(Random& random, const DeviceShape& d) {
  Ask ask;
  const uint32_t beginnings = d.prefix_caching ? 6 : 1000;
  ask.prompt =
      prompt_of(random.in(1, d.max_model_len - 2), random.in(0, beginnings - 1), d.vocab_size);
  const auto num_adapters = static_cast<uint32_t>(d.adapter_keys.size());
  // Steps without an adapter and with some are both common.
  ask.adapter = num_adapters != 0 && random.one_in(3) ? random.in(1, num_adapters) : 0;
  if (random.one_in(6)) {
    Ask embed = embed_ask(ask.prompt, d.embedding_size);
    embed.adapter = ask.adapter;
    return embed;
  }
  ask.max_tokens = random.in(1, d.max_model_len - static_cast<uint32_t>(ask.prompt.size()));
  ask.flags = random.in(0, SAC_REQ_EMBED - 1);
  ask.num_top_logprobs = random.in(0, 3);
  ask.seed = random.next();
  if (random.one_in(3)) ask.grammar = draw_grammar(random);
  return ask;
}

/// One turn of a frontend: it lives, perhaps asks, perhaps cancels, reads a little.
inline void act(Random& random, const DeviceShape& d, uint32_t index, TestFrontend& front,
                std::vector<Scripted>& all) {
  front.beat();
  for (uint32_t n = random.in(0, 5); n > 4 && front.free_slot() != kNoSlot; --n)
    all.push_back({index, front.submit(draw_ask(random, d))});
  for (Scripted& s : all) {
    if (s.frontend != index || s.ticket.complete()) continue;
    if (random.one_in(60)) {
      front.cancel(s.ticket);
      s.cancelled = true;
    }
    if (random.one_in(2)) front.read(s.ticket, random.in(1, 8));
  }
}

/// Reads everything until all have ended; throws if they do not within kSettleTicks and kSettleNs.
inline void settle(std::vector<TestFrontend>& fronts, std::vector<Scripted>& all,
                   const RunTicks& run_ticks) {
  const uint64_t begin_ns = monotonic_ns();
  for (uint32_t i = 0; i < kSettleTicks || monotonic_ns() - begin_ns < kSettleNs; ++i) {
    bool complete = true;
    for (TestFrontend& f : fronts) f.beat();
    for (Scripted& s : all) {
      fronts[s.frontend].read(s.ticket);
      complete &= s.ticket.complete();
    }
    if (complete) return;
    run_ticks(1);
  }
  throw std::runtime_error("the script's requests did not end");
}

inline std::vector<Scripted> play(uint64_t seed, TestRing& ring, const RunTicks& run_ticks) {
  Random random(seed);
  const DeviceShape shape = script_device(seed);
  std::vector<TestFrontend> fronts;
  for (uint32_t f = 0; f < ring.shape.num_frontends; ++f) fronts.emplace_back(ring, f);
  for (TestFrontend& f : fronts) f.join();
  run_ticks(1);
  for (const TestFrontend& f : fronts)
    if (!f.acked()) throw std::runtime_error("a frontend was not acknowledged in the first tick");
  std::vector<Scripted> all;
  for (uint32_t round = 0; round < kScriptRounds; ++round) {
    for (uint32_t f = 0; f < fronts.size(); ++f) act(random, shape, f, fronts[f], all);
    run_ticks(random.in(1, 3));
  }
  settle(fronts, all, run_ticks);
  return all;
}

}  // namespace saccade::test
