// Masks that were long to find, kept by seat. An answer in the midst of text that its grammar lets
// run on (the text around calls, a pattern like [a-z]+) is at the same place token after token, and
// each time the walk would be over the whole tree of tokens.
#pragma once
#include "grammar/place.hpp"
#include "step/step.hpp"

namespace saccade {

/// Of a seat: two places that an answer is at in turn.
inline constexpr uint32_t kKeptMasks = 2;
/// A walk over fewer nodes is as fast as finding its mask again.
inline constexpr uint32_t kDearNodes = 4096;

struct KeptMask {
  uint32_t request;  // SeatParams::request
  uint32_t filled;   // 1: there is a mask
  GrammarPlace place;
};

SAC_HD inline bool same_place(const GrammarPlace& a, const GrammarPlace& b) {
  bool same = a.state == b.state && a.depth == b.depth;
  for (uint32_t i = 0; same && i < a.depth; ++i) same = a.stack[i] == b.stack[i];
  return same;
}

/// One seat's. Without entries nothing is kept.
struct KeptMasks {
  KeptMask* entries = nullptr;       // [kKeptMasks]
  uint32_t* words = nullptr;         // [kKeptMasks][mask_words]
  uint32_t mask_words = 0;           // of a mask
  uint32_t dear_nodes = kDearNodes;  // masks of longer walks are kept

  /// The mask of a place in a request's grammar; null if it is not kept.
  SAC_HD const uint32_t* find(uint32_t request, const GrammarPlace& place) const {
    if (entries == nullptr) return nullptr;
    for (uint32_t i = 0; i < kKeptMasks; ++i) {
      const KeptMask& e = entries[i];
      if (e.filled != 0 && e.request == request && same_place(e.place, place))
        return words + size_t{i} * mask_words;
    }
    return nullptr;
  }
  /// Keeps what a walk over `nodes` found, in place of the mask kept before the last one.
  SAC_HD void keep(uint32_t request, const GrammarPlace& place, uint32_t nodes,
                   const uint32_t* mask) const {
    if (entries == nullptr || nodes < dear_nodes) return;
    for (uint32_t i = kKeptMasks - 1; i > 0; --i) {
      entries[i] = entries[i - 1];
      copy_mask(words + size_t{i - 1} * mask_words, words + size_t{i} * mask_words);
    }
    entries[0] = {request, 1, place};
    copy_mask(mask, words);
  }
  SAC_HD void copy_mask(const uint32_t* from, uint32_t* to) const {
    for (uint32_t w = 0; w < mask_words; ++w) to[w] = from[w];
  }
};

}  // namespace saccade
