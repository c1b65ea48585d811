#include "cpu/attention_plan.hpp"

namespace saccade {

AttentionPlan::AttentionPlan(uint32_t max_rows, const AttentionCut& cut)
    : cut_(cut), chunks_(max_rows) {
  // A row is cut by ranges, into about the target number of items, or by heads.
  const uint32_t by_ranges = kItemsPerWorker * cut.num_workers;
  items_.reserve((size_t{max_rows} + by_ranges) * cut.num_kv_heads);
  cut_rows_.reserve(min_u32(max_rows, cut.max_parts));
}

void AttentionPlan::clear() {
  num_chunks_ = 0;
  num_parts_ = 0;
  items_.clear();
  cut_rows_.clear();
}

void AttentionPlan::add_row(uint32_t seat, uint32_t row, uint32_t out_row, uint32_t position) {
  if (num_chunks_ != 0) {
    PlanChunk& last = chunks_[num_chunks_ - 1];
    if (last.seat == seat && last.first_row + last.num_rows == row &&
        last.num_rows < cut_.chunk_rows) {
      last.num_rows += 1;
      return;
    }
  }
  chunks_[num_chunks_++] = {seat, row, out_row, 1, position};
}

void AttentionPlan::cut() {
  cut_rows();
  cut_prompts();
}

uint32_t AttentionPlan::num_ranges(uint32_t chunk) const {
  return chunks_[chunk].first_position / kAttentionRange + 1;
}

void AttentionPlan::cut_rows() {
  uint32_t rows = 0, ranges = 0;
  for (uint32_t c = 0; c < num_chunks_; ++c) {
    if (chunks_[c].num_rows != 1) continue;
    rows += 1;
    ranges += num_ranges(c);
  }
  if (rows == 0) return;
  const uint32_t wanted = kItemsPerWorker * cut_.num_workers;
  const uint32_t per_item = ceil_div(ranges, wanted);
  for (uint32_t c = 0; c < num_chunks_; ++c) {
    if (chunks_[c].num_rows != 1) continue;
    // A token's heads are adjacent in memory: split them only where workers would be idle.
    const uint32_t heads = ceil_div(cut_.num_kv_heads, ceil_div(cut_.num_workers, ranges));
    cut_by_ranges(c, per_item, heads);
  }
}

void AttentionPlan::cut_by_ranges(uint32_t chunk, uint32_t per_item, uint32_t heads) {
  const uint32_t ranges = num_ranges(chunk);
  if (ranges <= per_item || num_parts_ + ranges > cut_.max_parts) {
    return cut_by_heads(chunk, heads);
  }
  for (uint32_t r = 0; r < ranges; r += per_item) {
    for (uint32_t h = 0; h < cut_.num_kv_heads; h += heads) {
      items_.push_back({chunk, h, min_u32(heads, cut_.num_kv_heads - h), r,
                        min_u32(r + per_item, ranges), num_parts_});
    }
  }
  cut_rows_.push_back({chunk, num_parts_});
  num_parts_ += ranges;
}

void AttentionPlan::cut_by_heads(uint32_t chunk, uint32_t heads) {
  for (uint32_t h = 0; h < cut_.num_kv_heads; h += heads) {
    const uint32_t num_heads = min_u32(heads, cut_.num_kv_heads - h);
    items_.push_back({chunk, h, num_heads, 0, num_ranges(chunk), kNotCut});
  }
}

void AttentionPlan::cut_prompts() {
  for (uint32_t begin = 0, end = 0; begin < num_chunks_; begin = end) {
    while (end < num_chunks_ && chunks_[end].seat == chunks_[begin].seat) ++end;
    // Chunks of a prompt share a head's KV, which then comes from the second-level cache.
    for (uint32_t h = 0; h < cut_.num_kv_heads; ++h) {
      for (uint32_t c = begin; c < end; ++c) {
        if (chunks_[c].num_rows > 1) items_.push_back({c, h, 1, 0, ~0u, kNotCut});
      }
    }
  }
}

}  // namespace saccade
