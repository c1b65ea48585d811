// The sampler against slow, obvious versions of itself, published vectors and statistics.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "cpu/kernels.hpp"
#include "sample/sampler.hpp"
#include "tests/step_harness.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

/// One request with everything a row needs, and a scratch.
struct Sampler {
  explicit Sampler(uint32_t vocab)
      : counts(vocab),
        logits(vocab),
        ids(vocab),
        weights(vocab),
        members(vocab),
        record(kRecordWords) {
    params = greedy(1);
    params.temperature = 1.0f;
    params.flags = SAC_REQ_LOGPROBS;
    history = {0};
    scratch = {counts.data(),  logits.data(),        ids.data(),          weights.data(),
               members.data(), bucket_weight.data(), bucket_count.data(), nullptr};
  }
  SampleRow row() const {
    return {
        &params,      history.data(), static_cast<uint32_t>(history.size()), vocab(), bias.data(),
        stops.data(), eos.data(),     static_cast<uint32_t>(eos.size()),     {}};
  }
  uint32_t vocab() const { return static_cast<uint32_t>(counts.size()); }
  uint32_t draw(std::vector<float> z, const Kernels& kernels = best_kernels()) {
    params.num_logit_bias = static_cast<uint32_t>(bias.size());
    params.num_stop_ids = static_cast<uint32_t>(stops.size());
    kernels.sample(row(), z.data(), scratch, record.data());
    CHECK(std::count(counts.begin(), counts.end(), 0u) == vocab());
    return unpack(record[0]).token;
  }

  SeatParams params;
  std::vector<uint32_t> history;
  std::vector<LogitBias> bias;
  std::vector<uint32_t> stops, eos;
  std::vector<uint32_t> counts;
  std::vector<float> logits;
  std::vector<uint32_t> ids, weights, members;
  std::vector<uint64_t> bucket_weight = std::vector<uint64_t>(kSelectBuckets);
  std::vector<uint32_t> bucket_count = std::vector<uint32_t>(kSelectBuckets);
  SampleScratch scratch;
  std::vector<uint64_t> record;
};

std::vector<float> random_logits(uint32_t seed, uint32_t n, float scale, bool ties) {
  Rng rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> z(n);
  for (float& v : z) {
    v = scale * normal(rng);
    if (ties) v = std::round(v * 2) / 2;
  }
  return z;
}

/// Tokens that may be drawn, from the definitions: sort, cut, in double.
std::set<uint32_t> allowed(const std::vector<float>& z, const SeatParams& p) {
  std::vector<uint32_t> order(z.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return z[a] > z[b]; });
  const double best = z[order[0]];
  const auto weight = [&](uint32_t t) { return std::exp((z[t] - best) / p.temperature); };
  std::vector<uint32_t> kept;
  for (uint32_t t : order) {
    if (weight(t) >= p.min_p) kept.push_back(t);
  }
  if (p.top_k != 0 && p.top_k < kept.size()) {
    const float last = z[kept[p.top_k - 1]];
    while (z[kept.back()] < last) kept.pop_back();
  }
  double total = 0, before = 0;
  for (uint32_t t : kept) total += weight(t);
  std::set<uint32_t> out;
  for (uint32_t t : kept) {
    if (p.top_p < 1 && before >= p.top_p * total) break;
    out.insert(t);
    before += weight(t);
  }
  return out;
}

}  // namespace

TEST_CASE("Philox4x32-10 gives the known answers of Random123") {
  const auto check = [](PhiloxBlock counter, uint32_t k0, uint32_t k1, PhiloxBlock want) {
    const PhiloxBlock got = philox4x32_10(counter, k0, k1);
    for (int i = 0; i < 4; ++i) CHECK(got.word[i] == want.word[i]);
  };
  check({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}});
  check({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u, {{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}});
  check({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, 0xa4093822u, 0x299f31d0u,
        {{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}});
}

TEST_CASE("multiply_high is the upper half of the product") {
  Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t a = uint64_t{rng()} << 32 | rng(), b = uint64_t{rng()} << 32 | rng();
    CHECK(multiply_high(a, b) == static_cast<uint64_t>((static_cast<__uint128_t>(a) * b) >> 64));
  }
}

TEST_CASE("exp_fixed is close to exp and has the bits it always had") {
  double worst = 0;
  for (float x = -87.0f; x < 88.0f; x += 0.00317f) {
    const double want = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(exp_fixed(x) - want) / want);
  }
  CHECK(worst < 1.5e-7);
  CHECK(exp_fixed(0.0f) == 1.0f);
  CHECK(exp_fixed(-88.0f) == 0.0f);
  CHECK(exp_fixed(-__builtin_inff()) == 0.0f);
  CHECK(std::isfinite(exp_fixed(1000.0f)));
  CHECK(std::isfinite(exp_fixed(__builtin_nanf(""))));
  // A sum over many values: one fused operation anywhere would change it.
  uint32_t hash = 0;
  for (int i = -4000; i < 4000; ++i) {
    hash = hash * 31 + __builtin_bit_cast(uint32_t, exp_fixed(static_cast<float>(i) * 0.0211f));
  }
  CHECK(hash == 0xe21e0c98u);
}

TEST_CASE("16-bit floats convert as the hardware does") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const F16 half = {static_cast<uint16_t>(bits)};
    const Bf16 brain = {static_cast<uint16_t>(bits)};
    const float f = to_float(half);
    F16 half_back;
    Bf16 brain_back;
    from_float(f, half_back);
    from_float(to_float(brain), brain_back);
    if (std::isnan(f)) {
      CHECK(std::isnan(to_float(half_back)));
    } else {
      CHECK(half_back.bits == bits);
    }
    if (!std::isnan(to_float(brain))) CHECK(brain_back.bits == bits);
  }
  const auto f16 = [](float v) {
    F16 h;
    from_float(v, h);
    return h.bits;
  };
  CHECK(f16(1.0f + 1.0f / 2048) == 0x3c00);  // a tie goes to even
  CHECK(f16(1.0f + 3.0f / 2048) == 0x3c02);
  CHECK(f16(65519.0f) == 0x7bff);
  CHECK(f16(65520.0f) == 0x7c00);
  CHECK(f16(-1e9f) == 0xfc00);
  CHECK(f16(5.9604645e-8f) == 1);
  CHECK(f16(2.9802322e-8f) == 0);
  CHECK(f16(6.1035156e-5f) == 0x0400);
  CHECK(f16(6.0975552e-5f) == 0x03ff);
}

TEST_CASE("greedy takes the lowest index among the maxima") {
  Sampler s(50);
  s.params.temperature = 0;
  std::vector<float> z(50, -1.0f);
  CHECK(s.draw(z) == 0);
  z[17] = z[33] = 2.0f;
  CHECK(s.draw(z) == 17);
  CHECK(unpack(s.record[0]).logprob == doctest::Approx(-std::log(2 + 48 * std::exp(-3.0))));
}

TEST_CASE("top-k, top-p and min-p keep what their definitions keep") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Rng rng(seed);
    Sampler s(200 + seed * 3);
    const std::vector<float> z = random_logits(seed, s.vocab(), 3.0f, seed % 2 != 0);
    s.params.top_k = rng() % 3 == 0 ? 0 : 1 + rng() % 60;
    s.params.top_p = rng() % 3 == 0 ? 1.0f : 0.05f + static_cast<float>(rng() % 90) / 100.0f;
    s.params.min_p = rng() % 2 == 0 ? 0.0f : static_cast<float>(rng() % 50) / 100.0f;
    s.params.temperature = 0.3f + static_cast<float>(rng() % 20) / 10.0f;
    const std::set<uint32_t> want = allowed(z, s.params);
    std::set<uint32_t> got;
    for (uint32_t i = 0; i < 400; ++i) {
      s.params.seed = i;
      got.insert(s.draw(z));
    }
    for (uint32_t t : got) CHECK(want.count(t) == 1);
    if (want.size() <= 4) CHECK(got.size() == want.size());
  }
}

TEST_CASE("the kept set is exact: direct comparison with sorting") {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Rng rng(seed);
    Sampler s(64 + rng() % 3000);
    std::vector<float> z = random_logits(seed, s.vocab(), 2.0f, seed % 3 == 0);
    const float max = clean_and_max(z.data(), s.vocab());
    s.params.top_k = 1 + rng() % 200;
    s.params.top_p = 0.1f + static_cast<float>(rng() % 85) / 100.0f;
    Candidates c = gather(z.data(), s.vocab(), max, 1.0f, 0.0f, s.ids.data(), s.weights.data());
    const SelectRow row = select_row(z.data(), max, 1.0f);
    keep_top_k(row, c, s.params.top_k, s.scratch);
    keep_top_p(row, c, s.params.top_p, s.scratch);
    const std::set<uint32_t> got(c.ids, c.ids + c.count);
    CHECK(got == allowed(z, s.params));
  }
}

TEST_CASE("draws follow the distribution (chi-square, fixed seeds)") {
  Sampler s(12);
  const std::vector<float> z = random_logits(5, 12, 1.5f, false);
  s.params.temperature = 0.8f;
  constexpr uint32_t kDraws = 60000;
  std::vector<double> seen(12);
  for (uint32_t i = 0; i < kDraws; ++i) {
    s.params.seed = i / 100;
    s.history.assign(1 + i % 100, 0);  // the position is the counter
    ++seen[s.draw(z)];
  }
  double total = 0, chi2 = 0;
  for (float v : z) total += std::exp(v / 0.8);
  for (uint32_t t = 0; t < 12; ++t) {
    const double want = kDraws * std::exp(z[t] / 0.8) / total;
    chi2 += (seen[t] - want) * (seen[t] - want) / want;
  }
  CHECK(chi2 < 31.3);  // 11 degrees of freedom: 0.1 % of fair samplers are above
}

TEST_CASE("a draw depends on seed and position only") {
  Sampler s(1000);
  const std::vector<float> z = random_logits(8, 1000, 1.0f, false);
  s.params.seed = 42;
  const uint32_t first = s.draw(z);
  CHECK(s.draw(z) == first);
  std::set<uint32_t> others;
  for (uint32_t i = 2; i < 20; ++i) {
    s.history.assign(i, 0);
    others.insert(s.draw(z));
  }
  CHECK(others.size() > 10);
}

TEST_CASE("all instruction sets draw the same tokens and report the same bits") {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Sampler s(151936 / (1 + seed % 7));
    const std::vector<float> z = random_logits(seed, s.vocab(), 2.5f, false);
    s.params.seed = seed;
    s.params.top_p = seed % 2 != 0 ? 0.9f : 1.0f;
    s.params.top_k = seed % 5 == 0 ? 40 : 0;
    s.params.num_top_logprobs = 20;
    s.draw(z, *portable_kernels());
    const std::vector<uint64_t> want = s.record;
    for (const Kernels* k : available_kernels()) {
      s.draw(z, *k);
      CHECK(s.record == want);
    }
  }
}

TEST_CASE("alternatives come best first, ties by lower id, with raw logprobs") {
  Sampler s(400);
  std::vector<float> z = random_logits(3, 400, 2.0f, true);
  s.params.num_top_logprobs = 20;
  s.params.temperature = 0.5f;
  s.bias = {{7, 50.0f}};  // changes the draw, not the report
  CHECK(s.draw(z) == 7);
  std::vector<uint32_t> order(400);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return z[a] > z[b]; });
  double sum = 0;
  for (float v : z) sum += std::exp(static_cast<double>(v));
  for (uint32_t i = 0; i < 20; ++i) {
    CHECK(unpack(s.record[1 + i]).token == order[i]);
    CHECK(unpack(s.record[1 + i]).logprob == doctest::Approx(z[order[i]] - std::log(sum)));
  }
  CHECK(unpack(s.record[0]).logprob == doctest::Approx(z[7] - std::log(sum)));
}

TEST_CASE("penalties, bias and min_tokens apply in vLLM's order") {
  Sampler s(6);
  s.params.temperature = 0;
  s.params.prompt_len = 2;
  s.history = {0, 1, 2, 2};  // prompt 0 1, produced 2 2
  const std::vector<float> z = {4.0f, 3.9f, 5.0f, 3.0f, -1.0f, 2.9f};
  CHECK(s.draw(z) == 2);
  s.params.frequency_penalty = 0.6f;  // 2: 5 - 1.2 = 3.8
  CHECK(s.draw(z) == 0);
  s.params.frequency_penalty = 0.4f;  // 4.2
  CHECK(s.draw(z) == 2);
  s.params.presence_penalty = 0.3f;  // 3.9: below 4.0 of the prompt's token
  CHECK(s.draw(z) == 0);
  s.params.repetition_penalty = 1.5f;  // 0: 2.67, 1: 2.6, 2: 2.23; untouched 3 leads
  CHECK(s.draw(z) == 3);
  s.bias = {{5, 0.2f}};
  CHECK(s.draw(z) == 5);
  s.bias = {{1, 2.0f}};  // bias comes before the penalty: 5.9 / 1.5 = 3.93
  CHECK(s.draw(z) == 1);
  s.params.min_tokens = 3;  // two produced: 1 is masked although biased
  s.stops = {1};
  CHECK(s.draw(z) == 3);
  s.eos = {3};
  CHECK(s.draw(z) == 5);
  s.params.flags |= SAC_REQ_IGNORE_EOS;
  CHECK(s.draw(z) == 3);
  s.params.min_tokens = 2;
  CHECK(s.draw(z) == 1);
}

TEST_CASE("a negative logit is multiplied by the repetition penalty") {
  Sampler s(2);
  s.params.temperature = 0;
  s.params.repetition_penalty = 2.0f;
  s.history = {0};
  CHECK(s.draw({-1.0f, -1.5f}) == 1);
  CHECK(s.draw({-1.0f, -2.5f}) == 0);
}

TEST_CASE("hostile logits give a defined token and no hang") {
  const float nan = __builtin_nanf(""), inf = __builtin_inff();
  for (float temperature : {0.0f, 1e-4f, 1.0f, 100.0f}) {
    Sampler s(40);
    s.params.temperature = temperature;
    s.params.top_p = 0.9f;
    s.params.top_k = 3;
    s.params.num_top_logprobs = 3;
    std::vector<float> z(40, nan);
    CHECK(s.draw(z) == 0);
    z.assign(40, -inf);
    CHECK(s.draw(z) == 0);
    z.assign(40, nan);
    z[9] = -3.0f;
    CHECK(s.draw(z) == 9);
    z.assign(40, 1.0f);
    z[11] = inf;
    CHECK(s.draw(z) == 11);
    CHECK(unpack(s.record[0]).logprob == 0.0f);
    z.assign(40, inf);
    CHECK(s.draw(z) < 40);
  }
  // So far above the others that the draw's reach is lost in rounding, in whole blocks and the
  // rest.
  for (const float best : {inf, 1e10f, 5000.0f}) {
    for (const uint32_t token : {3u, 64u, 127u, 140u}) {
      Sampler s(150);
      s.params.temperature = kGreedyTemperature;
      std::vector<float> z(s.vocab(), 1.0f);
      z[token] = best;
      CHECK(s.draw(z) == token);
      CHECK(unpack(s.record[0]).logprob == 0.0f);
    }
  }
  Sampler s(2);  // everything masked
  s.params.min_tokens = 5;
  s.stops = {0, 1};
  CHECK(s.draw({1.0f, 2.0f}) == 0);
}
