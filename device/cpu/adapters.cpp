#include "cpu/adapters.hpp"

#include <cstring>

#include "cpu/dtype.hpp"

namespace saccade {
namespace {

uint32_t round_up(uint32_t n, uint32_t unit) { return ceil_div(n, unit) * unit; }

/// Each adapter's slots begin at a whole tile of activations, its rows anywhere in that.
uint32_t max_adapter_slots(const AdapterLimits& l, uint32_t rows) {
  if (l.num_adapters == 0) return 0;
  const uint32_t gaps = min_u32(l.num_adapters, rows) * 2 * (kActivationRows - 1);
  return round_up(rows + gaps, kActivationRows);
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
  const size_t bytes = m.bytes();
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
                           uint32_t max_rows, uint32_t num_threads, bool tiled)
    : max_slots_(max_adapter_slots(limits, max_rows)),
      tiled_(tiled),
      widest_input_(widest_input(config)),
      shrunk_row_bytes_(size_t{round_up(limits.max_rank, kPanelOutputs)} * (tiled ? 2 : 4)),
      scratch_(limits.num_adapters == 0 ? 0 : num_threads),
      region_(lay_out(Layout(nullptr)) + 1, "changes by adapters") {
  lay_out(Layout(region_.data()));
}

size_t AdapterSpace::lay_out(Layout layout) {
  gathered_ = layout.take<uint8_t>(activation_bytes(max_slots_, widest_input_, tiled_));
  shrunk_ = layout.take<uint8_t>(kMaxAdaptedTogether * max_slots_ * shrunk_row_bytes_);
  for (AdapterScratch& s : scratch_) {
    s.tiles = layout.take<float>(2 * kTileFloats);
    s.places = layout.take<uint32_t>(2 * kTileRows);
  }
  return layout.bytes();
}

AdapterPlan::AdapterPlan(const AdapterLimits& limits, uint32_t max_rows, const AdapterSpace& space)
    : space_(space) {
  if (limits.num_adapters == 0) return;
  const uint32_t most = min_u32(limits.num_adapters, max_rows);
  counts_.resize(size_t{limits.num_adapters} + 1);
  spans_.resize(most);
  blocks_.resize(size_t{most} + max_rows / kBlockRows);
  gathered_slots_.resize(max_rows);
  row_of_slot_.resize(space.max_slots());
}

void AdapterPlan::build(const StepBatch& batch, const SeatTables& tables) {
  num_spans_ = num_blocks_ = num_gathered_ = 0;
  if (counts_.empty()) return;
  count_rows(batch, tables);
  if (counts_[0].num_rows == batch.num_rows) return;
  cut_blocks();
  assign_slots(batch, tables);
}

void AdapterPlan::count_rows(const StepBatch& batch, const SeatTables& tables) {
  for (Count& count : counts_) count = {};
  for (uint32_t i = 0; i < batch.num_seqs; ++i) {
    const StepSeq& seq = batch.seqs[i];
    Count& count = counts_[tables.params[seq.seat].adapter];
    if (count.num_rows == 0) count.first_row = seq.first_row;
    count.num_rows += seq.num_rows;
    count.end_row = seq.first_row + seq.num_rows;
  }
}

void AdapterPlan::cut_blocks() {
  uint32_t slot = 0;
  for (uint32_t adapter = 1; adapter < counts_.size(); ++adapter) {
    Count& count = counts_[adapter];
    if (count.num_rows == 0) continue;
    const bool apart = count.apart();
    const uint32_t first = apart ? 0 : count.first_row % kActivationRows;
    spans_[num_spans_] = {adapter, slot, apart ? AdapterSpan::kApart : count.first_row - first,
                          first, count.num_rows};
    for (uint32_t done = 0; done < count.num_rows; done += kBlockRows) {
      blocks_[num_blocks_++] = {num_spans_, first + done,
                                min_u32(kBlockRows, count.num_rows - done)};
    }
    count.next_slot = slot;
    slot += round_up(first + count.num_rows, kActivationRows);
    ++num_spans_;
  }
}

void AdapterPlan::assign_slots(const StepBatch& batch, const SeatTables& tables) {
  for (uint32_t i = 0; i < batch.num_seqs; ++i) {
    const StepSeq& seq = batch.seqs[i];
    const uint32_t adapter = tables.params[seq.seat].adapter;
    Count& count = counts_[adapter];
    if (adapter == 0 || !count.apart()) continue;
    for (uint32_t row = seq.first_row; row < seq.first_row + seq.num_rows; ++row) {
      row_of_slot_[count.next_slot] = row;
      gathered_slots_[num_gathered_++] = count.next_slot++;
    }
  }
}

AdapterSpan AdapterPlan::span(uint32_t i) const {
  AdapterSpan span = spans_[i];
  span.base_slot = min_u32(span.base_slot, space_.max_slots());
  const uint32_t room = space_.max_slots() - span.base_slot;
  span.first = min_u32(span.first, room);
  span.num_rows = min_u32(span.num_rows, room - span.first);
  return span;
}

uint32_t AdapterPlan::first_from(const AdapterSpan& span, uint32_t row) const {
  uint32_t low = span.first, high = span.first + span.num_rows;
  if (span.base_row != AdapterSpan::kApart) {
    return row <= span.base_row ? low : min_u32(max_u32(row - span.base_row, low), high);
  }
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (row_of_slot_[span.base_slot + middle] < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace saccade
