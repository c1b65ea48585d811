#include "cpu/memory_region.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace saccade {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kPageBytes = 4096;
/// A thread is worth starting for as much as this: zeroing it takes milliseconds.
constexpr size_t kLeastTouchBytes = size_t{64} << 20;

void touch_pages(unsigned char* begin, unsigned char* end) {
  for (volatile unsigned char* at = begin; at < end; at += kPageBytes) *at = 0;
}

/// The kernel zeroes what is touched, in the thread that touches it: one core alone takes seconds
/// for a large KV pool.
void touch_by_threads(unsigned char* data, size_t bytes, uint32_t num_threads) {
  const size_t parts = std::clamp<size_t>(bytes / kLeastTouchBytes, 1, num_threads);
  const size_t part = (bytes / parts + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  std::vector<std::jthread> others;
  for (size_t from = part; from < bytes; from += part)
    others.emplace_back(touch_pages, data + from, data + std::min(from + part, bytes));
  touch_pages(data, data + std::min(part, bytes));
}

}  // namespace

MemoryRegion::MemoryRegion(size_t bytes, const char* purpose, FirstTouch touch,
                           uint32_t num_threads)
    : bytes_((bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) {
    throw std::runtime_error("cannot map " + std::to_string(bytes_) + " bytes for " + purpose);
  }
#if defined(MADV_HUGEPAGE)
  madvise(data_, bytes_, MADV_HUGEPAGE);  // a hint: without it everything just runs slower
#endif
  if (touch == FirstTouch::kConstructor)
    touch_by_threads(static_cast<unsigned char*>(data_), bytes_, num_threads);
}

MemoryRegion::~MemoryRegion() { munmap(data_, bytes_); }

}  // namespace saccade
