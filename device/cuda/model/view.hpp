// Addresses of everything that kernels read and write, and the forms it has. The same view serves
// a GPU's memory and, in tests, the host's.
#pragma once
#include <vector>

#include "cpu/adapter_check.hpp"
#include "cuda/model/plan.hpp"
#include "cuda/model/words.hpp"

namespace saccade::gpu {

/// A tile of a weight matrix: outputs and, of each, inputs. A tile is one piece of memory in the
/// form that it has in shared memory: rows of 128 bytes whose 16-byte pieces are exchanged by the
/// row (piece c of row r at c ^ (r % 8)), so that eight rows of one piece are in eight different
/// groups of banks.
inline constexpr uint32_t kTileOutputs = 128;
inline constexpr uint32_t kStep = 64;
inline constexpr uint32_t kPiece = 8;  // bf16 numbers of 16 bytes
inline constexpr uint32_t kTileHalves = kTileOutputs * kStep;

SAC_HD constexpr uint32_t swizzle(uint32_t row, uint32_t piece) { return piece ^ (row % 8); }

/// Sums over k in slices: as many as give small batches enough blocks to read the weights at full
/// speed. A function of the matrix and of the way alone, because it fixes the order of additions.
struct Slicing {
  uint32_t slices;
  uint32_t slice_steps;  // steps of kStep of a slice; the last may have fewer
};
inline Slicing slicing_of(uint32_t tiles, uint32_t steps, uint32_t enough_tiles) {
  constexpr uint32_t kLeastSteps = 4;
  constexpr uint32_t kMostSlices = 16;
  uint32_t slices = 1;
  while (tiles * slices < enough_tiles && slices < kMostSlices &&
         steps / (2 * slices) >= kLeastSteps) {
    slices *= 2;
  }
  const uint32_t slice_steps = ceil_div(steps, slices);
  return {ceil_div(steps, slice_steps), slice_steps};
}
/// Tiles and slices that give all multiprocessors work.
inline constexpr uint32_t kEnoughTiles = 192;
/// With bulk copies of many stages in flight a block reads so fast that these read all there is:
/// on an H100 32 blocks took 2.8 TB/s, 132 blocks 3.1. Whole sums are written once, and where they
/// belong.
inline constexpr uint32_t kEnoughBulkTiles = 32;

/// A weight matrix: [n / 128][k / 64] tiles, zero where n and k are rounded up. Outputs of a gated
/// pair are interleaved: each 16 rows are 8 of the gate and the 8 of the same places of up.
struct MatrixView {
  Half* data;
  uint32_t n;      // a multiple of kTileOutputs
  uint32_t k;      // a multiple of kStep
  Slicing by_mma;  // in which k is summed
  Slicing by_wgmma;
  /// Instead of data, a matrix in e4m3: [n / 128][k / 128][8] units (fp8_units.hpp).
  unsigned char* units;
  size_t unit_bytes;  // of all of them

  uint32_t steps() const { return k / kStep; }
  uint32_t tiles() const { return n / kTileOutputs; }
  size_t halves() const { return size_t{n} * k; }
  /// Between the matrices of two experts: Halves, or bytes of units.
  size_t expert_stride() const { return units != nullptr ? unit_bytes : halves(); }
};

/// The position of weight (row, column) of a matrix with k inputs.
SAC_HD inline size_t weight_at(uint32_t k, uint32_t row, uint32_t column) {
  const size_t tile = size_t{row / kTileOutputs} * (k / kStep) + column / kStep;
  const uint32_t r = row % kTileOutputs;
  const uint32_t piece = swizzle(r, column % kStep / kPiece);
  return tile * kTileHalves + r * kStep + piece * kPiece + column % kPiece;
}
/// Activations that a product reads: planes of kStep columns; in a plane, rows in the form of a
/// tile's. Any rows of a plane that begin at a multiple of 8 are one piece of memory, laid out as
/// in shared memory.
struct Activations {
  Half* data;
  uint32_t rows;  // that there is room for: a multiple of 8

  SAC_HD size_t plane() const { return size_t{rows} * kStep; }
  SAC_HD Half* at(uint32_t row, uint32_t column) const {
    const uint32_t piece = swizzle(row, column % kStep / kPiece);
    return data + column / kStep * plane() + size_t{row} * kStep + piece * kPiece + column % kPiece;
  }
};

/// The row of a gated pair that holds an output of the gate (0) or of up (1).
SAC_HD inline uint32_t gated_row(uint32_t output, uint32_t which) {
  return output / 8 * 16 + which * 8 + output % 8;
}

/// Adapters' ranks and outputs come in multiples of this: rows of one mma.
inline constexpr uint32_t kFragmentRows = 16;

/// What an adapter does with one matrix. Its A and B have the same place whatever the rank is.
struct AdapterEntry {
  uint32_t rank;  // rounded up to kFragmentRows, with zeros; 0: the matrix stays as it is
  float scaling;
};

/// The matrices of a layer that have the same input, as adapters change them: room for num_adapters
/// times max_rank. Their changes are computed together, those of one matrix after those of another.
struct AdaptedView {
  uint32_t layer;
  uint32_t first_role;  // of the first matrix; the others follow
  uint32_t count;       // of matrices; 0: none takes adapters
  uint32_t k;           // inputs, a multiple of kStep
  uint32_t max_rank;    // a multiple of kFragmentRows
  /// Where the outputs of each matrix begin, and behind them their number: multiples of
  /// kFragmentRows.
  uint32_t columns[kMaxAdaptedTogether + 1];
  AdapterEntry* entries;  // [adapters][count]
  Half* a;                // [adapters][count]: A of up to max_rank, see shrink_at
  Half* b;                // [adapters]: B of each matrix, see expand_at

  SAC_HD uint32_t stride() const { return columns[count]; }
  SAC_HD uint32_t outputs(uint32_t matrix) const { return columns[matrix + 1] - columns[matrix]; }
  SAC_HD size_t index(uint32_t adapter, uint32_t matrix) const {
    return size_t{adapter - 1} * count + matrix;
  }
  SAC_HD Half* a_of(uint32_t adapter, uint32_t matrix) const {
    return a + index(adapter, matrix) * max_rank * k;
  }
  SAC_HD Half* b_of(uint32_t adapter, uint32_t matrix) const {
    return b + (size_t{adapter - 1} * stride() + columns[matrix]) * max_rank;
  }
};

/// What adapters change so far; a step computes nothing for the rest.
struct AdapterUse {
  std::vector<uint32_t> roles;  // [layer]: bit r set = an adapter changes the matrix of role r
  uint32_t ranks = 0;           // of the highest, a multiple of kFragmentRows

  bool changes(const AdaptedView& v) const {
    return v.count != 0 && (roles[v.layer] >> v.first_role & ((1u << v.count) - 1)) != 0;
  }
};

/// A is units of 16 ranks and kStep inputs, [rank / 16][k / kStep], each four operands of
/// mma.m16n8k16 as its lanes hold them. Inputs have an order of their own within a unit: lane t of
/// four takes the pieces t and t + 4 of a row of activations, 16 bytes each.
inline constexpr uint32_t kShrinkHalves = kFragmentRows * kStep;
SAC_HD constexpr uint32_t shrink_at(uint32_t row, uint32_t column) {
  const uint32_t piece = column / kPiece, lane = row % 8 * 4 + piece % 4;
  const uint32_t mma = piece / 4 * 2 + column % kPiece / 4;
  return ((mma * kWarpThreads + lane) * 4 + column % 4 / 2 * 2 + row / 8) * 2 + column % 2;
}
/// B is units of 16 outputs and 16 ranks, [output / 16][rank / 16], each one operand: lane t of
/// four takes four ranks that follow one another.
inline constexpr uint32_t kExpandHalves = kFragmentRows * kFragmentRows;
SAC_HD constexpr uint32_t expand_at(uint32_t row, uint32_t column) {
  const uint32_t lane = row % 8 * 4 + column / 4;
  return (lane * 4 + column % 4 / 2 * 2 + row / 8) * 2 + column % 2;
}

/// One layer. Vectors are f32 and as long as the rows they belong to, zero in what was rounded up;
/// absent biases are zeros, absent norms null.
struct LayerView {
  float* input_norm;
  float* post_norm;
  float* q_norm;
  float* k_norm;
  float* qkv_bias;
  float* o_bias;
  float* gate_bias;
  float* up_bias;
  float* down_bias;
  MatrixView qkv;
  MatrixView o;
  MatrixView gate_up;  // of layers without experts
  MatrixView down;
  MatrixView router;          // of the others
  MatrixView expert_gate_up;  // of expert 0; the others follow, expert_stride() apart
  MatrixView expert_down;
  AdaptedView qkv_adapted;
  AdaptedView o_adapted;
  AdaptedView gate_up_adapted;  // all gates, then all ups
  AdaptedView down_adapted;
  uint32_t window;  // positions a row may look back, itself included; 0 = all
  bool has_experts;
};

/// Sums of a product that are not added up yet: [slices][rows][stride].
struct Partials {
  float* data;
  uint32_t slices;
  uint32_t stride;
  size_t plane;  // floats of a slice

  SAC_HD const float* row(uint32_t row) const { return data + size_t{row} * stride; }
};

/// Rows of one expert that one block computes; slots are rows of gathered activations.
struct ExpertTile {
  uint32_t expert;
  uint32_t first_slot;
  uint32_t num_slots;
};

struct ExpertSpace {
  uint32_t* picks;     // [rows][experts_per_token], rising
  float* weights;      // [rows][experts_per_token]
  uint32_t* slots;     // [rows][experts_per_token]
  uint32_t* slot_row;  // [slots]
  ExpertTile* tiles;
  uint32_t* num_tiles;
  uint32_t* arrivals;  // of RouteKernel's blocks; 0 between kernels
};

/// Rows of one adapter that one block computes; slots are rows that have an adapter.
struct AdapterTile {
  uint32_t adapter;
  uint32_t first_slot;
  uint32_t num_slots;
};

/// What adapters add to a product: of row r, whose slot is row_slot[r], the columns of an
/// AdaptedView.
struct Deltas {
  static constexpr uint32_t kNoSlot = 0xffffffffu;
  const float* data;  // [slots][stride]; null: nothing to any row
  uint32_t stride;
  const uint32_t* row_slot;  // [rows]

  /// Null: nothing.
  SAC_HD const float* row(uint32_t row) const {
    if (data == nullptr || row_slot[row] == kNoSlot) return nullptr;
    return data + size_t{row_slot[row]} * stride;
  }
};

struct AdapterWork {
  uint32_t* slot_row;  // [slots]
  uint32_t* row_slot;  // [rows]; kNoSlot: no adapter
  AdapterTile* tiles;
  uint32_t* num_tiles;
  float* shrunk;  // [slices of k][slots][matrices][ranks]: A x
  float* deltas;  // [slots][columns of an AdaptedView]
};

/// Activations and lists of one step; all shapes share it. Rows are rounded up to kTileOutputs, so
/// that a block may read a whole tile.
struct SpaceView {
  StepPlan plan;
  PlanLimits limits;
  float* x;                  // [rows][hidden]: the residual stream
  Activations normed;        // hidden
  Half* q;                   // [rows][heads * head_dim]
  Activations mixed;         // heads * head_dim
  Activations gated;         // intermediate
  Activations expert_gated;  // of experts: rows are slots; the same memory
  Activations gathered;      // hidden, rows are slots; memory of partials
  float* partials;           // of whatever product comes next
  float* item_sums;          // [items][heads][head_dim]
  float* item_scales;        // [items][heads][2]: greatest score, sum of weights
  Activations final_rows;    // hidden
  float* logits;             // [logit_rows][vocab]
  float* logit_tops;         // of rows of logits: see LogitRows
  float* logit_sums;
  ExpertSpace experts;
  AdapterWork adapters;
  uint32_t logit_rows;     // that are computed at once
  uint32_t* sample_words;  // [logit_rows][sample_stride]
  size_t sample_stride;
  uint32_t* masks;  // of rows under grammars: see MaskKernel
};

/// Rounded widths.
struct Widths {
  uint32_t hidden;
  uint32_t mixed;  // heads * head_dim
  uint32_t gated;
  uint32_t expert_gated;
  uint32_t vocab;
};

/// The pool: [block][layer][k|v][token][kv_head][head_dim], in bf16 or in e4m3. Kernels are built
/// for either element, Half or Fp8Code.
struct KvMemory {
  unsigned char* data;
  size_t block_bytes;
  size_t plane;  // elements of K or V of one layer in a block
  uint32_t block_size;
  uint32_t token_stride;  // elements

  /// Elements from the start of a block to K of a layer.
  size_t k_offset(uint32_t layer) const { return size_t{2} * layer * plane; }
};
/// What is stored times its scale is what was computed: of a layer's K and V. Of bf16 both are 1.
struct KvScales {
  float k;
  float v;
};

/// All of it.
struct ModelView {
  sac_model_config config;
  Widths widths;
  StepTables tables;
  MatrixView embed;
  MatrixView lm_head;
  float* final_norm;
  float* cos;
  float* sin;
  uint32_t max_model_len;
  AdapterLimits adapters;
  std::vector<LayerView> layers;
  KvMemory kv;
  SpaceView space;

  bool has_fp8_kv() const { return config.kv_dtype == SAC_KV_DTYPE_FP8; }
  KvScales kv_scales(uint32_t layer) const {
    const float* scales = config.kv_scales;
    if (scales == nullptr) return {1, 1};
    return {scales[size_t{2} * layer], scales[size_t{2} * layer + 1]};
  }
};

}  // namespace saccade::gpu
