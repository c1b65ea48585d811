#include "cpu/adapters.hpp"

#include <cstring>

#include "cpu/dtype.hpp"

namespace saccade {
namespace {

uint32_t round_up(uint32_t n, uint32_t unit) { return ceil_div(n, unit) * unit; }

/// Each adapter's slots begin at a whole tile of activations.
uint32_t max_adapter_slots(const AdapterLimits& l, uint32_t rows) {
  if (l.num_adapters == 0) return 0;
  const uint32_t gaps = min_u32(l.num_adapters, rows) * (kActivationRows - 1);
  return round_up(rows + gaps, kActivationRows);
}

/// The outputs of the products that have the same input, of the widest such group.
size_t widest_outputs(const sac_model_config& c) {
  const uint32_t qkv = (c.num_heads + 2 * c.num_kv_heads) * c.head_dim;
  return max_u32(max_u32(qkv, c.hidden_size), 2 * c.intermediate_size);
}

uint32_t widest_input(const sac_model_config& c) {
  return max_u32(max_u32(c.hidden_size, c.num_heads * c.head_dim), c.intermediate_size);
}

}  // namespace

AdapterWeights::AdapterWeights(const sac_model_config& config, const AdapterLimits& limits,
                               const Kernels& kernels)
    : config_(config),
      limits_(limits),
      kernels_(kernels),
      pairs_(size_t{limits.num_adapters} * config.num_layers * kNumAdapted),
      roles_(config.num_layers) {
  for (uint32_t l = 0; l < config.num_layers; ++l) has_experts_.push_back(has_experts(config, l));
}

bool AdapterWeights::any(uint32_t layer, uint32_t first, uint32_t count) const {
  return (roles_[layer] >> (first - kFirstAdapted) & ((1u << count) - 1)) != 0;
}

AdapterWeights::Panels AdapterWeights::pack(Matrix& m, uint32_t n, uint32_t k, const void* source,
                                            uint32_t source_dtype) {
  m = {n, k, config_.dtype, nullptr};
  const size_t bytes = m.panel_bytes();
  Panels panels(::operator new (bytes, std::align_val_t{SAC_LINE_BYTES}));
  m.panels = panels.get();
  std::memset(m.panels, 0, bytes);
  PackArgs args = {};
  args.source = source;
  args.source_dtype = source_dtype;
  args.n = n;
  args.k = k;
  args.dtype = m.dtype;
  args.panels = m.panels;
  for (args.panel = 0; args.panel < m.num_panels(); ++args.panel) kernels_.pack(args);
  return panels;
}

std::string AdapterWeights::set(uint32_t adapter, const sac_adapter_pair& p) {
  const std::string wrong = check_adapter_pair(config_, has_experts_, limits_, adapter, p);
  if (!wrong.empty()) return wrong;
  const uint32_t in = static_cast<uint32_t>(p.in), out = static_cast<uint32_t>(p.out);
  const uint32_t rank = round_up(p.rank, kPanelOutputs);
  Entry entry;
  entry.pair = std::make_unique<AdapterPair>();
  entry.pair->scaling = p.scaling;
  entry.a = pack(entry.pair->a, p.rank, in, p.a, p.a_dtype);
  // What is beyond the rank meets zeros, which the first product makes there.
  const size_t bytes = element_bytes(p.b_dtype);
  std::vector<uint8_t> padded(size_t{out} * rank * bytes);
  for (size_t o = 0; o < out; ++o) {
    std::memcpy(padded.data() + o * rank * bytes,
                static_cast<const uint8_t*>(p.b) + o * p.rank * bytes, p.rank * bytes);
  }
  entry.b = pack(entry.pair->b, out, rank, padded.data(), p.b_dtype);
  pairs_[index_of(adapter, p.layer, p.role)] = std::move(entry);
  roles_[p.layer] |= 1u << (p.role - kFirstAdapted);
  max_rank_panels_ = max_u32(max_rank_panels_, rank / kPanelOutputs);
  return "";
}

AdapterSpace::AdapterSpace(const sac_model_config& config, const AdapterLimits& limits,
                           uint32_t max_rows, bool tiled)
    : max_rows_(limits.num_adapters == 0 ? 0 : max_rows),
      max_slots_(max_adapter_slots(limits, max_rows)),
      tiled_(tiled),
      widest_input_(widest_input(config)),
      delta_stride_(widest_outputs(config)),
      shrunk_row_bytes_(size_t{round_up(limits.max_rank, kPanelOutputs)} * (tiled ? 2 : 4)),
      region_(lay_out(Layout(nullptr)) + 1, "changes by adapters") {
  lay_out(Layout(region_.data()));
}

size_t AdapterSpace::lay_out(Layout layout) {
  const size_t together = kMaxAdaptedTogether;
  gathered_ = layout.take<uint8_t>(activation_bytes(max_slots_, widest_input_, tiled_));
  shrunk_ = layout.take<uint8_t>(together * max_slots_ * shrunk_row_bytes_);
  delta_ = layout.take<float>(size_t{max_slots_} * delta_stride_);
  slots_ = layout.take<uint32_t>(together * max_rows_);
  return layout.bytes();
}

AdapterPlan::AdapterPlan(const AdapterLimits& limits, uint32_t max_rows, const AdapterSpace& space)
    : space_(space), counts_(size_t{limits.num_adapters} + 1) {
  if (limits.num_adapters == 0) return;
  rows_.resize(max_rows);
  blocks_.resize(size_t{min_u32(limits.num_adapters, max_rows)} + max_rows / kBlockRows);
}

void AdapterPlan::build(const StepBatch& batch, const SeatTables& tables) {
  num_rows_ = num_blocks_ = 0;
  if (counts_.size() == 1) return;
  for (uint32_t& count : counts_) count = 0;
  for (uint32_t i = 0; i < batch.num_seqs; ++i) {
    counts_[tables.params[batch.seqs[i].seat].adapter] += batch.seqs[i].num_rows;
  }
  if (counts_[0] == batch.num_rows) return;
  cut_blocks();
  for (uint32_t i = 0; i < batch.num_seqs; ++i) {
    const StepSeq& seq = batch.seqs[i];
    const uint32_t adapter = tables.params[seq.seat].adapter;
    for (uint32_t row = seq.first_row; row < seq.first_row + seq.num_rows; ++row) {
      if (adapter != 0) {
        rows_[num_rows_++] = {row, counts_[adapter]++, adapter};
        continue;
      }
      for (uint32_t p = 0; p < kMaxAdaptedTogether; ++p) space_.slots(p)[row] = Delta::kNoSlot;
    }
  }
}

/// Turns the counts into the first slot of each adapter.
void AdapterPlan::cut_blocks() {
  uint32_t slot = 0;
  for (uint32_t adapter = 1; adapter < counts_.size(); ++adapter) {
    const uint32_t count = counts_[adapter];
    counts_[adapter] = slot;
    for (uint32_t done = 0; done < count; done += kBlockRows) {
      blocks_[num_blocks_++] = {adapter, slot + done, min_u32(kBlockRows, count - done)};
    }
    slot += round_up(count, kActivationRows);
  }
}

AdapterBlock AdapterPlan::block(uint32_t i) const {
  AdapterBlock block = blocks_[i];
  block.num_rows = min_u32(block.num_rows, space_.max_slots() - block.first_slot);
  return block;
}

}  // namespace saccade
