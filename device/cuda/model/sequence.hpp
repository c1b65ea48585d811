// One step as a sequence of kernels: which, on what, how large. The queue is a stream of a GPU
// (model.cu), or runs each kernel immediately on an emulated one (tests).
//
//   Queue: template <class Kernel> void launch(Grid grid, const typename Kernel::Args&)
//
// Grids follow from the shape, never from a batch: blocks beyond what a batch has exit at once.
#pragma once

#include "cuda/model/adapters.hpp"
#include "cuda/model/attention.hpp"
#include "cuda/model/experts.hpp"
#include "cuda/model/fp8_product.hpp"
#include "cuda/model/narrow_product.hpp"
#include "cuda/model/product.hpp"
#include "cuda/model/rotate.hpp"
#include "cuda/model/sample.hpp"
#include "cuda/model/sequence_shape.hpp"
#include "cuda/model/view.hpp"
#include "cuda/model/warpgroup_product.hpp"

namespace saccade::gpu {

/// What a product reads and where its sums go.
struct ProductPlan {
  const MatrixView* matrix;
  Activations x;
  uint32_t rows;             // of the shape
  const uint32_t* num_rows;  // of the step
  float* sums;
  uint32_t sum_rows;  // that a slice has room for
  bool early = true;  // see ProductArgs
};

/// Expert products: the same, by tiles.
struct ExpertPlan {
  ExpertSpace space;
  uint32_t max_tiles;
  SlotCut cut;
  const uint32_t* slot_row;  // null: x has slots, or shares rows
};

template <class Queue>
class StepSequence {
 public:
  StepSequence(Queue& queue, const ModelView& model, const AdapterUse& use, const GraphShape& shape,
               ProductWay way)
      : queue_(queue),
        m_(model),
        c_(model.config),
        s_(model.space),
        use_(use),
        shape_(shape),
        way_(way) {}

  void enqueue() {
    plan();
    embed();
    for (uint32_t l = 0; l < c_.num_layers; ++l) layer(l);
    const uint32_t logits = shape_.seqs + (shape_.has_prefill ? shape_.rows : 0);
    for (uint32_t first = 0; first < logits; first += s_.logit_rows) {
      sample(first, min_u32(s_.logit_rows, logits - first));
    }
  }

 private:
  template <class Kernel>
  void launch(Grid grid, const typename Kernel::Args& args) {
    queue_.template launch<Kernel>(grid, args);
  }

  void plan() {
    launch<PlanKernel>({1 + ceil_div(shape_.rows, PlanKernel::kThreads)},
                       {m_.tables.seats, m_.tables.batch, s_.plan, s_.limits});
    if (!adapts()) return;
    launch<AdapterPlanKernel>(
        {}, {s_.plan.counts, s_.plan.rows, m_.tables.seats, m_.adapters.num_adapters,
             adapter_tile_slots(shape_.rows), s_.adapters});
  }
  /// Whether a row of the shape may have an adapter that changes anything.
  bool adapts() const { return shape_.has_adapters && use_.ranks != 0; }

  NormArgs norm(const float* weight, const Activations& out) const {
    return {weight, out, c_.rms_norm_eps, c_.hidden_size, m_.widths.hidden};
  }

  void embed() {
    launch<EmbedKernel>({shape_.rows},
                        {s_.plan.counts, s_.plan.rows, m_.embed.data, m_.embed.k, c_.vocab_size,
                         s_.x, norm(m_.layers[0].input_norm, s_.normed)});
  }

  void layer(uint32_t l) {
    const LayerView& w = m_.layers[l];
    const float* next = l + 1 < c_.num_layers ? m_.layers[l + 1].input_norm : nullptr;
    const Deltas deltas = adapt(w.qkv_adapted, s_.normed);
    const Partials qkv = multiply(dense(w.qkv, s_.normed));
    rotate(l, w, qkv, deltas);
    attend(l, w);
    add_product(dense(w.o, s_.mixed), w.o_adapted, w.o_bias, w.post_norm);
    if (w.has_experts) {
      mix_experts(w, next);
    } else {
      feed_forward(w, next);
    }
  }

  ProductPlan dense(const MatrixView& matrix, const Activations& x) const {
    return {&matrix,     x,
            shape_.rows, &s_.plan.counts->num_rows,
            s_.partials, round_up(shape_.rows, kTileOutputs)};
  }

  /// What adapters add to the product of the same input that is launched next, whose early requests
  /// of weights these kernels overlap.
  Deltas adapt(const AdaptedView& view, const Activations& x) {
    if (!adapts() || !use_.changes(view)) return {};
    if (adapter_tile_slots(shape_.rows) == kFewAdapterSlots)
      return adapt_tiles<kFewAdapterSlots>(view, x);
    return adapt_tiles<kManyAdapterSlots>(view, x);
  }
  template <uint32_t kSlots>
  Deltas adapt_tiles(const AdaptedView& view, const Activations& x) {
    const uint32_t slices = shrink_slices(view.k), stride = view.count * use_.ranks;
    const AdapterArgs a = {s_.adapters,
                           view,
                           x,
                           use_.ranks,
                           {s_.adapters.shrunk, slices, stride, size_t{shape_.rows} * stride}};
    const uint32_t tiles = max_adapter_tiles(m_.adapters.num_adapters, shape_.rows, kSlots);
    launch<ShrinkKernel<kSlots>>({tiles, stride / kFragmentRows, slices}, a);
    using Expand = ExpandKernel<kSlots>;
    launch<Expand>({tiles, Expand::blocks_of(view)}, a);
    return {s_.adapters.deltas, view.stride(), s_.adapters.row_slot};
  }

  void rotate(uint32_t l, const LayerView& w, const Partials& qkv, const Deltas& deltas) {
    if (m_.has_fp8_kv()) return rotate_into<Fp8Code>(l, w, qkv, deltas);
    rotate_into<Half>(l, w, qkv, deltas);
  }
  template <class Kv>
  void rotate_into(uint32_t l, const LayerView& w, const Partials& qkv, const Deltas& deltas) {
    using Kernel = RotateKernel<Kv>;
    typename Kernel::Args a = {};
    a.counts = s_.plan.counts;
    a.rows = s_.plan.rows;
    a.seats = m_.tables.seats;
    a.qkv = qkv;
    a.deltas = deltas;
    a.bias = w.qkv_bias;
    a.q_norm = w.q_norm;
    a.k_norm = w.k_norm;
    a.cos = m_.cos;
    a.sin = m_.sin;
    a.eps = c_.rms_norm_eps;
    a.num_heads = c_.num_heads;
    a.num_kv_heads = c_.num_kv_heads;
    a.head_dim = c_.head_dim;
    a.rotary_dim = c_.rotary_dim;
    a.max_model_len = m_.max_model_len;
    a.rope_switch_len = c_.rope_switch_len;
    a.q = s_.q;
    a.q_stride = m_.widths.mixed;
    a.kv = m_.kv;
    a.k_offset = m_.kv.k_offset(l);
    a.kv_scales = m_.kv_scales(l);
    const uint32_t heads = c_.num_heads + 2 * c_.num_kv_heads;
    launch<Kernel>({shape_.rows, Kernel::blocks_of_row(heads)}, a);
  }

  void attend(uint32_t l, const LayerView& w) {
    AttentionArgs a = {};
    a.plan = s_.plan;
    a.seats = m_.tables.seats;
    a.q = s_.q;
    a.q_stride = m_.widths.mixed;
    a.out = s_.mixed;
    a.kv = m_.kv;
    a.k_offset = m_.kv.k_offset(l);
    a.num_heads = c_.num_heads;
    a.num_kv_heads = c_.num_kv_heads;
    a.head_dim = c_.head_dim;
    a.window = w.window;
    const KvScales scales = m_.kv_scales(l);
    a.scale = 1.44269504f / __builtin_sqrtf(static_cast<float>(c_.head_dim)) * scales.k;
    a.v_scale = scales.v;
    a.item_sums = s_.item_sums;
    a.item_scales = s_.item_scales;
    if (m_.has_fp8_kv()) return attend_over<Fp8Code>(a);
    attend_over<Half>(a);
  }
  template <class Kv>
  void attend_over(const AttentionArgs& a) {
    if (c_.head_dim <= 64) return attend_with<64, Kv>(a);
    attend_with<kDimLimit, Kv>(a);
  }
  template <uint32_t kDim, class Kv>
  void attend_with(const AttentionArgs& a) {
    const uint64_t chunks = ceil_div(m_.max_model_len, kContextChunk);
    const uint64_t items = min_u64(shape_.seqs * chunks, s_.limits.max_items);
    const uint64_t units = items * a.units_of_item();
    const auto blocks = static_cast<uint32_t>(min_u64(units, kChunkBlocks));
    launch<ChunkAttentionKernel<kDim, Kv>>({blocks}, a);
    using Fold = FoldChunksKernel<kDim, Kv>;
    launch<Fold>({shape_.seqs, ceil_div(c_.num_heads, Fold::kWarps)}, a);
    if (!shape_.has_prefill) return;
    const uint32_t tiles = ceil_div(shape_.rows, s_.limits.tile_rows) + shape_.seqs;
    const Grid grid = {c_.num_kv_heads, tiles, ceil_div(a.group(), kTileVectors)};
    if (way_ == ProductWay::kWgmma) return launch<TileAttentionKernel<kDim, true, Kv>>(grid, a);
    launch<TileAttentionKernel<kDim, false, Kv>>(grid, a);
  }

  /// x += product + what adapters add + bias; normed = norm(x).
  void add_product(const ProductPlan& p, const AdaptedView& adapted, const float* bias,
                   const float* weight) {
    const Deltas deltas = adapt(adapted, p.x);
    const Cut cut = cut_of(p, nullptr);
    if (way_ == ProductWay::kWgmma && cut.whole && deltas.data == nullptr) {
      ProductArgs a = product_args(p, nullptr, cut);
      a.x_sums = s_.x;
      a.x_width = m_.widths.hidden;
      a.x_bias = bias;
      launch_warpgroups<ProductEnd::kAdded>(cut, p, a);
      launch<NormKernel>({shape_.rows}, {s_.plan.counts, s_.x, norm(weight, s_.normed)});
      return;
    }
    const Partials product = multiply(p);
    launch<AddNormKernel>({shape_.rows},
                          {s_.plan.counts, product, deltas, bias, s_.x, norm(weight, s_.normed)});
  }

  void feed_forward(const LayerView& w, const float* next_norm) {
    const Deltas deltas = adapt(w.gate_up_adapted, s_.normed);
    gate(dense(w.gate_up, s_.normed), nullptr, deltas, w.gate_bias, w.up_bias, s_.gated,
         m_.widths.gated);
    add_product(dense(w.down, s_.gated), w.down_adapted, w.down_bias, next_norm);
  }

  void mix_experts(const LayerView& w, const float* next_norm) {
    const Partials router = multiply(dense(w.router, s_.normed));
    const bool fp8 = w.expert_gate_up.units != nullptr || w.expert_down.units != nullptr;
    const SlotCut cut = slot_cut(fp8);
    const uint32_t max_tiles =
        max_expert_tiles(c_.num_experts, c_.experts_per_token, shape_.rows, cut);
    const ExpertPlan e = {s_.experts, max_tiles, cut, nullptr};
    launch<RouteKernel>({ceil_div(shape_.rows, RouteKernel::kWarps)},
                        {s_.plan.counts, router, c_.num_experts, c_.experts_per_token,
                         c_.norm_topk_prob, cut, s_.experts});
    const Partials down =
        way_ == ProductWay::kWgmma ? experts_by_wgmma(w, e) : experts_by_mma(w, e);
    launch<AddExpertsKernel>({shape_.rows},
                             {s_.plan.counts, down, s_.experts.slots, s_.experts.weights,
                              c_.experts_per_token, s_.x, norm(next_norm, s_.normed)});
  }
  SlotCut slot_cut(bool fp8) const {
    const uint32_t picks = shape_.rows * c_.experts_per_token;
    if (way_ == ProductWay::kMma) return {expert_tile_slots(picks, c_.num_experts), 1, false};
    if (shape_.rows <= kSharedRows) return {kSharedRows, kSharedRows, true};
    return {warpgroup_tile_slots(picks, c_.num_experts, fp8), kSlotUnit, false};
  }

  /// The rows are read where they are, slot by slot.
  Partials experts_by_mma(const LayerView& w, ExpertPlan e) {
    ProductPlan p = dense(w.expert_gate_up, s_.normed);
    p.sum_rows = round_up(shape_.rows * c_.experts_per_token, kTileOutputs);
    e.slot_row = s_.experts.slot_row;
    gate(p, &e, {}, nullptr, nullptr, s_.expert_gated, m_.widths.expert_gated);
    p.matrix = &w.expert_down;
    p.x = s_.expert_gated;
    e.slot_row = nullptr;
    return multiply(p, &e);
  }

  /// Whole sums. Bulk copies want the rows of a tile one after another: they are copied to their
  /// slots, or are few and all of them are taken.
  Partials experts_by_wgmma(const LayerView& w, const ExpertPlan& e) {
    ProductPlan p = dense(w.expert_gate_up, e.cut.shared ? s_.normed : s_.gathered);
    if (!e.cut.shared) {
      launch<GatherKernel>({shape_.rows}, {s_.plan.counts, s_.experts.slots, c_.experts_per_token,
                                           s_.normed, s_.gathered, m_.widths.hidden});
    }
    ProductArgs a = expert_args(p, e);
    a.shared_rows = e.cut.shared;
    a.gated = s_.expert_gated;
    launch_experts<ProductEnd::kGated>(p, e, a);
    p.matrix = &w.expert_down;
    p.x = s_.expert_gated;
    a = expert_args(p, e);
    launch_experts<ProductEnd::kSums>(p, e, a);
    return a.y;
  }
  ProductArgs expert_args(const ProductPlan& p, const ExpertPlan& e) const {
    const uint32_t steps = p.matrix->steps();
    return product_args(p, &e, {e.cut.tile_slots, kTileOutputs, true, {1, steps}});
  }

  /// gated = silu(gate) * up: by the product itself where a block has whole sums and adapters add
  /// nothing to them.
  void gate(const ProductPlan& p, const ExpertPlan* experts, const Deltas& deltas,
            const float* gate_bias, const float* up_bias, const Activations& gated,
            uint32_t width) {
    const Cut cut = cut_of(p, experts);
    if (cut.whole && deltas.data == nullptr) {
      ProductArgs a = product_args(p, experts, cut);
      a.gated = gated;
      a.gate_bias = gate_bias;
      a.up_bias = up_bias;
      return launch_product<ProductEnd::kGated>(cut, p, experts, a);
    }
    const uint32_t per_row = experts != nullptr ? c_.experts_per_token : 1;
    const Partials sums = multiply(p, experts);
    launch<ActivateKernel>({p.rows * per_row, ceil_div(width, kRowThreads)},
                           {p.num_rows, per_row, sums, deltas, gate_bias, up_bias, gated, width});
  }

  /// Sums of a product, and the form they are in.
  Partials multiply(const ProductPlan& p, const ExpertPlan* experts = nullptr) {
    const Cut cut = cut_of(p, experts);
    const ProductArgs a = product_args(p, experts, cut);
    launch_product<ProductEnd::kSums>(cut, p, experts, a);
    return a.y;
  }

  /// How a product is cut into blocks.
  struct Cut {
    uint32_t tile_rows;
    uint32_t outputs;  // of a block
    bool whole;        // one block has the whole sum
    Slicing slicing;

    uint32_t blocks_of_slices() const { return whole ? 1 : slicing.slices; }
  };
  Cut cut_of(const ProductPlan& p, const ExpertPlan* experts) const {
    if (experts == nullptr && way_ == ProductWay::kWgmma) {
      const Slicing& s = p.matrix->by_wgmma;
      if (p.matrix->units != nullptr) {
        const WarpgroupTile t = fp8_tile(p.rows, p.matrix->tiles());
        return {t.rows, t.outputs, t.whole, s};
      }
      const WarpgroupTile t = warpgroup_tile(p.rows, p.matrix->tiles(), s.slices);
      return {t.rows, t.outputs, t.whole, s};
    }
    const Slicing& s = p.matrix->by_mma;
    const uint32_t rows = experts != nullptr ? experts->cut.tile_slots : dense_tile_rows(p.rows);
    return {rows, kTileOutputs, rows > kMaxSplitTile || s.slices == 1, s};
  }

  static ProductArgs product_args(const ProductPlan& p, const ExpertPlan* experts, const Cut& cut) {
    ProductArgs a = {};
    a.num_rows = p.num_rows;
    a.weights = p.matrix->data;
    a.units = p.matrix->units;
    a.steps = p.matrix->steps();
    a.slice_steps = cut.slicing.slice_steps;
    a.early = p.early;
    a.x = p.x;
    a.y = {p.sums, cut.blocks_of_slices(), p.matrix->n, size_t{p.sum_rows} * p.matrix->n};
    if (experts == nullptr) return a;
    a.tiles = experts->space.tiles;
    a.num_tiles = experts->space.num_tiles;
    a.slot_row = experts->slot_row;
    a.expert_stride = p.matrix->expert_stride();
    return a;
  }

  template <ProductEnd kEnd>
  void launch_product(const Cut& cut, const ProductPlan& p, const ExpertPlan* experts,
                      const ProductArgs& a) {
    constexpr bool kGated = kEnd == ProductEnd::kGated;
    if (experts != nullptr) {
      return launch_rows<kGated, true>(
          cut.tile_rows, {experts->max_tiles, p.matrix->tiles(), cut.blocks_of_slices()}, a);
    }
    if (way_ == ProductWay::kWgmma) return launch_warpgroups<kEnd>(cut, p, a);
    launch_rows<kGated, false>(
        cut.tile_rows, {ceil_div(p.rows, cut.tile_rows), p.matrix->tiles(), cut.blocks_of_slices()},
        a);
  }
  template <bool kGated, bool kGrouped>
  void launch_rows(uint32_t tile_rows, Grid grid, const ProductArgs& a) {
    switch (tile_rows) {
      case 8:
        return launch<ProductKernel<8, false, kGated, kGrouped>>(grid, a);
      case 32:
        return launch<ProductKernel<32, false, kGated, kGrouped>>(grid, a);
      case 64:
        return launch<ProductKernel<64, false, kGated, kGrouped>>(grid, a);
      default:
        return launch<ProductKernel<128, true, kGated, kGrouped>>(grid, a);
    }
  }

  /// The tiles of warpgroup_tile_slots.
  template <ProductEnd kEnd>
  void launch_experts(const ProductPlan& p, const ExpertPlan& e, const ProductArgs& a) {
    const Grid grid = {p.matrix->tiles(), e.max_tiles};
    if (a.units != nullptr) return launch_fp8_experts<kEnd>(e.cut, grid, a);
    switch (e.cut.tile_slots) {
      case 8:
        return launch<WarpgroupProductKernel<8, 2, false, kEnd, ExpertTiles>>(grid, a);
      case 32:
        return launch<WarpgroupProductKernel<32, 2, false, kEnd, ExpertTiles>>(grid, a);
      case 64:
        return launch<WarpgroupProductKernel<64, 2, false, kEnd, ExpertTiles>>(grid, a);
      default:
        return launch<WarpgroupProductKernel<128, 2, false, kEnd, ExpertTiles>>(grid, a);
    }
  }

  template <ProductEnd kEnd>
  void launch_fp8_experts(const SlotCut& cut, const Grid& grid, const ProductArgs& a) {
    switch (cut.tile_slots) {
      case 8:
        return launch<Fp8NarrowProductKernel<8, 128, kEnd, ExpertTiles>>(grid, a);
      case 32:
        return launch<Fp8NarrowProductKernel<32, 128, kEnd, ExpertTiles>>(grid, a);
      default:
        return launch<Fp8ProductKernel<64, 2, kEnd, ExpertTiles>>(grid, a);
    }
  }

  /// The tiles of warpgroup_tile.
  template <ProductEnd kEnd>
  void launch_warpgroups(const Cut& cut, const ProductPlan& p, const ProductArgs& a) {
    const Grid grid = {ceil_div(p.rows, cut.tile_rows), p.matrix->n / cut.outputs,
                       cut.blocks_of_slices()};
    if (a.units != nullptr) return launch_fp8<kEnd>(cut, grid, a);
    switch (cut.tile_rows * 256 + cut.outputs) {
      case 8 * 256 + 32:
        return launch<NarrowProductKernel<8, 32, kEnd>>(grid, a);
      case 16 * 256 + 32:
        return launch<NarrowProductKernel<16, 32, kEnd>>(grid, a);
      case 32 * 256 + 32:
        return launch<NarrowProductKernel<32, 32, kEnd>>(grid, a);
      case 64 * 256 + 32:
        return launch<NarrowProductKernel<64, 32, kEnd>>(grid, a);
      case 8 * 256 + 64:
        return launch<NarrowProductKernel<8, 64, kEnd>>(grid, a);
      case 16 * 256 + 64:
        return launch<NarrowProductKernel<16, 64, kEnd>>(grid, a);
      case 32 * 256 + 64:
        return launch<NarrowProductKernel<32, 64, kEnd>>(grid, a);
      case 8 * 256 + 128:
        return launch<WarpgroupProductKernel<8, 2, false, kEnd>>(grid, a);
      case 32 * 256 + 128:
        return launch<WarpgroupProductKernel<32, 2, false, kEnd>>(grid, a);
      case 64 * 256 + 64:
        return launch<WarpgroupProductKernel<64, 1, false, kEnd>>(grid, a);
      case 64 * 256 + 128:
        return launch<WarpgroupProductKernel<64, 2, false, kEnd>>(grid, a);
      case 128 * 256 + 64:
        return launch<WarpgroupProductKernel<128, 1, false, kEnd>>(grid, a);
      case 128 * 256 + 128:
        if (cut.slicing.slices == 1) {
          return launch<WarpgroupProductKernel<128, 2, false, kEnd>>(grid, a);
        }
        return launch<WarpgroupProductKernel<128, 2, true, kEnd>>(grid, a);
      default:  // the matrix has one slice
        return launch<WarpgroupProductKernel<256, 2, false, kEnd>>(grid, a);
    }
  }

  /// The tiles of fp8_tile.
  template <ProductEnd kEnd>
  void launch_fp8(const Cut& cut, const Grid& grid, const ProductArgs& a) {
    switch (cut.tile_rows * 256 + cut.outputs) {
      case 8 * 256 + 32:
        return launch<Fp8NarrowProductKernel<8, 32, kEnd>>(grid, a);
      case 16 * 256 + 32:
        return launch<Fp8NarrowProductKernel<16, 32, kEnd>>(grid, a);
      case 32 * 256 + 32:
        return launch<Fp8NarrowProductKernel<32, 32, kEnd>>(grid, a);
      case 8 * 256 + 64:
        return launch<Fp8NarrowProductKernel<8, 64, kEnd>>(grid, a);
      case 16 * 256 + 64:
        return launch<Fp8NarrowProductKernel<16, 64, kEnd>>(grid, a);
      case 32 * 256 + 64:
        return launch<Fp8NarrowProductKernel<32, 64, kEnd>>(grid, a);
      case 8 * 256 + 128:
        return launch<Fp8NarrowProductKernel<8, 128, kEnd>>(grid, a);
      case 16 * 256 + 128:
        return launch<Fp8NarrowProductKernel<16, 128, kEnd>>(grid, a);
      case 32 * 256 + 128:
        return launch<Fp8NarrowProductKernel<32, 128, kEnd>>(grid, a);
      case 64 * 256 + 32:
        return launch<Fp8NarrowProductKernel<64, 32, kEnd>>(grid, a);
      case 64 * 256 + 64:
        return launch<Fp8ProductKernel<64, 1, kEnd>>(grid, a);
      case 64 * 256 + 128:
        return launch<Fp8ProductKernel<64, 2, kEnd>>(grid, a);
      case 128 * 256 + 64:
        return launch<Fp8ProductKernel<128, 1, kEnd>>(grid, a);
      default:
        return launch<Fp8ProductKernel<128, 2, kEnd>>(grid, a);
    }
  }

  /// Logits and records of `rows` rows that need them, from the first-th on.
  void sample(uint32_t first, uint32_t rows) {
    launch<FinalNormKernel>({rows}, {s_.plan.counts, s_.plan.logits, first, s_.x,
                                     norm(m_.final_norm, s_.final_rows), m_.tables.outputs});
    const uint32_t tile = first / s_.logit_rows;
    const Partials logits =
        multiply({&m_.lm_head, s_.final_rows, rows, s_.plan.logits_left + tile, s_.logits,
                  round_up(s_.logit_rows, kTileOutputs), first == 0});
    const LogitRows all = {s_.plan.counts, first,         rows,          logits.data,
                           logits.stride,  c_.vocab_size, s_.logit_tops, s_.logit_sums};
    const Grid parts = {min_u32(rows, kLogitRowBlocks), LogitRows::parts_of(c_.vocab_size)};
    launch<CleanLogitsKernel>(parts, all);
    launch<SumLogitsKernel>(parts, all);
    if (m_.tables.seats.grammars.max_words != 0)
      launch<MaskKernel>({parts.x, MaskKernel::parts_of(c_.vocab_size)},
                         {s_.plan, m_.tables.seats, all, s_.masks});
    launch<SampleKernel>({min_u32(rows, kSampleBlocks)},
                         {s_.plan, m_.tables.seats, m_.tables.outputs, all, c_.vocab_size,
                          s_.sample_words, s_.sample_stride, s_.masks});
  }

  Queue& queue_;
  const ModelView& m_;
  const sac_model_config& c_;
  const SpaceView& s_;
  const AdapterUse& use_;
  const GraphShape shape_;
  const ProductWay way_;
};

}  // namespace saccade::gpu
