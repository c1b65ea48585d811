// The numeric kernels of the CPU step, compiled once per instruction set and chosen at run time.
//
// Independence of company holds here by construction. Every output of a matrix product is one sum
// over k in an order that the kernel set fixes, whatever tile or thread computes it; attention
// walks the KV of a row in groups of positions that begin at multiples of the group, and what it
// merges begins at multiples of kAttentionRange; every horizontal sum is one tree over 16 lanes.
// Nothing depends on how many rows, sequences or threads there are.
#pragma once
#include <vector>

#include "capi/saccade_device.h"
#include "sample/types.hpp"

namespace saccade {

/// Outputs per packed panel, zero beyond the matrix. A panel of f32 or f16 is [k][32]; of bf16 it
/// is [k / 2][32][2], with k rounded up to kPanelStep: the pairs that the processors' own bf16
/// instructions take.
inline constexpr uint32_t kPanelOutputs = 32;
/// k of a bf16 panel is a multiple of this.
inline constexpr uint32_t kPanelStep = 32;
/// An int8 panel is [k / 64][16][32][4] bytes, quads of k, and then a scale for each group of 128
/// of k and output: f32 [groups][32].
inline constexpr uint32_t kInt8Step = 64;
inline constexpr uint32_t kQuantGroup = SAC_SCALE_GROUP;
inline constexpr uint32_t kStepsPerGroup = kQuantGroup / kInt8Step;
/// An fp8 panel is [k / 2][64] bytes, k rounded up to kPanelStep, then scales as an int8 panel's.
/// Pairs of k are in the order in which they become bf16: fp8_slot (products_fp8.hpp).
inline constexpr uint32_t kPairBytes = 2 * kPanelOutputs;
/// Rows of activations in one tile of the tiled form.
inline constexpr uint32_t kActivationRows = 16;
/// Most panels and rows of one product call, and floats of the tile that holds its results.
inline constexpr uint32_t kTilePanels = 4;
inline constexpr uint32_t kTileRows = 256;
/// The tile is [kTilePanels][kTileRows][kPanelOutputs]: a panel's results are contiguous.
inline constexpr size_t kTilePanelFloats = size_t{kTileRows} * kPanelOutputs;
inline constexpr size_t kTileFloats = kTilePanels * kTilePanelFloats;
/// Elements of one panel of a matrix with k inputs.
constexpr size_t panel_elements(uint32_t dtype, uint32_t k) {
  if (dtype == SAC_DTYPE_INT8) {
    const size_t bytes = size_t{ceil_div(k, kInt8Step)} * kInt8Step * kPanelOutputs;
    return bytes + ceil_div(k, kQuantGroup) * kPanelOutputs * sizeof(float);
  }
  const uint32_t rounded = ceil_div(k, kPanelStep) * kPanelStep;
  if (dtype == SAC_DTYPE_FP8) {
    return size_t{rounded} * kPanelOutputs +
           ceil_div(k, kQuantGroup) * kPanelOutputs * sizeof(float);
  }
  return size_t{dtype == SAC_DTYPE_BF16 ? rounded : k} * kPanelOutputs;
}

/// Rows of k activations, what a product reads. Plain: f32 [rows][k]. Tiled: bf16
/// [rows / 16][k / 32][16][32], zero where k or rows are rounded up, so that a tile is one block.
struct Activations {
  void* data;
  uint32_t k;
  bool tiled;
};

constexpr size_t activation_bytes(size_t rows, uint32_t k, bool tiled) {
  if (!tiled) return rows * k * sizeof(float);
  const size_t row_blocks = (rows + kActivationRows - 1) / kActivationRows;
  return row_blocks * kActivationRows * ceil_div(k, kPanelStep) * kPanelStep * sizeof(uint16_t);
}

/// Rows of k activations in 8 bits, as products with int8 panels read them.
struct QuantizedRows {
  int8_t* data;   // [rows / 16][k / 64][16][64], zero where k is rounded up
  float* scales;  // [rows][k / 128], by groups
  uint32_t k;
};

constexpr size_t quantized_bytes(size_t rows, uint32_t k) {
  const size_t row_blocks = (rows + kActivationRows - 1) / kActivationRows;
  return row_blocks * kActivationRows * ceil_div(k, kInt8Step) * kInt8Step;
}

/// What is added to the products of some rows of a call: the changes that adapters make
/// (adapters.hpp).
struct Delta {
  static constexpr uint32_t kNone = ~0u;

  const float* values = nullptr;     // [kTilePanels][kTileRows][kPanelOutputs], as a tile
  const uint32_t* places = nullptr;  // of the call's rows in that; kNone: nothing is added
};

enum class Epilogue : uint32_t {
  kStore,  // y = product + bias
  kAdd,    // y += product + bias
  kGated,  // y = silu(product + bias) * (second product + second bias)
  kScale,  // gated = scale * product
};

/// y[row][o] for rows [first_row, first_row + num_rows) and the outputs of panels [first_panel,
/// first_panel + num_panels).
struct MatmulArgs {
  Activations x;
  QuantizedRows quantized;  // x in 8 bits, for int8 panels
  uint32_t first_row;       // of x and of the result
  uint32_t num_rows;        // <= kTileRows
  uint32_t n;               // outputs of the matrix
  uint32_t dtype;           // SAC_DTYPE_* of the panels
  const void* panels;       // [ceil(n / 32)] of panel_elements(dtype, x.k)
  const void* panels2;      // the second matrix of kGated
  const void* ahead;        // panels of the caller's next call, to prefetch; null: not known
  const float* bias;        // [n] or null
  const float* bias2;       // [n] or null
  Delta delta;              // comes after the bias, of all epilogues but kScale
  Delta delta2;             // of the second matrix
  float scale;              // of kScale
  uint32_t first_panel;
  uint32_t num_panels;  // <= kTilePanels
  Epilogue epilogue;
  float* y;  // [rows][y_stride], of kStore and kAdd
  size_t y_stride;
  Activations gated;  // of kGated and kScale
  float* tiles;       // [2][kTileFloats]: the products until they are finished
};

/// How KV is stored, and how attention computes with it.
enum class KvType : uint32_t {
  kF32,
  kBf16,     // the sets with products of bf16 pairs use them
  kF16,      // in f32
  kFp8,      // in f32
  kFp8Bf16,  // of a model in bf16: every fp8 value is exact in bf16, the rest is as in kBf16
};

constexpr size_t kv_element_bytes(KvType type) {
  return type == KvType::kF32 ? 4 : type < KvType::kFp8 ? 2 : 1;
}

/// Where one layer's K and V of one kv head are in the pool, for a sequence's block table.
struct KvView {
  uint8_t* pool;
  const uint32_t* block_table;
  size_t block_bytes;
  size_t k_offset;  // bytes from the start of a block to [layer][k][0][kv_head][0]
  size_t v_offset;
  size_t token_stride;  // elements between two tokens of a block
  uint32_t block_size;  // tokens, a power of two
  KvType type;
  float k_scale;  // what is stored, times the scale, is the value; 1 of all types but fp8
  float v_scale;
};

/// Positions of a context whose attention is one softmax, merged with that of the other ranges in
/// ascending order; ranges begin at multiples of it. Every row is computed this way, on any worker:
/// a longer range would leave less to share out, a shorter one more to merge.
inline constexpr uint32_t kAttentionRange = 256;

/// Floats of one query head's part, the softmax of one range: weighted values, maximum, sum.
constexpr size_t attention_part_floats(uint32_t head_dim) {
  return (ceil_div(head_dim, 16) + 1) * 16;
}

/// Attention of consecutive positions of one sequence, for the query heads of some kv heads.
struct AttentionArgs {
  const float* q;  // [num_rows][row_stride]: [num_kv_heads][group][head_dim]
  size_t row_stride;
  Activations out;  // the same heads, from out_row and out_column on
  uint32_t out_row;
  uint32_t out_column;
  uint32_t num_rows;  // <= Kernels::attention_rows
  uint32_t first_position;
  uint32_t num_kv_heads;  // one, unless num_rows is 1
  uint32_t group;         // query heads per kv head
  uint32_t head_dim;
  uint32_t window;  // positions that a row may look back, itself included; 0 = all
  float scale;
  KvView kv;  // of the first of the kv heads; they are head_dim apart
  // Which of a row's ranges to compute, and where their parts go instead of `out`, [range][query
  // heads of the call] of attention_part_floats. num_rows is then 1. A part is written for each of
  // these ranges in which the row sees any position.
  uint32_t first_range = 0;
  uint32_t end_range = ~0u;
  float* parts = nullptr;  // null: all ranges, merged into `out`
  size_t part_stride = 0;  // floats from range to range
  // What the caller will most likely ask for next, the same number of heads: positions to prefetch.
  KvView ahead;
  uint32_t ahead_begin;
  uint32_t ahead_end;  // = ahead_begin: nothing is known
  float* scratch;      // of Kernels::attention_scratch_floats, aligned to 64 bytes
};

/// All of one row's parts, made by attention with the same KV type.
struct MergeArgs {
  const float* parts;  // [range][num_heads] of attention_part_floats
  size_t part_stride;  // floats from range to range
  uint32_t first_range;
  uint32_t end_range;
  uint32_t num_heads;  // query heads
  uint32_t head_dim;
  KvType kv_type;
  float v_scale;  // as in KvView
  Activations out;
  uint32_t out_row;
  float* scratch;  // of Kernels::attention_scratch_floats, aligned to 64 bytes
};

/// Finishes one row after the q/k/v products: per-head norms, rotation, and the KV write.
struct RotateArgs {
  float* q;             // [num_heads][head_dim], in place
  float* k;             // [num_kv_heads][head_dim], in place, then stored
  const float* v;       // [num_kv_heads][head_dim], stored
  const float* q_norm;  // [head_dim] or null
  const float* k_norm;
  const float* cos;  // [rotary_dim / 2] of this position
  const float* sin;
  uint32_t num_heads;
  uint32_t num_kv_heads;
  uint32_t head_dim;
  uint32_t rotary_dim;
  float eps;
  uint32_t position;
  KvView kv;  // offsets of kv head 0; heads are head_dim apart
};

/// One panel of a weight matrix to fill.
struct PackArgs {
  const void* source;  // [n][k] of source_dtype, unaligned
  uint32_t source_dtype;
  uint32_t n;
  uint32_t k;
  uint32_t dtype;
  uint32_t panel;  // which panel to fill
  void* panels;
  const float* source_scales = nullptr;  // [n][k / 128], by groups; of sources in fp8
};

/// One set of kernels. All functions are pure over their arguments and use no other memory.
struct Kernels {
  const char* name;
  bool bf16_activations;  // products with bf16 weights read tiled activations
  bool chunks_bf16;       // and take a large k in chunks, all panels of a call each
  /// Row `row` of the activations in 8 bits.
  void (*quantize)(const Activations& x, uint32_t row, const QuantizedRows& out);
  /// Computes the products into the tiles; reads only x and the panels, and writes nothing else.
  void (*multiply)(const MatmulArgs&);
  /// Adds biases, applies the epilogue and writes the results.
  void (*finish)(const MatmulArgs&);
  /// Most rows of one call.
  uint32_t (*attention_rows)(KvType type);
  /// Room for attention_rows of one kv head, and for one row of num_kv_heads.
  size_t (*attention_scratch_floats)(KvType type, uint32_t head_dim, uint32_t group,
                                     uint32_t num_kv_heads);
  void (*attention)(const AttentionArgs&);
  void (*merge_attention)(const MergeArgs&);
  /// Row `row` of out = x / rms(x) * weight, over out.k elements.
  void (*rms_norm)(const float* x, const float* weight, float eps, Activations out, uint32_t row);
  void (*rotate)(const RotateArgs&);
  void (*pack)(const PackArgs&);
  /// Random weights into one panel; the key encodes seed and tensor.
  void (*pack_dummy)(uint64_t key, const PackArgs&);
  /// Row `row` of a packed matrix [n][k] as floats.
  void (*unpack_row)(const void* panels, uint32_t dtype, uint32_t k, uint32_t row, float* out);
  /// Reads aligned memory, a multiple of 512 bytes, and does nothing with it.
  void (*read)(const void* data, size_t bytes);
  /// n unaligned elements as floats.
  void (*widen)(const void* source, uint32_t dtype, uint32_t n, float* out);
  void (*sample)(const SampleRow&, float* logits, const SampleScratch&, uint64_t* record);
  void (*score)(uint32_t token, uint32_t num_top, float* logits, uint32_t vocab_size,
                uint64_t* record);
};

/// Sets for each instruction set; null where the processor, the system or the build cannot run it.
const Kernels* amx_kernels();
const Kernels* avx512_bf16_kernels();
const Kernels* avx512_kernels();
const Kernels* avx2_kernels();
const Kernels* portable_kernels();
/// The sets that run here, widest first.
std::vector<const Kernels*> available_kernels();
/// The widest set that this processor runs.
const Kernels& best_kernels();

}  // namespace saccade
