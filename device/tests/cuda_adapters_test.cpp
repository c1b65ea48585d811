// What adapters add to products on a GPU, on emulated blocks: which rows go where, and the two
// products against their formulas.
#include <doctest/doctest.h>

#include <set>

#include "cuda/model/adapters.hpp"
#include "cuda/model/layout.hpp"
#include "tests/emulated_kernels.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

constexpr uint32_t kNone = Deltas::kNoSlot;

/// Rows of a step by adapter (0: none), and what AdapterPlanKernel makes of them.
struct Plan {
  Plan(const std::vector<uint32_t>& adapters, uint32_t num_adapters, uint32_t tile_slots)
      : adapters(adapters), counts{static_cast<uint32_t>(adapters.size()), 0, 0, 0, 0} {
    // A seat for each adapter, in an order of its own, and one without.
    params.resize(num_adapters + 1);
    for (uint32_t seat = 0; seat <= num_adapters; ++seat)
      params[seat].adapter = num_adapters - seat;
    rows.resize(adapters.size());
    for (uint32_t r = 0; r < rows.size(); ++r) rows[r].seat = num_adapters - adapters[r];
    slot_row.assign(rows.size(), kNone);
    row_slot.assign(rows.size(), 12345);
    tiles.resize(max_adapter_tiles(num_adapters, counts.num_rows, tile_slots));
    SeatTables seats = {};
    seats.params = params.data();
    launch<AdapterPlanKernel>({}, {&counts, rows.data(), seats, num_adapters, tile_slots, work()});
    REQUIRE(num_tiles <= tiles.size());
  }
  AdapterWork work() {
    return {slot_row.data(), row_slot.data(), tiles.data(), &num_tiles, nullptr, nullptr};
  }
  uint32_t num_rows() const { return counts.num_rows; }

  std::vector<uint32_t> adapters;
  PlanCounts counts;
  std::vector<SeatParams> params;
  std::vector<gpu::PlanRow> rows;
  std::vector<uint32_t> slot_row, row_slot;
  std::vector<AdapterTile> tiles;
  uint32_t num_tiles = 0;
};

std::vector<uint32_t> random_adapters(Rng& rng, uint32_t rows, uint32_t num_adapters) {
  std::vector<uint32_t> out(rows);
  for (uint32_t& adapter : out) adapter = rng() % 2 == 0 ? 1 : rng() % (num_adapters + 1);
  return out;
}

void check_plan(const Plan& p, uint32_t tile_slots) {
  std::set<uint32_t> slots;
  for (uint32_t t = 0; t < p.num_tiles; ++t) {
    const AdapterTile& tile = p.tiles[t];
    REQUIRE(tile.num_slots >= 1);
    CHECK(tile.num_slots <= tile_slots);
    for (uint32_t s = tile.first_slot; s < tile.first_slot + tile.num_slots; ++s) {
      REQUIRE(s < p.num_rows());
      CHECK(slots.insert(s).second);
      CHECK(p.adapters[p.slot_row[s]] == tile.adapter);
      CHECK(p.row_slot[p.slot_row[s]] == s);
    }
  }
  for (uint32_t r = 0; r < p.num_rows(); ++r) {
    CHECK((p.row_slot[r] == kNone) == (p.adapters[r] == 0));
    CHECK((p.adapters[r] == 0 || slots.count(p.row_slot[r]) == 1));
  }
}

/// A model of one layer whose matrices have several inputs and outputs, and the memory of its
/// adapters.
struct AdaptedModel {
  AdaptedModel(uint32_t num_adapters, uint32_t max_rank, uint32_t intermediate) {
    config.num_layers = 1;
    config.num_heads = 3;
    config.num_kv_heads = 1;
    config.head_dim = config.rotary_dim = 16;
    config.hidden_size = 72;
    config.intermediate_size = intermediate;
    config.vocab_size = 33;
    config.dtype = SAC_DTYPE_BF16;
    const ModelLimits limits = {2, 8, 16, 8, 4, num_adapters, max_rank};
    model = std::make_unique<EmulatedModel>(config, limits, StepTables{});
  }
  /// Gives a random pair, and keeps it. In bf16, as some folders have it, or in f32.
  void give(uint32_t adapter, uint32_t role, uint32_t rank, Rng& rng) {
    TestPair pair = random_pair(config, role, rank, rng);
    sac_adapter_pair given = pair_of(config, role, 0, pair);
    Halves a, b;
    if (rank % 2 == 0) {
      for (const float v : pair.a) a.push_back(narrow(v));
      for (const float v : pair.b) b.push_back(narrow(v));
      given.a = a.data();
      given.b = b.data();
      given.a_dtype = given.b_dtype = SAC_DTYPE_BF16;
    }
    REQUIRE(model->set_adapter_pair(adapter, given) == "");
    pairs[{adapter, role}] = std::move(pair);
  }

  sac_model_config config = {};
  std::unique_ptr<EmulatedModel> model;
  std::map<std::pair<uint32_t, uint32_t>, TestPair> pairs;
};

/// [slots][columns]: what both kernels make of x.
template <uint32_t kSlots>
Floats run_kernels(const AdaptedView& v, Plan& plan, const TestActivations& x, uint32_t ranks) {
  const uint32_t rows = plan.num_rows(), slices = shrink_slices(v.k), stride = v.count * ranks;
  const size_t plane = size_t{rows} * stride;
  Floats shrunk(slices * plane, __builtin_nanf(""));
  Floats deltas(size_t{rows} * v.stride(), __builtin_nanf(""));
  AdapterArgs a = {plan.work(), v, x.view(), ranks, {shrunk.data(), slices, stride, plane}};
  a.work.shrunk = shrunk.data();
  a.work.deltas = deltas.data();
  const auto tiles = static_cast<uint32_t>(plan.tiles.size());
  launch<ShrinkKernel<kSlots>>({tiles, stride / kFragmentRows, slices}, a);
  using Expand = ExpandKernel<kSlots>;
  launch<Expand>({tiles, Expand::blocks_of(v)}, a);
  return deltas;
}

/// scaling * B (A x) of one row, A x rounded to bf16 on the way as the kernels do, and of each
/// output the sum of magnitudes, in which an error is measured.
struct Change {
  std::vector<double> y, size;
};
Change change_of(const TestPair& p, const Halves& x, size_t in, size_t out) {
  Change c = {std::vector<double>(out), std::vector<double>(out)};
  for (size_t r = 0; r < p.rank; ++r) {
    double sum = 0;
    for (size_t i = 0; i < in; ++i) sum += double{p.a[r * in + i]} * widen(x[i]);
    for (size_t o = 0; o < out; ++o) {
      const double part = p.scaling * sum * p.b[o * p.rank + r];
      c.y[o] += part;
      c.size[o] += std::abs(part);
    }
  }
  return c;
}

struct Group {
  uint32_t first_role, count;
};
constexpr Group kGroups[] = {
    {SAC_TENSOR_Q, 3}, {SAC_TENSOR_O, 1}, {SAC_TENSOR_GATE, 2}, {SAC_TENSOR_DOWN, 1}};

void check_deltas(const AdaptedModel& m, const AdaptedView& v, const Plan& plan,
                  const std::vector<Halves>& x, const Floats& deltas) {
  for (uint32_t r = 0; r < plan.num_rows(); ++r) {
    if (plan.adapters[r] == 0) continue;
    const float* delta = &deltas[size_t{plan.row_slot[r]} * v.stride()];
    for (uint32_t matrix = 0; matrix < v.count; ++matrix) {
      const auto pair = m.pairs.find({plan.adapters[r], v.first_role + matrix});
      const float* got = delta + v.columns[matrix];
      if (pair == m.pairs.end()) {
        for (uint32_t o = 0; o < v.outputs(matrix); ++o)
          REQUIRE(__builtin_bit_cast(uint32_t, got[o]) == 0x80000000u);
        continue;
      }
      const TensorShape shape = tensor_shape(m.config, v.first_role + matrix);
      const Change want = change_of(pair->second, x[r], shape.cols, shape.rows);
      for (uint32_t o = 0; o < v.outputs(matrix); ++o) {
        if (o >= shape.rows) {
          REQUIRE(got[o] == 0);
          continue;
        }
        CAPTURE(matrix);
        CAPTURE(o);
        REQUIRE(std::abs(got[o] - want.y[o]) <= want.size[o] / 256 + 1e-6);
      }
    }
  }
}

/// All groups of a layer, at a number of rows; both sizes of tiles give the same bits.
void check_kernels(const AdaptedModel& m, uint32_t num_adapters, uint32_t ranks, uint32_t rows,
                   Rng& rng) {
  const std::vector<uint32_t> adapters = random_adapters(rng, rows, num_adapters);
  Plan few(adapters, num_adapters, kFewAdapterSlots);
  Plan many(adapters, num_adapters, kManyAdapterSlots);
  for (const Group& g : kGroups) {
    CAPTURE(rows);
    CAPTURE(g.first_role);
    const AdaptedView& v = adapted_of(m.model->view().layers[0], g.first_role);
    REQUIRE(v.first_role == g.first_role);
    REQUIRE(v.count == g.count);
    const auto in = static_cast<uint32_t>(tensor_shape(m.config, g.first_role).cols);
    const Halves all = random_halves(rng, size_t{rows} * in);
    std::vector<Halves> x;
    for (uint32_t r = 0; r < rows; ++r)
      x.emplace_back(&all[size_t{r} * in], &all[size_t{r + 1} * in]);
    const TestActivations in_form = activations(all, rows, in);
    const Floats a = run_kernels<kFewAdapterSlots>(v, few, in_form, ranks);
    const Floats b = run_kernels<kManyAdapterSlots>(v, many, in_form, ranks);
    check_deltas(m, v, few, x, a);
    for (uint32_t r = 0; r < rows; ++r) {
      if (adapters[r] == 0) continue;
      const float* at = &a[size_t{few.row_slot[r]} * v.stride()];
      REQUIRE(std::memcmp(at, &b[size_t{many.row_slot[r]} * v.stride()],
                          v.stride() * sizeof(float)) == 0);
    }
  }
}

}  // namespace

TEST_CASE("each row with an adapter has a slot, in tiles of its adapter") {
  Rng rng(3);
  for (const uint32_t tile_slots : {kFewAdapterSlots, kManyAdapterSlots}) {
    for (const uint32_t num_adapters : {1u, 5u, SAC_MAX_ADAPTERS}) {
      for (const uint32_t rows : {1u, 9u, 64u, 700u}) {
        CAPTURE(tile_slots);
        CAPTURE(num_adapters);
        CAPTURE(rows);
        check_plan(Plan(random_adapters(rng, rows, num_adapters), num_adapters, tile_slots),
                   tile_slots);
      }
    }
  }
  const Plan none(std::vector<uint32_t>(70, 0), 3, kManyAdapterSlots);
  CHECK(none.num_tiles == 0);
  check_plan(none, kManyAdapterSlots);
}

TEST_CASE("an adapter that is not there is none") {
  PlanCounts counts = {1, 0, 0, 0, 0};
  gpu::PlanRow row = {};
  SeatParams params = {};
  params.adapter = 4;
  SeatTables seats = {};
  seats.params = &params;
  uint32_t slot_row = 0, row_slot = 0, num_tiles = 9;
  AdapterTile tile = {};
  launch<AdapterPlanKernel>(
      {},
      {&counts, &row, seats, 3, 8, {&slot_row, &row_slot, &tile, &num_tiles, nullptr, nullptr}});
  CHECK(num_tiles == 0);
  CHECK(row_slot == kNone);
}

TEST_CASE("an operand's units have a place for each weight") {
  std::set<uint32_t> a, b;
  for (uint32_t r = 0; r < kFragmentRows; ++r) {
    for (uint32_t i = 0; i < kStep; ++i) a.insert(shrink_at(r, i));
    for (uint32_t i = 0; i < kFragmentRows; ++i) b.insert(expand_at(r, i));
  }
  CHECK(a.size() == kShrinkHalves);
  CHECK(*a.rbegin() == kShrinkHalves - 1);
  CHECK(b.size() == kExpandHalves);
  CHECK(*b.rbegin() == kExpandHalves - 1);
}

TEST_CASE("changes are scaling * B (A x) of each row's own adapter, whatever the ranks") {
  constexpr uint32_t kAdapters = 4;
  Rng rng(5);
  AdaptedModel m(kAdapters, 150, 100);
  const auto give = [&](uint32_t adapter, uint32_t role, uint32_t rank) {
    m.give(adapter, role, rank, rng);
  };
  for (uint32_t role = kFirstAdapted; role < kFirstAdapted + kNumAdapted; ++role) {
    give(1, role, 1 + role % 3);
    if (role != SAC_TENSOR_K && role != SAC_TENSOR_GATE) give(2, role, 16 * (role % 4) + 15);
  }
  give(3, SAC_TENSOR_K, 150);
  give(3, SAC_TENSOR_UP, 129);
  give(3, SAC_TENSOR_DOWN, 128);  // and the fourth changes nothing
  for (const uint32_t rows : {1u, 6u, 75u}) check_kernels(m, kAdapters, 160, rows, rng);
}

TEST_CASE("changes of the highest rank, and of inputs of several slices") {
  Rng rng(7);
  AdaptedModel m(2, SAC_MAX_ADAPTER_RANK, 2 * kShrinkSlice + 70);
  m.give(1, SAC_TENSOR_O, SAC_MAX_ADAPTER_RANK, rng);
  m.give(2, SAC_TENSOR_O, 3, rng);
  m.give(1, SAC_TENSOR_DOWN, 40, rng);
  check_kernels(m, 2, SAC_MAX_ADAPTER_RANK, 13, rng);
}

TEST_CASE("a pair that is given again replaces the first one") {
  Rng rng(9);
  AdaptedModel m(1, 64, 24);
  m.give(1, SAC_TENSOR_O, 64, rng);
  m.give(1, SAC_TENSOR_O, 5, rng);
  check_kernels(m, 1, 64, 3, rng);
}

TEST_CASE("a pair that does not fit is refused in the CPU's words") {
  AdaptedModel m(2, 16, 24);
  Rng rng(1);
  const TestPair pair = random_pair(m.config, SAC_TENSOR_O, 16, rng);
  const sac_adapter_pair good = pair_of(m.config, SAC_TENSOR_O, 0, pair);
  CHECK(m.model->set_adapter_pair(3, good) == "adapter is 3, outside 1 .. 2");
  sac_adapter_pair bad = good;
  bad.rank = 17;
  CHECK(m.model->set_adapter_pair(1, bad) ==
        "adapter 1: o of layer 0: rank is 17, outside 1 .. 16");
  bad = good;
  bad.in += 1;
  CHECK(m.model->set_adapter_pair(1, bad) ==
        "adapter 1: o of layer 0: in and out are 49 and 72, expected 48 and 72");
}

TEST_CASE("adapters take the memory of their number times the highest rank") {
  AdaptedModel m(1, 1, 24);
  ModelLimits limits = {2, 8, 16, 8, 4};
  const size_t none = gpu_memory_need(m.config, limits).weights;
  const auto with = [&](uint32_t adapters, uint32_t rank) {
    limits.num_adapters = adapters;
    limits.max_adapter_rank = rank;
    return gpu_memory_need(m.config, limits).weights - none;
  };
  // q, k and v: 80 outputs; widths of 64.
  const size_t halves = 3 * 128 + 80 + 64 + 128 + 2 * 128 + 2 * 64 + 64 + 128;
  const auto near = [](size_t bytes, size_t want) { return bytes >= want && bytes < want + 4096; };
  CHECK(near(with(1, 16), 16 * halves * 2));
  CHECK(near(with(1, 17), 32 * halves * 2));
  CHECK(near(with(7, 64), 7 * 64 * halves * 2));
}

TEST_CASE("sums of a gated pair have room at any number of rows where adapters add to them") {
  AdaptedModel m(1, 1, 600);
  constexpr uint32_t kRows = 700;
  const auto room = [&](uint32_t num_adapters) {
    const ModelLimits limits = {2, kRows, 16, 8, 4, num_adapters, 16};
    const EmulatedModel model(m.config, limits, {});
    const SpaceView& s = model.view().space;
    return static_cast<size_t>(s.item_sums - s.partials);
  };
  const size_t sums = size_t{round_up(kRows, kTileOutputs)} * 2 * 640;
  CHECK(room(0) < sums);
  CHECK(room(1) >= sums);
}
