// What must hold of a model on a GPU, real or emulated.
#pragma once
#include <cstdio>

#include "cuda/checks.hpp"
#include "cuda/model/tests/model_reference.hpp"

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
  std::snprintf(text, sizeof(text), "%u layers, hidden %u, %u/%u heads of %u, experts %u/%u%s",
                c.num_layers, c.hidden_size, c.num_heads, c.num_kv_heads, c.head_dim,
                c.experts_per_token, c.num_experts,
                c.kv_dtype == SAC_KV_DTYPE_FP8           ? ", FP8 KV"
                : c.quantization == SAC_QUANTIZATION_FP8 ? ", FP8 weights"
                                                         : "");
  return std::string(text) + (m.adapters.empty() ? "" : ", adapters");
}

/// bf16 keeps 8 bits: activations of order 1 move by up to 0.4 % at each of a few roundings.
inline constexpr double kLogprobBound = 0.1;

/// With FP8 KV both sides also round K and V to codes of their own. Where two values that differ in
/// their last bits of bf16 have a middle of two codes between them, the codes are 1/16 to 1/8
/// apart. In 66 random models the two sides were at most 0.2 apart, flipped choices of experts
/// aside.
inline constexpr double kFp8KvBound = 0.4;

inline double logprob_bound(Kind kind) {
  return kind == Kind::kFp8Kv ? kFp8KvBound : kLogprobBound;
}

/// Of the root mean square of an embedding's values.
inline constexpr double kEmbeddingBound = 0.03;

/// How far apart two router logits may be for rounding to flip their order: twice the error of a
/// logit, which is within 0.02 in these models where no order flips, and some room.
inline constexpr double kRouterGap = 0.05;

/// What a request's records say, by position: of the prompt's next token, then of a drawn one.
using RecordsByPosition = std::vector<std::vector<Record>>;

/// The largest difference between two records' logprobs, over the tokens that both name.
inline double record_error(const std::vector<Record>& a, const std::vector<Record>& b) {
  double error = 0;
  for (const Record& x : a) {
    for (const Record& y : b) {
      if (x.token == y.token) error = std::max(error, double{std::abs(x.logprob - y.logprob)});
    }
  }
  return error;
}
inline double record_error(const RecordsByPosition& a, const RecordsByPosition& b) {
  double error = 0;
  for (size_t p = 0; p < a.size(); ++p) error = std::max(error, record_error(a[p], b[p]));
  return error;
}
inline double record_error(const std::vector<Record>& a, const Vector& logprobs) {
  double error = 0;
  for (const Record& x : a) error = std::max(error, std::abs(x.logprob - logprobs[x.token]));
  return error;
}

inline constexpr uint32_t kCheckedSteps = 4, kCheckedSeat = 1;

inline void take_record(RecordsByPosition& to, const uint64_t* words) {
  constexpr uint32_t kWords = 6;  // with_logprobs: the token and five alternatives
  std::vector<Record> record;
  for (uint32_t i = 0; i < kWords; ++i) record.push_back(unpack(words[i]));
  to.push_back(record);
}

/// Records of a prompt, cut into chunks of `chunk(left)` rows, and of the tokens that follow it:
/// those of `tokens` after the prompt, or, where it ends, greedy ones, which are appended.
template <class Harness, class Chunk>
RecordsByPosition run_request(Harness& h, std::vector<uint32_t>& tokens, uint32_t prompt_len,
                              Chunk chunk, uint32_t adapter = 0) {
  RecordsByPosition records;
  SeatParams params = with_logprobs(prompt_len);
  params.adapter = adapter;
  h.seat_prompt(kCheckedSeat, {tokens.begin(), tokens.begin() + prompt_len}, params);
  for (uint32_t at = 0; at < prompt_len;) {
    const uint32_t rows = chunk(prompt_len - at);
    h.add(kCheckedSeat, at, rows, at + rows == prompt_len, true);
    h.run();
    for (uint32_t r = 0; r < rows && at + r + 1 < prompt_len; ++r) {
      take_record(records, h.prompt_record(r));
    }
    at += rows;
  }
  for (uint32_t position = prompt_len;; ++position) {
    take_record(records, h.sampled_record(0));
    if (position == prompt_len + kCheckedSteps) return records;
    if (tokens.size() == position) tokens.push_back(records.back()[0].token);
    h.tokens(kCheckedSeat)[position] = tokens[position];
    h.add(kCheckedSeat, position, 1, true);
    h.run();
  }
}

/// Records against a reference that makes the close choices of experts that the records show.
struct Explanation {
  double error = 0;
  uint32_t swaps = 0;
  double widest_gap = 0;
};

/// For one position: the exchanges after which the reference comes closest to a record. One is made
/// only if it removes more than half of what is left; each layer's close choices are the ones left
/// by the exchanges below it.
inline std::vector<ExpertSwap> find_swaps(ModelReference& reference, uint32_t token,
                                          const std::vector<Record>& record) {
  std::vector<ExpertSwap> swaps, close;
  for (;;) {
    const double left = record_error(record, reference.look(token, swaps, &close));
    const ExpertSwap* best = nullptr;
    double least = left / 2;
    for (const ExpertSwap& swap : close) {
      auto with = swaps;
      with.push_back(swap);
      const double error = record_error(record, reference.look(token, with));
      if (error >= least) continue;
      least = error;
      best = &swap;
    }
    if (best == nullptr) return swaps;
    swaps.push_back(*best);
  }
}

inline Explanation explain_by_swaps(const SmallModel& m, const std::vector<uint32_t>& tokens,
                                    uint32_t prompt_len, const RecordsByPosition& records) {
  Explanation e;
  ModelReference reference(m, prompt_len, kRouterGap);
  for (size_t p = 0; p < records.size(); ++p) {
    const auto swaps = find_swaps(reference, tokens[p], records[p]);
    e.error = std::max(e.error, record_error(records[p], reference.look(tokens[p], swaps)));
    reference.accept();
    e.swaps += static_cast<uint32_t>(swaps.size());
    for (const ExpertSwap& s : swaps) e.widest_gap = std::max(e.widest_gap, s.gap);
  }
  return e;
}

/// A model on the CPU and on a GPU, for sequences of up to max_len.
template <class Rig>
struct BothSides {
  StepHarness cpu;
  ModelHarness<Rig> gpu;
  std::string wrong;  // empty, or why a side refused the model

  BothSides(const SmallModel& m, uint32_t max_len)
      : cpu(m.config, cpu_options(m, max_len)), gpu(m, gpu_options(max_len)) {
    wrong = m.give(*cpu.step);
    if (wrong.empty()) wrong = m.give(*gpu.model);
  }

 private:
  static HarnessOptions cpu_options(const SmallModel& m, uint32_t max_len) {
    HarnessOptions o;
    o.adapters = m.adapter_limits();
    o.max_len = o.max_rows = max_len;
    o.kernels = portable_kernels();  // sums in f32
    return o;
  }
  static typename ModelHarness<Rig>::Options gpu_options(uint32_t max_len) {
    typename ModelHarness<Rig>::Options o;
    o.max_len = o.max_rows = max_len;
    return o;
  }
};

/// A prompt in chunks, then tokens that the CPU chose: logprobs of all, against the CPU's. Where a
/// choice of experts is so close that rounding flips it, both sides are right: then each must be
/// near the reference that chooses as it did. With an adapter, if it is not 0.
template <class Rig>
void check_against_cpu(Report& report, uint32_t seed, uint32_t prompt_len, Kind kind = Kind::kBf16,
                       uint32_t adapter = 0) {
  const double bound = logprob_bound(kind);
  const uint32_t max_len = prompt_len + kCheckedSteps + 2;
  SmallModel m = random_small(seed, max_len, kind);
  if (adapter != 0) add_adapters(m, seed);
  BothSides<Rig> on(m, max_len);
  if (!on.wrong.empty()) return report.check(false, on.wrong);
  auto tokens = random_prompt(seed, prompt_len, m.config.vocab_size);
  Rng rng(seed);
  const auto want = run_request(
      on.cpu, tokens, prompt_len, [](uint32_t left) { return left; }, adapter);
  const auto got = run_request(
      on.gpu, tokens, prompt_len,
      [&](uint32_t left) { return std::min<uint32_t>(left, 1 + rng() % prompt_len); }, adapter);
  const double error = record_error(want, got);
  char text[240];
  std::snprintf(text, sizeof(text), ": logprobs within %.4f of the CPU's (bound %.2f), seed %u, ",
                error, bound, seed);
  bool ok = error < bound;
  if (!ok && m.config.num_experts > 0) {
    const SmallModel all = merged(m, adapter);
    const Explanation a = explain_by_swaps(all, tokens, prompt_len, got);
    const Explanation b = explain_by_swaps(all, tokens, prompt_len, want);
    std::snprintf(text, sizeof(text),
                  ": logprobs %.4f from the CPU's, but %.4f and %.4f (bound %.2f) from a reference "
                  "with %u and %u turned choices of experts, at most %.4f apart; seed %u, ",
                  error, a.error, b.error, bound, a.swaps, b.swaps,
                  std::max(a.widest_gap, b.widest_gap), seed);
    ok = std::max(a.error, b.error) < bound && a.swaps + b.swaps > 0;
  }
  report.check(ok, std::string(Rig::kName) + text + describe(m));
}

/// A prompt in chunks whose last row is an embedding.
template <class Harness, class Chunk>
std::vector<float> run_embedding(Harness& h, const std::vector<uint32_t>& prompt, uint32_t size,
                                 Chunk chunk) {
  const auto prompt_len = static_cast<uint32_t>(prompt.size());
  SeatParams params = greedy(prompt_len);
  params.flags = SAC_REQ_EMBED;
  h.seat_prompt(kCheckedSeat, prompt, params);
  for (uint32_t at = 0; at < prompt_len;) {
    const uint32_t rows = chunk(prompt_len - at);
    at += rows;
    h.add(kCheckedSeat, at - rows, rows, at == prompt_len);
    h.run();
  }
  return std::vector(h.embedding(0), h.embedding(0) + size);
}

/// An embedding against the CPU's: the differences' root mean square as a part of the values'.
/// Models without experts: a flipped choice is not an error.
template <class Rig>
void check_embedding(Report& report, uint32_t seed, uint32_t prompt_len, Kind kind = Kind::kBf16) {
  const SmallModel m = random_small(seed, prompt_len, kind);
  if (m.config.num_experts > 0) return;
  BothSides<Rig> on(m, prompt_len);
  if (!on.wrong.empty()) return report.check(false, on.wrong);
  const auto prompt = random_prompt(seed, prompt_len, m.config.vocab_size);
  const uint32_t size = m.config.hidden_size;
  Rng rng(seed);
  const auto want = run_embedding(on.cpu, prompt, size, [](uint32_t left) { return left; });
  const auto got = run_embedding(on.gpu, prompt, size, [&](uint32_t left) {
    return std::min<uint32_t>(left, 1 + rng() % prompt_len);
  });
  double off = 0, all = 0;
  for (uint32_t i = 0; i < size; ++i) {
    off += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    all += double{want[i]} * want[i];
  }
  const double error = std::sqrt(off / all);
  char text[120];
  std::snprintf(text, sizeof(text), ": an embedding is %.4f from the CPU's (bound %.2f), seed %u, ",
                error, kEmbeddingBound, seed);
  report.check(error < kEmbeddingBound, std::string(Rig::kName) + text + describe(m));
}

/// The same tokens through two ways of computing products: how far apart their logprobs are. Models
/// without experts: a flipped choice is not an error.
template <class One, class Other>
void check_ways(Report& report, uint32_t seed, uint32_t prompt_len, Kind kind = Kind::kBf16) {
  const uint32_t max_len = prompt_len + kCheckedSteps + 2;
  const SmallModel m = random_small(seed, max_len, kind);
  if (m.config.num_experts > 0) return;
  auto tokens = random_prompt(seed, prompt_len, m.config.vocab_size);
  const auto records_of = [&]<class Rig>(Rig) {
    typename ModelHarness<Rig>::Options options;
    options.max_len = options.max_rows = max_len;
    ModelHarness<Rig> h(m, options);
    if (!m.give(*h.model).empty()) throw std::runtime_error("a tensor was refused");
    return run_request(h, tokens, prompt_len, [](uint32_t left) { return left; });
  };
  const RecordsByPosition want = records_of(One{});
  const double error = record_error(want, records_of(Other{}));
  char text[120];
  std::snprintf(text, sizeof(text), ": logprobs within %.4f of each other (bound %.2f), seed %u, ",
                error, logprob_bound(kind), seed);
  report.check(error < logprob_bound(kind),
               std::string(One::kName) + " and " + Other::kName + text + describe(m));
}

/// One request: a prompt, then tokens that the model draws, or its embedding.
struct Traveller {
  std::vector<uint32_t> prompt;
  SeatParams params;
  uint32_t steps;
  uint32_t computed = 0;  // positions
  uint32_t produced = 0;
  std::vector<uint64_t> records;  // of an embedding: its values
  bool under_grammar = false;
  bool obeyed = true;

  uint32_t prompt_len() const { return static_cast<uint32_t>(prompt.size()); }
  bool embeds() const { return saccade::embeds(params.flags); }
  uint32_t words() const { return sac_record_stride(params.flags, params.num_top_logprobs); }
};

inline Traveller random_traveller(uint32_t seed, uint32_t most, uint32_t steps, uint32_t vocab) {
  Rng rng(seed);
  Traveller t;
  t.prompt = random_prompt(seed, 1 + rng() % most, vocab);
  t.params = with_logprobs(t.prompt_len());
  t.params.seed = seed;
  t.steps = steps;
  if (rng() % 4 == 0) {
    t.params = greedy(t.prompt_len());
    t.params.flags = SAC_REQ_EMBED;
    t.steps = 1;
    return t;
  }
  if (rng() % 2 == 0) {
    t.params.temperature = 0.9f;
    t.params.top_k = rng() % 2 * 20;
    t.params.top_p = 0.95f;
    t.params.repetition_penalty = 1.2f;
    t.params.presence_penalty = 0.3f;
  }
  t.under_grammar = rng() % 2 == 0;
  return t;
}

/// Adds the next `rows` rows of a request to the batch, and says whether the last one yields.
template <class Harness>
bool add_next(Harness& h, uint32_t seat, const Traveller& t, uint32_t rows) {
  const bool draws = t.computed + rows >= t.prompt_len();
  h.add(seat, t.computed, rows, draws, t.computed < t.prompt_len() && !t.embeds());
  return draws;
}
/// Takes what the batch's sequence `seq`, which began at `row`, has written.
template <class Harness>
void take_records(Harness& h, uint32_t seat, Traveller& t, uint32_t rows, uint32_t seq,
                  uint32_t row) {
  for (uint32_t r = 0; r < rows && t.computed + r + 1 < t.prompt_len() && !t.embeds(); ++r) {
    const uint64_t* record = h.prompt_record(row + r);
    t.records.insert(t.records.end(), record, record + t.words());
  }
  t.computed += rows;
  if (t.computed < t.prompt_len()) return;
  if (t.embeds()) {
    const float* values = h.embedding(seq);
    for (uint32_t i = 0; i < h.outputs.embedding_size; ++i)
      t.records.push_back(embedding_word(values[i], 0.0f));
    ++t.produced;
    return;
  }
  const uint64_t* record = h.sampled_record(seq);
  t.records.insert(t.records.end(), record, record + t.words());
  const uint32_t token = unpack(record[0]).token;
  if (t.under_grammar) t.obeyed = t.obeyed && h.follow(seat, token);
  if (++t.produced < t.steps) h.tokens(seat)[t.computed] = token;
}

template <class Harness>
void seat_traveller(Harness& h, uint32_t seat, const Traveller& t) {
  h.seat_prompt(seat, t.prompt, t.params);
  if (t.under_grammar) h.seat_grammar(seat, nested_grammar());
}

template <class Rig>
void run_alone(const SmallModel& m, Traveller& t) {
  typename ModelHarness<Rig>::Options options;
  options.max_len = options.max_rows = m.max_len;
  ModelHarness<Rig> h(m, options);
  if (!m.give(*h.model).empty()) throw std::runtime_error("a tensor was refused");
  seat_traveller(h, 0, t);
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
  for (uint32_t s = 0; s < all.size(); ++s) seat_traveller(h, s, all[s]);
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
    h.run(rng() % 3 == 0 ? rng() % (2 * m.max_len) : 0, rng() % 3, rng() % 2 == 0);
    uint32_t row = 0;
    for (uint32_t i = 0; i < batch.size(); ++i) {
      take_records(h, batch[i].first, all[batch[i].first], batch[i].second, i, row);
      row += batch[i].second;
    }
  }
}

/// Every record of a request is the same word for word, alone and in company, and obeys its grammar
/// if it has one.
template <class Rig>
void check_independence(Report& report, uint32_t seed, uint32_t max_prompt,
                        Kind kind = Kind::kBf16) {
  constexpr uint32_t kRequests = 3, kSteps = 4;
  const SmallModel m = random_small(seed, max_prompt + kSteps + 1, kind);
  std::vector<Traveller> alone, together;
  for (uint32_t i = 0; i < kRequests; ++i) {
    alone.push_back(random_traveller(seed * 10 + i, max_prompt, kSteps, m.config.vocab_size));
  }
  together = alone;
  for (Traveller& t : alone) run_alone<Rig>(m, t);
  run_together<Rig>(m, together, seed);
  bool same = true;
  for (uint32_t i = 0; i < kRequests; ++i)
    same = same && alone[i].records == together[i].records && alone[i].obeyed;
  report.check(same, std::string(Rig::kName) + ": the same bits alone and in company, seed " +
                         std::to_string(seed) + ", " + describe(m));
}

/// Requests of several adapters, of none, and of one that changes nothing have the same records in
/// company as alone; the last two those of a server without adapters.
template <class Rig>
void check_adapters(Report& report, uint32_t seed, uint32_t max_prompt, Kind kind = Kind::kBf16) {
  constexpr uint32_t kSteps = 4, kEmpty = 4, kAdapters[] = {1, 0, 2, 1, kEmpty, 3};
  SmallModel m = random_small(seed, max_prompt + kSteps + 1, kind);
  add_adapters(m, seed);
  const SmallModel plain = without_adapters(m);
  std::vector<Traveller> alone, together;
  for (const uint32_t adapter : kAdapters) {
    const auto number = static_cast<uint32_t>(alone.size());
    alone.push_back(random_traveller(seed * 10 + number, max_prompt, kSteps, m.config.vocab_size));
    alone.back().params.adapter = adapter;
  }
  together = alone;
  run_together<Rig>(m, together, seed);
  bool same = true;
  for (uint32_t i = 0; i < alone.size(); ++i) {
    Traveller& t = alone[i];
    if (t.params.adapter == kEmpty) t.params.adapter = 0;
    run_alone<Rig>(t.params.adapter == 0 ? plain : m, t);
    same = same && t.records == together[i].records;
  }
  report.check(same, std::string(Rig::kName) + ": the same bits alone and among adapters, seed " +
                         std::to_string(seed) + ", " + describe(m));
}

/// Of rigs whose products are by wgmma.
template <class Rig>
void check_fp8_weights(Report& report, uint32_t seeds) {
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    const uint32_t prompt_len = seed % 8 == 0 ? 300 + seed : 3 + seed * 7 % 90;
    check_against_cpu<Rig>(report, seed, prompt_len, Kind::kFp8Weights);
    check_independence<Rig>(report, 1000 + seed, seed % 8 == 0 ? 300 : 60, Kind::kFp8Weights);
  }
}

/// What adapters add: a few models, since few kernels are their own.
template <class Rig>
void check_adapted_models(Report& report, uint32_t seeds, Kind kind = Kind::kBf16) {
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    const uint32_t prompt_len = seed % 4 == 0 ? 300 + seed : 3 + seed * 7 % 90;
    check_against_cpu<Rig>(report, seed, prompt_len, kind, 1 + seed % 3);
    check_adapters<Rig>(report, 1000 + seed, seed % 4 == 0 ? 300 : 60, kind);
  }
}

/// All checks, over seeds from 1 on.
template <class Rig>
void check_model(Report& report, uint32_t seeds) {
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    const uint32_t prompt_len = seed % 8 == 0 ? 300 + seed : 3 + seed * 7 % 90;
    check_against_cpu<Rig>(report, seed, prompt_len);
    check_embedding<Rig>(report, seed, prompt_len);
    check_against_cpu<Rig>(report, seed, prompt_len, Kind::kFp8Kv);
  }
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    const uint32_t max_prompt = seed % 8 == 0 ? 300 : 60;
    check_independence<Rig>(report, 1000 + seed, max_prompt);
    check_independence<Rig>(report, 1000 + seed, max_prompt, Kind::kFp8Kv);
  }
}

}  // namespace saccade::test
