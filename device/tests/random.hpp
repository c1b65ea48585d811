// Random numbers of tests: small, the same on every machine, replayed by a seed.
#pragma once
#include <cstdint>
#include <cstdlib>

namespace saccade::test {

/// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  /// A number in [low, high].
  uint32_t in(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(next() % (uint64_t{high} - low + 1));
  }
  bool one_in(uint32_t n) { return n != 0 && next() % n == 0; }
  template <class T, size_t N>
  T pick(const T (&from)[N]) {
    return from[next() % N];
  }

 private:
  uint64_t state_;
};

/// Seeds of a test whose seeds take seconds under ASan: a quarter of them shows there of memory
/// what all show. CI runs these, tests/nightly.sh more than all of them.
constexpr uint64_t quarter_under_asan(uint64_t count) {
#if defined(SACCADE_ASAN)
  return (count + 3) / 4;
#else
  return count;
#endif
}

/// Which seeds a random test runs: SACCADE_SEED alone, or SACCADE_SEEDS (else `count`) from 1 on.
struct Seeds {
  uint64_t first = 1;
  uint64_t last;
  explicit Seeds(uint64_t count) : last(count) {
    if (const char* one = std::getenv("SACCADE_SEED")) {
      first = last = std::strtoull(one, nullptr, 10);
    } else if (const char* many = std::getenv("SACCADE_SEEDS")) {
      last = std::strtoull(many, nullptr, 10);
    }
  }
};

}  // namespace saccade::test
