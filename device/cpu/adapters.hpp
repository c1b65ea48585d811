// Adapters (LoRA): which rows of a step have one, their weights, and the memory of what they add.
//
// y = W x + scaling * B (A x). The rows of a step are gathered by adapter, so that an adapter's
// matrices are read once however many rows it has; their changes are computed aside, in f32, and
// added where the product with W is finished. A row's change does not depend on the others: each
// product is the same whatever the neighbouring rows. Rows without an adapter are computed as if
// there were none.
//
// Rows are grouped before the workers start, so that every worker knows the size of every phase.
#pragma once
#include <memory>
#include <vector>

#include "cpu/adapter_check.hpp"
#include "cpu/weights.hpp"

namespace saccade {

/// An adapter's change of one matrix. The rank is rounded up to whole panels, with zeros.
struct AdapterPair {
  Matrix a;  // [rank][in]
  Matrix b;  // [out][rank]
  float scaling = 0;
};

/// The weights of all adapters, in the model's dtype; numbers of adapters begin at 1.
class AdapterWeights {
 public:
  AdapterWeights(const sac_model_config& config, const AdapterLimits& limits,
                 const Kernels& kernels);

  /// Empty, or what is wrong; see sac_device_set_adapter_pair.
  std::string set(uint32_t adapter, const sac_adapter_pair& pair);

  const AdapterLimits& limits() const { return limits_; }
  /// Null where the adapter does not change the matrix.
  const AdapterPair* find(uint32_t adapter, uint32_t layer, uint32_t role) const {
    return pairs_[index_of(adapter, layer, role)].pair.get();
  }
  /// Whether any adapter changes one of `count` matrices, from role `first` on.
  bool any(uint32_t layer, uint32_t first, uint32_t count) const;
  /// Of the highest rank.
  uint32_t max_rank_panels() const { return max_rank_panels_; }

 private:
  struct FreePanels {
    void operator()(void* panels) const {
      ::operator delete (panels, std::align_val_t{SAC_LINE_BYTES});
    }
  };
  using Panels = std::unique_ptr<void, FreePanels>;
  struct Entry {
    std::unique_ptr<AdapterPair> pair;
    Panels a, b;
  };

  size_t index_of(uint32_t adapter, uint32_t layer, uint32_t role) const {
    return (size_t{adapter - 1} * config_.num_layers + layer) * kNumAdapted + role - kFirstAdapted;
  }
  Panels pack(Matrix& matrix, uint32_t n, uint32_t k, const void* source, uint32_t source_dtype);

  const sac_model_config config_;  // its arrays are not read after construction
  const AdapterLimits limits_;
  const Kernels& kernels_;
  std::vector<bool> has_experts_;  // [layer]
  std::vector<Entry> pairs_;       // [adapter - 1][layer][role]
  std::vector<uint32_t> roles_;    // [layer]: bit r set = an adapter changes the r-th matrix
  uint32_t max_rank_panels_ = 0;
};

/// Where the changes of a step's rows are computed. A slot is a row of an adapter.
class AdapterSpace {
 public:
  AdapterSpace(const sac_model_config& config, const AdapterLimits& limits, uint32_t max_rows,
               bool tiled);

  uint32_t max_slots() const { return max_slots_; }
  /// The inputs of a block's slots, of `k` elements each; as activations, a block begins a tile.
  Activations gathered(uint32_t first_slot, uint32_t k) const {
    return {gathered_ + activation_bytes(first_slot, k, tiled_), k, tiled_};
  }
  /// What A makes of them, for one of the products together; `rank` is rounded up to panels.
  Activations shrunk(uint32_t product, uint32_t first_slot, uint32_t rank) const {
    const size_t before = size_t{product} * max_slots_ + first_slot;
    return {shrunk_ + before * shrunk_row_bytes_, rank, tiled_};
  }
  /// The change of a slot: the outputs of all products together, one after another.
  float* delta(uint32_t slot) const { return delta_ + size_t{slot} * delta_stride_; }
  size_t delta_stride() const { return delta_stride_; }
  /// Of each row, where its change of one of the products together is; see Delta.
  uint32_t* slots(uint32_t product) const { return slots_ + size_t{product} * max_rows_; }

 private:
  size_t lay_out(Layout layout);

  const uint32_t max_rows_;
  const uint32_t max_slots_;
  const bool tiled_;
  const uint32_t widest_input_;
  const size_t delta_stride_;
  const size_t shrunk_row_bytes_;
  uint8_t* gathered_ = nullptr;  // [max_slots][widest input]
  uint8_t* shrunk_ = nullptr;    // [kMaxAdaptedTogether][max_slots][highest rank]
  float* delta_ = nullptr;       // [max_slots][delta_stride]
  uint32_t* slots_ = nullptr;    // [kMaxAdaptedTogether][max_rows]
  MemoryRegion region_;
};

/// A row that has an adapter.
struct AdapterRow {
  uint32_t row;
  uint32_t slot;
  uint32_t adapter;
};

/// Rows of one adapter that form one item.
struct AdapterBlock {
  uint32_t adapter;
  uint32_t first_slot;
  uint32_t num_rows;
};

/// The rows of a step that have adapters, worked out from the batch before the workers start.
class AdapterPlan {
 public:
  static constexpr uint32_t kBlockRows = 128;

  AdapterPlan(const AdapterLimits& limits, uint32_t max_rows, const AdapterSpace& space);

  void build(const StepBatch& batch, const SeatTables& tables);

  uint32_t num_rows() const { return num_rows_; }
  uint32_t num_blocks() const { return num_blocks_; }
  const AdapterRow& row(uint32_t i) const { return rows_[i]; }
  /// A block for a product, which may come too late and see the blocks of another step: within the
  /// buffers whatever it reads.
  AdapterBlock block(uint32_t i) const;

 private:
  void cut_blocks();

  const AdapterSpace& space_;
  std::vector<uint32_t> counts_;  // [num_adapters + 1]: rows, then the next slot
  std::vector<AdapterRow> rows_;
  std::vector<AdapterBlock> blocks_;
  uint32_t num_rows_ = 0;
  uint32_t num_blocks_ = 0;
};

}  // namespace saccade
