// The order in which a phase of products takes its items, each a group of panels times a block of
// rows.
#pragma once
#include <cstdint>

#include "platform/hd.hpp"

namespace saccade {

/// A span of groups goes past one block of rows after the other, then the next span: the block
/// stays in a core's cache for that long, and the span's weights come from memory once.
struct ItemOrder {
  uint32_t groups;
  uint32_t blocks;
  uint32_t span;  // groups; at least 1

  struct Place {
    uint32_t group;
    uint32_t block;
  };

  uint32_t count() const { return groups * blocks; }
  Place place(uint32_t item) const {
    const uint32_t first = item / (span * blocks) * span;
    const uint32_t of_span = min_u32(span, groups - first);
    const uint32_t at = item - first * blocks;
    return {first + at % of_span, at / of_span};
  }
};

}  // namespace saccade
