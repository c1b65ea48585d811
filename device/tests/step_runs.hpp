// Requests through a CpuStep: alone, or in random batches; what each yields, as records.
#pragma once
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tests/reference_decoder.hpp"
#include "tests/step_harness.hpp"

namespace saccade::test {

constexpr uint32_t kMaxLen = 160;

/// Seeds `first` to `last` for a test that runs them on every kernel set. Under a sanitizer each
/// set gets a third of them, and three sets together get all: what a sanitizer finds depends on the
/// set or on the seed, rarely on both. SACCADE_SEEDS, which tests/nightly.sh sets, brings all of
/// them.
inline std::vector<uint32_t> seeds_of(const Kernels* kernels, uint32_t first, uint32_t last) {
#if defined(SACCADE_ASAN) || defined(SACCADE_TSAN)
  const uint32_t stride = std::getenv("SACCADE_SEEDS") != nullptr ? 1 : 3;
#else
  const uint32_t stride = 1;
#endif
  const std::vector<const Kernels*> sets = available_kernels();
  const auto place = std::find(sets.begin(), sets.end(), kernels) - sets.begin();
  std::vector<uint32_t> seeds;
  for (uint32_t seed = first + static_cast<uint32_t>(place) % stride; seed <= last;
       seed += stride) {
    seeds.push_back(seed);
  }
  return seeds;
}

inline TestModel random_model(uint32_t seed, uint32_t dtype) {
  Rng rng(seed);
  const auto pick = [&rng](std::initializer_list<uint32_t> values) {
    return *(values.begin() + rng() % values.size());
  };
  TestModel m;
  sac_model_config& c = m.config;
  c.num_layers = pick({1, 2, 3});
  c.num_kv_heads = pick({1, 2, 3});
  c.num_heads = c.num_kv_heads * pick({1, 2, 3, 5, 7});
  c.head_dim = pick({6, 8, 16, 20, 32, 64});
  c.rotary_dim = rng() % 2 != 0 ? c.head_dim : c.head_dim / 4 * 2;
  c.hidden_size = pick({17, 32, 48, 80});
  c.intermediate_size = pick({19, 64, 100});
  c.vocab_size = pick({33, 100, 259});
  c.dtype = dtype;
  c.qk_norm = pick({0, 1});
  c.tied_embeddings = pick({0, 1});
  c.rms_norm_eps = 1e-5f;
  m.biases = pick({0, 1}) != 0;
  for (uint32_t l = 0; l < c.num_layers; ++l) m.windows.push_back(pick({0, 0, 1, 5, 16, 40}));
  c.sliding_window = m.windows.data();
  fill_rope(m, kMaxLen, 10000.0);
  fill_tensors(m, seed);
  return m;
}

/// A model as files in e4m3 have it: some matrices are, and most of those stay so in memory.
/// Several groups share an output.
inline TestModel fp8_model(uint32_t seed, uint32_t dtype) {
  TestModel m = random_model(seed, dtype);
  sac_model_config& c = m.config;
  Rng rng(seed);
  c.hidden_size = 120 + rng() % 150;
  c.intermediate_size = 120 + rng() % 150;
  c.quantization = SAC_QUANTIZATION_FP8;
  m.tensors.clear();
  fill_tensors(m, seed);
  m.fp8_roles.assign(c.num_layers, 0);
  c.fp8_roles = m.fp8_roles.data();
  for (auto& [key, values] : m.tensors) {
    if (tensor_role(key.first).kind != TensorKind::kMatrix || rng() % 4 == 0) continue;
    const TensorShape shape = tensor_shape(c, key.first);
    m.in_fp8[key] = into_fp8(values.data(), shape.rows, shape.cols);
    if (rng() % 8 != 0) m.fp8_roles[key.second] |= 1u << key.first;
  }
  return m;
}

inline std::vector<uint32_t> random_tokens(uint32_t seed, uint32_t count, uint32_t vocab) {
  Rng rng(seed);
  std::vector<uint32_t> tokens(count);
  for (uint32_t& t : tokens) t = rng() % vocab;
  return tokens;
}

inline HarnessOptions options_of(const Kernels* kernels, uint32_t num_threads = 1) {
  HarnessOptions o;
  o.max_len = kMaxLen;
  o.kernels = kernels;
  o.num_threads = num_threads;
  return o;
}

inline SeatParams logprob_params(uint32_t prompt_len, uint32_t adapter = 0) {
  SeatParams p = greedy(prompt_len);
  p.flags = SAC_REQ_LOGPROBS | SAC_REQ_PROMPT_LOGPROBS;
  p.num_top_logprobs = 5;
  p.adapter = adapter;
  return p;
}

/// Largest difference between the prompt's records and the reference.
inline double prompt_error(const TestModel& m, const Kernels* kernels, uint32_t seed,
                           uint32_t adapter = 0) {
  HarnessOptions o = options_of(kernels, 2);
  o.adapters = limits_of(m.adapters);
  StepHarness h(m.config, o);
  REQUIRE(load(m, *h.step) == "");
  const std::vector<uint32_t> prompt = random_tokens(seed, 75, m.config.vocab_size);
  h.seat_prompt(1, prompt, logprob_params(75, adapter));
  h.add(1, 0, 75, true, true);
  h.run();
  const std::vector<Vector> want = ReferenceDecoder(merged(m, adapter)).logits(prompt);
  double error = 0;
  for (uint32_t r = 0; r < 75; ++r) {
    const Vector logprobs = log_softmax(want[r]);
    const uint64_t* record = r + 1 < 75 ? h.prompt_record(r) : h.sampled_record(0);
    if (r + 1 < 75) REQUIRE(unpack(record[0]).token == prompt[r + 1]);
    for (uint32_t i = 0; i < 6; ++i) {
      const Record got = unpack(record[i]);
      error = std::max(error, std::abs(got.logprob - logprobs[got.token]));
      if (i > 1) CHECK(got.logprob <= unpack(record[i - 1]).logprob);
    }
    // The best alternative is the reference's best, up to what rounding can swap.
    const double best = *std::max_element(logprobs.begin(), logprobs.end());
    error = std::max(error, best - logprobs[unpack(record[1]).token]);
  }
  return error;
}

/// A copy of a step's packed weights, like a mapped file: page-aligned, never written again.
struct PackedCopy {
  explicit PackedCopy(const PackedWeights& packed) : bytes(packed.bytes) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(data != MAP_FAILED);
    std::memcpy(data, packed.data, bytes);
    mprotect(data, bytes, PROT_READ);
  }
  ~PackedCopy() { munmap(data, bytes); }
  void* data;
  size_t bytes;
};

/// All records of one request computed alone and at once: prompt records, then `steps` greedy ones.
inline std::vector<uint64_t> lone_run(const TestModel& m, const HarnessOptions& o,
                                      const std::vector<uint32_t>& prompt, uint32_t steps,
                                      const PackedCopy* packed = nullptr, uint32_t adapter = 0) {
  HarnessOptions with = o;
  with.adapters = limits_of(m.adapters);
  StepHarness h(m.config, with);
  if (packed != nullptr) REQUIRE(h.step->adopt_packed(packed->data, packed->bytes) == "");
  REQUIRE(load(m, *h.step) == "");
  const uint32_t n = static_cast<uint32_t>(prompt.size());
  h.seat_prompt(0, prompt, logprob_params(n, adapter));
  h.add(0, 0, n, true, true);
  h.run();
  std::vector<uint64_t> records;
  for (uint32_t r = 0; r + 1 < n; ++r) {
    records.insert(records.end(), h.prompt_record(r), h.prompt_record(r) + 6);
  }
  for (uint32_t i = 0; i < steps; ++i) {
    records.insert(records.end(), h.sampled_record(0), h.sampled_record(0) + 6);
    h.tokens(0)[n + i] = unpack(h.sampled_record(0)[0]).token;
    h.add(0, n + i, 1, true);
    h.run();
  }
  return records;
}

/// One request's progress through random batches.
struct Traveller {
  std::vector<uint32_t> prompt;
  uint32_t adapter = 0;
  uint32_t computed = 0;  // positions done
  uint32_t steps = 0;     // tokens wanted
  bool scored = true;     // records of the prompt are wanted too
  std::vector<uint64_t> records;
  uint32_t produced = 0;

  /// Of what lone_run() returned for the same prompt, what this request wanted.
  std::vector<uint64_t> wanted(std::vector<uint64_t> lone) const {
    if (!scored) lone.erase(lone.begin(), lone.begin() + 6 * (prompt.size() - 1));
    return lone;
  }
};

/// All requests together, chunked at random into at most `most_rows`, decodes mixed with prefill,
/// in random order.
inline void mixed_run(const TestModel& m, const HarnessOptions& o, std::vector<Traveller>& all,
                      uint32_t seed, uint32_t most_rows = 33) {
  HarnessOptions with = o;
  with.adapters = limits_of(m.adapters);
  StepHarness h(m.config, with);
  REQUIRE(load(m, *h.step) == "");
  Rng rng(seed);
  for (uint32_t s = 0; s < all.size(); ++s) {
    const uint32_t n = static_cast<uint32_t>(all[s].prompt.size());
    h.seat_prompt(s, all[s].prompt, logprob_params(n, all[s].adapter));
  }
  for (;;) {
    std::vector<uint32_t> order(all.size());
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), rng);
    std::vector<std::pair<uint32_t, uint32_t>> batch;  // seat, rows
    for (uint32_t s : order) {
      Traveller& t = all[s];
      const uint32_t n = static_cast<uint32_t>(t.prompt.size());
      if (t.produced == t.steps || rng() % 3 == 0) continue;
      const uint32_t left = t.computed < n ? n - t.computed : 1;
      const uint32_t rows = 1 + rng() % std::min(left, most_rows);
      h.add(s, t.computed, rows, t.computed + rows >= n, t.scored);
      batch.push_back({s, rows});
    }
    if (batch.empty()) {
      bool finished = true;
      for (const Traveller& t : all) finished = finished && t.produced == t.steps;
      if (finished) return;
      continue;
    }
    h.run();
    uint32_t row = 0;
    for (uint32_t i = 0; i < batch.size(); ++i) {
      Traveller& t = all[batch[i].first];
      const uint32_t n = static_cast<uint32_t>(t.prompt.size());
      for (uint32_t r = 0; r < batch[i].second; ++r, ++row) {
        if (++t.computed < n && t.scored) {
          t.records.insert(t.records.end(), h.prompt_record(row), h.prompt_record(row) + 6);
        }
      }
      if (t.computed < n) continue;
      t.records.insert(t.records.end(), h.sampled_record(i), h.sampled_record(i) + 6);
      h.tokens(batch[i].first)[t.computed] = unpack(h.sampled_record(i)[0]).token;
      ++t.produced;
    }
  }
}

}  // namespace saccade::test
