// How the rows of a product are cut into blocks that stay in a core's cache.
#pragma once
#include "cpu/kernels.hpp"

namespace saccade {

/// Bytes of activations of a block of rows: they stay in a core's L2 while panels stream past them.
inline constexpr uint32_t kBlockBytes = 1u << 20;
/// Rows of items are multiples of this: what the matrix instructions take at once.
inline constexpr uint32_t kRowUnit = 2 * kActivationRows;

/// Most rows of a block. Those of a large k would be so few that weights came from afar more
/// often than the products take: kernels that take such a k in chunks get more.
inline uint32_t rows_of_block(const Kernels& kernels, const Activations& in, uint32_t dtype) {
  const uint32_t fit = kBlockBytes / (in.k * (in.tiled ? 2u : 4u));
  if (kernels.chunks_bf16 && dtype == SAC_DTYPE_BF16 && fit < kTileRows / 2) return kTileRows;
  return max_u32(min_u32(fit, kTileRows), kRowUnit) / kRowUnit * kRowUnit;
}

}  // namespace saccade
