// How the attention of some rows of a step is cut into items.
#pragma once
#include <vector>

#include "cpu/kernels.hpp"

namespace saccade {

/// Consecutive rows of one sequence that attention computes together.
struct PlanChunk {
  uint32_t seat;
  uint32_t first_row;
  uint32_t out_row;  // where the first row's result goes
  uint32_t num_rows;
  uint32_t first_position;
};

/// One item of a layer's attention: some kv heads of a chunk and, for a row that is cut by its
/// context, some of its ranges (kAttentionRange).
struct AttentionItem {
  uint32_t chunk;
  uint32_t first_head;
  uint32_t num_heads;
  uint32_t first_range;
  uint32_t end_range;
  /// Where the row's parts begin, in ranges; kNotCut: the item does the whole context.
  uint32_t part;
};

/// A row whose ranges are split among items.
struct CutRow {
  uint32_t chunk;
  uint32_t part;
};

/// What the cutting of attention into items depends on. None of it changes a result.
struct AttentionCut {
  uint32_t chunk_rows;  // most rows of a chunk
  uint32_t num_kv_heads;
  uint32_t num_workers;
  uint32_t max_parts;  // ranges that there is room for
};

/// Arrays sized once for the largest batch.
class AttentionPlan {
 public:
  static constexpr uint32_t kNotCut = ~0u;
  /// Target number of attention items per worker: enough that no worker waits long for the last.
  static constexpr uint32_t kItemsPerWorker = 8;

  AttentionPlan(uint32_t max_rows, const AttentionCut& cut);

  void clear();
  /// Rows come in ascending order.
  void add_row(uint32_t seat, uint32_t row, uint32_t out_row, uint32_t position);
  /// Once all rows are there.
  void cut();

  uint32_t num_items() const { return static_cast<uint32_t>(items_.size()); }
  uint32_t num_cut_rows() const { return static_cast<uint32_t>(cut_rows_.size()); }
  const PlanChunk& chunk(uint32_t i) const { return chunks_[i]; }
  const AttentionItem& item(uint32_t i) const { return items_[i]; }
  const CutRow& cut_row(uint32_t i) const { return cut_rows_[i]; }

 private:
  /// Cuts single rows: decodes, and what remains of prompts.
  void cut_rows();
  void cut_by_ranges(uint32_t chunk, uint32_t per_item, uint32_t heads);
  void cut_by_heads(uint32_t chunk, uint32_t heads);
  /// Cuts chunks of several rows.
  void cut_prompts();
  uint32_t num_ranges(uint32_t chunk) const;

  const AttentionCut cut_;
  std::vector<PlanChunk> chunks_;
  std::vector<AttentionItem> items_;
  std::vector<CutRow> cut_rows_;
  uint32_t num_chunks_ = 0;
  uint32_t num_parts_ = 0;
};

}  // namespace saccade
