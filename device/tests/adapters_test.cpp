// Adapters under real steps: against a decoder in double over the merged weights, and against
// themselves in other company; and what the control interface refuses.
#include "tests/step_runs.hpp"
#include "tests/test_ring.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

constexpr uint32_t kMaxRank = 70;  // up to three panels

/// `count` adapters, and a last one that changes nothing.
void add_adapters(TestModel& m, uint32_t count, uint32_t seed) {
  for (uint32_t i = 0; i < count; ++i) {
    m.adapters.push_back(random_adapter(m.config, i == 0 ? 8 : kMaxRank, seed * 10 + i));
  }
  m.adapters.emplace_back();
}

TestModel adapted_model(uint32_t seed, uint32_t dtype) {
  TestModel m = random_model(seed, dtype);
  add_adapters(m, 2, seed);
  return m;
}

/// Models of every type of weights, in turn.
TestModel any_model(uint32_t seed) {
  TestModel m = seed % 5 == 4 ? fp8_model(seed, seed % 2) : random_model(seed, seed % 3);
  if (seed % 5 == 3) m.config.quantization = SAC_QUANTIZATION_INT8;
  if (seed % 4 < 2) keep_fp8_kv(m, seed);
  add_adapters(m, 3, seed);
  return m;
}

TestModel without_adapters(const TestModel& m) {
  TestModel plain = m;
  plain.adapters.clear();
  return plain;
}

TestModel expert_model(uint32_t dtype) {
  TestModel m = random_model(9, dtype);
  m.config.num_experts = 4;
  m.config.experts_per_token = 2;
  m.config.moe_intermediate_size = 32;
  m.tensors.clear();
  fill_tensors(m, 9);
  add_adapters(m, 2, 9);
  return m;
}

/// Requests of one adapter mostly, of others and of none.
std::vector<Traveller> travellers(const TestModel& m, uint32_t seed, uint32_t count = 10) {
  Rng rng(seed);
  std::vector<Traveller> all(count);
  constexpr uint32_t kAdapters[10] = {1, 1, 1, 1, 1, 1, 2, 0, 3, 4};
  for (uint32_t s = 0; s < all.size(); ++s) {
    all[s].prompt = random_tokens(seed * 100 + s, 1 + rng() % 120, m.config.vocab_size);
    all[s].steps = 1 + rng() % 20;
    all[s].adapter = kAdapters[s % 10] > m.adapters.size() ? 0 : kAdapters[s % 10];
    all[s].scored = seed % 2 != 0 && s % 2 != 0;
  }
  return all;
}

void check_company(const TestModel& m, const Kernels* kernels, uint32_t seed,
                   uint32_t num_seqs = 10, uint32_t most_rows = 33) {
  std::vector<Traveller> all = travellers(m, seed, num_seqs);
  HarnessOptions o = options_of(kernels, 1 + seed % 3);
  o.num_seats = static_cast<uint32_t>(all.size());
  o.max_rows = o.num_seats * most_rows;
  mixed_run(m, o, all, seed, most_rows);
  for (const Traveller& t : all) {
    CAPTURE(t.adapter);
    const auto lone = lone_run(m, options_of(kernels), t.prompt, t.steps, nullptr, t.adapter);
    CHECK(t.records == t.wanted(lone));
  }
}

/// The rows of a step, sequence by sequence, each with an adapter or none.
struct AdaptedBatch {
  std::vector<StepSeq> seqs;
  std::vector<SeatParams> params;    // by seat
  std::vector<uint32_t> adapter_of;  // by row

  void add(uint32_t num_rows, uint32_t adapter) {
    StepSeq seq = {};
    seq.seat = static_cast<uint32_t>(seqs.size());
    seq.first_row = static_cast<uint32_t>(adapter_of.size());
    seq.num_rows = num_rows;
    seqs.push_back(seq);
    params.push_back({});
    params.back().adapter = adapter;
    adapter_of.insert(adapter_of.end(), num_rows, adapter);
  }
  void build(AdapterPlan& plan) const {
    StepBatch batch = {};
    batch.num_seqs = static_cast<uint32_t>(seqs.size());
    batch.num_rows = static_cast<uint32_t>(adapter_of.size());
    batch.seqs = seqs.data();
    SeatTables tables = {};
    tables.params = params.data();
    plan.build(batch, tables);
  }
};

AdaptedBatch random_batch(Rng& rng, uint32_t num_adapters, uint32_t max_rows) {
  AdaptedBatch b;
  uint32_t left = 1 + rng() % max_rows;
  const uint32_t longest = 1 + rng() % left;
  while (left > 0) {
    const uint32_t rows = std::min<uint32_t>(1 + rng() % longest, left);
    b.add(rows, rng() % (num_adapters + 1));
    left -= rows;
  }
  return b;
}

/// The rows of a span in their order, each in a slot that no other row has.
void check_span(const AdaptedBatch& b, const AdapterPlan& plan, uint32_t index,
                std::vector<bool>& taken) {
  const AdapterSpan span = plan.span(index);
  const uint32_t end = span.first + span.num_rows;
  REQUIRE(span.base_slot + end <= taken.size());
  REQUIRE(span.base_slot % kActivationRows == 0);
  std::vector<uint32_t> rows;
  for (uint32_t i = span.first; i < end; ++i) {
    rows.push_back(plan.row_at(span, i));
    CHECK_FALSE(taken[span.base_slot + i]);
    taken[span.base_slot + i] = true;
  }
  std::vector<uint32_t> expected;
  for (uint32_t row = 0; row < b.adapter_of.size(); ++row) {
    if (b.adapter_of[row] == span.adapter) expected.push_back(row);
    const auto at = std::lower_bound(rows.begin(), rows.end(), row);
    CHECK(plan.first_from(span, row) == span.first + (at - rows.begin()));
  }
  CHECK(rows == expected);
  uint32_t covered = span.first;
  for (uint32_t i = 0; i < plan.num_blocks(); ++i) {
    const AdapterBlock block = plan.block(i);
    if (block.span != index) continue;
    CHECK(block.first == covered);
    CHECK(block.num_rows <= AdapterPlan::kBlockRows);
    covered += block.num_rows;
  }
  CHECK(covered == end);
}

void check_plan(const AdaptedBatch& b, const AdapterPlan& plan, uint32_t max_slots) {
  std::vector<bool> taken(max_slots);
  for (uint32_t i = 0; i < plan.num_spans(); ++i) check_span(b, plan, i, taken);
  const size_t adapted =
      b.adapter_of.size() - std::count(b.adapter_of.begin(), b.adapter_of.end(), 0u);
  CHECK(static_cast<size_t>(std::count(taken.begin(), taken.end(), true)) == adapted);
  for (uint32_t i = 0; i < plan.num_gathered(); ++i) {
    CHECK(taken[plan.gathered_slot(i)]);
    taken[plan.gathered_slot(i)] = false;
  }
  for (uint32_t i = 0; i < plan.num_spans(); ++i) {
    const AdapterSpan span = plan.span(i);
    CHECK(taken[span.base_slot + span.first] == (span.base_row != AdapterSpan::kApart));
  }
}

std::string refusal(void (*change)(sac_adapter_pair&), uint32_t adapter = 1) {
  TestModel m = adapted_model(1, SAC_DTYPE_F32);
  HarnessOptions o = options_of(nullptr);
  o.adapters = {2, 16};
  StepHarness h(m.config, o);
  Rng rng(1);
  const TestPair pair = random_pair(m.config, SAC_TENSOR_O, 16, rng);
  sac_adapter_pair given = pair_of(m.config, SAC_TENSOR_O, 0, pair);
  change(given);
  return h.step->set_adapter_pair(adapter, given);
}

bool says(const std::string& sentence, const char* part) {
  return sentence.find(part) != std::string::npos;
}

sac_device_config null_config(uint32_t num_adapters, uint32_t max_rank) {
  sac_device_config c = {};
  c.kind = SAC_DEVICE_NULL;
  c.max_num_seqs = c.max_num_batched_tokens = c.num_threads = 1;
  c.max_model_len = c.block_size = 16;
  c.num_blocks = 1;
  c.num_adapters = num_adapters;
  c.max_adapter_rank = max_rank;
  return c;
}

/// What is wrong with a configuration; empty: nothing.
std::string config_error(const sac_device_config& c) {
  sac_device* device = nullptr;
  if (sac_device_create(&c, nullptr, 10, &device) != 0) return sac_last_error();
  sac_device_destroy(device);
  return "";
}

}  // namespace

TEST_CASE("with an adapter logprobs agree with the formulas over merged weights") {
  for (const Kernels* kernels : available_kernels()) {
    for (const uint32_t seed : seeds_of(kernels, 1, 6)) {
      CAPTURE(std::string(kernels->name));
      CAPTURE(seed);
      const TestModel f32 = adapted_model(seed, SAC_DTYPE_F32);
      for (uint32_t adapter = 0; adapter <= 3; ++adapter) {
        CAPTURE(adapter);
        CHECK(prompt_error(f32, kernels, seed, adapter) < 1e-4);
      }
      CHECK(prompt_error(adapted_model(seed, SAC_DTYPE_BF16), kernels, seed, 1) < 0.2);
      CHECK(prompt_error(adapted_model(seed, SAC_DTYPE_F16), kernels, seed, 2) < 0.05);
      TestModel fp8 = fp8_model(seed, SAC_DTYPE_F32);
      add_adapters(fp8, 2, seed);
      CHECK(prompt_error(fp8, kernels, seed, 2) < 2e-4);
      TestModel int8 = adapted_model(seed, SAC_DTYPE_F32);
      int8.config.quantization = SAC_QUANTIZATION_INT8;
      const double base = prompt_error(int8, kernels, seed);
      CHECK(prompt_error(int8, kernels, seed, 2) < 3 * base + 0.05);
    }
  }
}

TEST_CASE("records are byte-equal alone and in any company of adapters, chunking and threads") {
  for (const Kernels* kernels : available_kernels()) {
    for (const uint32_t seed : seeds_of(kernels, 30, 39)) {
      CAPTURE(std::string(kernels->name));
      CAPTURE(seed);
      check_company(any_model(seed), kernels, seed);
    }
  }
}

TEST_CASE("the same where a step's rows of an adapter are several items") {
  for (const Kernels* kernels : available_kernels()) {
    for (const uint32_t seed : seeds_of(kernels, 50, 52)) {
      CAPTURE(std::string(kernels->name));
      CAPTURE(seed);
      check_company(any_model(seed), kernels, seed, 30, 120);
    }
  }
}

TEST_CASE("every row of an adapter has a slot of its own and is in one block") {
  TestModel m = random_model(1, SAC_DTYPE_F32);
  Rng rng(1);
  for (const uint32_t num_adapters : {1u, 2u, 5u, 40u}) {
    CAPTURE(num_adapters);
    constexpr uint32_t kRows = 400;
    const AdapterLimits limits = {num_adapters, 8};
    const AdapterSpace space(m.config, limits, kRows, 1, true);
    AdapterPlan plan(limits, kRows, space);
    for (uint32_t run = 0; run < 50; ++run) {
      CAPTURE(run);
      const AdaptedBatch b = random_batch(rng, num_adapters, run % 2 == 0 ? kRows : 40);
      b.build(plan);
      check_plan(b, plan, space.max_slots());
    }
  }
}

TEST_CASE("slots are enough for adapters whose rows end just behind a tile's begin") {
  constexpr uint32_t kAdapters = 50, kRows = kAdapters * kActivationRows;
  const TestModel m = random_model(1, SAC_DTYPE_F32);
  const AdapterLimits limits = {kAdapters, 8};
  const AdapterSpace space(m.config, limits, kRows, 1, true);
  AdapterPlan plan(limits, kRows, space);
  AdaptedBatch b;
  b.add(kActivationRows - 1, 0);
  for (uint32_t adapter = 1; adapter < kAdapters; ++adapter) {
    b.add(2, adapter);
    b.add(kActivationRows - 2, 0);
  }
  b.add(1, kAdapters);
  b.build(plan);
  check_plan(b, plan, space.max_slots());
}

TEST_CASE("layers with experts take adapters of attention") {
  for (const Kernels* kernels : available_kernels()) {
    CAPTURE(std::string(kernels->name));
    const TestModel m = expert_model(SAC_DTYPE_BF16);
    check_company(m, kernels, 3);
    const std::vector<uint32_t> prompt = random_tokens(9, 37, m.config.vocab_size);
    CHECK(lone_run(m, options_of(kernels), prompt, 3, nullptr, 1) !=
          lone_run(m, options_of(kernels), prompt, 3));
  }
}

TEST_CASE("without an adapter, or with an empty one, records are those of a model without any") {
  for (const Kernels* kernels : available_kernels()) {
    for (const uint32_t seed : seeds_of(kernels, 40, 44)) {
      CAPTURE(std::string(kernels->name));
      CAPTURE(seed);
      const TestModel m = any_model(seed);
      std::vector<Traveller> all = travellers(m, seed);
      HarnessOptions o = options_of(kernels, 2);
      o.num_seats = static_cast<uint32_t>(all.size());
      o.max_rows = o.num_seats * 33;
      mixed_run(m, o, all, seed);
      for (const Traveller& t : all) {
        if (t.adapter != 0 && t.adapter != m.adapters.size()) continue;
        const auto lone = lone_run(without_adapters(m), options_of(kernels), t.prompt, t.steps);
        CHECK(t.records == t.wanted(lone));
      }
    }
  }
}

TEST_CASE("a pair that does not fit is refused with a sentence that names it") {
  CHECK(refusal([](sac_adapter_pair&) {}) == "");
  CHECK(says(refusal([](sac_adapter_pair&) {}, 0), "adapter is 0, outside 1 .. 2"));
  CHECK(says(refusal([](sac_adapter_pair&) {}, 3), "adapter is 3, outside 1 .. 2"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.role = SAC_NUM_TENSOR_ROLES; }), "tensor role"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.role = SAC_TENSOR_EMBED; }),
             "adapter 1: embed takes no adapter"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.role = SAC_TENSOR_EXPERT_UP; }),
             "expert_up takes no adapter"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.layer = 99; }), "o: layer is 99"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.rank = 0; }), "rank is 0, outside 1 .. 16"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.rank = 17; }), "rank is 17, outside 1 .. 16"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.in += 1; }), "o of layer 0: in and out are"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.out += 1; }), "in and out are"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.a_dtype = SAC_DTYPE_FP8; }), "dtype is 4"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.scaling = __builtin_nanf(""); }),
             "scaling is not finite"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.a = nullptr; }), "a is null"));
  CHECK(says(refusal([](sac_adapter_pair& p) { p.b = nullptr; }), "b is null"));
  const TestModel m = expert_model(SAC_DTYPE_F32);
  HarnessOptions o = options_of(nullptr);
  o.adapters = {1, 16};
  StepHarness h(m.config, o);
  Rng rng(1);
  const TestPair pair = random_pair(m.config, SAC_TENSOR_GATE, 4, rng);
  CHECK(says(h.step->set_adapter_pair(1, pair_of(m.config, SAC_TENSOR_GATE, 0, pair)),
             "the layer has experts"));
}

TEST_CASE("numbers and ranks of adapters have bounds") {
  CHECK(config_error(null_config(0, 0)) == "");
  CHECK(config_error(null_config(SAC_MAX_ADAPTERS, SAC_MAX_ADAPTER_RANK)) == "");
  CHECK(says(config_error(null_config(SAC_MAX_ADAPTERS + 1, 8)),
             "num_adapters is 257, outside 0 .. 256"));
  CHECK(says(config_error(null_config(1, 0)), "max_adapter_rank is 0, outside 1 .. 512"));
  CHECK(says(config_error(null_config(1, 513)), "max_adapter_rank is 513, outside 1 .. 512"));
  CHECK(says(config_error(null_config(0, 8)), "max_adapter_rank is 8, but num_adapters is 0"));
  sac_device_config gpu = null_config(1, 8);
  gpu.kind = SAC_DEVICE_CUDA;
  gpu.cuda_rotation_blocks = 1;
  // Of the bounds, the last thing that this library says of a GPU.
  CHECK(says(config_error(gpu), "which the library of the CUDA device makes"));
  gpu.num_adapters = SAC_MAX_ADAPTERS + 1;
  CHECK(says(config_error(gpu), "num_adapters is 257, outside 0 .. 256"));
}

TEST_CASE("a device is ready only once every adapter has a key") {
  TestRing ring(RingShape{});
  const sac_device_config c = null_config(2, 8);
  for (const bool complete : {false, true}) {
    sac_device* device = nullptr;
    REQUIRE(sac_device_create(&c, nullptr, 10, &device) == 0);
    const sac_adapter_pair pair = {};
    CHECK(sac_device_set_adapter_pair(device, 1, &pair) == SAC_ERR_STATE);  // takes no weights
    for (const uint32_t adapter : {0u, 3u}) {
      CHECK(sac_device_set_adapter(device, adapter, 5, 7) == SAC_ERR_ARGUMENT);
      CHECK(says(sac_last_error(), "outside 1 .. 2"));
    }
    CHECK(sac_device_set_adapter(device, 1, 0, 7) == SAC_ERR_ARGUMENT);
    CHECK(says(sac_last_error(), "the key of adapter 1 is 0"));
    CHECK(sac_device_set_adapter(device, 1, 5, 0) == SAC_ERR_ARGUMENT);
    CHECK(says(sac_last_error(), "the name of adapter 1 is 0"));
    CHECK(sac_device_set_adapter(device, 1, 5, 7) == 0);
    if (complete) CHECK(sac_device_set_adapter(device, 2, 6, 8) == 0);
    REQUIRE(sac_device_attach(device, ring.region(), ring.region_bytes()) == 0);
    CHECK(ring.view.device->num_adapters == 2);
    CHECK(sac_device_set_adapter(device, 2, 6, 8) == SAC_ERR_STATE);
    const int code = sac_device_ready(device);
    CHECK(code == (complete ? 0 : SAC_ERR_STATE));
    if (!complete) CHECK(says(sac_last_error(), "adapter 2 has no key"));
    sac_device_destroy(device);
  }
}
