#include "cpu/forward.hpp"

#include <cstring>

#include "cpu/adapter_phases.hpp"
#include "cpu/item_order.hpp"
#include "cpu/row_blocks.hpp"

namespace saccade {
namespace {

/// One matrix product of a phase: y (+)= x W^T + bias, or the gated pair.
struct Product {
  const Matrix* matrix;
  const float* bias;
  float* y;
  size_t y_stride;
  uint32_t role = kNotAdapted;
  const Matrix* second = nullptr;  // of kGated
  const float* second_bias = nullptr;
  uint32_t second_role = kNotAdapted;

  static constexpr uint32_t kNotAdapted = ~0u;
};

/// Bytes of weights that all blocks go past before the next weights: they come from memory once,
/// and each block stays in L2 that long.
constexpr uint32_t kSpanBytes = 4u << 20;
/// Most rows of an item where rows are computed one by one.
constexpr uint32_t kRowsPerItem = 8;
/// Items per worker below which panels are handed out one by one.
constexpr uint32_t kItemsPerWorker = 8;

/// As many panels per item as leave every worker enough items. That changes no result.
uint32_t choose_panels(uint32_t panels, uint32_t blocks, uint32_t num_threads) {
  uint32_t per_item = kTilePanels;
  while (per_item > 1 && panels / per_item * blocks < kItemsPerWorker * num_threads) per_item /= 2;
  return per_item;
}

/// How a phase of products is cut into items.
struct ProductCut {
  const Product* products;
  uint32_t panels_per_item;
  ItemOrder order;

  struct Place {
    const Product* product;
    uint32_t first_panel;
    uint32_t block;
    const void* panels() const {
      const Matrix& m = *product->matrix;
      return static_cast<const uint8_t*>(m.panels) + first_panel * m.panel_bytes();
    }
  };
  Place place(uint32_t item) const {
    const ItemOrder::Place at = order.place(item);
    const Product* p = products;
    uint32_t group = at.group;
    for (; group >= ceil_div(p->matrix->num_panels(), panels_per_item); ++p) {
      group -= ceil_div(p->matrix->num_panels(), panels_per_item);
    }
    return {p, group * panels_per_item, at.block};
  }
};

/// One worker's view of a step. Phase sizes are copied at the start: when a worker that fell behind
/// passes through its phases, the plan may already be another step's. Only items read the plan.
class Forward {
 public:
  Forward(const ForwardContext& context, WorkerPool::Worker& worker)
      : c_(context.config),
        k_(context.kernels),
        w_(context.weights),
        kv_(context.kv),
        tables_(context.tables),
        plan_(context.plan),
        s_(context.space),
        scratch_(context.space.workers[worker.index()]),
        worker_(worker),
        adapters_(context.adapters, c_, k_, scratch_.tiles, worker),
        num_rows_(context.plan.num_rows()),
        num_yields_(context.plan.num_yields()),
        num_logits_(context.plan.num_logits()),
        num_embeddings_(context.plan.num_embeddings()),
        attention_(context.plan.attention()),
        last_attention_(context.plan.last_attention()),
        narrows_(context.plan.may_narrow() && context.adapters.plan.num_blocks() == 0) {}

  void run() {
    embed();
    for (uint32_t l = 0; l < c_.num_layers; ++l) {
      const LayerWeights& layer = w_.layer(l);
      norm_rows(layer.vector(SAC_TENSOR_INPUT_NORM));
      project_qkv(l, layer);
      rotate_rows(l, layer);
      if (narrows_ && l + 1 == c_.num_layers) {
        if (num_yields_ == 0) break;
        attend(l, layer, last_attention_);
        keep_yields();
      } else {
        attend(l, layer, attention_);
      }
      project_out(l, layer);
      norm_rows(layer.vector(SAC_TENSOR_POST_NORM));
      if (layer.router.n > 0) {
        mix_experts(layer);
      } else {
        feed_forward(l, layer);
      }
    }
    for (uint32_t first = 0; first < num_logits_; first += s_.logit_rows) {
      finish_rows(first, min_u32(s_.logit_rows, num_logits_ - first));
    }
    if (num_embeddings_ != 0) finish_embeddings();
  }

 private:
  /// An attention plan, which only items read, and its sizes.
  struct Attention {
    explicit Attention(const AttentionPlan& p)
        : plan(p), num_items(p.num_items()), num_cut_rows(p.num_cut_rows()) {}
    const AttentionPlan& plan;
    const uint32_t num_items;
    const uint32_t num_cut_rows;
  };

  float* x(uint32_t row) const { return s_.x + size_t{row} * c_.hidden_size; }
  /// The residual stream of a row that yields something, after the last layer.
  const float* yielded(uint32_t yield) const {
    return x(narrows_ ? yield : plan_.yield_row(yield));
  }
  float* qkv(uint32_t row) const { return s_.qkv + size_t{row} * s_.qkv_width; }

  /// One phase: f(row) for each row. Rows are short work: an item is several.
  template <class F>
  void for_each_row(uint32_t rows, F&& f) {
    const uint32_t items = kItemsPerWorker * worker_.num_threads();
    const uint32_t per_item = max_u32(min_u32(rows / items, kRowsPerItem), 1);
    worker_.for_each(ceil_div(rows, per_item), [&](uint32_t item) {
      const uint32_t end = min_u32((item + 1) * per_item, rows);
      for (uint32_t row = item * per_item; row < end; ++row) f(row);
    });
  }

  void embed() {
    const Matrix& m = w_.embed();
    for_each_row(num_rows_, [&](uint32_t row) {
      k_.unpack_row(m.panels, m.dtype, c_.hidden_size, plan_.row(row).token, x(row));
    });
  }

  void norm_rows(const float* weight) {
    for_each_row(num_rows_, [&](uint32_t row) {
      k_.rms_norm(x(row), weight, c_.rms_norm_eps, s_.normed, row);
    });
  }

  /// One phase: all products of the same x. How it is cut into items changes no result.
  void multiply(const Activations& in, uint32_t rows, Epilogue epilogue, const Product* products,
                uint32_t count) {
    const QuantizedRows quantized = {s_.quantized, s_.quantized_scales, in.k};
    if (products->matrix->dtype == SAC_DTYPE_INT8) {
      for_each_row(rows, [&](uint32_t row) { k_.quantize(in, row, quantized); });
    }
    const ProductCut cut = cut_products(in, rows, products, count);
    const uint32_t blocks = cut.order.blocks;
    MatmulArgs a = {};
    a.x = in;
    a.quantized = quantized;
    a.epilogue = epilogue;
    a.gated = s_.gated;
    a.tiles = scratch_.tiles;
    const auto compute = [&](uint32_t item) {
      const ProductCut::Place at = cut.place(item);
      const Product* p = at.product;
      const uint32_t begin = block_begin(rows, blocks, at.block);
      a.first_row = begin;
      a.num_rows = block_begin(rows, blocks, at.block + 1) - begin;
      a.n = p->matrix->n;
      a.dtype = p->matrix->dtype;
      a.panels = p->matrix->panels;
      a.panels2 = p->second == nullptr ? nullptr : p->second->panels;
      a.bias = p->bias;
      a.bias2 = p->second_bias;
      a.first_panel = at.first_panel;
      a.num_panels = min_u32(cut.panels_per_item, p->matrix->num_panels() - at.first_panel);
      a.y = p->y;
      a.y_stride = p->y_stride;
      const uint32_t next = item + worker_.num_threads();
      a.ahead = next < cut.order.count() ? cut.place(next).panels() : nullptr;
      k_.multiply(a);
      a.delta = adapters_.expand(p->role, a, false);
      a.delta2 = adapters_.expand(p->second_role, a, true);
    };
    worker_.for_each_published(cut.order.count(), compute, [&](uint32_t) { k_.finish(a); });
  }

  /// All products of a phase have the same k, type and number of matrices.
  ProductCut cut_products(const Activations& in, uint32_t rows, const Product* products,
                          uint32_t count) const {
    const Matrix& any = *products->matrix;
    const uint32_t blocks = ceil_div(rows, rows_of_block(k_, in, any.dtype));
    uint32_t panels = 0;
    for (uint32_t p = 0; p < count; ++p) panels += products[p].matrix->num_panels();
    const uint32_t per_item = choose_panels(panels, blocks, worker_.num_threads());
    uint32_t groups = 0;
    for (uint32_t p = 0; p < count; ++p)
      groups += ceil_div(products[p].matrix->num_panels(), per_item);
    const size_t group_bytes = per_item * any.panel_bytes() * (products->second == nullptr ? 1 : 2);
    const uint32_t span = max_u32(static_cast<uint32_t>(kSpanBytes / group_bytes), 1);
    return {products, per_item, {groups, blocks, span}};
  }

  /// Blocks of nearly equal height, in whole tiles of activations.
  static uint32_t block_begin(uint32_t rows, uint32_t blocks, uint32_t block) {
    return min_u32(rows, ceil_div(rows, kRowUnit) * block / blocks * kRowUnit);
  }

  void project_qkv(uint32_t l, const LayerWeights& layer) {
    const size_t q_width = size_t{c_.num_heads} * c_.head_dim;
    const size_t kv_width = size_t{c_.num_kv_heads} * c_.head_dim;
    float* const k = s_.qkv + q_width;
    float* const v = k + kv_width;
    const uint32_t stride = s_.qkv_width;
    adapters_.shrink(l, SAC_TENSOR_Q, 3, s_.normed);
    const Product products[3] = {
        {&layer.q, layer.vector(SAC_TENSOR_Q_BIAS), s_.qkv, stride, SAC_TENSOR_Q},
        {&layer.k, layer.vector(SAC_TENSOR_K_BIAS), k, stride, SAC_TENSOR_K},
        {&layer.v, layer.vector(SAC_TENSOR_V_BIAS), v, stride, SAC_TENSOR_V},
    };
    multiply(s_.normed, num_rows_, Epilogue::kStore, products, 3);
  }

  void rotate_rows(uint32_t l, const LayerWeights& layer) {
    for_each_row(num_rows_, [&](uint32_t row) {
      const PlanRow& at = plan_.row(row);
      RotateArgs a = {};
      a.q = qkv(row);
      a.k = a.q + size_t{c_.num_heads} * c_.head_dim;
      a.v = a.k + size_t{c_.num_kv_heads} * c_.head_dim;
      a.q_norm = layer.vector(SAC_TENSOR_Q_NORM);
      a.k_norm = layer.vector(SAC_TENSOR_K_NORM);
      const uint32_t prompt_len = tables_.params[at.seat].prompt_len;
      a.cos = w_.cos(at.position, prompt_len);
      a.sin = w_.sin(at.position, prompt_len);
      a.num_heads = c_.num_heads;
      a.num_kv_heads = c_.num_kv_heads;
      a.head_dim = c_.head_dim;
      a.rotary_dim = c_.rotary_dim;
      a.eps = c_.rms_norm_eps;
      a.position = at.position;
      a.kv = kv_.view(l, 0, tables_.block_table(at.seat));
      k_.rotate(a);
    });
  }

  void attend(uint32_t l, const LayerWeights& layer, const Attention& of) {
    const uint32_t group = c_.num_heads / c_.num_kv_heads;
    const uint32_t group_width = group * c_.head_dim;
    worker_.for_each(of.num_items, [&](uint32_t i) {
      const AttentionItem& item = of.plan.item(i);
      const PlanChunk& chunk = of.plan.chunk(item.chunk);
      AttentionArgs a = {};
      a.q = qkv(chunk.first_row) + item.first_head * group_width;
      a.row_stride = s_.qkv_width;
      a.out = s_.mixed;
      a.out_row = chunk.out_row;
      a.out_column = item.first_head * group_width;
      a.num_rows = chunk.num_rows;
      a.first_position = chunk.first_position;
      a.num_kv_heads = item.num_heads;
      a.group = group;
      a.head_dim = c_.head_dim;
      a.window = layer.window;
      a.scale = 1.0f / __builtin_sqrtf(static_cast<float>(c_.head_dim));
      a.kv = kv_.view(l, item.first_head, tables_.block_table(chunk.seat));
      if (item.part != AttentionPlan::kNotCut) {
        a.first_range = item.first_range;
        a.end_range = item.end_range;
        a.parts = s_.part(item.part, item.first_head * group);
        a.part_stride = s_.part_stride;
      }
      a.scratch = scratch_.attention;
      const uint32_t next = i + worker_.num_threads();
      if (next < of.num_items) look_ahead(l, layer, of.plan, of.plan.item(next), a);
      k_.attention(a);
    });
    merge_cut_rows(l, layer, of);
  }

  /// Names the positions that the worker's next item will most likely begin with, if that is a
  /// single row's item, which reads KV that no other item reads.
  void look_ahead(uint32_t l, const LayerWeights& layer, const AttentionPlan& plan,
                  const AttentionItem& item, AttentionArgs& a) const {
    const PlanChunk& chunk = plan.chunk(item.chunk);
    if (chunk.num_rows > 1 || item.num_heads != a.num_kv_heads) return;
    const uint32_t end = min_u32(chunk.first_position + 1, item.end_range * kAttentionRange);
    const uint32_t seen = window_begin(layer, chunk);
    a.ahead = kv_.view(l, item.first_head, tables_.block_table(chunk.seat));
    a.ahead_begin = min_u32(max_u32(seen, item.first_range * kAttentionRange), end);
    a.ahead_end = end;
  }

  /// The first position that a chunk's first row sees.
  static uint32_t window_begin(const LayerWeights& layer, const PlanChunk& chunk) {
    const uint32_t end = chunk.first_position + 1;
    return layer.window != 0 && end > layer.window ? end - layer.window : 0;
  }

  void merge_cut_rows(uint32_t l, const LayerWeights& layer, const Attention& of) {
    worker_.for_each(of.num_cut_rows, [&](uint32_t i) {
      const CutRow& row = of.plan.cut_row(i);
      const PlanChunk& chunk = of.plan.chunk(row.chunk);
      MergeArgs a = {};
      a.parts = s_.part(row.part, 0);
      a.part_stride = s_.part_stride;
      a.first_range = window_begin(layer, chunk) / kAttentionRange;
      a.end_range = chunk.first_position / kAttentionRange + 1;
      a.num_heads = c_.num_heads;
      a.head_dim = c_.head_dim;
      a.kv_type = kv_.type();
      a.v_scale = kv_.v_scale(l);
      a.out = s_.mixed;
      a.out_row = chunk.out_row;
      a.scratch = scratch_.attention;
      k_.merge_attention(a);
    });
  }

  /// From here on there are only the rows that yield something, by their numbers. One item: each
  /// row moves to where an earlier one was.
  void keep_yields() {
    worker_.for_each(1, [&](uint32_t) {
      for (uint32_t i = 0; i < num_yields_; ++i) {
        const uint32_t row = plan_.yield_row(i);
        if (row != i) std::memcpy(x(i), x(row), c_.hidden_size * sizeof(float));
      }
    });
    num_rows_ = num_yields_;
  }

  void project_out(uint32_t l, const LayerWeights& layer) {
    adapters_.shrink(l, SAC_TENSOR_O, 1, s_.mixed);
    const Product product = {&layer.o, layer.vector(SAC_TENSOR_O_BIAS), s_.x, c_.hidden_size,
                             SAC_TENSOR_O};
    multiply(s_.mixed, num_rows_, Epilogue::kAdd, &product, 1);
  }

  void feed_forward(uint32_t l, const LayerWeights& layer) {
    adapters_.shrink(l, SAC_TENSOR_GATE, 2, s_.normed);
    Product pair = {&layer.gate, layer.vector(SAC_TENSOR_GATE_BIAS), nullptr, 0, SAC_TENSOR_GATE};
    pair.second = &layer.up;
    pair.second_bias = layer.vector(SAC_TENSOR_UP_BIAS);
    pair.second_role = SAC_TENSOR_UP;
    multiply(s_.normed, num_rows_, Epilogue::kGated, &pair, 1);
    adapters_.shrink(l, SAC_TENSOR_DOWN, 1, s_.gated);
    const Product down = {&layer.down, layer.vector(SAC_TENSOR_DOWN_BIAS), s_.x, c_.hidden_size,
                          SAC_TENSOR_DOWN};
    multiply(s_.gated, num_rows_, Epilogue::kAdd, &down, 1);
  }

  /// The same by the experts that each row picks; see moe.hpp.
  void mix_experts(const LayerWeights& layer) {
    const MoeSpace& m = s_.moe;
    const Product router = {&layer.router, nullptr, m.router_logits, m.router_stride};
    multiply(s_.normed, num_rows_, Epilogue::kStore, &router, 1);
    worker_.for_each(num_rows_, [&](uint32_t row) { route_row(c_, m, row); });
    worker_.for_each(1, [&](uint32_t) { group_rows(c_, m, num_rows_); });
    const uint32_t picks = num_rows_ * c_.experts_per_token;
    worker_.for_each(picks, [&](uint32_t i) {
      copy_activations(s_.normed, i / c_.experts_per_token, m.gathered, m.slots[i]);
    });
    multiply_experts(layer, m.gathered, Epilogue::kGated);
    multiply_experts(layer, m.gated, Epilogue::kStore);
    worker_.for_each(num_rows_, [&](uint32_t row) { combine_row(c_, m, row, x(row)); });
  }

  /// One phase: gate and up (kGated) or down (kStore) of all experts, each for its own rows.
  void multiply_experts(const LayerWeights& layer, const Activations& in, Epilogue epilogue) {
    const MoeSpace& m = s_.moe;
    const bool gated = epilogue == Epilogue::kGated;
    const QuantizedRows quantized = {s_.quantized, s_.quantized_scales, in.k};
    const Matrix& any = gated ? layer.experts[0].gate : layer.experts[0].down;
    if (any.dtype == SAC_DTYPE_INT8) {
      worker_.for_each(num_rows_ * c_.experts_per_token,
                       [&](uint32_t i) { k_.quantize(in, m.slots[i], quantized); });
    }
    const uint32_t blocks = max_moe_blocks(c_, num_rows_);
    const uint32_t panels_per_item = choose_panels(any.num_panels(), blocks, worker_.num_threads());
    MatmulArgs a = {};
    a.x = in;
    a.quantized = quantized;
    a.dtype = any.dtype;
    a.epilogue = epilogue;
    a.gated = m.gated;
    a.y = m.outputs;
    a.y_stride = c_.hidden_size;
    a.tiles = scratch_.tiles;
    a.n = any.n;
    const auto compute = [&](uint32_t item) {
      // Blocks of one expert are adjacent, so that its weights come from memory once.
      const MoeBlock block = read_block(m, item % blocks);
      const ExpertWeights& expert = layer.experts[block.expert];
      a.first_row = block.first_slot;
      a.num_rows = block.num_rows;
      a.panels = gated ? expert.gate.panels : expert.down.panels;
      a.panels2 = gated ? expert.up.panels : nullptr;
      a.first_panel = item / blocks * panels_per_item;
      a.num_panels = min_u32(panels_per_item, any.num_panels() - a.first_panel);
      if (a.num_rows > 0) k_.multiply(a);
    };
    const uint32_t groups = ceil_div(any.num_panels(), panels_per_item);
    worker_.for_each_published(groups * blocks, compute, [&](uint32_t) { k_.finish(a); });
  }

  /// Final norm, logits and records of up to logit_rows rows.
  void finish_rows(uint32_t first, uint32_t count) {
    worker_.for_each(count, [&](uint32_t i) {
      k_.rms_norm(yielded(plan_.logits(first + i).yield), w_.final_norm(), c_.rms_norm_eps,
                  s_.final_rows, i);
    });
    const Product product = {&w_.lm_head(), nullptr, s_.logits, s_.logits_stride};
    multiply(s_.final_rows, count, Epilogue::kStore, &product, 1);
    worker_.for_each(count, [&](uint32_t i) {
      write_record(plan_.logits(first + i), s_.logits + size_t{i} * s_.logits_stride);
    });
  }

  /// Final norm of the rows that are embeddings, in f32 whatever the model's type.
  void finish_embeddings() {
    worker_.for_each(num_embeddings_, [&](uint32_t i) {
      const PlanEmbedding& at = plan_.embedding(i);
      const Activations out = {at.values, c_.hidden_size, false};
      k_.rms_norm(yielded(at.yield), w_.final_norm(), c_.rms_norm_eps, out, 0);
    });
  }

  void write_record(const PlanLogits& at, float* logits) {
    const SeatParams& params = tables_.params[at.seat];
    const uint32_t* tokens = tables_.tokens(at.seat);
    if (!at.sample) {
      const uint32_t num_top = sac_record_stride(params.flags, params.num_top_logprobs) - 1;
      k_.score(tokens[at.position + 1], num_top, logits, c_.vocab_size, at.record);
      return;
    }
    const SampleRow row = {&params,
                           tokens,
                           at.position + 1,
                           c_.vocab_size,
                           tables_.bias(at.seat),
                           tables_.stops(at.seat),
                           tables_.eos_ids,
                           tables_.num_eos_ids,
                           tables_.grammar(at.seat),
                           s_.kept_masks(at.seat)};
    k_.sample(row, logits, scratch_.sample, at.record);
  }

  const sac_model_config& c_;
  const Kernels& k_;
  const Weights& w_;
  const KvPool& kv_;
  const SeatTables& tables_;
  const StepPlan& plan_;
  Workspace& s_;
  WorkerScratch& scratch_;
  WorkerPool::Worker& worker_;
  AdapterPhases adapters_;
  uint32_t num_rows_;  // of the phases to come
  const uint32_t num_yields_;
  const uint32_t num_logits_;
  const uint32_t num_embeddings_;
  const Attention attention_;
  const Attention last_attention_;
  const bool narrows_;  // the last layer, to the rows that yield something
};

}  // namespace

void run_forward(const ForwardContext& context, WorkerPool::Worker& worker) {
  Forward(context, worker).run();
}

}  // namespace saccade
