// The numeric kernels of the CPU step, compiled once per instruction set and chosen at run time.
//
// Independence of company holds here by construction. Every output of a matrix product is one chain
// of multiply-adds over k in ascending order, whatever tile, vector width or thread computes it;
// attention walks the KV of a row in groups of 16 positions from the first visible one; every
// horizontal sum is one tree over 16 lanes. Nothing depends on how many rows, sequences or threads
// there are.
#pragma once
#include "host/saccade_device.h"
#include "sample/types.hpp"

namespace saccade {

/// Outputs per packed panel; a panel is [k][32] elements of the weight dtype, zero beyond the
/// matrix.
inline constexpr uint32_t kPanelOutputs = 32;
/// Most panels that one call of matmul takes: the width of its tile buffer.
inline constexpr uint32_t kMaxPanelsPerCall = 4;
/// Positions whose scores are folded into the running softmax at once.
inline constexpr uint32_t kAttentionGroup = 16;
/// Most rows of one attention call: enough to reuse each load of K and V, few enough to spread the
/// work.
inline constexpr uint32_t kAttentionRows = 8;

enum class Epilogue : uint32_t {
  kStore,  // y = product + bias
  kAdd,    // y += product + bias
  kGated,  // y = silu(product + bias) * (second product + second bias)
};

/// y[row][o] for rows [0, num_rows) and the outputs of panels [first_panel, first_panel +
/// num_panels).
struct MatmulArgs {
  const float* x;  // [num_rows][x_stride], k of each row are read
  size_t x_stride;
  uint32_t num_rows;
  uint32_t k;
  uint32_t n;           // outputs of the matrix
  uint32_t dtype;       // SAC_DTYPE_* of the panels
  const void* panels;   // [ceil(n / 32)][k][32]
  const void* panels2;  // the second matrix of kGated
  const float* bias;    // [n] or null
  const float* bias2;   // [n] or null
  uint32_t first_panel;
  uint32_t num_panels;  // <= kMaxPanelsPerCall
  Epilogue epilogue;
  float* y;  // [num_rows][y_stride]
  size_t y_stride;
};

/// Where one layer's K and V of one kv head stand in the pool, for a sequence's block table.
struct KvView {
  uint8_t* pool;
  const uint32_t* block_table;
  size_t block_bytes;
  size_t k_offset;  // bytes from the start of a block to [layer][k][0][kv_head][0]
  size_t v_offset;
  size_t token_stride;  // elements between two tokens of a block
  uint32_t block_size;  // tokens, a power of two
  uint32_t dtype;
};

/// Attention of consecutive positions of one sequence for the query heads that share one kv head.
struct AttentionArgs {
  const float* q;  // [num_rows][row_stride]: the group's heads, head_dim each
  float* out;      // [num_rows][out_stride], same layout
  size_t row_stride;
  size_t out_stride;
  uint32_t num_rows;  // <= kAttentionRows
  uint32_t first_position;
  uint32_t group;  // query heads per kv head
  uint32_t head_dim;
  uint32_t window;  // positions that a row may look back, itself included; 0 = all
  float scale;
  KvView kv;
  float* scratch;  // attention_scratch_floats(head_dim, group)
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
};

/// One set of kernels. All functions are pure over their arguments and use no other memory.
struct Kernels {
  const char* name;
  uint32_t tile_rows;  // rows that share one load of a weight
  void (*matmul)(const MatmulArgs&);
  void (*attention)(const AttentionArgs&);
  /// out = x / rms(x) * weight over n; x and out may be the same.
  void (*rms_norm)(const float* x, const float* weight, float eps, uint32_t n, float* out);
  void (*rotate)(const RotateArgs&);
  void (*pack)(const PackArgs&);
  /// Random weights into one panel; the key stands for seed and tensor.
  void (*pack_dummy)(uint64_t key, const PackArgs&);
  /// Row `row` of a packed matrix [n][k] as floats.
  void (*unpack_row)(const void* panels, uint32_t dtype, uint32_t k, uint32_t row, float* out);
  /// n unaligned elements as floats.
  void (*widen)(const void* source, uint32_t dtype, uint32_t n, float* out);
  void (*sample)(const SampleRow&, float* logits, const SampleScratch&, uint64_t* record);
  void (*score)(uint32_t token, uint32_t num_top, float* logits, uint32_t vocab_size,
                uint64_t* record);
};

/// One query vector's running softmax, kept in the scratch of an attention call.
struct Query {
  float* q;        // [padded head_dim], zero beyond head_dim
  float* acc;      // [padded head_dim]
  uint32_t begin;  // it sees positions [begin, end)
  uint32_t end;
  float max;
  float sum;
};

/// Room for all queries of a call, and for one group's K and V as floats. head_dim is padded to 16.
constexpr size_t attention_scratch_floats(uint32_t head_dim, uint32_t group) {
  const size_t padded = ceil_div(head_dim, 16) * 16;
  const size_t queries = size_t{kAttentionRows} * group;
  return queries * (2 * padded + sizeof(Query) / sizeof(float)) + padded * 2 * kAttentionGroup;
}

/// Sets for each instruction set; null where the processor or the build cannot run it.
const Kernels* avx512_kernels();
const Kernels* avx2_kernels();
const Kernels* portable_kernels();
/// The widest set that this processor runs.
const Kernels& best_kernels();

}  // namespace saccade
