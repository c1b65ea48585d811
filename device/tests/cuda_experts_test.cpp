// Layers with experts on emulated blocks: which rows go where, and their products.
#include <doctest/doctest.h>

#include <set>

#include "cpu/moe.hpp"
#include "cuda/model/experts.hpp"
#include "cuda/model/sequence_shape.hpp"
#include "cuda/model/warpgroup_product.hpp"
#include "tests/emulated_kernels.hpp"

using namespace saccade;
using namespace saccade::gpu;
using namespace saccade::test;

namespace {

constexpr SlotCut kShared = {kSharedRows, kSharedRows, true};

template <uint32_t kRows, ProductEnd kEnd>
using Routed = WarpgroupProductKernel<kRows, 2, false, kEnd, ExpertTiles>;

/// Of each row per_token experts, in rising order; one of them is picked often.
std::vector<uint32_t> random_picks(Rng& rng, uint32_t rows, uint32_t per_token,
                                   uint32_t num_experts) {
  std::vector<uint32_t> picks;
  for (uint32_t r = 0; r < rows; ++r) {
    std::set<uint32_t> row;
    if (rng() % 2 == 0) row.insert(num_experts - 1);
    while (row.size() < per_token) row.insert(rng() % num_experts);
    picks.insert(picks.end(), row.begin(), row.end());
  }
  return picks;
}

/// What GroupKernel makes of picks.
struct Grouped {
  Grouped(std::vector<uint32_t> all, uint32_t rows, uint32_t num_experts, const SlotCut& cut)
      : picks(std::move(all)), counts{rows, 0, 0, 0, 0}, cut(cut) {
    const uint32_t per_token = static_cast<uint32_t>(picks.size()) / rows;
    room = round_up(static_cast<uint32_t>(most_slots(rows, per_token, num_experts)), kTileOutputs);
    slots.assign(picks.size(), ~0u);
    slot_row.assign(room, ~0u);
    tiles.resize(max_expert_tiles(num_experts, per_token, rows, cut));
    launch<GroupKernel>({}, {&counts, num_experts, per_token, cut, space()});
    REQUIRE(num_tiles <= tiles.size());
  }
  ExpertSpace space() {
    return {picks.data(), nullptr,    slots.data(), slot_row.data(),
            tiles.data(), &num_tiles, nullptr};
  }
  std::vector<uint32_t> picks, slots, slot_row;
  std::vector<ExpertTile> tiles;
  uint32_t num_tiles = 0;
  uint32_t room = 0;
  PlanCounts counts;
  SlotCut cut;
};

/// Results by slot.
struct ExpertSums {
  Floats sums;
  TestActivations gated;
};

/// Matrices of experts, one after another in memory and each by itself.
struct Experts {
  Experts(uint32_t num_experts, uint32_t n, uint32_t k, Rng& rng) {
    for (uint32_t e = 0; e < num_experts; ++e) matrices.emplace_back(n, k, ceil_div(k, kStep), rng);
    const size_t halves = matrices[0].view.halves();
    memory = std::make_unique<HostMemory>(num_experts * halves * sizeof(Half));
    data = static_cast<Half*>(memory->data());
    for (uint32_t e = 0; e < num_experts; ++e)
      std::copy_n(matrices[e].view.data, halves, data + e * halves);
  }

  template <class Sums, class Gated>
  ExpertSums multiply(const Grouped& g, const TestActivations& x) const {
    const TestMatrix& m = matrices[0];
    const uint32_t per_token = static_cast<uint32_t>(g.slots.size()) / g.counts.num_rows;
    const TestActivations gathered(g.room, m.k, true);
    if (!g.cut.shared)
      launch<GatherKernel>({round_up(g.counts.num_rows, 4)}, {&g.counts, g.slots.data(), per_token,
                                                              x.view(), gathered.view(), m.view.k});
    ExpertSums got = {Floats(size_t{g.room} * m.view.n, __builtin_nanf("")),
                      TestActivations(g.room, m.view.n / 2, true)};
    ProductArgs a = product_args(m, g.cut.shared ? x : gathered, g.counts.num_rows);
    a.weights = data;
    a.expert_stride = m.view.halves();
    a.tiles = g.tiles.data();
    a.num_tiles = &g.num_tiles;
    a.shared_rows = g.cut.shared;
    a.y = {got.sums.data(), 1, m.view.n, got.sums.size()};
    a.gated = got.gated.view();
    const Grid grid = {m.view.n / kTileOutputs, static_cast<uint32_t>(g.tiles.size())};
    launch<Sums>(grid, a);
    launch<Gated>(grid, a);
    return got;
  }

  std::vector<TestMatrix> matrices;
  std::unique_ptr<HostMemory> memory;
  Half* data = nullptr;
};

/// silu(gate) * up of all rows with one matrix, by mma.
TestActivations gate(const TestMatrix& m, const TestActivations& x, uint32_t rows) {
  TestActivations out(rows, m.view.n / 2, true);
  ProductArgs a = product_args(m, x, rows);
  a.gated = out.view();
  launch<ProductKernel<8, false, true, false>>({ceil_div(rows, 8), m.view.n / kTileOutputs, 1}, a);
  return out;
}

}  // namespace

TEST_CASE("routing picks the CPU's experts with the CPU's weights") {
  Rng rng(11);
  for (const uint32_t num_experts : {2u, 5u, 33u, 128u, 512u}) {
    for (const uint32_t per_token : {1u, 2u, 8u, 32u}) {
      if (per_token > num_experts) continue;
      CAPTURE(num_experts);
      CAPTURE(per_token);
      constexpr uint32_t kRowsHere = 9;
      const uint32_t stride = round_up(num_experts, kTileOutputs);
      Floats logits(size_t{kRowsHere} * stride);
      // Coarse numbers: many are equal.
      for (float& z : logits) z = rng() % 3 == 0 ? normal(rng) : std::round(2 * normal(rng));
      sac_model_config config = {};
      config.num_experts = num_experts;
      config.experts_per_token = per_token;
      config.norm_topk_prob = rng() % 2;
      std::vector<uint32_t> cpu_picks(kRowsHere * per_token), picks(kRowsHere * per_token);
      Floats cpu_weights(kRowsHere * per_token), weights(kRowsHere * per_token);
      MoeSpace cpu;
      cpu.router_logits = logits.data();
      cpu.router_stride = stride;
      cpu.picks = cpu_picks.data();
      cpu.weights = cpu_weights.data();
      for (uint32_t r = 0; r < kRowsHere; ++r) route_row(config, cpu, r);
      const uint32_t num_picks = kRowsHere * per_token;
      std::vector<uint32_t> slots(num_picks), slot_row(num_picks);
      constexpr SlotCut kCut = {8, 1, false};
      std::vector<ExpertTile> tiles(max_expert_tiles(num_experts, per_token, kRowsHere, kCut));
      uint32_t num_tiles = 0, arrivals = 0;
      ExpertSpace space = {picks.data(), weights.data(), slots.data(), slot_row.data(),
                           tiles.data(), &num_tiles,     &arrivals};
      const PlanCounts counts = {kRowsHere, 0, 0, 0, 0};
      launch<RouteKernel>({ceil_div(kRowsHere, RouteKernel::kWarps)},
                          {&counts,
                           {logits.data(), 1, stride, logits.size()},
                           num_experts,
                           per_token,
                           config.norm_topk_prob,
                           kCut,
                           space});
      CHECK(picks == cpu_picks);
      CHECK(arrivals == 0);
      uint32_t in_tiles = 0;
      for (uint32_t t = 0; t < num_tiles; ++t) in_tiles += tiles[t].num_slots;
      CHECK(in_tiles == num_picks);
      for (size_t i = 0; i < weights.size(); ++i) {
        CHECK(weights[i] == doctest::Approx(cpu_weights[i]).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("each pick has its own slot, in tiles of its expert") {
  Rng rng(13);
  for (const uint32_t rows : {1u, 7u, 300u}) {
    for (const uint32_t unit : {1u, 8u}) {
      CAPTURE(rows);
      CAPTURE(unit);
      constexpr uint32_t kExperts = 37, kPerToken = 3;
      const uint32_t num_picks = rows * kPerToken;
      const SlotCut cut = {expert_tile_slots(num_picks, kExperts), unit, false};
      const Grouped g(random_picks(rng, rows, kPerToken, kExperts), rows, kExperts, cut);
      std::vector<uint32_t> expert_of(g.room, ~0u);
      for (uint32_t t = 0; t < g.num_tiles; ++t) {
        const ExpertTile& tile = g.tiles[t];
        CHECK(tile.num_slots <= cut.tile_slots);
        CHECK(tile.first_slot % unit == 0);
        for (uint32_t s = tile.first_slot; s < tile.first_slot + tile.num_slots; ++s) {
          REQUIRE(s < (unit == 1 ? num_picks : g.room));
          CHECK(expert_of[s] == ~0u);
          expert_of[s] = tile.expert;
        }
      }
      for (uint32_t i = 0; i < num_picks; ++i) {
        REQUIRE(g.slots[i] < g.room);
        CHECK(expert_of[g.slots[i]] == g.picks[i]);
        CHECK(g.slot_row[g.slots[i]] == i / kPerToken);
      }
    }
  }
}

TEST_CASE("of few rows each has a slot in the tile of each expert that any of them picked") {
  Rng rng(29);
  for (const uint32_t rows : {1u, 5u, 8u}) {
    CAPTURE(rows);
    constexpr uint32_t kExperts = 37, kPerToken = 3;
    const Grouped g(random_picks(rng, rows, kPerToken, kExperts), rows, kExperts, kShared);
    std::vector<uint32_t> experts(g.picks);
    std::sort(experts.begin(), experts.end());
    experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    REQUIRE(g.num_tiles == experts.size());
    for (uint32_t t = 0; t < g.num_tiles; ++t) {
      CHECK(g.tiles[t].expert == experts[t]);
      CHECK(g.tiles[t].first_slot == t * kSharedRows);
      CHECK(g.tiles[t].num_slots == rows);
    }
    for (uint32_t i = 0; i < g.picks.size(); ++i) {
      REQUIRE(g.slots[i] / kSharedRows < g.num_tiles);
      CHECK(g.tiles[g.slots[i] / kSharedRows].expert == g.picks[i]);
      CHECK(g.slots[i] % kSharedRows == i / kPerToken);
    }
  }
}

TEST_CASE("products of experts by wgmma are those of each pick's row with its expert's matrix") {
  // Steps of k for more than a ring's stages; tiles that are full, half full, and nearly empty.
  constexpr uint32_t kExperts = 4, kPerToken = 2, kOutputs = 200, kInputs = 10 * kStep - 3;
  Rng rng(31);
  const Experts experts(kExperts, kOutputs, kInputs, rng);
  const auto check = [&](uint32_t rows, const SlotCut& cut, auto sums, auto gated) {
    CAPTURE(rows);
    CAPTURE(cut.tile_slots);
    const TestActivations x =
        activations(random_halves(rng, size_t{rows} * kInputs), rows, kInputs);
    const Grouped g(random_picks(rng, rows, kPerToken, kExperts), rows, kExperts, cut);
    const ExpertSums got = experts.multiply<decltype(sums), decltype(gated)>(g, x);
    for (uint32_t e = 0; e < kExperts; ++e) {
      const Floats want = multiply<Mma, 8, false>(experts.matrices[e], x, rows);
      const TestActivations want_gated = gate(experts.matrices[e], x, rows);
      for (uint32_t i = 0; i < g.picks.size(); ++i) {
        if (g.picks[i] != e) continue;
        const uint32_t row = i / kPerToken, slot = g.slots[i];
        const float* sum = &got.sums[size_t{slot} * experts.matrices[e].view.n];
        REQUIRE(std::equal(sum, sum + kOutputs, &want[size_t{row} * kOutputs]));
        // Of the gated pairs that are whole.
        REQUIRE(got.gated.row(slot, kOutputs / 2) == want_gated.row(row, kOutputs / 2));
      }
    }
  };
  const auto check_tiles = [&](uint32_t rows, auto rows_of_tile) {
    constexpr uint32_t kRows = decltype(rows_of_tile)::value;
    check(rows, {kRows, kSlotUnit, false}, Routed<kRows, ProductEnd::kSums>{},
          Routed<kRows, ProductEnd::kGated>{});
  };
  for (const uint32_t rows : {1u, 5u, 8u})
    check(rows, kShared, Routed<8, ProductEnd::kSums>{}, Routed<8, ProductEnd::kGated>{});
  for (const uint32_t rows : {3u, 40u, 150u}) {
    check_tiles(rows, std::integral_constant<uint32_t, 8>{});
    check_tiles(rows, std::integral_constant<uint32_t, 32>{});
    check_tiles(rows, std::integral_constant<uint32_t, 64>{});
    check_tiles(rows, std::integral_constant<uint32_t, 128>{});
  }
}
