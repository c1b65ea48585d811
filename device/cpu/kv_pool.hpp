// The paged KV memory, block first: [block][layer][k|v][token][kv_head][head_dim] in the model's
// dtype, or in fp8.
#pragma once
#include <vector>

#include "cpu/kernels.hpp"
#include "cpu/memory_region.hpp"

namespace saccade {

/// How a model's KV is kept.
constexpr KvType kv_type_of(const sac_model_config& c) {
  const bool is_bf16 = c.dtype == SAC_DTYPE_BF16;
  if (c.kv_dtype == SAC_KV_DTYPE_FP8) return is_bf16 ? KvType::kFp8Bf16 : KvType::kFp8;
  if (c.dtype == SAC_DTYPE_F32) return KvType::kF32;
  return is_bf16 ? KvType::kBf16 : KvType::kF16;
}

class KvPool {
 public:
  KvPool(const sac_model_config& config, uint32_t block_size, uint32_t num_blocks,
         uint32_t num_threads = 1)
      : head_dim_(config.head_dim),
        num_kv_heads_(config.num_kv_heads),
        type_(kv_type_of(config)),
        block_size_(block_size),
        plane_bytes_(plane_bytes(config, block_size)),
        block_bytes_(block_bytes(config, block_size)),
        scales_(size_t{2} * config.num_layers, 1.0f),
        region_(block_bytes_ * num_blocks, "the KV pool", FirstTouch::kConstructor, num_threads) {
    if (config.kv_scales == nullptr) return;
    scales_.assign(config.kv_scales, config.kv_scales + scales_.size());
  }

  /// Bytes of one block: all layers, K and V.
  static size_t block_bytes(const sac_model_config& c, uint32_t block_size) {
    return plane_bytes(c, block_size) * 2 * c.num_layers;
  }

  /// One layer's K and V from kv head `head` on, through a sequence's block table.
  KvView view(uint32_t layer, uint32_t head, const uint32_t* block_table) const {
    const size_t head_bytes = size_t{head} * head_dim_ * kv_element_bytes(type_);
    const size_t k = size_t{layer} * 2 * plane_bytes_ + head_bytes;
    return {static_cast<uint8_t*>(region_.data()),
            block_table,
            block_bytes_,
            k,
            k + plane_bytes_,
            size_t{num_kv_heads_} * head_dim_,
            block_size_,
            type_,
            scales_[size_t{2} * layer],
            v_scale(layer)};
  }

  KvType type() const { return type_; }
  float v_scale(uint32_t layer) const { return scales_[size_t{2} * layer + 1]; }
  size_t block_bytes() const { return block_bytes_; }
  /// Block b is at memory() + b * block_bytes().
  unsigned char* memory() const { return static_cast<unsigned char*>(region_.data()); }

 private:
  /// K or V of one layer in one block.
  static size_t plane_bytes(const sac_model_config& c, uint32_t block_size) {
    return size_t{block_size} * c.num_kv_heads * c.head_dim * kv_element_bytes(kv_type_of(c));
  }

  uint32_t head_dim_;
  uint32_t num_kv_heads_;
  KvType type_;
  uint32_t block_size_;
  size_t plane_bytes_;
  size_t block_bytes_;
  std::vector<float> scales_;  // [layer][k|v]
  MemoryRegion region_;
};

}  // namespace saccade
