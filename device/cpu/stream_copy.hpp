// A copy of one large extent, past the caches.
#pragma once
#include <cstddef>

namespace saccade {

/// Copies `bytes` from `from` to `to`; the extents do not overlap and are multiples of 64 bytes,
/// aligned to 64. Writes go around the caches where the processor has such stores: what is copied
/// is not read again soon, and the lines that steps work on stay. On return the bytes are ordered
/// before any later release by the calling thread.
void stream_copy(void* to, const void* from, size_t bytes);

}  // namespace saccade
