#include "cuda/model/layout.hpp"

#include <algorithm>

#include "cuda/model/adapters.hpp"
#include "cuda/model/experts.hpp"
#include "cuda/model/fp8_units.hpp"
#include "cuda/model/sample.hpp"
#include "cuda/model/sequence_shape.hpp"
#include "platform/layout.hpp"

namespace saccade {
namespace gpu {
namespace {

class Planner {
 public:
  Planner(ModelView& model, const ModelLimits& limits)
      : m_(model), c_(model.config), limits_(limits) {}

  void lay_out_weights(Layout& at) {
    m_.widths = {round_up(c_.hidden_size, k_unit_), round_up(c_.num_heads * c_.head_dim, k_unit_),
                 round_up(c_.intermediate_size, k_unit_),
                 round_up(max_u32(c_.moe_intermediate_size, 1), k_unit_),
                 round_up(c_.vocab_size, kTileOutputs)};
    // The sampler reads whole sums; a vocabulary has enough tiles.
    m_.lm_head = take_matrix(at, c_.vocab_size, c_.hidden_size, 0);
    m_.embed =
        c_.tied_embeddings != 0 ? m_.lm_head : take_matrix(at, c_.vocab_size, c_.hidden_size, 0);
    m_.final_norm = at.take<float>(m_.widths.hidden);
    const size_t angles = (size_t{limits_.max_model_len} + c_.rope_switch_len) * c_.rotary_dim / 2;
    m_.cos = at.take<float>(angles);
    m_.sin = at.take<float>(angles);
    m_.layers.resize(c_.num_layers);
    for (uint32_t l = 0; l < c_.num_layers; ++l) lay_out_layer(at, l);
  }

  void lay_out_kv(Layout& at) {
    const size_t plane = size_t{limits_.block_size} * c_.num_kv_heads * c_.head_dim;
    const size_t element_bytes = m_.has_fp8_kv() ? sizeof(Fp8Code) : sizeof(Half);
    const size_t block_bytes = plane * element_bytes * 2 * c_.num_layers;
    m_.kv = {at.take<unsigned char>(block_bytes * limits_.num_blocks), block_bytes, plane,
             limits_.block_size, c_.num_kv_heads * c_.head_dim};
  }

  void lay_out_workspace(Layout& at) {
    SpaceView& s = m_.space;
    s.limits = plan_limits();
    s.logit_rows = s.limits.logit_rows;
    const size_t rows = round_up(limits_.max_num_batched_tokens, kTileOutputs);
    s.plan.counts = at.take<PlanCounts>(1);
    s.plan.rows = at.take<PlanRow>(rows);
    s.plan.items = at.take<ChunkItem>(s.limits.max_items);
    s.plan.split_rows = at.take<SplitRow>(s.limits.max_seqs);
    s.plan.tiles = at.take<RowTile>(s.limits.max_tiles());
    s.plan.logits = at.take<LogitsRow>(s.limits.max_logits());
    s.plan.logits_left = at.take<uint32_t>(s.limits.logit_tiles());
    s.x = at.take<float>(rows * m_.widths.hidden);
    s.normed = take_activations(at, rows, m_.widths.hidden);
    s.q = at.take<Half>(rows * m_.widths.mixed);
    s.mixed = take_activations(at, rows, m_.widths.mixed);
    const size_t slots = c_.num_experts > 0 ? num_slots(rows) : 0;
    lay_out_gated(at, rows, slots);
    s.partials = at.take<float>(partial_floats(slots));
    s.gathered = {reinterpret_cast<Half*>(s.partials), static_cast<uint32_t>(slots)};
    s.item_sums = at.take<float>(size_t{s.limits.max_items} * c_.num_heads * c_.head_dim);
    s.item_scales = at.take<float>(size_t{s.limits.max_items} * c_.num_heads * 2);
    const size_t logit_rows = round_up(s.logit_rows, kTileOutputs);
    s.final_rows = take_activations(at, logit_rows, m_.widths.hidden);
    s.logits = at.take<float>(logit_rows * m_.widths.vocab);
    const size_t parts = s.logit_rows * size_t{LogitRows::parts_of(c_.vocab_size)};
    s.logit_tops = at.take<float>(parts);
    s.logit_sums = at.take<float>(parts * LogitRows::kPartSums);
    s.sample_stride = SampleMemory::words(c_.vocab_size);
    s.sample_words = at.take<uint32_t>(kSampleBlocks * s.sample_stride);
    s.masks = at.take<uint32_t>(s.logit_rows * size_t{MaskKernel::mask_words(c_.vocab_size)});
    if (c_.num_experts > 0) lay_out_experts(at, slots);
    if (limits_.num_adapters > 0) lay_out_adapter_work(at);
  }

 private:
  size_t num_slots(size_t rows) const {
    const size_t slots = most_slots(rows, c_.experts_per_token, c_.num_experts);
    return round_up(static_cast<uint32_t>(slots), kTileOutputs);
  }

  static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

  /// share: how many of such matrices a small step reads at once, 0 = always sum in one slice.
  MatrixView take_matrix(Layout& at, uint32_t n, uint32_t k, uint32_t share,
                         uint32_t copies = 1) const {
    MatrixView m = {};
    m.n = round_up(n, kTileOutputs);
    m.k = round_up(k, k_unit_);
    const auto sliced = [&](uint32_t enough) {
      return share == 0 ? Slicing{1, m.steps()} : slicing_of(m.tiles() * share, m.steps(), enough);
    };
    m.by_mma = sliced(kEnoughTiles);
    m.by_wgmma = sliced(kEnoughBulkTiles);
    m.data = at.take<Half>(m.halves() * copies);
    return m;
  }

  /// In e4m3.
  MatrixView take_units(Layout& at, uint32_t n, uint32_t k, uint32_t copies) const {
    MatrixView m = {};
    m.n = round_up(n, kTileOutputs);
    m.k = round_up(k, k_unit_);
    m.by_mma = m.by_wgmma = {1, m.steps()};
    m.unit_bytes = unit_matrix_bytes(m.n, m.k);
    m.units = at.take<unsigned char>(m.unit_bytes * copies);
    return m;
  }

  /// Of layer l; in e4m3 if the tensors that it is made of are to be.
  MatrixView take_dense(Layout& at, uint32_t l, std::initializer_list<uint32_t> roles, uint32_t n,
                        uint32_t k) const {
    return all_in_fp8(l, roles) ? take_units(at, n, k, 1) : take_matrix(at, n, k, 1);
  }
  /// The same of all experts of the layer.
  MatrixView take_experts(Layout& at, uint32_t l, std::initializer_list<uint32_t> roles, uint32_t n,
                          uint32_t k) const {
    if (all_in_fp8(l, roles)) return take_units(at, n, k, c_.num_experts);
    return take_matrix(at, n, k, c_.experts_per_token, c_.num_experts);
  }
  bool all_in_fp8(uint32_t l, std::initializer_list<uint32_t> roles) const {
    return std::all_of(roles.begin(), roles.end(),
                       [&](uint32_t role) { return kept_in_fp8(c_, role, l); });
  }

  static Activations take_activations(Layout& at, size_t rows, uint32_t width) {
    return {at.take<Half>(rows * width), static_cast<uint32_t>(rows)};
  }

  /// Of layers with and without experts, which are never in use together.
  void lay_out_gated(Layout& at, size_t rows, size_t slots) {
    const size_t dense = rows * m_.widths.gated, experts = slots * m_.widths.expert_gated;
    Half* memory = at.take<Half>(max_size(dense, experts));
    m_.space.gated = {memory, static_cast<uint32_t>(rows)};
    m_.space.expert_gated = {memory, static_cast<uint32_t>(slots)};
  }

  void lay_out_layer(Layout& at, uint32_t l) {
    LayerView& w = m_.layers[l];
    const uint32_t q = c_.num_heads * c_.head_dim, kv = c_.num_kv_heads * c_.head_dim;
    w.has_experts = has_experts(c_, l);
    w.window = c_.sliding_window != nullptr ? c_.sliding_window[l] : 0;
    w.input_norm = at.take<float>(m_.widths.hidden);
    w.post_norm = at.take<float>(m_.widths.hidden);
    w.q_norm = c_.qk_norm != 0 ? at.take<float>(c_.head_dim) : nullptr;
    w.k_norm = c_.qk_norm != 0 ? at.take<float>(c_.head_dim) : nullptr;
    w.qkv_bias = at.take<float>(q + 2 * kv);
    w.o_bias = at.take<float>(m_.widths.hidden);
    w.qkv =
        take_dense(at, l, {SAC_TENSOR_Q, SAC_TENSOR_K, SAC_TENSOR_V}, q + 2 * kv, c_.hidden_size);
    w.o = take_dense(at, l, {SAC_TENSOR_O}, c_.hidden_size, q);
    w.qkv_adapted = take_adapted(at, l, SAC_TENSOR_Q, {q, kv, kv}, m_.widths.hidden);
    w.o_adapted = take_adapted(at, l, SAC_TENSOR_O, {m_.widths.hidden}, m_.widths.mixed);
    if (w.has_experts) {
      w.router = take_matrix(at, c_.num_experts, c_.hidden_size, 1);
      w.expert_gate_up = take_experts(at, l, {SAC_TENSOR_EXPERT_GATE, SAC_TENSOR_EXPERT_UP},
                                      2 * m_.widths.expert_gated, c_.hidden_size);
      w.expert_down =
          take_experts(at, l, {SAC_TENSOR_EXPERT_DOWN}, c_.hidden_size, m_.widths.expert_gated);
      return;
    }
    w.gate_bias = at.take<float>(m_.widths.gated);
    w.up_bias = at.take<float>(m_.widths.gated);
    w.down_bias = at.take<float>(m_.widths.hidden);
    w.gate_up =
        take_dense(at, l, {SAC_TENSOR_GATE, SAC_TENSOR_UP}, 2 * m_.widths.gated, c_.hidden_size);
    w.down = take_dense(at, l, {SAC_TENSOR_DOWN}, c_.hidden_size, m_.widths.gated);
    w.gate_up_adapted =
        take_adapted(at, l, SAC_TENSOR_GATE, {m_.widths.gated, m_.widths.gated}, m_.widths.hidden);
    w.down_adapted = take_adapted(at, l, SAC_TENSOR_DOWN, {m_.widths.hidden}, m_.widths.gated);
  }

  /// Room for what all adapters add to matrices with the same k inputs and `outputs` each;
  /// they are of head_dim or a rounded width, and so multiples of kFragmentRows.
  AdaptedView take_adapted(Layout& at, uint32_t layer, uint32_t first_role,
                           std::initializer_list<uint32_t> outputs, uint32_t k) const {
    AdaptedView v = {};
    if (limits_.num_adapters == 0) return v;
    v.layer = layer;
    v.first_role = first_role;
    for (const uint32_t n : outputs) {
      v.columns[v.count + 1] = v.columns[v.count] + n;
      ++v.count;
    }
    v.k = k;
    v.max_rank = round_up(limits_.max_adapter_rank, kFragmentRows);
    const size_t pairs = size_t{limits_.num_adapters} * v.count;
    v.entries = at.take<AdapterEntry>(pairs);
    v.a = at.take<Half>(pairs * v.max_rank * k);
    v.b = at.take<Half>(size_t{limits_.num_adapters} * v.stride() * v.max_rank);
    return v;
  }

  PlanLimits plan_limits() const {
    PlanLimits p = {};
    p.max_rows = limits_.max_num_batched_tokens;
    p.max_seqs = limits_.max_num_seqs;
    // A context's chunks: its whole ones, and up to two partial ones. Contexts own their blocks, so
    // there are no more whole chunks in total than there are blocks for.
    const uint64_t chunks = ceil_div(limits_.max_model_len, kContextChunk);
    const uint64_t owned = uint64_t{limits_.num_blocks} * limits_.block_size / kContextChunk;
    const uint64_t all = chunks * p.max_seqs, bound = owned + 2 * uint64_t{p.max_seqs};
    p.max_items = static_cast<uint32_t>(all < bound ? all : bound);
    p.tile_rows = tile_rows_of(c_.num_heads / c_.num_kv_heads);
    p.logit_rows = min_u32(p.max_logits(), kMaxLogitRows);
    p.max_window = 0;
    for (uint32_t l = 0; l < c_.num_layers; ++l) {
      const uint32_t window = m_.layers[l].window;
      if (window == 0) {
        p.max_window = 0;
        break;
      }
      p.max_window = max_u32(p.max_window, window);
    }
    return p;
  }

  /// Of the largest sums of any product at any number of rows. Those of experts by wgmma, one for
  /// each of their slots, have room for the rows that were gathered before.
  size_t partial_floats(size_t slots) const {
    size_t most = slots * round_up(m_.widths.hidden, kTileOutputs);
    const uint32_t max_rows = limits_.max_num_batched_tokens;
    const auto hold = [&](const MatrixView& m, uint32_t rows, uint32_t tile_rows) {
      // wgmma has no more slices than this.
      const size_t slices = tile_rows > kMaxSplitTile ? 1 : m.by_mma.slices;
      most = max_size(most, slices * round_up(rows, kTileOutputs) * m.n);
    };
    for (const LayerView& w : m_.layers) {
      for (const uint32_t rows : {min_u32(max_rows, kMaxSplitRows), max_rows}) {
        for (const MatrixView& m : {w.qkv, w.o, w.down, w.router}) {
          if (m.n > 0) hold(m, rows, dense_tile_rows(rows));
        }
        // A gated pair of many rows is written as sums only where adapters may add to them.
        if (w.gate_up.n > 0 && (rows <= kMaxSplitRows || limits_.num_adapters > 0)) {
          hold(w.gate_up, rows, dense_tile_rows(rows));
        }
      }
      if (!w.has_experts) continue;
      for (const uint32_t mean : {4u, 32u, UINT32_MAX / c_.num_experts - 1}) {
        const uint64_t fit = (uint64_t{mean} + 1) * c_.num_experts / c_.experts_per_token;
        const uint32_t rows = fit < max_rows ? static_cast<uint32_t>(fit) : max_rows;
        const uint32_t picks = rows * c_.experts_per_token;
        const uint32_t tile = expert_tile_slots(picks, c_.num_experts);
        hold(w.expert_down, picks, tile);
        if (tile <= kMaxSplitTile) hold(w.expert_gate_up, picks, tile);
      }
    }
    return most;
  }

  void lay_out_experts(Layout& at, size_t slots) {
    ExpertSpace& e = m_.space.experts;
    e.picks = at.take<uint32_t>(slots);
    e.weights = at.take<float>(slots);
    e.slots = at.take<uint32_t>(slots);
    e.slot_row = at.take<uint32_t>(slots);
    e.tiles = at.take<ExpertTile>(c_.num_experts + slots / 8);
    e.num_tiles = at.take<uint32_t>(1);
    e.arrivals = at.take<uint32_t>(1);
  }

  void lay_out_adapter_work(Layout& at) {
    const uint32_t rows = limits_.max_num_batched_tokens;
    size_t shrunk = 0, deltas = 0;  // floats of a slot
    for (const LayerView& w : m_.layers) {
      for (const AdaptedView* v :
           {&w.qkv_adapted, &w.o_adapted, &w.gate_up_adapted, &w.down_adapted}) {
        if (v->count == 0) continue;
        shrunk = max_size(shrunk, size_t{shrink_slices(v->k)} * v->count * v->max_rank);
        deltas = max_size(deltas, v->stride());
      }
    }
    AdapterWork& a = m_.space.adapters;
    a.slot_row = at.take<uint32_t>(rows);
    a.row_slot = at.take<uint32_t>(round_up(rows, kTileOutputs));
    a.tiles = at.take<AdapterTile>(max_adapter_tiles(limits_.num_adapters, rows, kFewAdapterSlots));
    a.num_tiles = at.take<uint32_t>(1);
    a.shrunk = at.take<float>(rows * shrunk);
    a.deltas = at.take<float>(rows * deltas);
  }

  ModelView& m_;
  const sac_model_config& c_;
  const ModelLimits& limits_;
  /// All widths that products read are multiples of it: units have no half.
  const uint32_t k_unit_ = c_.quantization == SAC_QUANTIZATION_FP8 ? kUnitInputs : kStep;
};

}  // namespace

ModelView lay_out_model(const sac_model_config& config, const ModelLimits& limits,
                        const StepTables& tables, const ModelMemory& memory, MemoryNeed& need) {
  ModelView m = {};
  m.config = config;
  m.tables = tables;
  m.max_model_len = limits.max_model_len;
  m.adapters = {limits.num_adapters, limits.max_adapter_rank};
  Planner planner(m, limits);
  Layout weights(memory.weights), kv(memory.kv), workspace(memory.workspace);
  planner.lay_out_weights(weights);
  planner.lay_out_kv(kv);
  planner.lay_out_workspace(workspace);
  need = {weights.bytes(), kv.bytes(), workspace.bytes()};
  return m;
}

MatrixPlace place_of(const ModelView& m, const TensorPlace& at) {
  const uint32_t q = m.config.num_heads * m.config.head_dim;
  const uint32_t kv = m.config.num_kv_heads * m.config.head_dim;
  if (at.role == SAC_TENSOR_EMBED) return {m.embed, 0, false, 0};
  if (at.role == SAC_TENSOR_LM_HEAD) return {m.lm_head, 0, false, 0};
  const LayerView& w = m.layers[at.layer];
  const auto expert = [&](MatrixView matrix, bool gated, uint32_t which) {
    const size_t offset = at.expert * matrix.expert_stride();
    if (matrix.units != nullptr) {
      matrix.units += offset;
    } else {
      matrix.data += offset;
    }
    return MatrixPlace{matrix, 0, gated, which};
  };
  switch (at.role) {
    case SAC_TENSOR_Q:
      return {w.qkv, 0, false, 0};
    case SAC_TENSOR_K:
      return {w.qkv, q, false, 0};
    case SAC_TENSOR_V:
      return {w.qkv, q + kv, false, 0};
    case SAC_TENSOR_O:
      return {w.o, 0, false, 0};
    case SAC_TENSOR_GATE:
      return {w.gate_up, 0, true, 0};
    case SAC_TENSOR_UP:
      return {w.gate_up, 0, true, 1};
    case SAC_TENSOR_DOWN:
      return {w.down, 0, false, 0};
    case SAC_TENSOR_ROUTER:
      return {w.router, 0, false, 0};
    case SAC_TENSOR_EXPERT_GATE:
      return expert(w.expert_gate_up, true, 0);
    case SAC_TENSOR_EXPERT_UP:
      return expert(w.expert_gate_up, true, 1);
    default:
      return expert(w.expert_down, false, 0);
  }
}

const AdaptedView& adapted_of(const LayerView& w, uint32_t role) {
  switch (role) {
    case SAC_TENSOR_O:
      return w.o_adapted;
    case SAC_TENSOR_GATE:
    case SAC_TENSOR_UP:
      return w.gate_up_adapted;
    case SAC_TENSOR_DOWN:
      return w.down_adapted;
    default:
      return w.qkv_adapted;
  }
}

float* vector_of(const ModelView& m, const TensorPlace& at) {
  if (at.role == SAC_TENSOR_FINAL_NORM) return m.final_norm;
  const LayerView& w = m.layers[at.layer];
  const uint32_t q = m.config.num_heads * m.config.head_dim;
  const uint32_t kv = m.config.num_kv_heads * m.config.head_dim;
  switch (at.role) {
    case SAC_TENSOR_INPUT_NORM:
      return w.input_norm;
    case SAC_TENSOR_POST_NORM:
      return w.post_norm;
    case SAC_TENSOR_Q_BIAS:
      return w.qkv_bias;
    case SAC_TENSOR_K_BIAS:
      return w.qkv_bias + q;
    case SAC_TENSOR_V_BIAS:
      return w.qkv_bias + q + kv;
    case SAC_TENSOR_O_BIAS:
      return w.o_bias;
    case SAC_TENSOR_GATE_BIAS:
      return w.gate_bias;
    case SAC_TENSOR_UP_BIAS:
      return w.up_bias;
    case SAC_TENSOR_DOWN_BIAS:
      return w.down_bias;
    case SAC_TENSOR_Q_NORM:
      return w.q_norm;
    default:
      return w.k_norm;
  }
}

}  // namespace gpu

namespace {

std::string outside(const char* field, uint64_t value, const char* bound) {
  return std::string(field) + " is " + std::to_string(value) + ", " + bound;
}

}  // namespace

std::string check_gpu_model(const sac_model_config& c, const ModelLimits& limits) {
  if (c.dtype != SAC_DTYPE_BF16) return outside("dtype", c.dtype, "not bf16 (1), as a GPU needs");
  if (c.quantization != SAC_QUANTIZATION_NONE && c.quantization != SAC_QUANTIZATION_FP8) {
    return outside("quantization", c.quantization, "neither 0 nor fp8 (2), which a GPU has");
  }
  if (c.head_dim % 16 != 0 || c.head_dim > gpu::kDimLimit) {
    return outside("head_dim", c.head_dim, "not a multiple of 16 up to 128, as a GPU needs");
  }
  if (c.num_heads / c.num_kv_heads > gpu::kTileVectors) {
    return outside("num_heads / num_kv_heads", c.num_heads / c.num_kv_heads, "outside 1 .. 64");
  }
  if (c.num_experts > gpu::kMaxExperts) {
    return outside("num_experts", c.num_experts, "outside 0 .. 512");
  }
  if (c.num_experts > 0 && c.experts_per_token > gpu::kMaxPicks) {
    return outside("experts_per_token", c.experts_per_token, "outside 1 .. 32");
  }
  if (limits.max_num_seqs > limits.max_num_batched_tokens) {
    return outside("max_num_batched_tokens", limits.max_num_batched_tokens, "below max_num_seqs");
  }
  return "";
}

MemoryNeed gpu_memory_need(const sac_model_config& config, const ModelLimits& limits) {
  MemoryNeed need = {};
  gpu::lay_out_model(config, limits, {}, {}, need);
  return need;
}

}  // namespace saccade
