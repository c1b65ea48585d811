// Adapters (LoRA): which rows of a step have one, their weights, and the memory of what they add.
//
// y = W x + scaling * B (A x). A x is a phase of its own before the products with W: the rows of an
// adapter are taken together, so that its A is read once however many they are. B is multiplied
// beside W, item by item, into a tile as large as the item's own, and added where the product with
// W is finished. A row's change does not depend on the others: each product is the
// same whatever the neighbouring rows. Rows without an adapter are computed as if there were none.
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

/// Where one worker's item keeps its changes: of one matrix, or of the two of a gated pair.
struct AdapterScratch {
  float* tiles = nullptr;      // [2][kTileFloats]
  uint32_t* places = nullptr;  // [2][kTileRows], see Delta
};

/// Where the changes of a step's rows are computed. Slots are places for rows of adapters; those of
/// an adapter are together, and begin a tile of activations.
class AdapterSpace {
 public:
  AdapterSpace(const sac_model_config& config, const AdapterLimits& limits, uint32_t max_rows,
               uint32_t num_threads, bool tiled);

  uint32_t max_slots() const { return max_slots_; }
  /// The gathered inputs from a slot on that begins a tile, of `k` elements each.
  Activations gathered(uint32_t base_slot, uint32_t k) const {
    return {gathered_ + activation_bytes(base_slot, k, tiled_), k, tiled_};
  }
  /// What A makes of an adapter's inputs, for one of the products together; `rank` is rounded up
  /// to panels.
  Activations shrunk(uint32_t product, uint32_t base_slot, uint32_t rank) const {
    const size_t before = size_t{product} * max_slots_ + base_slot;
    return {shrunk_ + before * shrunk_row_bytes_, rank, tiled_};
  }
  const AdapterScratch& scratch(uint32_t worker) const { return scratch_[worker]; }

 private:
  size_t lay_out(Layout layout);

  const uint32_t max_slots_;
  const bool tiled_;
  const uint32_t widest_input_;
  const size_t shrunk_row_bytes_;
  uint8_t* gathered_ = nullptr;  // [max_slots][widest input]
  uint8_t* shrunk_ = nullptr;    // [kMaxAdaptedTogether][max_slots][highest rank]
  std::vector<AdapterScratch> scratch_;
  MemoryRegion region_;
};

/// The rows of a step that have one adapter, in their order. They are counted from a base, which
/// begins a tile of activations: of the step's own where the rows are consecutive, of gathered ones
/// where they are not.
struct AdapterSpan {
  static constexpr uint32_t kApart = ~0u;

  uint32_t adapter;
  uint32_t base_slot;
  uint32_t base_row;  // kApart: the rows are not consecutive
  uint32_t first;     // index of the first one from the base on
  uint32_t num_rows;
};

/// Rows of one adapter that form one item.
struct AdapterBlock {
  uint32_t span;
  uint32_t first;  // from the span's base on
  uint32_t num_rows;
};

/// The rows of a step that have adapters, worked out from the batch before the workers start. What
/// an item reads may be another step's, if it comes too late: it is within the buffers even then.
class AdapterPlan {
 public:
  static constexpr uint32_t kBlockRows = 128;

  AdapterPlan(const AdapterLimits& limits, uint32_t max_rows, const AdapterSpace& space);

  void build(const StepBatch& batch, const SeatTables& tables);

  uint32_t num_spans() const { return num_spans_; }
  uint32_t num_blocks() const { return num_blocks_; }
  uint32_t num_gathered() const { return num_gathered_; }
  AdapterSpan span(uint32_t i) const;
  AdapterBlock block(uint32_t i) const { return blocks_[i]; }
  /// The slot of a gathered input, and the row that it is of.
  uint32_t gathered_slot(uint32_t i) const { return gathered_slots_[i]; }
  uint32_t row_of_slot(uint32_t slot) const { return row_of_slot_[slot]; }
  /// The row at an index of a span.
  uint32_t row_at(const AdapterSpan& span, uint32_t index) const {
    return span.base_row == AdapterSpan::kApart ? row_of_slot_[span.base_slot + index]
                                                : span.base_row + index;
  }
  /// The first index of a span whose row is not before `row`; behind the last where there is none.
  uint32_t first_from(const AdapterSpan& span, uint32_t row) const;

 private:
  /// What a step has of an adapter.
  struct Count {
    uint32_t num_rows;
    uint32_t first_row;
    uint32_t end_row;

    bool apart() const { return end_row - first_row != num_rows; }
    uint32_t next_slot;  // of rows that are gathered
  };

  void count_rows(const StepBatch& batch, const SeatTables& tables);
  void cut_blocks();
  void assign_slots(const StepBatch& batch, const SeatTables& tables);

  const AdapterSpace& space_;
  std::vector<Count> counts_;  // [num_adapters + 1]
  std::vector<AdapterSpan> spans_;
  std::vector<AdapterBlock> blocks_;
  std::vector<uint32_t> gathered_slots_;
  std::vector<uint32_t> row_of_slot_;
  uint32_t num_spans_ = 0;
  uint32_t num_blocks_ = 0;
  uint32_t num_gathered_ = 0;
};

}  // namespace saccade
