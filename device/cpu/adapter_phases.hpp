// What adapters add to the products of a layer. Before the products of one input come the phases in
// which A shrinks the inputs of their rows to the rank; within an item of a product, B expands that
// into the item's own changes.
#pragma once
#include "cpu/forward.hpp"
#include "cpu/moe.hpp"

namespace saccade {

/// One worker's view of a step. As in forward.cpp, only items read the plan.
class AdapterPhases {
 public:
  AdapterPhases(const AdapterContext& context, const sac_model_config& config, const Kernels& k,
                float* tiles, WorkerPool::Worker& worker)
      : w_(context.weights),
        plan_(context.plan),
        s_(context.space),
        c_(config),
        k_(k),
        tiles_(tiles),
        worker_(worker),
        num_spans_(context.plan.num_spans()),
        num_blocks_(context.plan.num_blocks()),
        num_gathered_(context.plan.num_gathered()) {}

  /// Shrinks `in` for `count` products of it, of the matrices from role `first` on. Where no row
  /// is changed, there is no phase.
  void shrink(uint32_t layer, uint32_t first, uint32_t count, const Activations& in) {
    count_ = num_blocks_ != 0 && w_.any(layer, first, count) ? count : 0;
    if (count_ == 0) return;
    layer_ = layer;
    first_ = first;
    worker_.for_each(num_gathered_, [&](uint32_t i) {
      const uint32_t slot = plan_.gathered_slot(i);
      copy_activations(in, plan_.row_of_slot(slot), s_.gathered(0, in.k), slot);
    });
    multiply_a(in);
  }

  /// The changes of the outputs of an item that is a product with the matrix of a role, the second
  /// of a gated pair or not. None where what was shrunk last is not this matrix's input.
  Delta expand(uint32_t role, const MatmulArgs& item, bool second) {
    const uint32_t product = role - first_;
    if (product >= count_ || !w_.any(layer_, role, 1)) return {};
    const AdapterScratch& scratch = s_.scratch(worker_.index());
    float* const tile = scratch.tiles + (second ? kTileFloats : 0);
    uint32_t* const places = scratch.places + (second ? kTileRows : 0);
    for (uint32_t r = 0; r < item.num_rows; ++r) places[r] = Delta::kNone;
    MatmulArgs a = {};
    a.dtype = c_.dtype;
    a.first_panel = item.first_panel;
    a.num_panels = item.num_panels;
    uint32_t used = 0;
    for (uint32_t i = 0; i < num_spans_; ++i) {
      const AdapterSpan span = plan_.span(i);
      const AdapterPair* pair = find(span.adapter, product);
      if (pair == nullptr) continue;
      a.first_row = plan_.first_from(span, item.first_row);
      const uint32_t end = plan_.first_from(span, item.first_row + item.num_rows);
      a.num_rows = min_u32(end - min_u32(a.first_row, end), item.num_rows - used);
      if (a.num_rows == 0) continue;
      a.x = s_.shrunk(product, span.base_slot, pair->b.k);
      a.n = pair->b.n;
      a.panels = pair->b.panels;
      a.tiles = tile + size_t{used} * kPanelOutputs;
      k_.multiply(a);
      for (uint32_t r = 0; r < a.num_rows; ++r) {
        const uint32_t row = plan_.row_at(span, a.first_row + r) - item.first_row;
        if (row < item.num_rows) places[row] = used + r;
      }
      used += a.num_rows;
    }
    return used == 0 ? Delta{} : Delta{tile, places};
  }

 private:
  const AdapterPair* find(uint32_t adapter, uint32_t product) const {
    return w_.find(adapter, layer_, first_ + product);
  }

  /// One phase: whatever the rank, for each block as many items as the highest has panels.
  void multiply_a(const Activations& in) {
    MatmulArgs a = {};
    a.dtype = c_.dtype;
    a.epilogue = Epilogue::kScale;
    a.num_panels = 1;
    a.tiles = tiles_;
    const auto compute = [&](uint32_t item) {
      const AdapterBlock block = plan_.block(item % num_blocks_);
      const AdapterSpan span = plan_.span(block.span);
      const uint32_t product = item / num_blocks_ % count_;
      a.first_panel = item / num_blocks_ / count_;
      const AdapterPair* pair = find(span.adapter, product);
      const bool has_panel = pair != nullptr && a.first_panel < pair->a.num_panels();
      const uint32_t end = span.first + span.num_rows;
      a.first_row = min_u32(block.first, end);
      a.num_rows = has_panel ? min_u32(block.num_rows, end - a.first_row) : 0;
      if (a.num_rows == 0) return;
      a.x = span.base_row == AdapterSpan::kApart ? s_.gathered(span.base_slot, in.k)
                                                 : rows_from(in, span.base_row);
      a.n = pair->a.num_panels() * kPanelOutputs;
      a.panels = pair->a.panels;
      a.scale = pair->scaling;
      a.gated = s_.shrunk(product, span.base_slot, a.n);
      k_.multiply(a);
    };
    const uint32_t items = num_blocks_ * count_ * w_.max_rank_panels();
    worker_.for_each_published(items, compute, [&](uint32_t) { k_.finish(a); });
  }

  /// Activations from a row on that begins a tile.
  static Activations rows_from(const Activations& in, uint32_t row) {
    auto* const data = static_cast<uint8_t*>(in.data);
    return {data + activation_bytes(row, in.k, in.tiled), in.k, in.tiled};
  }

  const AdapterWeights& w_;
  const AdapterPlan& plan_;
  const AdapterSpace& s_;
  const sac_model_config& c_;
  const Kernels& k_;
  float* const tiles_;
  WorkerPool::Worker& worker_;
  const uint32_t num_spans_;
  const uint32_t num_blocks_;
  const uint32_t num_gathered_;
  uint32_t layer_ = 0;  // of what was shrunk last, with the rest
  uint32_t first_ = 0;
  uint32_t count_ = 0;
};

}  // namespace saccade
