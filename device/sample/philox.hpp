// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A draw is
// a function of (key, counter), so it needs no state and cannot depend on what else is in a batch.
#pragma once
#include "platform/hd.hpp"
#include "sample/isa.hpp"

namespace saccade {
inline namespace SAC_ISA {

struct PhiloxBlock {
  uint32_t word[4];
};

SAC_HD inline PhiloxBlock philox4x32_10(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter.word[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<uint32_t>(b >> 32) ^ counter.word[1] ^ key0, static_cast<uint32_t>(b),
                static_cast<uint32_t>(a >> 32) ^ counter.word[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

/// 64 random bits for the token at `position` of a request with this seed.
SAC_HD inline uint64_t random_bits(uint64_t seed, uint32_t position) {
  const PhiloxBlock block = philox4x32_10({{position, 0, 0, 0}}, static_cast<uint32_t>(seed),
                                          static_cast<uint32_t>(seed >> 32));
  return (static_cast<uint64_t>(block.word[1]) << 32) | block.word[0];
}

/// floor(a * b / 2^64).
SAC_HD inline uint64_t multiply_high(uint64_t a, uint64_t b) {
  const uint64_t a0 = static_cast<uint32_t>(a), a1 = a >> 32;
  const uint64_t b0 = static_cast<uint32_t>(b), b1 = b >> 32;
  const uint64_t low = (a0 * b0) >> 32;
  const uint64_t mid1 = a1 * b0 + low;
  const uint64_t mid2 = a0 * b1 + static_cast<uint32_t>(mid1);
  return a1 * b1 + (mid1 >> 32) + (mid2 >> 32);
}

}  // namespace SAC_ISA
}  // namespace saccade
