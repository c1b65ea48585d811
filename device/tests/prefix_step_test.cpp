// Shared prefixes under real steps: for every kernel set and every kind of model, each request
// yields the records that it yields alone without a prefix cache, bit by bit, whatever is found,
// followed, evicted, recomputed or fetched from host memory. SACCADE_SEED draws other requests.
#include <doctest/doctest.h>

#include "tests/prefix_requests.hpp"
#include "tests/step_device.hpp"

namespace saccade::test {
namespace {

// ---- models

TestModel plain_model(uint32_t dtype) {
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
  c.rms_norm_eps = 1e-5f;
  return m;
}

TestModel windowed_model() {
  TestModel m = plain_model(SAC_DTYPE_BF16);
  m.config.num_layers = 3;
  m.config.qk_norm = m.config.tied_embeddings = 1;
  m.biases = true;
  m.windows = {0, 20, 5};
  return m;
}

TestModel quantized_model(uint32_t dtype, uint32_t quantization) {
  TestModel m = plain_model(dtype);
  m.config.quantization = quantization;
  return m;
}

/// Its scales are all 1: models are copied, and would have to take theirs along.
TestModel fp8_kv_model() {
  TestModel m = plain_model(SAC_DTYPE_BF16);
  m.config.kv_dtype = SAC_KV_DTYPE_FP8;
  return m;
}

TestModel expert_model() {
  TestModel m = plain_model(SAC_DTYPE_F16);
  m.config.num_experts = 5;
  m.config.experts_per_token = 2;
  m.config.moe_intermediate_size = 32;
  return m;
}

/// The angles of a position below the switch depend on the length of the prompt.
TestModel longrope_model() {
  TestModel m = plain_model(SAC_DTYPE_F32);
  m.config.rope_switch_len = 30;
  return m;
}

struct NamedModel {
  const char* name;
  TestModel model;
};

/// All that prefixes might meet; still without rotary tables.
const std::vector<NamedModel>& models() {
  static const std::vector<NamedModel> all = [] {
    std::vector<NamedModel> made = {
        {"f32", plain_model(SAC_DTYPE_F32)},
        {"bf16, windows, norms, biases", windowed_model()},
        {"int8, bf16", quantized_model(SAC_DTYPE_BF16, SAC_QUANTIZATION_INT8)},
        {"int8, f32", quantized_model(SAC_DTYPE_F32, SAC_QUANTIZATION_INT8)},
        {"fp8, bf16", quantized_model(SAC_DTYPE_BF16, SAC_QUANTIZATION_FP8)},
        {"bf16, FP8 KV", fp8_kv_model()},
        {"f16, experts", expert_model()},
        {"f32, longrope", longrope_model()}};
    uint32_t seed = 5;
    for (NamedModel& m : made) {
      if (!m.model.windows.empty()) m.model.config.sliding_window = m.model.windows.data();
      fill_tensors(m.model, ++seed);
      for (uint32_t i = 0; i < 2; ++i)
        m.model.adapters.push_back(random_adapter(m.model.config, 12, 10 * seed + i));
    }
    return made;
  }();
  return all;
}

// ---- serving

DeviceShape shape_of(const TestModel& model, uint32_t block_size) {
  DeviceShape shape;
  shape.num_seats = 8;
  shape.max_num_batched_tokens = 64;
  shape.max_model_len = longest_request(block_size);
  shape.block_size = block_size;
  shape.num_blocks = 256;
  shape.vocab_size = model.config.vocab_size;
  shape.prefix_caching = true;
  shape.adapter_keys = {0x1111, 0x2222};
  shape.log_words = 1 << 18;
  return shape;
}

/// One pass of all requests.
struct Pass {
  std::vector<std::vector<uint64_t>> words;
  std::vector<uint32_t> cached;  // prompt tokens, as the frontend was told
};

/// How a pass is made; odds are "one in n per tick", 0 = never.
struct Manner {
  bool together = false;
  uint32_t read_odds = 1;  // that a request is read
  uint32_t reset_odds = 0;
  uint32_t cancel_odds = 0;
  uint64_t seed = 1;
};

/// A device that stays: passes find what earlier ones left.
class Serving {
 public:
  Serving(const DeviceShape& shape, const Engine& engine)
      : ring(RingShape{}), device(ring, shape, engine), front(ring, 0) {
    front.join();
    device.tick();
  }

  Pass one_by_one(std::vector<PrefixRequest>& requests) {
    Pass pass = empty_pass(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      go_on(requests, pass, i);
      tickets_ = {front.submit(requests[i].ask)};
      finish({});
      take(pass, i, tickets_[0]);
    }
    return pass;
  }
  /// All at once, in an order of the seed's.
  Pass together(const std::vector<PrefixRequest>& requests, const Manner& manner) {
    Random random(manner.seed);
    std::vector<size_t> order(requests.size());
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
      std::swap(order[i], order[random.in(0, static_cast<uint32_t>(i))]);
    }
    tickets_.clear();
    for (size_t i : order) tickets_.push_back(front.submit(requests[i].ask));
    finish(manner);
    Pass pass = empty_pass(requests.size());
    for (size_t i = 0; i < order.size(); ++i) take(pass, order[i], tickets_[i]);
    return pass;
  }
  Pass pass(std::vector<PrefixRequest>& requests, const Manner& manner) {
    return manner.together ? together(requests, manner) : one_by_one(requests);
  }
  /// Of all prompts, what was there when their requests were admitted.
  uint32_t tokens_at_admission() const {
    uint32_t tokens = 0;
    const DecisionLog& log = device.s.report.log;
    REQUIRE(log.dropped == 0);
    for (uint64_t i = 0; i + 1 < log.used; i += 2)
      if (static_cast<Decision>(log.words[i] & 0xff) == Decision::kCached)
        tokens += static_cast<uint32_t>(log.words[i + 1]);
    return tokens;
  }

  TestRing ring;
  StepDevice device;
  TestFrontend front;

 private:
  static Pass empty_pass(size_t count) {
    return {std::vector<std::vector<uint64_t>>(count), std::vector<uint32_t>(count)};
  }
  /// A turn's prompt, once the turn before it has been served in this pass.
  static void go_on(std::vector<PrefixRequest>& requests, const Pass& pass, size_t i) {
    PrefixRequest& r = requests[i];
    if (r.turn_of < 0 || !r.ask.prompt.empty()) return;
    const auto before = static_cast<size_t>(r.turn_of);
    const Ask& asked = requests[before].ask;
    r.ask.prompt = asked.prompt;
    const uint32_t stride = sac_record_stride(asked.flags, asked.num_top_logprobs);
    for (size_t w = 0; w < pass.words[before].size(); w += stride)
      r.ask.prompt.push_back(static_cast<uint32_t>(pass.words[before][w]));
    r.ask.prompt.insert(r.ask.prompt.end(), r.tail.begin(), r.tail.end());
  }
  void take(Pass& pass, size_t i, const Ticket& t) const {
    pass.words[i] = t.words;
    pass.cached[i] = ring.view.status[t.slot].num_cached_tokens;
    if (t.finish != SAC_FINISH_CANCELLED) CHECK(t.finish == SAC_FINISH_LENGTH);
  }
  void finish(const Manner& manner) {
    Random random(manner.seed + 1);
    for (uint32_t i = 0;; ++i) {
      if (i == 1'000'000) throw std::runtime_error("requests did not end");
      bool all = true;
      for (Ticket& t : tickets_) {
        if (random.one_in(manner.read_odds)) front.read(t);
        if (!t.complete() && random.one_in(manner.cancel_odds)) front.cancel(t);
        all &= t.complete();
      }
      if (all) return;
      if (random.one_in(manner.reset_odds)) front.reset_prefixes();
      front.beat();
      device.now_ns += random.in(0, 20) * 1'000'000ull;
      device.tick();
    }
  }

  std::vector<Ticket> tickets_;
};

// ---- what must hold

/// One kernel set and one model, the requests, and what they yield alone and with no cache.
struct Setting {
  const char* kernels_name;
  const char* model_name;
  std::unique_ptr<TestModel> model;
  Engine engine;
  DeviceShape shape;
  std::vector<PrefixRequest> requests;
  Pass alone;
};

Setting setting_of(const Kernels* kernels, const NamedModel& m, uint64_t seed,
                   uint32_t block_size) {
  const DeviceShape shape = shape_of(m.model, block_size);
  Setting s = {kernels->name,
               m.name,
               std::make_unique<TestModel>(m.model),
               {},
               shape,
               PrefixRequests(seed, block_size, shape.vocab_size).all,
               {}};
  fill_rope(*s.model, shape.max_model_len, 10000.0);
  fill_rope(*s.model, s.model->config.rope_switch_len, 100.0);
  s.engine = {kernels, s.model.get(), 1, false};
  DeviceShape off = shape;
  off.prefix_caching = false;
  Serving serving(off, s.engine);
  s.alone = serving.one_by_one(s.requests);
  CHECK(serving.device.stats().prefix_query_tokens == 0);
  return s;
}

/// Seed of the requests of all cases but the last.
uint64_t one_seed() { return Seeds(1).first; }

template <class Case>
void for_each_setting(Case run) {
  // Made once: each case needs them.
  static std::vector<Setting> settings = [] {
    std::vector<Setting> made;
    for (const Kernels* kernels : available_kernels())
      for (const NamedModel& m : models()) made.push_back(setting_of(kernels, m, one_seed(), 8));
    return made;
  }();
  const uint64_t seed = one_seed();
  for (Setting& s : settings) {
    CAPTURE(seed);
    CAPTURE(std::string(s.kernels_name));
    CAPTURE(std::string(s.model_name));
    run(s);
  }
}

void check_same(const Setting& s, const Pass& pass) {
  for (size_t i = 0; i < pass.words.size(); ++i) {
    CAPTURE(i);
    CHECK(pass.words[i] == s.alone.words[i]);
  }
}

uint64_t total(const std::vector<uint32_t>& tokens) {
  uint64_t sum = 0;
  for (uint32_t t : tokens) sum += t;
  return sum;
}

/// All full blocks of a prompt but the one with its last token.
uint32_t shareable(const PrefixRequest& r, uint32_t block_size) {
  const auto len = static_cast<uint32_t>(r.ask.prompt.size());
  return r.shares() ? (len - 1) / block_size * block_size : 0;
}

TEST_CASE("requests yield the same with the cache off, cold and warm") {
  for_each_setting([](Setting& s) {
    std::vector<std::vector<uint32_t>> served;
    for (size_t i = 0; i < s.requests.size(); ++i) {
      const Ask& ask = s.requests[i].ask;
      served.push_back(ask.prompt);
      if (!s.requests[i].shares()) continue;
      const uint32_t stride = sac_record_stride(ask.flags, ask.num_top_logprobs);
      for (size_t w = 0; w < s.alone.words[i].size(); w += stride)
        served[i].push_back(static_cast<uint32_t>(s.alone.words[i][w]));
    }
    Serving serving(s.shape, s.engine);
    const sac_device_stats& stats = serving.device.stats();
    const Pass cold = serving.one_by_one(s.requests);
    check_same(s, cold);
    CHECK(cold.cached ==
          found_in_order(s.requests, served, s.shape.block_size, s.model->config.rope_switch_len));
    CHECK(stats.prefix_hit_tokens == total(cold.cached));
    const uint64_t computed = stats.prefill_tokens;
    const Pass warm = serving.one_by_one(s.requests);
    check_same(s, warm);
    uint64_t rest = 0;
    for (size_t i = 0; i < s.requests.size(); ++i) {
      CHECK(warm.cached[i] == shareable(s.requests[i], s.shape.block_size));
      rest += s.requests[i].ask.prompt.size() - warm.cached[i];
    }
    CHECK(stats.prefill_tokens - computed == rest);
  });
}

TEST_CASE("requests yield the same in company, also while one computes what another waits for") {
  for_each_setting([](Setting& s) {
    Engine engine = s.engine;
    engine.num_threads = 2;
    Serving serving(s.shape, engine);
    const Pass cold = serving.together(s.requests, {.together = true, .seed = 1});
    check_same(s, cold);
    // More than was there when they were admitted was taken over later.
    CHECK(total(cold.cached) > serving.tokens_at_admission());
    const Pass warm = serving.together(s.requests, {.together = true, .seed = 2});
    check_same(s, warm);
    CHECK(total(warm.cached) > total(cold.cached));
  });
}

TEST_CASE("requests yield the same in any chunking") {
  for_each_setting([](Setting& s) {
    for (const uint32_t rows : {1u, 7u, 16u, 1024u}) {
      CAPTURE(rows);
      DeviceShape shape = s.shape;
      shape.num_seats = std::min(rows, 8u);
      shape.max_num_batched_tokens = rows;
      Serving serving(shape, s.engine);
      check_same(s, serving.together(s.requests, {.together = true, .seed = rows}));
      CHECK(serving.device.stats().prefix_hit_tokens > 0);
    }
  });
}

/// Blocks of the longest request that may be, and one more.
uint32_t few_blocks(const DeviceShape& shape) {
  return ceil_div(shape.max_model_len, shape.block_size) + 1;
}

TEST_CASE("requests yield the same after preemption, and with what is left of the cache") {
  for_each_setting([](Setting& s) {
    DeviceShape shape = s.shape;
    shape.num_blocks = few_blocks(shape);
    Serving serving(shape, s.engine);
    for (uint64_t seed : {5u, 6u, 7u})
      check_same(s, serving.together(s.requests, {.together = true, .seed = seed}));
    const sac_device_stats& stats = serving.device.stats();
    CHECK(stats.preemptions > 0);
    CHECK(stats.recomputed_tokens > 0);
    CHECK(stats.prefix_evictions > 0);
    CHECK(stats.prefix_hit_tokens > 0);
  });
}

TEST_CASE("requests yield the same after rotation and return, and with prefixes from host memory") {
  for_each_setting([](Setting& s) {
    DeviceShape shape = s.shape;
    shape.num_blocks = few_blocks(shape);
    shape.eager_window = 4;
    shape.copies.per_tick = 3;
    for (const auto& way : {std::pair{Policy::kFcfs, 256u},
                            {Policy::kFcfs, shape.num_blocks},
                            {Policy::kChurn, 256u}}) {
      shape.scheduling = way.first;
      shape.num_host_blocks = way.second;
      CAPTURE(static_cast<uint32_t>(shape.scheduling));
      CAPTURE(shape.num_host_blocks);
      Serving serving(shape, s.engine);
      const sac_device_stats& stats = serving.device.stats();
      for (uint64_t seed : {8u, 9u})
        check_same(s, serving.together(s.requests, {.together = true, .seed = seed}));
      CHECK(stats.rotations > 0);
      CHECK(stats.blocks_up > 0);
      if (shape.num_host_blocks == shape.num_blocks) CHECK(stats.prefix_evictions > 0);
      if (way != std::pair{Policy::kFcfs, 256u}) continue;
      const uint64_t up = stats.blocks_up, rotations = stats.rotations;
      check_same(s, serving.one_by_one(s.requests));
      CHECK(stats.rotations == rotations);
      CHECK(stats.blocks_up > up);  // they were prefixes
    }
  });
}

TEST_CASE("requests yield the same while the device's own threads copy blocks beside steps") {
  for_each_setting([](Setting& s) {
    DeviceShape shape = s.shape;
    shape.num_blocks = few_blocks(shape);
    shape.num_host_blocks = 256;
    shape.eager_window = 4;
    Engine engine = s.engine;
    engine.copy_threads = true;
    Serving serving(shape, engine);
    for (uint64_t seed : {10u, 11u})
      check_same(s, serving.together(s.requests, {.together = true, .seed = seed}));
    CHECK(serving.device.stats().blocks_up > 0);
  });
}

// ---- any mixture

DeviceShape random_shape(Random& r, const DeviceShape& base) {
  DeviceShape shape = base;
  const uint32_t one = ceil_div(shape.max_model_len, shape.block_size);
  shape.num_seats = r.pick({1u, 2u, 4u, 8u, 20u});
  shape.max_num_batched_tokens = shape.num_seats + r.pick({0u, 1u, 7u, 40u, 400u});
  shape.num_blocks = one + r.pick({0u, 1u, 5u, 30u, 500u});
  shape.num_host_blocks = r.pick({0u, 1u, one, 3 * one, 256u});
  shape.eager_window = r.pick({0u, 1u, 5u, 100u});
  shape.policy = r.one_in(3) ? PrefillPolicy::kInline : PrefillPolicy::kChunked;
  shape.overlapped = !r.one_in(4);
  shape.scheduling = r.pick({Policy::kFcfs, Policy::kFcfs, Policy::kWf, Policy::kSf, Policy::kLvf,
                             Policy::kGoodput, Policy::kChurn});
  shape.settings.min_run_ns = r.pick({0u, 100'000'000u});
  shape.settings.b_xfer_blocks = r.pick({1u, 10u, 2400u});
  // A copy per tick at least: all blocks of a request come back before the policy moves it again.
  shape.copies.per_tick = r.pick({one, 4 * one, UINT32_MAX});
  shape.copies.stop_odds = r.pick({0u, 0u, 10u});
  shape.copies.lie_odds = r.pick({0u, 0u, 7u});
  shape.copy_seed = r.next();
  return shape;
}

/// What was read of a request that was cancelled is the beginning of what it yields.
void check_begins(const Setting& s, const Pass& pass) {
  for (size_t i = 0; i < pass.words.size(); ++i) {
    CAPTURE(i);
    std::vector<uint64_t> begin = s.alone.words[i];
    REQUIRE(pass.words[i].size() <= begin.size());
    begin.resize(pass.words[i].size());
    CHECK(pass.words[i] == begin);
  }
}

TEST_CASE("requests yield the same in random mixtures of all of this") {
  const Seeds seeds(40);
  uint64_t hits = 0, preemptions = 0, rotations = 0, up = 0, evictions = 0;
  const std::vector<const Kernels*> kernels = available_kernels();
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    CAPTURE(seed);
    Random r(seed * 0xd1342543de82ef95ull + 7);
    const NamedModel& model = models()[r.in(0, static_cast<uint32_t>(models().size()) - 1)];
    Setting s = setting_of(kernels[seed % kernels.size()], model, seed, r.pick({4u, 8u, 16u}));
    CAPTURE(std::string(s.kernels_name));
    CAPTURE(std::string(s.model_name));
    s.engine.num_threads = r.in(1, 2);
    try {
      Serving serving(random_shape(r, s.shape), s.engine);
      for (uint32_t i = 0; i < 3; ++i) {
        const Manner manner = {.together = !r.one_in(4),
                               .read_odds = r.pick({1u, 1u, 3u}),
                               .reset_odds = r.pick({0u, 0u, 50u}),
                               .cancel_odds = r.pick({0u, 0u, 300u}),
                               .seed = r.next()};
        serving.device.s.kv.store.eviction.chosen = r.in(0, kNumKeepRates - 1);
        const Pass pass = serving.pass(s.requests, manner);
        manner.cancel_odds == 0 ? check_same(s, pass) : check_begins(s, pass);
      }
      const sac_device_stats& stats = serving.device.stats();
      hits += stats.prefix_hit_tokens;
      preemptions += stats.preemptions;
      rotations += stats.rotations;
      up += stats.blocks_up;
      evictions += stats.prefix_evictions;
    } catch (const std::exception& e) {
      FAIL_CHECK("seed " << seed << ": " << std::string(e.what()));
    }
  }
  MESSAGE("hits " << hits << ", preemptions " << preemptions << ", rotations " << rotations
                  << ", blocks up " << up << ", evictions " << evictions);
  if (seeds.first == seeds.last) return;
  CHECK(hits > 10000);
  CHECK(preemptions > 50);
  CHECK(rotations > 50);
  CHECK(up > 100);
  CHECK(evictions > 100);
}

}  // namespace
}  // namespace saccade::test
