// The paged KV memory, block first: [block][layer][k|v][token][kv_head][head_dim] in the model's
// dtype.
#pragma once
#include "cpu/kernels.hpp"
#include "cpu/memory_region.hpp"

namespace saccade {

class KvPool {
 public:
  KvPool(const sac_model_config& config, uint32_t block_size, uint32_t num_blocks)
      : head_dim_(config.head_dim),
        num_kv_heads_(config.num_kv_heads),
        dtype_(config.dtype),
        block_size_(block_size),
        plane_bytes_(plane_bytes(config, block_size)),
        block_bytes_(block_bytes(config, block_size)),
        region_(block_bytes_ * num_blocks, "the KV pool") {}

  /// Bytes of one block: all layers, K and V.
  static size_t block_bytes(const sac_model_config& c, uint32_t block_size) {
    return plane_bytes(c, block_size) * 2 * c.num_layers;
  }

  /// One layer's K and V from kv head `head` on, through a sequence's block table.
  KvView view(uint32_t layer, uint32_t head, const uint32_t* block_table) const {
    const size_t head_bytes = size_t{head} * head_dim_ * element_bytes(dtype_);
    const size_t k = size_t{layer} * 2 * plane_bytes_ + head_bytes;
    return {static_cast<uint8_t*>(region_.data()), block_table, block_bytes_, k, k + plane_bytes_,
            size_t{num_kv_heads_} * head_dim_,     block_size_, dtype_};
  }

  size_t block_bytes() const { return block_bytes_; }
  /// Block b is at memory() + b * block_bytes().
  unsigned char* memory() const { return static_cast<unsigned char*>(region_.data()); }

 private:
  static size_t element_bytes(uint32_t dtype) { return dtype == SAC_DTYPE_F32 ? 4 : 2; }
  /// K or V of one layer in one block.
  static size_t plane_bytes(const sac_model_config& c, uint32_t block_size) {
    return size_t{block_size} * c.num_kv_heads * c.head_dim * element_bytes(c.dtype);
  }

  uint32_t head_dim_;
  uint32_t num_kv_heads_;
  uint32_t dtype_;
  uint32_t block_size_;
  size_t plane_bytes_;
  size_t block_bytes_;
  MemoryRegion region_;
};

}  // namespace saccade
