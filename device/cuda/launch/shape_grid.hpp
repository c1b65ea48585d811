// Which captured graph serves a batch: shapes on a grid, and the one table look-up that finds the
// tightest. The grid is chosen on the host at start; the look-up runs wherever the tick does.
//
// A graph of shape (rows, seqs) serves every batch with at most this many rows and sequences: its
// kernels exit early by the counts in the batch. A shape without prefill serves batches of decodes
// only: each sequence has one row, and none asks for records of its prompt. A shape without
// adapters serves batches in which no sequence has one: its kernels are those of a model without
// any.
#pragma once
#include <vector>

#include "cuda/model/shape.hpp"

namespace saccade {

SAC_HD inline bool decodes_only(const StepBatch& b) {
  return b.num_rows == b.num_seqs && b.num_prompt_seqs == 0;
}
SAC_HD inline bool serves(const GraphShape& shape, const StepBatch& b) {
  return b.num_rows <= shape.rows && b.num_seqs <= shape.seqs &&
         (shape.has_prefill || decodes_only(b)) && (shape.has_adapters || b.num_adapter_seqs == 0);
}

/// The look-up. Arrays are where the tick runs.
struct ShapeTable {
  uint32_t max_rows;
  uint32_t max_seqs;
  uint32_t num_seq_classes;
  uint32_t num_cells;         // of one kind: row classes x sequence classes
  uint32_t largest;           // graph that serves every batch
  const uint16_t* row_class;  // [max_rows + 1]
  const uint16_t* seq_class;  // [max_seqs + 1]
  // By row and sequence class: decodes only, then any. With adapters in the grid these are followed
  // by the same for batches that have one.
  const uint16_t* graph;  // [2 or 4][num_cells]

  /// Number of the tightest graph for a batch; the largest if it is beyond the table.
  SAC_HD uint32_t find(const StepBatch& b) const {
    if (b.num_rows > max_rows || b.num_seqs > max_seqs) return largest;
    const uint32_t cell = row_class[b.num_rows] * num_seq_classes + seq_class[b.num_seqs];
    const uint32_t kind = (decodes_only(b) ? 0 : 1) + (b.num_adapter_seqs == 0 ? 0 : 2);
    return graph[kind * num_cells + cell];
  }
};

/// The shapes that are captured, and the table over them.
class ShapeGrid {
 public:
  /// Shapes in any order, each within the bounds; the largest, (max_rows, max_seqs) with prefill,
  /// and with adapters if batches may have one, is added if it is missing. At most 65535.
  ShapeGrid(std::vector<GraphShape> shapes, uint32_t max_rows, uint32_t max_seqs,
            bool has_adapters);
  /// The usual grid: decode batches dense where they are small, chunks by powers of two; where
  /// there are adapters, each of these with and without.
  static ShapeGrid standard(uint32_t max_rows, uint32_t max_seqs, bool has_adapters);

  const std::vector<GraphShape>& shapes() const { return shapes_; }
  /// All arrays of the table, to be copied where the tick runs; `table` then says where they are.
  const std::vector<uint16_t>& words() const { return words_; }
  ShapeTable table(const uint16_t* words) const;

 private:
  uint16_t tightest(const GraphShape& least) const;

  std::vector<GraphShape> shapes_;
  std::vector<uint16_t> words_;
  ShapeTable table_ = {};
};

}  // namespace saccade
