// The table that finds a step's captured graph, against a search over all shapes.
#include <doctest/doctest.h>

#include <array>

#include "cuda/launch/shape_grid.hpp"
#include "tests/random.hpp"

using namespace saccade;
using saccade::test::Random;

namespace {

StepBatch batch_of(uint32_t rows, uint32_t seqs, uint32_t num_prompt_seqs,
                   uint32_t num_adapter_seqs = 0) {
  StepBatch b = {};
  b.num_rows = rows;
  b.num_seqs = seqs;
  b.num_prompt_seqs = num_prompt_seqs;
  b.num_adapter_seqs = num_adapter_seqs;
  return b;
}

/// What a shape costs, before all else its rows.
std::array<uint32_t, 4> cost_of(const GraphShape& s) {
  return {s.rows, s.seqs, s.has_adapters ? 1u : 0u, s.has_prefill ? 1u : 0u};
}

/// A batch gets a shape that serves it, and none that serves it is tighter.
void check_batch(const ShapeGrid& grid, const ShapeTable& table, const StepBatch& b) {
  const uint32_t found = table.find(b);
  REQUIRE(found < grid.shapes().size());
  const GraphShape& shape = grid.shapes()[found];
  REQUIRE(serves(shape, b));
  for (const GraphShape& other : grid.shapes())
    REQUIRE_FALSE((cost_of(other) < cost_of(shape) && serves(other, b)));
}

/// So does every batch within the bounds.
void check_all(const ShapeGrid& grid, uint32_t max_rows, uint32_t max_seqs, bool has_adapters) {
  const ShapeTable table = grid.table(grid.words().data());
  for (uint32_t seqs = 1; seqs <= max_seqs; ++seqs)
    for (uint32_t rows = seqs; rows <= max_rows; ++rows)
      for (const uint32_t prompts : {0u, 1u})
        for (uint32_t adapted = 0; adapted <= (has_adapters ? seqs : 0); adapted += seqs)
          check_batch(grid, table, batch_of(rows, seqs, prompts, adapted));
}

}  // namespace

TEST_CASE("standard grids serve every batch, tightly") {
  struct Step {
    uint32_t rows, seqs;
  };
  for (const Step most : {Step{1, 1}, {7, 5}, {64, 64}, {130, 17}})
    for (const bool adapters : {false, true}) {
      CAPTURE(most.rows);
      CAPTURE(most.seqs);
      CAPTURE(adapters);
      const ShapeGrid grid = ShapeGrid::standard(most.rows, most.seqs, adapters);
      check_all(grid, most.rows, most.seqs, adapters);
    }
}

TEST_CASE("random grids, holes included, serve every batch, tightly") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const uint32_t max_rows = random.in(1, 60);
    const uint32_t max_seqs = random.in(1, max_rows);
    const bool adapters = seed % 2 == 0;
    std::vector<GraphShape> shapes;
    for (uint32_t n = random.in(0, 9); n > 0; --n) {
      const uint32_t rows = random.in(1, max_rows);
      const uint32_t seqs = random.in(1, std::min(rows, max_seqs));
      const bool prefill = random.one_in(2);
      shapes.push_back({prefill ? rows : seqs, seqs, prefill, adapters && random.one_in(2)});
    }
    const ShapeGrid grid(shapes, max_rows, max_seqs, adapters);
    check_all(grid, max_rows, max_seqs, adapters);
  }
}

TEST_CASE("a batch beyond the table gets the largest shape") {
  for (const bool adapters : {false, true}) {
    const ShapeGrid grid = ShapeGrid::standard(32, 8, adapters);
    const ShapeTable table = grid.table(grid.words().data());
    const GraphShape& shape = grid.shapes()[table.find(batch_of(33, 4, 0))];
    CHECK(shape.rows == 32);
    CHECK(shape.seqs == 8);
    CHECK(shape.has_prefill);
    CHECK(shape.has_adapters == adapters);
  }
}

TEST_CASE("shapes outside the bounds are refused") {
  CHECK_THROWS_WITH(ShapeGrid({{33, 8, true}}, 32, 8, false),
                    "a graph of 33 rows and 8 sequences is outside the bounds");
  CHECK_THROWS(ShapeGrid({{4, 8, true}}, 32, 8, false));
}

TEST_CASE("the usual limits need a moderate number of graphs, and twice as many with adapters") {
  const size_t graphs = ShapeGrid::standard(2048, 256, false).shapes().size();
  MESSAGE(graphs, " graphs for 2048 rows and 256 sequences");
  CHECK(graphs >= 40);
  CHECK(graphs <= 200);
  CHECK(ShapeGrid::standard(2048, 256, true).shapes().size() == 2 * graphs);
}

TEST_CASE("a batch without an adapter gets a graph without, however many there are") {
  const ShapeGrid grid = ShapeGrid::standard(130, 17, true);
  const ShapeTable table = grid.table(grid.words().data());
  for (uint32_t seqs = 1; seqs <= 17; ++seqs)
    for (uint32_t rows = seqs; rows <= 130; ++rows) {
      CHECK_FALSE(grid.shapes()[table.find(batch_of(rows, seqs, 0))].has_adapters);
      CHECK(grid.shapes()[table.find(batch_of(rows, seqs, 0, 1))].has_adapters);
    }
}
