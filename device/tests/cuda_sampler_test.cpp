// The GPU's sampler on emulated blocks gives the records of the CPU's, word for word.
#include <doctest/doctest.h>

#include <cmath>
#include <memory>

#include "cuda/model/sample.hpp"
#include "cuda/model/tests/emulated_block.hpp"
#include "tests/test_grammar.hpp"
#include "tests/test_model.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

/// One row of random logits and whatever a request may ask for.
struct Case {
  explicit Case(uint32_t seed) : rng(seed) {
    // Up to three parts of a row: see LogitRows.
    vocab = 1 + rng() % (seed % 16 == 8 ? 12000 : seed % 4 == 0 ? 3000 : 300);
    logits.resize(vocab);
    std::normal_distribution<float> normal;
    const float spread = pick({0.1f, 1.0f, 5.0f});
    for (float& z : logits) z = rng() % 8 == 0 ? std::round(normal(rng)) : spread * normal(rng);
    if (rng() % 8 == 0) logits[rng() % vocab] = std::nanf("");
    if (rng() % 8 == 0) logits[rng() % vocab] = INFINITY;
    if (rng() % 16 == 0) std::fill(logits.begin(), logits.end(), -INFINITY);
    history.resize(2 + rng() % 80);
    for (uint32_t& t : history) t = rng() % (vocab + 2);  // some outside the vocabulary
    position = rng() % static_cast<uint32_t>(history.size() - 1);
    params.seed = rng() | uint64_t{rng()} << 32;
    params.prompt_len = 1 + rng() % static_cast<uint32_t>(history.size());
    params.temperature = pick({0.0f, 0.3f, 1.0f, 2.0f});
    params.top_p = pick({1.0f, 0.9f, 0.3f, 1e-6f});
    params.min_p = pick({0.0f, 0.0f, 0.05f});
    params.top_k = rng() % 2 * (1 + rng() % 60);
    params.repetition_penalty = pick({1.0f, 1.3f});
    params.presence_penalty = pick({0.0f, 0.5f});
    params.frequency_penalty = pick({0.0f, -0.2f});
    params.min_tokens = rng() % 3 * 5;
    params.flags = rng() % 2 == 0 ? SAC_REQ_LOGPROBS : 0;
    params.num_top_logprobs = rng() % (SAC_MAX_TOP_LOGPROBS + 1);
    params.num_logit_bias = rng() % 3;
    params.num_stop_ids = rng() % 3;
    for (uint32_t i = 0; i < 2; ++i) {
      bias[i] = {static_cast<uint32_t>(rng() % vocab), pick({-3.0f, 4.0f})};
      stops[i] = rng() % vocab;
    }
    if (seed % 3 == 0) obey();
  }
  /// A grammar, and a place in it to which random tokens led.
  void obey() {
    tokens = std::make_shared<TokenTables>(tables_of(test_vocabulary(vocab)));
    grammar = rng() % 2 == 0 ? nested_grammar() : text_grammar();
    params.grammar_words = static_cast<uint32_t>(grammar.size());
    for (uint32_t i = rng() % 300; i > 0; --i) {
      const uint32_t token = rng() % vocab;
      if (is_legal({grammar.data()}, place, tokens->view(), token))
        take_bytes({grammar.data()}, place, tokens->view().bytes + tokens->view().offsets[token],
                   tokens->view().length(token));
    }
  }
  GrammarTables tables() const {
    return {params.grammar_words, grammar.data(), &place, tokens ? &tokens->view() : nullptr};
  }
  float pick(std::initializer_list<float> from) { return *(from.begin() + rng() % from.size()); }

  Rng rng;
  uint32_t vocab;
  uint32_t position;
  SeatParams params = {};
  std::vector<float> logits;
  std::vector<uint32_t> history;
  std::vector<LogitBias> bias = std::vector<LogitBias>(SAC_MAX_LOGIT_BIAS);
  std::vector<uint32_t> stops = std::vector<uint32_t>(SAC_MAX_STOP_IDS);
  std::shared_ptr<const TokenTables> tokens;
  std::vector<uint32_t> grammar;
  GrammarPlace place = {};
};

using Records = std::vector<uint64_t>;

Records on_cpu(Case c, bool sample) {
  Records record(kRecordWords);
  if (!sample) {
    score_row(c.history[c.position + 1], record_tops(c.params), c.logits.data(), c.vocab,
              record.data());
    return record;
  }
  std::vector<uint32_t> counts(c.vocab), ids(c.vocab), weights(c.vocab), members(c.vocab);
  std::vector<float> edited(c.vocab);
  std::vector<uint64_t> bucket_weight(kSelectBuckets);
  std::vector<uint32_t> bucket_count(kSelectBuckets), mask(ceil_div(c.vocab, 32));
  const SampleScratch scratch = {counts.data(),       edited.data(),  ids.data(),
                                 weights.data(),      members.data(), bucket_weight.data(),
                                 bucket_count.data(), mask.data()};
  SeatTables tables = {};
  tables.params = &c.params;
  tables.grammars = c.tables();
  const SampleRow row = {&c.params,        c.history.data(), c.position + 1, c.vocab,
                         c.bias.data(),    c.stops.data(),   nullptr,        0,
                         tables.grammar(0)};
  sample_row(row, c.logits.data(), scratch, record.data());
  return record;
}

/// Two equal rows, one block: what a row leaves in the block's memory must not show in the next.
Records on_gpu(Case c, bool sample) {
  Records records(2 * kRecordWords);
  std::vector<float> logits = c.logits;
  logits.insert(logits.end(), c.logits.begin(), c.logits.end());
  std::vector<uint32_t> memory(gpu::SampleMemory::words(c.vocab));
  gpu::PlanCounts counts = {};
  counts.num_logits = 2;
  const uint32_t end = sample ? gpu::kSampled : gpu::kScored;
  gpu::LogitsRow rows[2] = {{0, 0, c.position, end, 0}, {1, 0, c.position, end, 1}};
  gpu::SampleKernel::Args a = {};
  a.plan.counts = &counts;
  a.plan.logits = rows;
  a.seats.params = &c.params;
  a.seats.history = c.history.data();
  a.seats.logit_bias = c.bias.data();
  a.seats.stop_ids = c.stops.data();
  a.seats.grammars = c.tables();
  a.outputs = {records.data(), records.data()};
  a.vocab_size = c.vocab;
  const uint32_t parts = gpu::LogitRows::parts_of(c.vocab);
  std::vector<float> tops(2 * parts), sums(2 * parts * gpu::LogitRows::kPartSums);
  a.rows = {&counts, 0, 2, logits.data(), c.vocab, c.vocab, tops.data(), sums.data()};
  std::vector<uint32_t> masks(2 * gpu::MaskKernel::mask_words(c.vocab), 0xabcdabcd);
  a.masks = masks.data();
  a.memory = memory.data();
  a.memory_words = memory.size();
  Emulator emulator;
  const gpu::Grid grid = {c.vocab % 3 + 1, parts};  // more than there are rows, or fewer
  emulator.launch<gpu::CleanLogitsKernel>(grid, gpu::CleanLogitsKernel::kSharedBytes, a.rows);
  emulator.launch<gpu::SumLogitsKernel>(grid, gpu::SumLogitsKernel::kSharedBytes, a.rows);
  const gpu::MaskKernel::Args m = {a.plan, a.seats, a.rows, masks.data()};
  emulator.launch<gpu::MaskKernel>({grid.x, gpu::MaskKernel::parts_of(c.vocab)},
                                   gpu::MaskKernel::kSharedBytes, m);
  emulator.launch<gpu::SampleKernel>({}, gpu::SampleKernel::kSharedBytes, a);
  const std::vector<uint32_t> left(memory.begin(), memory.begin() + c.vocab);
  CHECK(left == std::vector<uint32_t>(c.vocab));  // counts are zero between rows
  CHECK(Records(records.begin(), records.begin() + kRecordWords) ==
        Records(records.begin() + kRecordWords, records.end()));
  records.resize(kRecordWords);
  return records;
}

}  // namespace

TEST_CASE("records of random rows are the CPU's, word for word") {
  const Seeds seeds(quarter_under_asan(300));
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    CAPTURE(seed);
    const Case c(static_cast<uint32_t>(seed));
    const bool sample = seed % 5 != 0;
    const Records want = on_cpu(c, sample), got = on_gpu(c, sample);
    for (uint32_t i = 0; i < kRecordWords; ++i) {
      CAPTURE(i);
      CHECK(got[i] == want[i]);
    }
  }
}
