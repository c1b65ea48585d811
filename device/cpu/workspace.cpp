#include "cpu/workspace.hpp"

#include "cpu/kv_pool.hpp"

namespace saccade {

Workspace::Workspace(const sac_model_config& config, const Kernels& kernels, uint32_t max_num_seqs,
                     uint32_t max_rows, uint32_t max_len, uint32_t num_threads, bool keeps_masks)
    : qkv_width((config.num_heads + 2 * config.num_kv_heads) * config.head_dim),
      part_stride(config.num_heads * attention_part_floats(config.head_dim)),
      head_part(attention_part_floats(config.head_dim)),
      logits_stride(ceil_div(config.vocab_size, kPanelOutputs) * kPanelOutputs),
      logit_rows(min_u32(max_num_seqs, kMaxLogitRows)),
      workers(num_threads),
      mask_words_(ceil_div(config.vocab_size, 32)),
      num_seats_(keeps_masks ? max_num_seqs : 0),
      kernels_(kernels),
      tiled_(kernels.bf16_activations && config.dtype == SAC_DTYPE_BF16),
      max_parts_(min_u32(kMaxCutRows, max_num_seqs) * ceil_div(max_len, kAttentionRange)),
      region_(lay_out(Layout(nullptr), config, max_rows), "activations") {
  lay_out(Layout(region_.data()), config, max_rows);
}

size_t Workspace::lay_out(Layout layout, const sac_model_config& c, uint32_t max_rows) {
  const size_t rows = max_rows;
  x = layout.take<float>(rows * c.hidden_size);
  normed = take_activations(layout, max_rows, c.hidden_size);
  qkv = layout.take<float>(rows * qkv_width);
  mixed = take_activations(layout, max_rows, c.num_heads * c.head_dim);
  parts = layout.take<float>(max_parts_ * part_stride);
  gated = take_activations(layout, max_rows, c.intermediate_size);
  final_rows = take_activations(layout, logit_rows, c.hidden_size);
  if (c.num_experts > 0) lay_out_moe(layout, c, max_rows);
  logits = layout.take<float>(size_t{logit_rows} * logits_stride);
  if (c.quantization == SAC_QUANTIZATION_INT8) {
    const uint32_t mlp = max_u32(c.intermediate_size, moe.gated.k);
    const uint32_t widest = max_u32(max_u32(c.hidden_size, mlp), mixed.k);
    const size_t most_rows = max_u32(max_u32(max_rows, logit_rows), moe.max_slots);
    quantized = layout.take<int8_t>(quantized_bytes(most_rows, widest));
    quantized_scales = layout.take<float>(most_rows * ceil_div(widest, kQuantGroup));
  }
  for (WorkerScratch& w : workers) {
    w.tiles = layout.take<float>(2 * kTileFloats);
    w.attention = layout.take<float>(kernels_.attention_scratch_floats(
        kv_type_of(c), c.head_dim, c.num_heads / c.num_kv_heads, c.num_kv_heads));
    w.sample.counts = layout.take<uint32_t>(c.vocab_size);
    w.sample.logits = layout.take<float>(c.vocab_size);
    w.sample.ids = layout.take<uint32_t>(c.vocab_size);
    w.sample.weights = layout.take<uint32_t>(c.vocab_size);
    w.sample.members = layout.take<uint32_t>(c.vocab_size);
    w.sample.bucket_weight = layout.take<uint64_t>(kSelectBuckets);
    w.sample.bucket_count = layout.take<uint32_t>(kSelectBuckets);
    w.sample.mask = layout.take<uint32_t>(mask_words_);
  }
  if (num_seats_ == 0) return layout.bytes();
  kept_ = layout.take<KeptMask>(size_t{num_seats_} * kKeptMasks);
  kept_words_ = layout.take<uint32_t>(size_t{num_seats_} * kKeptMasks * mask_words_);
  return layout.bytes();
}

void Workspace::lay_out_moe(Layout& layout, const sac_model_config& c, uint32_t max_rows) {
  const size_t picks = size_t{max_rows} * c.experts_per_token;
  moe.router_stride = ceil_div(c.num_experts, kPanelOutputs) * kPanelOutputs;
  moe.max_slots = max_moe_slots(c, max_rows);
  moe.router_logits = layout.take<float>(size_t{max_rows} * moe.router_stride);
  moe.picks = layout.take<uint32_t>(picks);
  moe.weights = layout.take<float>(picks);
  moe.slots = layout.take<uint32_t>(picks);
  moe.next_slot = layout.take<uint32_t>(c.num_experts);
  moe.blocks = layout.take<MoeBlock>(max_moe_blocks(c, max_rows));
  moe.num_blocks = layout.take<uint32_t>(1);
  moe.gathered = take_activations(layout, moe.max_slots, c.hidden_size);
  moe.gated = take_activations(layout, moe.max_slots, c.moe_intermediate_size);
  moe.outputs = layout.take<float>(size_t{moe.max_slots} * c.hidden_size);
}

/// Layouts begin zeroed and what rounding up adds is never written: it stays zero.
Activations Workspace::take_activations(Layout& layout, uint32_t rows, uint32_t k) const {
  return {layout.take<uint8_t>(activation_bytes(rows, k, tiled_)), k, tiled_};
}

}  // namespace saccade
