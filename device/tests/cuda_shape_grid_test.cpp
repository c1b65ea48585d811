// The table that finds a step's captured graph, against a search over all shapes.
#include <doctest/doctest.h>

#include "cuda/launch/shape_grid.hpp"
#include "tests/random.hpp"

using namespace saccade;
using saccade::test::Random;

namespace {

StepBatch batch_of(uint32_t rows, uint32_t seqs, uint32_t num_prompt_seqs) {
  StepBatch b = {};
  b.num_rows = rows;
  b.num_seqs = seqs;
  b.num_prompt_seqs = num_prompt_seqs;
  return b;
}

/// Every batch within the bounds gets a shape that serves it, and none that serves it is tighter.
void check_all(const ShapeGrid& grid, uint32_t max_rows, uint32_t max_seqs) {
  const ShapeTable table = grid.table(grid.words().data());
  for (uint32_t seqs = 1; seqs <= max_seqs; ++seqs)
    for (uint32_t rows = seqs; rows <= max_rows; ++rows)
      for (const uint32_t prompts : {0u, 1u}) {
        const StepBatch b = batch_of(rows, seqs, prompts);
        const uint32_t found = table.find(b);
        REQUIRE(found < grid.shapes().size());
        const GraphShape& shape = grid.shapes()[found];
        REQUIRE(serves(shape, b));
        for (const GraphShape& other : grid.shapes()) {
          const bool tighter =
              other.rows < shape.rows || (other.rows == shape.rows && other.seqs < shape.seqs);
          REQUIRE_FALSE((tighter && serves(other, b)));
        }
      }
}

}  // namespace

TEST_CASE("standard grids serve every batch, tightly") {
  struct Step {
    uint32_t rows, seqs;
  };
  for (const Step most : {Step{1, 1}, {7, 5}, {64, 64}, {130, 17}}) {
    CAPTURE(most.rows);
    CAPTURE(most.seqs);
    check_all(ShapeGrid::standard(most.rows, most.seqs), most.rows, most.seqs);
  }
}

TEST_CASE("random grids, holes included, serve every batch, tightly") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const uint32_t max_rows = random.in(1, 60);
    const uint32_t max_seqs = random.in(1, max_rows);
    std::vector<GraphShape> shapes;
    for (uint32_t n = random.in(0, 9); n > 0; --n) {
      const uint32_t rows = random.in(1, max_rows);
      const uint32_t seqs = random.in(1, std::min(rows, max_seqs));
      const bool prefill = random.one_in(2);
      shapes.push_back({prefill ? rows : seqs, seqs, prefill});
    }
    check_all(ShapeGrid(shapes, max_rows, max_seqs), max_rows, max_seqs);
  }
}

TEST_CASE("a batch beyond the table gets the largest shape") {
  const ShapeGrid grid = ShapeGrid::standard(32, 8);
  const ShapeTable table = grid.table(grid.words().data());
  const GraphShape& shape = grid.shapes()[table.find(batch_of(33, 4, 0))];
  CHECK(shape.rows == 32);
  CHECK(shape.seqs == 8);
  CHECK(shape.has_prefill);
}

TEST_CASE("shapes outside the bounds are refused") {
  CHECK_THROWS_WITH(ShapeGrid({{33, 8, true}}, 32, 8),
                    "a graph of 33 rows and 8 sequences is outside the bounds");
  CHECK_THROWS(ShapeGrid({{4, 8, true}}, 32, 8));
}

TEST_CASE("the usual limits need a moderate number of graphs") {
  const size_t graphs = ShapeGrid::standard(2048, 256).shapes().size();
  MESSAGE(graphs, " graphs for 2048 rows and 256 sequences");
  CHECK(graphs >= 40);
  CHECK(graphs <= 200);
}
