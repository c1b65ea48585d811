// Numbers of e4m3 on emulated blocks: all of them, against the CPU's and what the format says.
#include <doctest/doctest.h>

#include "cpu/dtype.hpp"
#include "cuda/model/tests/emulated_block.hpp"
#include "tests/fp8.hpp"

using namespace saccade;
using namespace saccade::gpu;
using namespace saccade::test;

namespace {

/// Four numbers of e4m3 by each thread; kJoined: two joined pairs.
template <bool kJoined>
struct WidenKernel {
  static constexpr uint32_t kThreads = 64;
  static constexpr uint32_t kSharedBytes = 0;
  struct Args {
    const uint32_t* words;
    uint32_t* pairs;
  };
  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    uint32_t pairs[2];
    if (kJoined) {
      b.widen_joined_fp8(a.words[b.thread()], pairs);
    } else {
      b.widen_fp8(a.words[b.thread()], pairs);
    }
    a.pairs[2 * b.thread()] = pairs[0];
    a.pairs[2 * b.thread() + 1] = pairs[1];
  }
};

template <class Kernel>
void launch(const typename Kernel::Args& args) {
  Emulator emulator;
  emulator.launch<Kernel>(Grid{}, Kernel::kSharedBytes, args);
}

}  // namespace

TEST_CASE("numbers become e4m3 as on the CPU, and bf16 again without loss") {
  const auto of_cpu = [](float v) {
    Fp8 code;
    from_float(v, code);
    return uint32_t{code.bits};
  };
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {  // all of bf16, and what lies between
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const auto v = __builtin_bit_cast(float, bits << 16 | low);
      REQUIRE(uint32_t{narrow_fp8(v)} == of_cpu(v));
    }
  }
  std::vector<uint32_t> words(WidenKernel<false>::kThreads), pairs(2 * words.size());
  for (uint32_t i = 0; i < 4 * words.size(); ++i) words[i / 4] |= i << (i % 4 * 8);
  launch<WidenKernel<false>>({words.data(), pairs.data()});
  for (uint32_t code = 0; code < 256; ++code) {
    // Byte 0 is in the low half of the first pair, byte 2 in its high half, the others likewise.
    const uint32_t byte = code % 4;
    const uint32_t pair = pairs[code / 4 * 2 + byte % 2];
    const double got = widen(static_cast<Half>(byte < 2 ? pair : pair >> 16));
    const double want = fp8_value(static_cast<uint8_t>(code));
    CAPTURE(code);
    CHECK(got == (std::isnan(want) ? (code < 128 ? 480 : -480) : want));
    CHECK(std::signbit(got) == (code >= 128));
  }
}

TEST_CASE("joined pairs of e4m3 give the same numbers, and their codes back") {
  const auto number = [](Fp8Code code) {
    const double v = fp8_value(code);
    return static_cast<float>(std::isnan(v) ? (code < 128 ? 480 : -480) : v);
  };
  // Of each pair both orders, in the halves of a word.
  std::vector<uint32_t> words(WidenKernel<true>::kThreads), pairs(2 * words.size());
  for (uint32_t first = 0; first < 256; ++first) {
    for (uint32_t begin = 0; begin < 256; begin += 64) {
      const auto second = [&](uint32_t i) { return static_cast<Fp8Code>(begin + i); };
      const auto one = static_cast<Fp8Code>(first);
      for (uint32_t i = 0; i < words.size(); ++i) {
        const uint16_t low = join_fp8(one, second(i)), high = join_fp8(second(i), one);
        CHECK((split_fp8(low, 0) == one && split_fp8(low, 1) == second(i)));
        words[i] = low | uint32_t{high} << 16;
      }
      launch<WidenKernel<true>>({words.data(), pairs.data()});
      for (uint32_t i = 0; i < words.size(); ++i) {
        const auto value = [&](uint32_t pair) {
          return std::pair(widen(static_cast<Half>(pair)), widen(static_cast<Half>(pair >> 16)));
        };
        CHECK(value(pairs[2 * i]) == std::pair(number(one), number(second(i))));
        CHECK(value(pairs[2 * i + 1]) == std::pair(number(second(i)), number(one)));
      }
    }
  }
}
