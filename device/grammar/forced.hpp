// Tokens that a grammar leaves no choice of: where only one text may follow, the frontend has named
// the token that a tokenizer would begin it with (abi/wire.h, "forced").
#pragma once
#include "grammar/walk.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Words of checked grammar words that are forced tokens: the last ones.
SAC_HD inline uint32_t forced_words(const uint32_t* words, uint32_t count) {
  return count - static_cast<uint32_t>(Automaton{words}.num_words());
}

/// The token that a state is followed by, or kNoToken. words: [count], the forced ones.
SAC_HD inline uint32_t find_forced(const uint32_t* words, uint32_t count, uint32_t state) {
  uint32_t begin = 0, end = count / 2;
  while (begin < end) {
    const uint32_t middle = (begin + end) / 2;
    if (words[2 * middle] < state) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin < count / 2 && words[2 * begin] == state ? words[2 * begin + 1] : kNoToken;
}

}  // namespace SAC_ISA
}  // namespace saccade
