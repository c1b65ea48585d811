// Layers with experts: which rows go where, and the products of the rows of each expert.
//
// The rows of a step are gathered by expert, so that an expert's weights are read once however many
// rows it has. A row's result does not depend on the others: its experts follow from its own router
// logits, each product is the same whatever the neighbouring rows, and the sum over its experts
// runs in ascending order of their numbers.
//
// Routing is known only within a step, but a worker that falls behind must know the size of every
// phase beforehand. So sizes are bounds that follow from the number of rows, and items beyond the
// actual work do nothing.
#pragma once
#include "cpu/weights.hpp"

namespace saccade {

/// Rows of one expert that form one item; slots are rows of the gathered activations.
struct MoeBlock {
  uint32_t expert;
  uint32_t first_slot;
  uint32_t num_rows;
};

/// Buffers of the layers with experts, for up to max_rows rows.
struct MoeSpace {
  float* router_logits = nullptr;  // [max_rows][router_stride]
  uint32_t router_stride = 0;
  uint32_t* picks = nullptr;       // [max_rows][experts_per_token], rising
  float* weights = nullptr;        // [max_rows][experts_per_token]
  uint32_t* slots = nullptr;       // [max_rows][experts_per_token]
  uint32_t* next_slot = nullptr;   // [num_experts], while slots are assigned
  MoeBlock* blocks = nullptr;      // [max_blocks(max_rows)], by expert
  uint32_t* num_blocks = nullptr;  // of this layer
  Activations gathered = {};       // [max_slots][hidden]
  Activations gated = {};          // [max_slots][moe_intermediate]
  float* outputs = nullptr;        // [max_slots][hidden]
  uint32_t max_slots = 0;
};

/// Most rows of a block.
inline constexpr uint32_t kMoeBlockRows = 128;

/// Most slots of `rows` rows: each expert's begin at a whole tile of activations.
uint32_t max_moe_slots(const sac_model_config& config, uint32_t rows);
/// Most blocks of `rows` rows.
uint32_t max_moe_blocks(const sac_model_config& config, uint32_t rows);

/// Picks the experts of a row from its router logits and weighs them. Of equal logits the lower
/// number goes first.
void route_row(const sac_model_config& config, const MoeSpace& space, uint32_t row);
/// Assigns slots to all picks of `rows` rows, expert by expert, and cuts them into blocks.
void group_rows(const sac_model_config& config, const MoeSpace& space, uint32_t rows);
/// Copies row `row` to row `to_row`; both have the same form.
void copy_activations(const Activations& from, uint32_t row, const Activations& to,
                      uint32_t to_row);
/// x += the weighted sum of the row's expert outputs; x is [hidden].
void combine_row(const sac_model_config& config, const MoeSpace& space, uint32_t row, float* x);

/// A block for a product, which may come too late and see the blocks of another layer: within the
/// buffers whatever it reads. A block that does not exist has no rows.
MoeBlock read_block(const MoeSpace& space, uint32_t index);

}  // namespace saccade
