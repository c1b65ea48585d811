// How the work of a product is cut into items. None of it changes a result.
#pragma once
#include "cpu/kernels.hpp"

namespace saccade {

/// Items per worker below which panels are handed out one by one.
inline constexpr uint32_t kItemsPerWorker = 8;

/// As many panels per item as leave every worker enough items.
inline uint32_t choose_panels(uint32_t panels, uint32_t blocks, uint32_t num_threads) {
  uint32_t per_item = kTilePanels;
  while (per_item > 1 && panels / per_item * blocks < kItemsPerWorker * num_threads) per_item /= 2;
  return per_item;
}

}  // namespace saccade
