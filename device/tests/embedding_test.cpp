// Embeddings: one record and the end, the same to the bit whatever happens to the request, and
// refused where the descriptor, the device or the ring has no place for one.
#include <doctest/doctest.h>

#include "capi/saccade_device.h"
#include "tests/step_device.hpp"

namespace saccade::test {
namespace {

constexpr uint32_t kSize = 23;  // odd: the last word is half

DeviceShape null_shape() {
  DeviceShape shape;
  shape.embedding_size = kSize;
  return shape;
}

TEST_CASE("an embedding is the one record of its request, and its end") {
  for (const bool overlapped : {true, false}) {
    DeviceShape shape = null_shape();
    shape.overlapped = overlapped;
    Bench b(shape);
    for (const uint32_t len : {1u, 7u, 8u, 9u, 63u, 64u, 65u, 127u, 128u}) {
      CAPTURE(len);
      Ticket t = b.front.submit(embed_ask(prompt_of(len, len), kSize));
      b.finish({&t}, 200);
      const Expected e = expect(t.ask, shape);
      CHECK(t.words == e.words);
      CHECK(t.finish == SAC_FINISH_STOP);
      CHECK(t.final_count == 1);
      b.device.tick();
      CHECK(b.device.idle());
    }
    CHECK(b.device.s.report.stats.decode_tokens == 0);
  }
}

TEST_CASE("an embedding is the same in company, in chunks, and after it gave up its blocks") {
  DeviceShape shape = null_shape();
  shape.num_seats = 4;
  shape.max_model_len = 80;
  shape.num_blocks = 10;  // as many as the longest prompt takes
  shape.max_num_batched_tokens = 12;
  Bench b(shape);
  std::vector<Ticket> tickets;
  for (uint32_t i = 0; i < 24; ++i) {
    Ask ask = ask_of(2 + i, 50, i);
    if (i % 2 == 1) ask = embed_ask(prompt_of(std::min(20 + 3 * i, 80u), i), kSize);
    tickets.push_back(b.front.submit(ask));
  }
  std::vector<Ticket*> all;
  for (Ticket& t : tickets) all.push_back(&t);
  b.finish(all);
  for (const Ticket& t : tickets) CHECK(t.words == expect(t.ask, shape).words);
  CHECK(b.device.decisions(Decision::kPreempt).size() > 0);
  b.device.tick();
  CHECK(b.device.idle());
}

TEST_CASE("a reader that leaves no room holds its own embedding up, and no other") {
  Bench b(null_shape());
  // Of two steps: the cursor is seen before the second.
  Ticket held = b.front.prepare(embed_ask(prompt_of(100, 1), kSize), b.front.first_slot());
  b.front.ring(held);
  store_release(b.ring.cursor_mut(held.slot), 5u);  // it has read what was never written
  for (uint32_t i = 0; i < 20; ++i) b.device.tick();
  b.front.read(held, 0);
  CHECK_FALSE(held.ended());
  store_release(b.ring.cursor_mut(held.slot), 5u);
  Ticket other = b.front.submit(embed_ask(prompt_of(20, 2), kSize));
  b.finish({&other}, 100);
  CHECK(other.words == expect(other.ask, b.device.shape).words);
  b.front.cancel(held);
  for (uint32_t i = 0; i < 3; ++i) b.device.tick();
  b.front.read(held);
  CHECK(held.finish == SAC_FINISH_CANCELLED);
  CHECK(held.final_count == 0);
  CHECK(b.device.idle());
}

struct Case {
  const char* what;
  std::function<void(sac_descriptor&)> change;
};

uint32_t finish_of(Bench& b, const std::function<void(sac_descriptor&)>& change) {
  const Ask ask = embed_ask(prompt_of(10, 1), kSize);
  Ticket t = b.front.prepare(ask, b.front.free_slot());
  sac_descriptor d = b.front.descriptor(ask, t.slot);
  change(d);
  b.front.write_descriptor(d, t.slot);
  b.front.ring(t);
  b.finish({&t}, 100);
  return t.finish;
}

TEST_CASE("whatever an embedding leaves nothing to choose for is refused") {
  Bench b(null_shape());
  const uint64_t arena = b.ring.shape.arena_bytes;
  const Case cases[] = {
      {"max_tokens", [](auto& d) { d.max_tokens = 1; }},
      {"min_tokens", [](auto& d) { d.min_tokens = 1; }},
      {"logit_bias", [](auto& d) { d.num_logit_bias = 1; }},
      {"stop ids", [](auto& d) { d.num_stop_ids = 1; }},
      {"alternatives", [](auto& d) { d.num_top_logprobs = 1; }},
      {"a grammar", [](auto& d) { d.grammar_words = 1; }},
      {"ignore_eos", [](auto& d) { d.flags |= SAC_REQ_IGNORE_EOS; }},
      {"logprobs", [](auto& d) { d.flags |= SAC_REQ_LOGPROBS; }},
      {"prompt logprobs", [](auto& d) { d.flags |= SAC_REQ_PROMPT_LOGPROBS; }},
      {"no prompt", [](auto& d) { d.prompt_len = 0; }},
      {"prompt_len > max_model_len", [](auto& d) { d.prompt_len = 129; }},
      {"an extent over the end", [=](auto& d) { d.arena_extent = arena - 64, d.prompt_len = 17; }},
      {"an extent far outside", [](auto& d) { d.arena_extent = UINT64_MAX - 63; }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    CHECK(finish_of(b, c.change) == SAC_FINISH_INVALID);
    CHECK(b.device.idle());
  }
  CHECK(finish_of(b, [](auto&) {}) == SAC_FINISH_STOP);
  Bench none;
  CHECK(finish_of(none, [](auto&) {}) == SAC_FINISH_INVALID);
}

// ---- through the C interface --------------------------------------------------------------------

sac_device_config null_config(uint32_t embedding_size) {
  sac_device_config c = {};
  c.kind = SAC_DEVICE_NULL;
  c.max_num_seqs = 2;
  c.max_num_batched_tokens = 16;
  c.max_model_len = 64;
  c.block_size = 16;
  c.num_blocks = 8;
  c.num_threads = 1;
  c.embedding_size = embedding_size;
  return c;
}

TEST_CASE("a device says how long its embeddings are; 0 where a slot has no room for one") {
  for (const uint32_t size : {0u, 1u, 128u, 129u, 4096u}) {
    CAPTURE(size);
    TestRing ring(RingShape{});  // 64 words: 128 values
    const sac_device_config config = null_config(size);
    sac_device* device = nullptr;
    REQUIRE(sac_device_create(&config, nullptr, 99, &device) == 0);
    REQUIRE(sac_device_attach(device, ring.region(), ring.region_bytes()) == 0);
    CHECK(ring.view.device->embedding_size == (size <= 128 ? size : 0));
    sac_device_destroy(device);
  }
}

// ---- computed -----------------------------------------------------------------------------------

TestModel model_of(uint32_t dtype, uint32_t quantization, uint32_t experts) {
  TestModel m;
  sac_model_config& c = m.config;
  c.num_layers = 2;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = c.rotary_dim = 16;
  c.hidden_size = 48;
  c.intermediate_size = 64;
  c.vocab_size = 199;
  c.dtype = dtype;
  c.quantization = quantization;
  c.rms_norm_eps = 1e-5f;
  if (experts != 0) {
    c.num_experts = experts;
    c.experts_per_token = 2;
    c.moe_intermediate_size = 32;
  }
  fill_tensors(m, 11);
  fill_rope(m, 128, 10000.0);
  return m;
}

DeviceShape roomy(const TestModel& m) {
  DeviceShape shape;
  shape.vocab_size = m.config.vocab_size;
  shape.embedding_size = m.config.hidden_size;
  return shape;
}

/// Prompts of all lengths, some of which begin like others, and among them answers to be given.
std::vector<Ask> mixed_asks(const TestModel& m) {
  std::vector<Ask> asks;
  for (const uint32_t len : {1u, 2u, 8u, 9u, 31u, 64u, 65u, 100u}) {
    asks.push_back(embed_ask(prompt_of(len, len % 3, m.config.vocab_size), m.config.hidden_size));
    Ask answer = ask_of(1, 20, len);
    answer.prompt = prompt_of(len, 1 + len % 3, m.config.vocab_size);
    asks.push_back(answer);
  }
  return asks;
}

using Words = std::vector<std::vector<uint64_t>>;

struct Pass {
  Words words;
  uint64_t hits = 0;  // prompt tokens that were there
  size_t preemptions = 0;
  uint64_t rotations = 0;
};

/// All asks on one device: `together`, or one after the other; `times` over.
Pass serve(const TestModel& m, const DeviceShape& shape, const Kernels* kernels, bool together,
           uint32_t times = 1) {
  TestRing ring(RingShape{});
  StepDevice device(ring, shape, {kernels, &m, 2, false});
  TestFrontend front(ring, 0);
  front.join();
  device.tick();
  const std::vector<Ask> asks = mixed_asks(m);
  Pass pass;
  for (uint32_t time = 0; time < times; ++time) {
    pass.words.clear();
    std::vector<Ticket> tickets;
    for (size_t i = 0; i < asks.size(); ++i) {
      tickets.push_back(front.submit(asks[i]));
      const bool waits = !together || i + 1 == asks.size();
      for (uint32_t n = 0; waits && n < 100000; ++n) {
        bool all = true;
        for (Ticket& t : tickets) front.read(t), all &= t.complete();
        if (all) break;
        front.beat();
        device.tick();
      }
    }
    for (const Ticket& t : tickets) {
      REQUIRE(t.complete());
      CHECK(t.finish == (t.ask.embedding_size != 0 ? SAC_FINISH_STOP : SAC_FINISH_LENGTH));
      pass.words.push_back(t.words);
    }
  }
  const DecisionLog& log = device.s.report.log;
  for (uint64_t i = 0; i + 1 < log.used; i += 2)
    pass.preemptions += static_cast<Decision>(log.words[i] & 0xff) == Decision::kPreempt ? 1 : 0;
  pass.hits = device.stats().prefix_hit_tokens;
  pass.rotations = device.stats().rotations;
  return pass;
}

TEST_CASE("a computed embedding is the same to the bit, whatever happens to its request") {
  const struct {
    const char* name;
    TestModel model;
  } models[] = {{"f32", model_of(SAC_DTYPE_F32, 0, 0)},
                {"bf16", model_of(SAC_DTYPE_BF16, 0, 0)},
                {"int8", model_of(SAC_DTYPE_BF16, SAC_QUANTIZATION_INT8, 0)},
                {"fp8, experts", model_of(SAC_DTYPE_BF16, SAC_QUANTIZATION_FP8, 5)},
                {"f16, experts", model_of(SAC_DTYPE_F16, 0, 5)}};
  for (const Kernels* kernels : available_kernels()) {
    for (const auto& named : models) {
      CAPTURE(std::string(kernels->name));
      CAPTURE(std::string(named.name));
      const TestModel& m = named.model;
      const DeviceShape shape = roomy(m);
      const Words alone = serve(m, shape, kernels, false).words;
      CHECK(serve(m, shape, kernels, true).words == alone);
      for (const uint32_t rows : {8u, 11u, 1024u}) {
        DeviceShape chunked = shape;
        chunked.max_num_batched_tokens = rows;
        CHECK(serve(m, chunked, kernels, true).words == alone);
      }
      DeviceShape caching = shape;
      caching.prefix_caching = true;
      const Pass warm = serve(m, caching, kernels, true, 2);
      CHECK(warm.words == alone);
      CHECK(warm.hits > 300);
      DeviceShape tight = shape;
      tight.num_blocks = 18;
      const Pass squeezed = serve(m, tight, kernels, true);
      CHECK(squeezed.words == alone);
      CHECK(squeezed.preemptions > 0);
      tight.num_host_blocks = 100;
      tight.eager_window = 3;
      tight.scheduling = Policy::kChurn;
      const Pass turned = serve(m, tight, kernels, true);
      CHECK(turned.words == alone);
      CHECK(turned.rotations > 0);
    }
  }
}

TEST_CASE("a computed embedding is the final norm of the last row, at unit root mean square") {
  TestModel m = model_of(SAC_DTYPE_F32, 0, 0);
  // With weights of one, the norm leaves a row whose mean square is 1 - eps / (its old one + eps).
  for (float& w : m.tensors.at({SAC_TENSOR_FINAL_NORM, 0})) w = 1.0f;
  const Words words = serve(m, roomy(m), nullptr, false).words;
  const std::vector<Ask> asks = mixed_asks(m);
  for (size_t i = 0; i < asks.size(); ++i) {
    if (asks[i].embedding_size == 0) continue;
    double sum = 0;
    for (const uint64_t word : words[i])
      for (const uint32_t half : {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)}) {
        const float value = __builtin_bit_cast(float, half);
        sum += double{value} * value;
      }
    CHECK(sum / m.config.hidden_size == doctest::Approx(1.0).epsilon(1e-3));
  }
}

}  // namespace
}  // namespace saccade::test
