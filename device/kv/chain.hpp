// Keys of prefixes. The key of a full block stands for its tokens, all blocks before it and the
// salt of the chain: equal prefixes have equal keys, and a look-up compares the tokens themselves,
// so that unequal prefixes with equal keys cost a miss.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

/// The mixer of splitmix64 (Steele et al., OOPSLA 2014): every bit of x decides about every bit.
SAC_HD constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

/// What the keys of a chain begin with. `seed` is drawn once per start, so that clients cannot
/// choose prompts whose keys collide.
SAC_HD constexpr uint64_t chain_root(uint64_t seed, uint64_t salt) {
  return mix_bits(seed ^ mix_bits(salt + 0x9e3779b97f4a7c15ull));
}

/// The part of a block's key that depends on its own tokens alone: blocks of a prompt may be hashed
/// in any order, by as many threads as there are.
SAC_HD inline uint64_t hash_tokens(const uint32_t* tokens, uint32_t count, uint64_t seed) {
  uint64_t even = seed, odd = ~seed;
  for (uint32_t i = 0; i + 1 < count; i += 2) {
    even = (even ^ tokens[i]) * 0x9fb21c651e98df25ull;
    odd = (odd ^ tokens[i + 1]) * 0xd6e8feb86659fd93ull;
    even ^= even >> 32;
    odd ^= odd >> 32;
  }
  if (count % 2 != 0) even = (even ^ tokens[count - 1]) * 0x9fb21c651e98df25ull;
  return mix_bits(even) + 3 * mix_bits(odd);
}

/// The key of a block, of what came before it and of its own tokens.
SAC_HD constexpr uint64_t chain_key(uint64_t before, uint64_t own) {
  return mix_bits(before * 0x9e3779b97f4a7c15ull + own);
}

}  // namespace saccade
