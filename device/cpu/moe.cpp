#include "cpu/moe.hpp"

#include <cstring>

#include "sample/exp.hpp"

namespace saccade {

uint32_t max_moe_slots(const sac_model_config& c, uint32_t rows) {
  const uint32_t picks = rows * c.experts_per_token;
  return picks + min_u32(c.num_experts, picks) * (kActivationRows - 1);
}

uint32_t max_moe_blocks(const sac_model_config& c, uint32_t rows) {
  const uint32_t picks = rows * c.experts_per_token;
  return min_u32(c.num_experts, picks) + picks / kMoeBlockRows;
}

namespace {

/// The `count` largest of n logits, into `picks` in rising order of their numbers.
void pick_largest(const float* logits, uint32_t n, uint32_t count, uint32_t* picks) {
  for (uint32_t j = 0; j < count; ++j) {
    uint32_t best = n;
    for (uint32_t e = 0; e < n; ++e) {
      bool taken = false;
      for (uint32_t i = 0; i < j; ++i) taken |= picks[i] == e;
      if (!taken && (best == n || logits[e] > logits[best])) best = e;
    }
    picks[j] = best;
  }
  for (uint32_t j = 1; j < count; ++j) {  // few: insertion
    const uint32_t pick = picks[j];
    uint32_t i = j;
    for (; i > 0 && picks[i - 1] > pick; --i) picks[i] = picks[i - 1];
    picks[i] = pick;
  }
}

}  // namespace

void route_row(const sac_model_config& c, const MoeSpace& s, uint32_t row) {
  const float* logits = s.router_logits + size_t{row} * s.router_stride;
  uint32_t* picks = s.picks + size_t{row} * c.experts_per_token;
  float* weights = s.weights + size_t{row} * c.experts_per_token;
  pick_largest(logits, c.num_experts, c.experts_per_token, picks);
  float top = logits[0];
  for (uint32_t e = 1; e < c.num_experts; ++e) top = logits[e] > top ? logits[e] : top;
  float all = 0, picked = 0;
  for (uint32_t e = 0; e < c.num_experts; ++e) all += exp_fixed(logits[e] - top);
  for (uint32_t j = 0; j < c.experts_per_token; ++j) {
    weights[j] = exp_fixed(logits[picks[j]] - top);
    picked += weights[j];
  }
  const float sum = c.norm_topk_prob != 0 ? picked : all;
  for (uint32_t j = 0; j < c.experts_per_token; ++j) weights[j] /= sum;
}

void group_rows(const sac_model_config& c, const MoeSpace& s, uint32_t rows) {
  const uint32_t picks = rows * c.experts_per_token;
  uint32_t* at = s.next_slot;
  for (uint32_t e = 0; e < c.num_experts; ++e) at[e] = 0;
  for (uint32_t i = 0; i < picks; ++i) ++at[s.picks[i]];
  uint32_t slot = 0, blocks = 0;
  for (uint32_t e = 0; e < c.num_experts; ++e) {
    const uint32_t count = at[e];
    at[e] = slot;
    for (uint32_t done = 0; done < count; done += kMoeBlockRows) {
      s.blocks[blocks++] = {e, slot + done, min_u32(kMoeBlockRows, count - done)};
    }
    slot += ceil_div(count, kActivationRows) * kActivationRows;
  }
  *s.num_blocks = blocks;
  for (uint32_t i = 0; i < picks; ++i) s.slots[i] = at[s.picks[i]]++;
}

void copy_activations(const Activations& from, uint32_t row, const Activations& to,
                      uint32_t to_row) {
  if (!from.tiled) {
    const size_t bytes = from.k * sizeof(float);
    std::memcpy(static_cast<uint8_t*>(to.data) + to_row * bytes,
                static_cast<const uint8_t*>(from.data) + row * bytes, bytes);
    return;
  }
  // A row of a tile is one line of kPanelStep elements.
  constexpr size_t kLine = kPanelStep * sizeof(uint16_t);
  const uint32_t steps = ceil_div(from.k, kPanelStep);
  const auto line = [steps](const Activations& a, uint32_t r) {
    const size_t tile = size_t{r / kActivationRows} * steps;
    return static_cast<uint8_t*>(a.data) + (tile * kActivationRows + r % kActivationRows) * kLine;
  };
  const uint8_t* source = line(from, row);
  uint8_t* out = line(to, to_row);
  for (size_t i = 0; i < steps; ++i) {
    std::memcpy(out + i * kActivationRows * kLine, source + i * kActivationRows * kLine, kLine);
  }
}

void combine_row(const sac_model_config& c, const MoeSpace& s, uint32_t row, float* x) {
  const size_t first = size_t{row} * c.experts_per_token;
  for (uint32_t i = 0; i < c.hidden_size; ++i) {
    float sum = 0;
    for (uint32_t j = 0; j < c.experts_per_token; ++j) {
      const float* output = s.outputs + size_t{s.slots[first + j]} * c.hidden_size;
      sum += output[i] * s.weights[first + j];
    }
    x[i] += sum;
  }
}

MoeBlock read_block(const MoeSpace& s, uint32_t index) {
  if (index >= *s.num_blocks) return {0, 0, 0};
  MoeBlock block = s.blocks[index];
  block.num_rows = min_u32(block.num_rows, s.max_slots - block.first_slot);
  return block;
}

}  // namespace saccade
