// The simulated device: what a step and a copy cost, computed here by hand, and whole runs in
// virtual time.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "invariants/check.hpp"
#include "sim/virtual_run.hpp"
#include "tests/random.hpp"

namespace saccade::test {
namespace {

/// Figures that make sums easy: 1 TB/s, 100 TFLOPS, a 10 GB model with 1 kB of KV per token.
sac_sim_config easy_config() {
  sac_sim_config c = {};
  c.hardware.hbm_bytes_per_s = 1e12;
  c.hardware.hbm_efficiency = 1;
  c.hardware.flops_per_s = 1e14;
  c.hardware.flops_efficiency = 1;
  c.hardware.attention_efficiency = 0.5;
  c.hardware.step_overhead_s = 100e-6;
  c.hardware.layer_overhead_s = 10e-6;
  c.hardware.link_bytes_per_s = 1e9;
  c.hardware.link_both_bytes_per_s = 1.5e9;
  c.hardware.link_duplex = 1;
  c.model.dense_weight_bytes = 9e9;
  c.model.head_weight_bytes = 1e9;
  c.model.row_flops = 1e10;
  c.model.head_flops = 1e9;
  c.model.attention_pair_flops = 1e4;
  c.model.kv_token_bytes = 1e3;
  c.model.num_layers = 10;
  return c;
}

sac_device_config device_config() {
  sac_device_config c = {};
  c.max_num_seqs = 8;
  c.max_num_batched_tokens = 128;
  c.max_model_len = 256;
  c.block_size = 16;
  c.num_blocks = 128;
  c.num_threads = 1;
  return c;
}

constexpr double kOverhead = 100e-6 + 10 * 10e-6;

TEST_CASE("a step costs what its parts cost") {
  const sac_sim_config c = easy_config();
  // One decode over 1000 positions: all weights, and KV of 1000 + the row's own.
  CHECK(sac_sim_step_s(&c, 1, 1, 1000, 1000) == doctest::Approx(10e-3 + 1001e3 / 1e12 + kOverhead));
  // A chunk that samples nothing leaves the head out; 2000 rows are bound by FLOPs.
  const double pairs = 2000.0 * 2001 / 2;
  CHECK(sac_sim_step_s(&c, 2000, 0, 2000, pairs) ==
        doctest::Approx(2000 * 1e10 / 1e14 + pairs * 1e4 / 0.5e14 + kOverhead));
}

TEST_CASE("few rows touch few experts") {
  sac_sim_config c = easy_config();
  c.model.expert_weight_bytes = 80e9;
  c.model.num_experts = 8;
  c.model.experts_per_token = 2;
  const auto weights = [&](double rows) {
    return sac_sim_step_s(&c, rows, 1, 0, 0) - kOverhead - rows * 1e3 / 1e12;
  };
  CHECK(weights(1) == doctest::Approx(10e-3 + 80e-3 * 2 / 8));
  CHECK(weights(2) == doctest::Approx(10e-3 + 80e-3 * (1 - 0.75 * 0.75)));
  CHECK(weights(64) == doctest::Approx(90e-3).epsilon(1e-4));
}

TEST_CASE("a link shares its rate, or its time") {
  sac_sim_hardware h = easy_config().hardware;
  constexpr double kBlock = 1e6;  // 1 ms each way alone
  using sim::Way;
  SUBCASE("one way alone has its full rate") {
    sim::LinkModel link(h, kBlock);
    link.submit(Way::kUp, 10, 5'000'000);
    CHECK(link.next_arrival_ns() == doctest::Approx(6e6).epsilon(1e-6));
    CHECK(link.completed(Way::kUp, 8'500'000) == 3);
    CHECK(link.completed(Way::kUp, 15'000'000) == 10);
    CHECK(!link.busy());
    CHECK(link.next_arrival_ns() == UINT64_MAX);
  }
  SUBCASE("both ways share what both have together") {
    sim::LinkModel link(h, kBlock);
    link.submit(Way::kDown, 3, 0);
    link.submit(Way::kUp, 6, 0);
    // 0.75 blocks per ms each until the 3 are down at 4 ms; then the other 3 go up at 1 per ms.
    CHECK(link.completed(Way::kDown, 4'000'001) == 3);
    CHECK(link.completed(Way::kUp, 4'000'001) == 3);
    CHECK(link.completed(Way::kUp, 6'900'000) == 5);
    CHECK(link.completed(Way::kUp, 7'000'001) == 6);
  }
  SUBCASE("without duplex, up waits for down") {
    h.link_duplex = 0;
    sim::LinkModel link(h, kBlock);
    link.submit(Way::kUp, 2, 0);
    link.submit(Way::kDown, 3, 500'000);
    CHECK(link.completed(Way::kUp, 3'400'000) == 0);
    CHECK(link.completed(Way::kDown, 3'500'001) == 3);
    CHECK(link.completed(Way::kUp, 4'000'001) == 1);
    CHECK(link.completed(Way::kUp, 5'000'001) == 2);
  }
}

struct Run {
  std::vector<uint64_t> token_ns;
  sac_sim_result result = {};

  uint64_t first_token_ns(size_t request, const std::vector<sac_sim_request>& requests) const {
    size_t at = 0;
    for (size_t i = 0; i < request; ++i) at += requests[i].output_len;
    return token_ns[at];
  }
};

/// Prompts that share nothing.
sac_sim_load load_of(const std::vector<sac_sim_request>& requests) {
  return {requests.data(), requests.size(), nullptr, 0, 0, 0};
}

constexpr sac_sim_ring kQueueing = {SAC_MAX_SLOTS, SAC_SIM_QUEUE};

Run run(const sac_device_config& device, const sac_sim_config& config, const sac_sim_load& load,
        uint64_t limit_ns = UINT64_MAX / 4, const sac_sim_ring& ring = kQueueing) {
  uint64_t tokens = 0;
  for (uint64_t i = 0; i < load.num_requests; ++i) tokens += load.requests[i].output_len;
  Run out;
  out.token_ns.resize(tokens);
  const int code = sac_sim_run(&device, &config, &ring, &load, limit_ns, out.token_ns.data(),
                               nullptr, 0, 0, &out.result);
  INFO(sac_last_error());
  REQUIRE(code == 0);
  return out;
}

Run run(const sac_device_config& device, const sac_sim_config& config,
        const std::vector<sac_sim_request>& requests, uint64_t limit_ns = UINT64_MAX / 4,
        const sac_sim_ring& ring = kQueueing) {
  return run(device, config, load_of(requests), limit_ns, ring);
}

TEST_CASE("a lone request takes the time of its own steps") {
  const sac_sim_config c = easy_config();
  const Run r = run(device_config(), c, {{7'000'000, 100, 3, 0, 0, 0, 0, 0}});
  const double prompt = sac_sim_step_s(&c, 100, 1, 100, 5050);
  const double second = sac_sim_step_s(&c, 1, 1, 101, 101);
  const double third = sac_sim_step_s(&c, 1, 1, 102, 102);
  REQUIRE(r.token_ns.size() == 3);
  CHECK(r.token_ns[0] == doctest::Approx(7e6 + prompt * 1e9).epsilon(1e-6));
  CHECK(r.token_ns[1] - r.token_ns[0] == doctest::Approx(second * 1e9).epsilon(1e-6));
  CHECK(r.token_ns[2] - r.token_ns[1] == doctest::Approx(third * 1e9).epsilon(1e-6));
  CHECK(r.result.num_unfinished == 0);
}

TEST_CASE("a host on the path adds its time to each step") {
  sac_sim_config c = easy_config();
  c.host.drives = 1;
  c.host.step_s = 2e-3;
  c.host.seq_s = 1e-3;
  const Run r = run(device_config(), c, {{0, 100, 3, 0, 0, 0, 0, 0}});
  const double second = sac_sim_step_s(&c, 1, 1, 101, 101);
  CHECK(r.token_ns[1] - r.token_ns[0] == doctest::Approx((second + 3e-3) * 1e9).epsilon(1e-6));
  CHECK(r.result.host_ns == 9'000'000);
}

std::vector<sac_sim_request> random_requests(uint64_t seed, uint32_t count) {
  Random random(seed);
  std::vector<sac_sim_request> requests;
  uint64_t at = 0;
  for (uint32_t i = 0; i < count; ++i) {
    at += random.in(0, 40'000'000);
    requests.push_back({at, random.in(1, 128), random.in(1, 128), 0, 0, 0, 0, 0});
  }
  return requests;
}

TEST_CASE("an overloaded run ends, in order of tokens, and the same each time") {
  sac_device_config device = device_config();
  device.num_blocks = 20;  // about two requests
  const std::vector<sac_sim_request> requests = random_requests(3, 60);
  const Run first = run(device, easy_config(), requests);
  CHECK(first.result.num_unfinished == 0);
  CHECK(first.result.preemptions > 0);
  size_t at = 0;
  for (const sac_sim_request& r : requests) {
    CHECK(first.token_ns[at] > r.arrival_ns);
    for (uint32_t t = 1; t < r.output_len; ++t)
      CHECK(first.token_ns[at + t - 1] < first.token_ns[at + t]);
    at += r.output_len;
  }
  const Run second = run(device, easy_config(), requests);
  CHECK(first.token_ns == second.token_ns);
}

TEST_CASE("the time limit ends a run, and unfinished requests are reported") {
  const std::vector<sac_sim_request> requests = random_requests(5, 50);
  const Run r = run(device_config(), easy_config(), requests, 300'000'000);
  CHECK(r.result.num_unfinished > 0);
  CHECK(r.token_ns.back() == SAC_SIM_NEVER);
}

TEST_CASE("more requests than the ring has slots queue in front of it") {
  sac_sim_config c = easy_config();
  sac_device_config device = device_config();
  std::vector<sac_sim_request> requests(SAC_MAX_SLOTS + 500, {0, 16, 1, 0, 0, 0, 0, 0});
  const Run r = run(device, c, requests);
  CHECK(r.result.num_unfinished == 0);
  CHECK(r.result.num_refused == 0);
}

TEST_CASE("a frontend that refuses turns away requests that find no slot, and no others") {
  sac_device_config device = device_config();
  device.max_num_seqs = 1;
  const sac_sim_ring ring = {SAC_SLOT_GRANULE, SAC_SIM_REFUSE};
  // One at a time of two tokens each: the second step of the first frees its slot.
  std::vector<sac_sim_request> requests(SAC_SLOT_GRANULE + 3, {0, 16, 2, 0, 0, 0, 0, 0});
  const Run full = run(device, easy_config(), requests, UINT64_MAX / 4, ring);
  CHECK(full.result.num_refused == 3);
  CHECK(full.result.num_unfinished == 0);
  CHECK(full.token_ns[2 * SAC_SLOT_GRANULE - 1] != SAC_SIM_NEVER);
  CHECK(full.token_ns[2 * SAC_SLOT_GRANULE] == SAC_SIM_NEVER);
  // While that step runs its slot is taken; once it is over, one more request finds room.
  const uint64_t freed_ns = full.token_ns[1];
  requests[SAC_SLOT_GRANULE].arrival_ns = freed_ns - 1;
  requests[SAC_SLOT_GRANULE + 1].arrival_ns = freed_ns + 1;
  requests[SAC_SLOT_GRANULE + 2].arrival_ns = freed_ns + 1;
  const Run later = run(device, easy_config(), requests, UINT64_MAX / 4, ring);
  CHECK(later.result.num_refused == 2);
  CHECK(later.token_ns[2 * SAC_SLOT_GRANULE] == SAC_SIM_NEVER);
  CHECK(later.token_ns[2 * SAC_SLOT_GRANULE + 2] != SAC_SIM_NEVER);
  CHECK(later.token_ns.back() == SAC_SIM_NEVER);
}

TEST_CASE("a target that no request could have is refused, with its field and bound") {
  const sac_device_config device = device_config();
  const sac_sim_config config = easy_config();
  std::vector<sac_sim_request> requests = random_requests(3, 2);
  std::vector<uint64_t> token_ns(64 * 1024);
  sac_sim_result result = {};
  const auto refused = [&] {
    const sac_sim_load load = load_of(requests);
    CHECK(sac_sim_run(&device, &config, &kQueueing, &load, 1, token_ns.data(), nullptr, 0, 0,
                      &result) == SAC_ERR_ARGUMENT);
    return std::string(sac_last_error());
  };
  requests[1].slo_ttft_s = 86401;
  CHECK(refused().find("request 1: slo_ttft_s is 86401") == 0);
  requests[1].slo_ttft_s = 0;
  requests[1].slo_tbt_s = std::numeric_limits<float>::infinity();
  CHECK(refused().find("request 1: slo_tbt_s is inf") == 0);
}

TEST_CASE("what a step takes is not known of a machine that cannot be") {
  sac_sim_config config = easy_config();
  CHECK(std::isnan(sac_sim_step_s(nullptr, 1, 1, 1, 1)));
  config.hardware.hbm_bytes_per_s = 0;
  CHECK(std::isnan(sac_sim_step_s(&config, 1, 1, 1, 1)));
  CHECK(std::string(sac_last_error()).find("hbm_bytes_per_s is 0") == 0);
}

TEST_CASE("every invariant holds after every tick of a run") {
  sac_device_config device = device_config();
  device.num_blocks = 24;
  const std::vector<sac_sim_request> requests = random_requests(11, 40);
  std::vector<uint64_t> token_ns(64 * 1024);
  sim::VirtualRun world(device, easy_config(), kQueueing, load_of(requests),
                        {token_ns.data(), nullptr, 0, 0});
  const char* wrong = nullptr;
  while (wrong == nullptr && world.advance()) wrong = check_invariants(world.scheduler());
  CHECK(wrong == nullptr);
}

// ---- prompts that begin alike

/// Requests one second apart, each with prompts of blocks of 64 tokens.
struct Conversation {
  std::vector<sac_sim_request> requests;
  std::vector<uint32_t> ids;

  void ask(uint32_t prompt_len, const std::vector<uint32_t>& blocks) {
    const uint64_t at = requests.size() * 1'000'000'000;
    requests.push_back({at, prompt_len, 20, 0, 0, 0, static_cast<uint32_t>(blocks.size()),
                        static_cast<uint64_t>(ids.size())});
    ids.insert(ids.end(), blocks.begin(), blocks.end());
  }
  sac_sim_load load() const {
    return {requests.data(), requests.size(), ids.data(), ids.size(), 64, 0};
  }
};

sac_device_config sharing_config() {
  sac_device_config c = device_config();
  c.prefix_caching = 1;
  c.prefix_seed = 7;
  return c;
}

TEST_CASE("of a prompt whose blocks were computed before only the rest is computed") {
  Conversation c;
  c.ask(128, {5, 6});
  c.ask(192, {5, 6, 7});
  c.ask(192, {5, 8, 7});
  const Run r = run(sharing_config(), easy_config(), c.load());
  CHECK(r.result.num_unfinished == 0);
  CHECK(r.result.prefix_query_tokens == 128 + 192 + 192);
  // Behind a block that differs nothing is found: block 7 there is another one.
  CHECK(r.result.prefix_hit_tokens == 128 + 64);
  CHECK(r.result.prefill_tokens == 128 + 64 + 128);
  // The second request waits for its own 64 rows, over all its positions.
  const double pairs = 64 * 128 + 64 * 65 / 2.0;
  const sac_sim_config config = easy_config();
  const double step = sac_sim_step_s(&config, 64, 1, 192, pairs);
  const double took = static_cast<double>(r.first_token_ns(1, c.requests) - 1'000'000'000);
  CHECK(took == doctest::Approx(step * 1e9).epsilon(1e-6));
}

TEST_CASE("the end of a prompt is shared in whole blocks, and its last token is computed") {
  Conversation c;
  c.ask(100, {5, 6});
  c.ask(100, {5, 6});
  c.ask(128, {5, 6});
  c.ask(128, {5, 6});
  const Run r = run(sharing_config(), easy_config(), c.load());
  // 100 tokens fill six blocks of 16; of the eight of 128 tokens the last must be computed.
  CHECK(r.result.prefix_hit_tokens == 96 + 96 + 112);
}

TEST_CASE("different blocks, prompts without blocks and answers are found by no other request") {
  Conversation c;
  c.ask(128, {0, 1});
  c.ask(128, {2, 1});
  c.ask(128, {});
  c.ask(128, {});
  // As long as the first request with its answer.
  c.ask(148, {0, 1, 3});
  const Run r = run(sharing_config(), easy_config(), c.load());
  CHECK(r.result.prefix_query_tokens == 4 * 128 + 148);
  CHECK(r.result.prefix_hit_tokens == 128);
}

TEST_CASE("without prefix caching equal prompts are computed in full") {
  Conversation c;
  c.ask(128, {5, 6});
  c.ask(128, {5, 6});
  const Run r = run(device_config(), easy_config(), c.load());
  CHECK(r.result.prefix_query_tokens == 0);
  CHECK(r.result.prefix_hit_tokens == 0);
  CHECK(r.result.prefill_tokens == 256);
}

TEST_CASE("host memory keeps what the device has no room for") {
  Conversation c;
  c.ask(192, {1, 2, 3});
  for (uint32_t other = 10; other < 40; other += 3) c.ask(192, {other, other + 1, other + 2});
  c.ask(192, {1, 2, 3});
  sac_device_config device = sharing_config();
  device.num_blocks = 20;  // 320 tokens
  const Run alone = run(device, easy_config(), c.load());
  CHECK(alone.result.prefix_hit_tokens == 0);
  device.num_host_blocks = 256;
  device.eager_window = 8;
  const Run backed = run(device, easy_config(), c.load());
  CHECK(backed.result.prefix_hit_tokens == 176);
  CHECK(backed.result.blocks_up == 11);
  CHECK(alone.result.prefill_tokens - backed.result.prefill_tokens == 176);
}

TEST_CASE("every invariant holds after every tick of a run whose prompts share blocks") {
  Random random(23);
  Conversation c;
  for (uint32_t i = 0; i < 60; ++i) {
    std::vector<uint32_t> ids;
    for (uint32_t depth = 0, of = random.in(1, 3); depth < of; ++depth)
      ids.push_back(random.in(0, 2));
    const auto most = static_cast<uint32_t>(ids.size()) * 64;
    c.ask(random.in(most - 63, most), ids);
    c.requests.back().arrival_ns = i * 20'000'000;
  }
  sac_device_config device = sharing_config();
  device.num_blocks = 30;
  device.num_host_blocks = 20;
  device.eager_window = 4;
  std::vector<uint64_t> token_ns(64 * 1024);
  sim::VirtualRun world(device, easy_config(), kQueueing, c.load(),
                        {token_ns.data(), nullptr, 0, 0});
  const char* wrong = nullptr;
  while (wrong == nullptr && world.advance()) wrong = check_invariants(world.scheduler());
  CHECK(wrong == nullptr);
  const sac_device_stats& stats = world.scheduler().report.stats;
  CHECK(stats.requests_finished == 60);
  CHECK(stats.prefix_hit_tokens > 0);
}

TEST_CASE("bad fields are named") {
  const sac_device_config device = device_config();
  sac_sim_request request = {0, 200, 57, 0, 0, 0, 0, 0};
  uint32_t ids[4] = {1, 2, 3, 4};
  sac_sim_load load = {&request, 1, ids, 4, 64, 0};
  uint64_t token_ns[64];
  sac_sim_result result;
  sac_sim_ring ring = kQueueing;
  const auto sentence = [&](const sac_sim_config& c) -> std::string {
    const int code = sac_sim_run(&device, &c, &ring, &load, 1, token_ns, nullptr, 0, 0, &result);
    return code == 0 ? "" : sac_last_error();
  };
  sac_sim_config c = easy_config();
  CHECK(sentence(c).find("max_model_len") != std::string::npos);
  request.output_len = 56;
  CHECK(sentence(c).empty());
  // 200 tokens are four blocks of 64.
  for (const uint32_t n : {3u, 5u}) {
    request.num_block_ids = n;
    CHECK(sentence(c).find("num_block_ids") != std::string::npos);
  }
  request.num_block_ids = 4;
  CHECK(sentence(c).empty());
  for (const uint64_t first : {uint64_t{1}, uint64_t{5}, UINT64_MAX}) {
    request.first_block_id = first;
    CHECK(sentence(c).find("first_block_id") != std::string::npos);
  }
  request.first_block_id = 0;
  load.block_tokens = 0;
  CHECK(sentence(c).find("block_tokens") != std::string::npos);
  load.block_tokens = 64;
  ids[3] = SAC_SIM_BLOCK_IDS;
  CHECK(sentence(c).find("block_ids[3]") != std::string::npos);
  load.block_ids = nullptr;
  CHECK(sentence(c).find("block_ids is null") != std::string::npos);
  load.num_block_ids = request.num_block_ids = 0;
  c.hardware.hbm_efficiency = 1.5;
  CHECK(sentence(c).find("hbm_efficiency") != std::string::npos);
  c = easy_config();
  c.model.num_experts = 4;
  CHECK(sentence(c).find("experts_per_token") != std::string::npos);
  c = easy_config();
  for (const uint32_t n : {0u, SAC_SLOT_GRANULE + 1, SAC_MAX_SLOTS + SAC_SLOT_GRANULE}) {
    ring.num_slots = n;
    CHECK(sentence(c).find("num_slots") != std::string::npos);
  }
  ring = {SAC_MAX_SLOTS, 2};
  CHECK(sentence(c).find("when_full") != std::string::npos);
}

}  // namespace
}  // namespace saccade::test
