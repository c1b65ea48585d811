#include "cpu/stream_copy.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace saccade {

#if defined(__x86_64__)

void stream_copy(void* to, const void* from, size_t bytes) {
  const auto* in = static_cast<const __m128i*>(from);
  auto* out = static_cast<__m128i*>(to);
  // The processor's own prefetchers do better than hints here (tests/copy_bench.cpp).
  for (size_t i = 0; i < bytes / sizeof(__m128i); i += 4) {  // one line
    const __m128i a = _mm_load_si128(in + i), b = _mm_load_si128(in + i + 1);
    const __m128i c = _mm_load_si128(in + i + 2), d = _mm_load_si128(in + i + 3);
    _mm_stream_si128(out + i, a);
    _mm_stream_si128(out + i + 1, b);
    _mm_stream_si128(out + i + 2, c);
    _mm_stream_si128(out + i + 3, d);
  }
  _mm_sfence();  // these stores are not ordered by a release
}

#else

void stream_copy(void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace saccade
