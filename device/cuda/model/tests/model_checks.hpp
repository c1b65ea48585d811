// What must hold of a model on a GPU, real or emulated.
#pragma once
#include <cstdio>

#include "cuda/checks.hpp"
#include "cuda/model/tests/model_harness.hpp"

namespace saccade::test {

inline std::vector<uint32_t> random_prompt(uint32_t seed, uint32_t count, uint32_t vocab) {
  Rng rng(seed);
  std::vector<uint32_t> tokens(count);
  for (uint32_t& t : tokens) t = rng() % vocab;
  return tokens;
}

inline SeatParams with_logprobs(uint32_t prompt_len) {
  SeatParams p = greedy(prompt_len);
  p.flags = SAC_REQ_LOGPROBS | SAC_REQ_PROMPT_LOGPROBS;
  p.num_top_logprobs = 5;
  return p;
}

inline std::string describe(const SmallModel& m) {
  const sac_model_config& c = m.config;
  char text[160];
  std::snprintf(text, sizeof(text), "%u layers, hidden %u, %u/%u heads of %u, experts %u/%u",
                c.num_layers, c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim,
                c.experts_per_token, c.num_experts);
  return text;
}

/// bf16 keeps 8 bits: activations of order 1 move by up to 0.4 % at each of a few roundings.
inline constexpr double kLogprobBound = 0.1;

/// Logprobs of one token in two records: the largest difference, of those that both name.
inline double record_error(const uint64_t* a, const uint64_t* b, uint32_t words) {
  double error = 0;
  for (uint32_t i = 0; i < words; ++i) {
    for (uint32_t j = 0; j < words; ++j) {
      const Record x = unpack(a[i]), y = unpack(b[j]);
      if (x.token == y.token) error = std::max(error, double{std::abs(x.logprob - y.logprob)});
    }
  }
  return error;
}

/// A prompt in chunks, then tokens that the reference chose: logprobs of all, against the CPU.
template <class Rig>
void check_against_cpu(Report& report, uint32_t seed, uint32_t prompt_len, double bound) {
  constexpr uint32_t kSteps = 4, kSeat = 1, kWords = 6;
  const uint32_t max_len = prompt_len + kSteps + 2;
  const SmallModel m = random_small(seed, max_len);
  HarnessOptions cpu_options;
  cpu_options.max_len = max_len;
  cpu_options.max_rows = max_len;
  cpu_options.kernels = portable_kernels();  // sums in f32
  StepHarness cpu(m.config, cpu_options);
  typename ModelHarness<Rig>::Options options;
  options.max_len = options.max_rows = max_len;
  ModelHarness<Rig> gpu(m, options);
  std::string wrong = m.give(*cpu.step);
  if (wrong.empty()) wrong = m.give(*gpu.model);
  if (!wrong.empty()) return report.check(false, wrong);
  const auto prompt = random_prompt(seed, prompt_len, m.config.vocab_size);
  cpu.seat_prompt(kSeat, prompt, with_logprobs(prompt_len));
  gpu.seat_prompt(kSeat, prompt, with_logprobs(prompt_len));
  cpu.add(kSeat, 0, prompt_len, true, true);
  cpu.run();
  Rng rng(seed);
  double error = 0;
  for (uint32_t at = 0; at < prompt_len;) {
    const uint32_t rows = std::min<uint32_t>(prompt_len - at, 1 + rng() % prompt_len);
    gpu.add(kSeat, at, rows, at + rows == prompt_len, true);
    gpu.run();
    for (uint32_t r = 0; r < rows && at + r + 1 < prompt_len; ++r) {
      error = std::max(error, record_error(cpu.prompt_record(at + r), gpu.prompt_record(r), 1));
    }
    at += rows;
  }
  for (uint32_t i = 0;; ++i) {
    error = std::max(error, record_error(cpu.sampled_record(0), gpu.sampled_record(0), kWords));
    if (i == kSteps) break;
    const uint32_t token = unpack(cpu.sampled_record(0)[0]).token;
    cpu.tokens(kSeat)[prompt_len + i] = gpu.tokens(kSeat)[prompt_len + i] = token;
    cpu.add(kSeat, prompt_len + i, 1, true);
    gpu.add(kSeat, prompt_len + i, 1, true);
    cpu.run();
    gpu.run();
  }
  char text[96];
  std::snprintf(text, sizeof(text), ": logprobs within %.4f of the CPU's (bound %.2f), seed %u, ",
                error, bound, seed);
  report.check(error < bound, std::string(Rig::kName) + text + describe(m));
}

/// One request: a prompt, then tokens that the model draws.
struct Traveller {
  std::vector<uint32_t> prompt;
  SeatParams params;
  uint32_t steps;
  uint32_t computed = 0;  // positions
  uint32_t produced = 0;
  std::vector<uint64_t> records;

  uint32_t prompt_len() const { return static_cast<uint32_t>(prompt.size()); }
  uint32_t words() const { return sac_record_stride(params.flags, params.num_top_logprobs); }
};

inline Traveller random_traveller(uint32_t seed, uint32_t most, uint32_t steps, uint32_t vocab) {
  Rng rng(seed);
  Traveller t;
  t.prompt = random_prompt(seed, 1 + rng() % most, vocab);
  t.params = with_logprobs(t.prompt_len());
  t.params.seed = seed;
  t.steps = steps;
  if (rng() % 2 == 0) {
    t.params.temperature = 0.9f;
    t.params.top_k = rng() % 2 * 20;
    t.params.top_p = 0.95f;
    t.params.repetition_penalty = 1.2f;
    t.params.presence_penalty = 0.3f;
  }
  return t;
}

/// Adds the next `rows` rows of a request to the batch, and says whether the last one draws.
template <class Harness>
bool add_next(Harness& h, uint32_t seat, const Traveller& t, uint32_t rows) {
  const bool draws = t.computed + rows >= t.prompt_len();
  h.add(seat, t.computed, rows, draws, t.computed < t.prompt_len());
  return draws;
}
/// Takes what the batch's sequence `seq`, which began at `row`, has written.
template <class Harness>
void take_records(Harness& h, uint32_t seat, Traveller& t, uint32_t rows, uint32_t seq,
                  uint32_t row) {
  for (uint32_t r = 0; r < rows && t.computed + r + 1 < t.prompt_len(); ++r) {
    const uint64_t* record = h.prompt_record(row + r);
    t.records.insert(t.records.end(), record, record + t.words());
  }
  t.computed += rows;
  if (t.computed < t.prompt_len()) return;
  const uint64_t* record = h.sampled_record(seq);
  t.records.insert(t.records.end(), record, record + t.words());
  if (++t.produced < t.steps) h.tokens(seat)[t.computed] = unpack(record[0]).token;
}

template <class Rig>
void run_alone(const SmallModel& m, Traveller& t) {
  typename ModelHarness<Rig>::Options options;
  options.max_len = options.max_rows = m.max_len;
  ModelHarness<Rig> h(m, options);
  if (!m.give(*h.model).empty()) throw std::runtime_error("a tensor was refused");
  h.seat_prompt(0, t.prompt, t.params);
  while (t.produced < t.steps) {
    const uint32_t rows = t.computed == 0 ? t.prompt_len() : 1;
    add_next(h, 0, t, rows);
    h.run();
    take_records(h, 0, t, rows, 0, 0);
  }
}

/// All requests together, in random chunks and order, through shapes of random size.
template <class Rig>
void run_together(const SmallModel& m, std::vector<Traveller>& all, uint32_t seed) {
  typename ModelHarness<Rig>::Options options;
  options.num_seats = static_cast<uint32_t>(all.size());
  options.max_len = m.max_len;
  options.max_rows = options.num_seats * m.max_len;
  options.block_size = 8;
  ModelHarness<Rig> h(m, options);
  if (!m.give(*h.model).empty()) throw std::runtime_error("a tensor was refused");
  for (uint32_t s = 0; s < all.size(); ++s) h.seat_prompt(s, all[s].prompt, all[s].params);
  Rng rng(seed);
  for (;;) {
    std::vector<std::pair<uint32_t, uint32_t>> batch;  // seat, rows
    bool done = true;
    for (uint32_t s = 0; s < all.size(); ++s) {
      const Traveller& t = all[s];
      done = done && t.produced == t.steps;
      if (t.produced == t.steps || rng() % 4 == 0) continue;
      const uint32_t left = t.computed < t.prompt_len() ? t.prompt_len() - t.computed : 1;
      batch.push_back({s, 1 + rng() % std::min(left, 90u)});
    }
    if (done) return;
    if (batch.empty()) continue;
    std::shuffle(batch.begin(), batch.end(), rng);
    for (const auto& [seat, rows] : batch) add_next(h, seat, all[seat], rows);
    h.run(rng() % 3 == 0 ? rng() % (2 * m.max_len) : 0, rng() % 3);
    uint32_t row = 0;
    for (uint32_t i = 0; i < batch.size(); ++i) {
      take_records(h, batch[i].first, all[batch[i].first], batch[i].second, i, row);
      row += batch[i].second;
    }
  }
}

/// Every record of a request is the same word for word, alone and in company.
template <class Rig>
void check_independence(Report& report, uint32_t seed, uint32_t max_prompt) {
  constexpr uint32_t kRequests = 3, kSteps = 4;
  const SmallModel m = random_small(seed, max_prompt + kSteps + 1);
  std::vector<Traveller> alone, together;
  for (uint32_t i = 0; i < kRequests; ++i) {
    alone.push_back(random_traveller(seed * 10 + i, max_prompt, kSteps, m.config.vocab_size));
  }
  together = alone;
  for (Traveller& t : alone) run_alone<Rig>(m, t);
  run_together<Rig>(m, together, seed);
  bool same = true;
  for (uint32_t i = 0; i < kRequests; ++i) same = same && alone[i].records == together[i].records;
  report.check(same, std::string(Rig::kName) + ": the same bits alone and in company, seed " +
                         std::to_string(seed) + ", " + describe(m));
}

/// All checks, over seeds from 1 on.
template <class Rig>
void check_model(Report& report, uint32_t seeds) {
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    const uint32_t prompt_len = seed % 8 == 0 ? 300 + seed : 3 + seed * 7 % 90;
    check_against_cpu<Rig>(report, seed, prompt_len, kLogprobBound);
  }
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    check_independence<Rig>(report, 1000 + seed, seed % 8 == 0 ? 300 : 60);
  }
}

}  // namespace saccade::test
