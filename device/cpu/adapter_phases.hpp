// What adapters add to the products of a layer, as phases over workers: the inputs of their rows
// are gathered, A shrinks them to the rank, B expands that into changes. The products with the
// model's own weights then add the changes to their results.
#pragma once
#include "cpu/forward.hpp"
#include "cpu/item_sizes.hpp"
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
        num_rows_(context.plan.num_rows()),
        num_blocks_(context.plan.num_blocks()) {}

  /// Computes the changes of `count` products of `in`, of the matrices from role `first` on. Where
  /// there are none, there is no phase.
  void run(uint32_t layer, uint32_t first, uint32_t count, const Activations& in) {
    count_ = num_blocks_ != 0 && w_.any(layer, first, count) ? count : 0;
    if (count_ == 0) return;
    layer_ = layer;
    first_ = first;
    uint32_t column = 0;
    for (uint32_t p = 0; p < count; ++p) {
      columns_[p] = column;
      column += outputs(p);
    }
    gather(in);
    shrink(in);
    expand();
  }

  /// The changes of one of the products of the last run.
  Delta delta(uint32_t product) const {
    if (product >= count_) return {};
    return {s_.delta(0) + columns_[product], s_.delta_stride(), s_.slots(product)};
  }

 private:
  uint32_t outputs(uint32_t product) const {
    return static_cast<uint32_t>(tensor_shape(c_, first_ + product).rows);
  }
  const AdapterPair* find(uint32_t adapter, uint32_t product) const {
    return w_.find(adapter, layer_, first_ + product);
  }

  void gather(const Activations& in) {
    worker_.for_each(num_rows_, [&](uint32_t i) {
      const AdapterRow& at = plan_.row(i);
      copy_activations(in, at.row, s_.gathered(0, in.k), at.slot);
      for (uint32_t p = 0; p < count_; ++p) {
        s_.slots(p)[at.row] = find(at.adapter, p) == nullptr ? Delta::kNoSlot : at.slot;
      }
    });
  }

  /// Whatever the rank, for each block as many items as the highest has panels.
  void shrink(const Activations& in) {
    MatmulArgs a = {};
    a.dtype = c_.dtype;
    a.epilogue = Epilogue::kScale;
    a.num_panels = 1;
    a.tiles = tiles_;
    const auto compute = [&](uint32_t item) {
      const AdapterBlock block = plan_.block(item % num_blocks_);
      const uint32_t product = item / num_blocks_ % count_;
      a.first_panel = item / num_blocks_ / count_;
      const AdapterPair* pair = find(block.adapter, product);
      const bool has_panel = pair != nullptr && a.first_panel < pair->a.num_panels();
      a.num_rows = has_panel ? block.num_rows : 0;
      if (a.num_rows == 0) return;
      a.x = s_.gathered(block.first_slot, in.k);
      a.n = pair->a.num_panels() * kPanelOutputs;
      a.panels = pair->a.panels;
      a.scale = pair->scaling;
      a.gated = s_.shrunk(product, block.first_slot, a.n);
      k_.multiply(a);
    };
    const uint32_t items = num_blocks_ * count_ * w_.max_rank_panels();
    worker_.for_each_published(items, compute, [&](uint32_t) { k_.finish(a); });
  }

  void expand() {
    uint32_t panels = 0;
    for (uint32_t p = 0; p < count_; ++p) panels += ceil_div(outputs(p), kPanelOutputs);
    const uint32_t per_item = choose_panels(panels, num_blocks_, worker_.num_threads());
    uint32_t groups = 0;
    for (uint32_t p = 0; p < count_; ++p) groups += groups_of(p, per_item);
    MatmulArgs a = {};
    a.dtype = c_.dtype;
    a.epilogue = Epilogue::kStore;
    a.y_stride = s_.delta_stride();
    a.tiles = tiles_;
    const auto compute = [&](uint32_t item) {
      // Blocks of one group are adjacent: those of one adapter read its weights once.
      const AdapterBlock block = plan_.block(item % num_blocks_);
      uint32_t group = item / num_blocks_, product = 0;
      for (; group >= groups_of(product, per_item); ++product)
        group -= groups_of(product, per_item);
      const AdapterPair* pair = find(block.adapter, product);
      a.num_rows = pair == nullptr ? 0 : block.num_rows;
      if (a.num_rows == 0) return;
      a.x = s_.shrunk(product, block.first_slot, pair->b.k);
      a.n = pair->b.n;
      a.panels = pair->b.panels;
      a.first_panel = group * per_item;
      a.num_panels = min_u32(per_item, pair->b.num_panels() - a.first_panel);
      a.y = s_.delta(block.first_slot) + columns_[product];
      k_.multiply(a);
    };
    worker_.for_each_published(groups * num_blocks_, compute, [&](uint32_t) { k_.finish(a); });
  }
  uint32_t groups_of(uint32_t product, uint32_t per_item) const {
    return ceil_div(ceil_div(outputs(product), kPanelOutputs), per_item);
  }

  const AdapterWeights& w_;
  const AdapterPlan& plan_;
  const AdapterSpace& s_;
  const sac_model_config& c_;
  const Kernels& k_;
  float* const tiles_;
  WorkerPool::Worker& worker_;
  const uint32_t num_rows_;
  const uint32_t num_blocks_;
  uint32_t layer_ = 0;  // of the last run, with the rest
  uint32_t first_ = 0;
  uint32_t count_ = 0;
  uint32_t columns_[kMaxAdaptedTogether] = {};
};

}  // namespace saccade
