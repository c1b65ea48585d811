// The CPU step against a naive decoder in double, and against itself in other batches.
#include "capi/config_check.hpp"
#include "tests/step_runs.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

/// Serves a prompt, and tokens after it, in blocks that another request left full of NaN.
void check_stale_bytes(const TestModel& m, const Kernels* kernels) {
  const std::vector<uint32_t> prompt = random_tokens(9, 37, m.config.vocab_size);
  constexpr uint32_t kTokens = 37, kSteps = 3;
  const std::vector<uint64_t> clean = lone_run(m, options_of(kernels), prompt, kSteps);
  StepHarness h(m.config, options_of(kernels));
  TestModel poison = m;
  for (float& v : poison.tensors[{SAC_TENSOR_V, 0}]) v = __builtin_nanf("");
  for (float& v : poison.tensors[{SAC_TENSOR_K, 0}]) v = __builtin_nanf("");
  REQUIRE(load(poison, *h.step) == "");
  h.seat_prompt(0, random_tokens(10, 150, m.config.vocab_size), logprob_params(150));
  h.add(0, 0, 150, true);
  h.run();  // leaves NaN in all blocks of the seat
  REQUIRE(load(m, *h.step) == "");
  h.seat_prompt(0, prompt, logprob_params(kTokens));
  h.add(0, 0, kTokens, true, true);
  h.run();
  std::vector<uint64_t> records;
  for (uint32_t r = 0; r + 1 < kTokens; ++r) {
    records.insert(records.end(), h.prompt_record(r), h.prompt_record(r) + 6);
  }
  for (uint32_t i = 0; i < kSteps; ++i) {
    records.insert(records.end(), h.sampled_record(0), h.sampled_record(0) + 6);
    h.tokens(0)[kTokens + i] = unpack(h.sampled_record(0)[0]).token;
    h.add(0, kTokens + i, 1, true);
    h.run();
  }
  CHECK(records == clean);
}

}  // namespace

TEST_CASE("f32 logprobs agree with the formulas in double") {
  for (const Kernels* kernels : available_kernels()) {
    for (const uint32_t seed : seeds_of(kernels, 1, 12)) {
      CAPTURE(std::string(kernels->name));
      CAPTURE(seed);
      CHECK(prompt_error(random_model(seed, SAC_DTYPE_F32), kernels, seed) < 2e-5);
    }
  }
}

TEST_CASE("bf16 and f16 differ from the formulas by the rounding of the KV cache only") {
  for (const Kernels* kernels : available_kernels()) {
    for (const uint32_t seed : seeds_of(kernels, 21, 26)) {
      CAPTURE(std::string(kernels->name));
      CAPTURE(seed);
      CHECK(prompt_error(random_model(seed, SAC_DTYPE_BF16), kernels, seed) < 0.1);
      CHECK(prompt_error(random_model(seed, SAC_DTYPE_F16), kernels, seed) < 0.02);
    }
  }
}

TEST_CASE("with FP8 KV logprobs agree with the formulas over K and V rounded to FP8") {
  // A value between two codes may fall on the other side than in double, and is then off by a code:
  // seldom where sums are in f32, and for one value in some where activations are in bf16.
  for (const Kernels* kernels : available_kernels()) {
    CAPTURE(std::string(kernels->name));
    for (const uint32_t dtype : {SAC_DTYPE_F32, SAC_DTYPE_F16, SAC_DTYPE_BF16}) {
      CAPTURE(dtype);
      const bool narrow = dtype == SAC_DTYPE_BF16 && kernels->bf16_activations;
      uint32_t exact = 0;
      for (uint32_t seed = 25; seed <= 32; ++seed) {
        CAPTURE(seed);
        TestModel m = random_model(seed, dtype);
        keep_fp8_kv(m, seed);
        const double error = prompt_error(m, kernels, seed);
        CHECK(error < (narrow ? 0.6 : 0.05));
        exact += error < 5e-6 ? 1 : 0;
      }
      if (!narrow) CHECK(exact >= 5);  // of 8
    }
  }
}

TEST_CASE("matrices in e4m3 are computed as what they hold") {
  for (const Kernels* kernels : available_kernels()) {
    for (const uint32_t seed : seeds_of(kernels, 1, 12)) {
      CAPTURE(std::string(kernels->name));
      CAPTURE(seed);
      CHECK(prompt_error(fp8_model(seed, SAC_DTYPE_F32), kernels, seed) < 5e-5);
      if (seed <= 3) CHECK(prompt_error(fp8_model(seed, SAC_DTYPE_BF16), kernels, seed) < 0.1);
    }
  }
}

TEST_CASE("a request's records are byte-equal alone and in any batch, chunking and thread count") {
  for (const Kernels* kernels : available_kernels()) {
    for (const uint32_t seed : seeds_of(kernels, 31, 43)) {  // from 37 on with 8-bit weights
      CAPTURE(std::string(kernels->name));
      CAPTURE(seed);
      TestModel m = seed > 39 ? fp8_model(seed, seed % 3) : random_model(seed, seed % 3);
      if (seed > 36 && seed <= 39) m.config.quantization = SAC_QUANTIZATION_INT8;
      if (seed % 4 < 2) keep_fp8_kv(m, seed);
      Rng rng(seed);
      std::vector<Traveller> all(9);
      for (uint32_t s = 0; s < all.size(); ++s) {
        all[s].prompt = random_tokens(seed * 100 + s, 1 + rng() % 120, m.config.vocab_size);
        all[s].steps = 1 + rng() % 30;
        // Where few rows yield something, the last layer goes on with those alone.
        all[s].scored = seed % 2 != 0 && rng() % 2 != 0;
      }
      HarnessOptions o = options_of(kernels, 1 + seed % 3);
      o.num_seats = 9;
      o.max_rows = 9 * 33;
      o.block_size = seed % 2 != 0 ? 8 : 32;
      mixed_run(m, o, all, seed);
      for (const Traveller& t : all) {
        CHECK(t.records == t.wanted(lone_run(m, options_of(kernels), t.prompt, t.steps)));
      }
    }
  }
}

TEST_CASE("prefill at once, in chunks and token by token give the same bytes") {
  TestModel m = random_model(77, SAC_DTYPE_BF16);
  const std::vector<uint32_t> prompt = random_tokens(5, 120, m.config.vocab_size);
  for (uint32_t chunk : {1u, 2u, 7u, 16u, 50u, 120u, 1u, 7u, 50u}) {
    if (chunk == 120) keep_fp8_kv(m, 77);  // from here on
    for (uint32_t threads : {1u, 2u, 3u}) {
      StepHarness h(m.config, options_of(nullptr, threads));
      REQUIRE(load(m, *h.step) == "");
      h.seat_prompt(2, prompt, logprob_params(120));
      std::vector<uint64_t> records;
      for (uint32_t at = 0; at < 120; at += chunk) {
        const uint32_t rows = std::min(chunk, 120 - at);
        h.add(2, at, rows, at + rows == 120, true);
        h.run();
        for (uint32_t r = 0; r < rows && at + r + 1 < 120; ++r) {
          records.insert(records.end(), h.prompt_record(r), h.prompt_record(r) + 6);
        }
      }
      records.insert(records.end(), h.sampled_record(0), h.sampled_record(0) + 6);
      CHECK(records == lone_run(m, options_of(nullptr), prompt, 1));
    }
  }
}

TEST_CASE("contexts of several attention ranges are byte-equal alone and in any company") {
  constexpr uint32_t kLongLen = 4 * kAttentionRange;
  for (const Kernels* kernels : available_kernels()) {
    for (const uint32_t seed : seeds_of(kernels, 81, 84)) {
      CAPTURE(std::string(kernels->name));
      CAPTURE(seed);
      TestModel m = random_model(seed, seed % 2 == 0 ? SAC_DTYPE_BF16 : SAC_DTYPE_F32);
      m.cos.clear();
      m.sin.clear();
      fill_rope(m, kLongLen, 10000.0);
      for (uint32_t& window : m.windows) window *= 9;  // of up to 360 positions
      if (seed > 82) keep_fp8_kv(m, seed);
      HarnessOptions o = options_of(kernels);
      o.max_len = o.max_rows = kLongLen;
      Rng rng(seed);
      std::vector<Traveller> all(3);
      for (uint32_t s = 0; s < all.size(); ++s) {
        const uint32_t length = s == 0 ? kLongLen - 20 : 1 + rng() % (2 * kAttentionRange);
        all[s].prompt = random_tokens(seed * 100 + s, length, m.config.vocab_size);
        all[s].steps = s == 0 ? 15 : 40;
        all[s].scored = s == 1;
      }
      HarnessOptions together = o;
      together.num_threads = 1 + seed % 3;
      mixed_run(m, together, all, seed);
      for (const Traveller& t : all) {
        CHECK(t.records == t.wanted(lone_run(m, o, t.prompt, t.steps)));
      }
    }
  }
}

TEST_CASE("every instruction set with fused multiply-add gives the same bytes") {
  if (avx2_kernels() == nullptr || avx512_kernels() == nullptr) return;
  for (uint32_t seed = 41; seed <= 46; ++seed) {
    CAPTURE(seed);
    TestModel m = random_model(seed, seed % 3);
    if (seed > 43) keep_fp8_kv(m, seed);
    const std::vector<uint32_t> prompt = random_tokens(seed, 61, m.config.vocab_size);
    CHECK(lone_run(m, options_of(avx2_kernels()), prompt, 8) ==
          lone_run(m, options_of(avx512_kernels()), prompt, 8));
    const TestModel fp8 = fp8_model(seed, seed % 3);
    CHECK(lone_run(fp8, options_of(avx2_kernels()), prompt, 8) ==
          lone_run(fp8, options_of(avx512_kernels()), prompt, 8));
  }
}

TEST_CASE("stale bytes in recycled blocks reach no request") {
  for (const Kernels* kernels : available_kernels()) {
    for (const uint32_t seed : seeds_of(kernels, 51, 56)) {
      CAPTURE(std::string(kernels->name));
      CAPTURE(seed);
      TestModel m = random_model(seed, seed % 3);
      check_stale_bytes(m, kernels);
      keep_fp8_kv(m, seed);
      check_stale_bytes(m, kernels);
    }
  }
}

TEST_CASE("dummy weights depend on the seed, not on threads") {
  TestModel m = random_model(61, SAC_DTYPE_BF16);
  const std::vector<uint32_t> prompt = random_tokens(3, 20, m.config.vocab_size);
  std::vector<std::vector<uint64_t>> runs;
  for (const auto& [seed, threads] : {std::pair{1u, 1u}, {1u, 3u}, {2u, 1u}}) {
    StepHarness h(m.config, options_of(nullptr, threads));
    CHECK(h.step->missing_tensor() == "embed");
    h.step->fill_dummy(seed);
    CHECK(h.step->missing_tensor() == "rope tables");
    REQUIRE(h.step->set_rope(m.cos.data(), m.sin.data(), m.cos.size()) == "");
    CHECK(h.step->missing_tensor() == "");
    h.seat_prompt(0, prompt, logprob_params(20));
    h.add(0, 0, 20, true);
    h.run();
    runs.emplace_back(h.sampled_record(0), h.sampled_record(0) + 6);
  }
  CHECK(runs[0] == runs[1]);
  CHECK(runs[0] != runs[2]);
}

TEST_CASE("a step on another step's packed weights gives the same bytes, and packs nothing") {
  for (uint32_t seed = 70; seed < 79; ++seed) {
    TestModel m = seed < 76 ? random_model(seed, seed % 3) : fp8_model(seed, seed % 3);
    if (seed < 76 && seed % 2 == 0) m.config.quantization = SAC_QUANTIZATION_INT8;
    CAPTURE(seed);
    const std::vector<uint32_t> prompt = random_tokens(seed, 30, m.config.vocab_size);
    StepHarness packer(m.config, options_of(nullptr));
    REQUIRE(load(m, *packer.step) == "");
    const PackedCopy copy(packer.step->packed_weights());
    const std::vector<uint64_t> want = lone_run(m, options_of(nullptr), prompt, 4);

    HarnessOptions o = options_of(nullptr, 2);
    CHECK(lone_run(m, o, prompt, 4, &copy) == want);  // a write to the copy would be a crash
    StepHarness other(m.config, o);
    CHECK(other.step->packed_weights().layout == packer.step->packed_weights().layout);
    CHECK(other.step->adopt_packed(copy.data, copy.bytes) == "");
    CHECK(other.step->adopted());
    CHECK(other.step->packed_weights().data == copy.data);
    CHECK(other.step->missing_tensor() == "embed");  // still reports missing tensors
  }
}

TEST_CASE("the layout of packed weights tells apart what differs in memory") {
  const TestModel m = random_model(4, SAC_DTYPE_BF16);
  const auto layout_of = [&m](auto change) {
    sac_model_config c = m.config;
    change(c);
    HarnessOptions o = options_of(nullptr);
    return StepHarness(c, o).step->packed_weights().layout;
  };
  const uint64_t base = layout_of([](auto&) {});
  CHECK(layout_of([](auto& c) { c.rms_norm_eps = 1e-6f; }) == base);  // not in the packed bytes
  CHECK(layout_of([](auto& c) { c.sliding_window = nullptr; }) == base);
  CHECK(layout_of([](auto& c) { c.dtype = SAC_DTYPE_F16; }) != base);
  CHECK(layout_of([](auto& c) { c.quantization = SAC_QUANTIZATION_INT8; }) != base);
  const uint64_t fp8 = layout_of([](auto& c) { c.quantization = SAC_QUANTIZATION_FP8; });
  CHECK(fp8 != base);
  std::vector<uint32_t> roles(m.config.num_layers, 1u << SAC_TENSOR_Q);
  const auto with_roles = [&roles](auto& c) {
    c.quantization = SAC_QUANTIZATION_FP8;
    c.fp8_roles = roles.data();
  };
  const uint64_t only_q = layout_of(with_roles);
  CHECK((only_q != base && only_q != fp8));
  roles.back() |= 1u << SAC_TENSOR_GATE;
  CHECK(layout_of(with_roles) == only_q);  // a gate alone is not kept in e4m3
  roles.back() |= 1u << SAC_TENSOR_UP;
  CHECK(layout_of(with_roles) != only_q);
  CHECK(layout_of([](auto& c) { c.tied_embeddings ^= 1; }) != base);
  CHECK(layout_of([](auto& c) { c.qk_norm ^= 1; }) != base);
  CHECK(layout_of([](auto& c) { c.vocab_size += 1; }) != base);  // the same number of panels
  // sliding_window has an entry for each layer of the original model only.
  CHECK(layout_of([](auto& c) { c.sliding_window = nullptr, c.num_layers += 1; }) != base);
  CHECK(layout_of([](auto& c) { c.intermediate_size += 1; }) != base);
}

TEST_CASE("packed weights that do not fit a step are refused with a sentence") {
  const TestModel m = random_model(4, SAC_DTYPE_F32);
  StepHarness h(m.config, options_of(nullptr));
  const PackedCopy copy(h.step->packed_weights());
  const std::string bytes = std::to_string(copy.bytes);
  CHECK(h.step->adopt_packed(nullptr, copy.bytes) == "packed weights: data is null");
  CHECK(h.step->adopt_packed(copy.data, copy.bytes - 4096) ==
        "packed weights have " + std::to_string(copy.bytes - 4096) + " bytes, expected " + bytes);
  CHECK(h.step->adopt_packed(static_cast<char*>(copy.data) + 32, copy.bytes) ==
        "packed weights: data is not aligned to 128 bytes");
  CHECK_FALSE(h.step->adopted());
}

TEST_CASE("roles in e4m3 without the quantization are refused") {
  TestModel m = fp8_model(4, SAC_DTYPE_BF16);
  CHECK(check_model_config(m.config) == "");
  m.config.quantization = SAC_QUANTIZATION_INT8;
  CHECK(check_model_config(m.config) == "fp8_roles are given, but quantization is not fp8 (2)");
  m.config.quantization = 3;
  CHECK(check_model_config(m.config) == "quantization is 3, outside 0 .. 2");
}

TEST_CASE("a wrong tensor is refused with a sentence that names it") {
  TestModel m = random_model(4, SAC_DTYPE_F32);
  m.config.num_layers = 2;
  m.config.qk_norm = 0;
  m.config.tied_embeddings = 1;
  m.config.hidden_size = 32;
  m.config.num_heads = m.config.num_kv_heads = 2;
  m.config.head_dim = m.config.rotary_dim = 8;
  m.windows.assign(2, 0);
  m.config.sliding_window = m.windows.data();
  StepHarness h(m.config, options_of(nullptr));
  const std::vector<float> data(32 * 32);
  CpuStep& s = *h.step;
  CHECK(s.set_tensor(SAC_TENSOR_Q, 1, 0, 16, 31, data.data()) ==
        "q of layer 1 has shape [16][31], expected [16][32]");
  CHECK(s.set_tensor(SAC_TENSOR_Q, 2, 0, 16, 32, data.data()) == "q: layer is 2, outside 0 .. 1");
  CHECK(s.set_tensor(99, 0, 0, 1, 1, data.data()) == "tensor role is 99, outside 0 .. 24");
  CHECK(s.set_tensor(SAC_TENSOR_LM_HEAD, 0, 0, m.config.vocab_size, 32, data.data()) ==
        "lm_head was given, but tied_embeddings is 1");
  CHECK(s.set_tensor(SAC_TENSOR_Q_NORM, 0, 0, 1, 8, data.data()) ==
        "q_norm of layer 0 was given, but qk_norm is 0");
  CHECK(s.set_tensor(SAC_TENSOR_Q, 0, 3, 16, 32, data.data()) ==
        "q of layer 0: dtype is 3, not one of 0, 1, 2, 4");
  CHECK(s.set_tensor(SAC_TENSOR_Q, 0, SAC_DTYPE_FP8, 16, 32, data.data()) ==
        "q of layer 0 is in fp8 without scales");
  CHECK(s.set_tensor(SAC_TENSOR_Q, 0, SAC_DTYPE_F32, 16, 32, data.data(), 0, data.data()) ==
        "q of layer 0 has scales, but its dtype is not fp8 (4)");
  CHECK(s.set_tensor(SAC_TENSOR_INPUT_NORM, 1, SAC_DTYPE_FP8, 1, 32, data.data(), 0, data.data()) ==
        "input_norm of layer 1 is in fp8, which only matrices may be");
  CHECK(s.set_rope(data.data(), data.data(), 5) ==
        "rope tables have 5 entries, expected 640 ((max_model_len + rope_switch_len) * rotary_dim "
        "/ 2)");
}
