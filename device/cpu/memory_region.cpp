#include "cpu/memory_region.hpp"

#include <sys/mman.h>

#include <stdexcept>
#include <string>

namespace saccade {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kPageBytes = 4096;

}  // namespace

MemoryRegion::MemoryRegion(size_t bytes, const char* purpose, FirstTouch touch)
    : bytes_((bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes) {
  data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) {
    throw std::runtime_error("cannot map " + std::to_string(bytes_) + " bytes for " + purpose);
  }
#if defined(MADV_HUGEPAGE)
  madvise(data_, bytes_, MADV_HUGEPAGE);  // a hint: without it everything just runs slower
#endif
  if (touch == FirstTouch::kOwner) return;
  volatile unsigned char* at = static_cast<unsigned char*>(data_);
  for (size_t i = 0; i < bytes_; i += kPageBytes) at[i] = 0;
}

MemoryRegion::~MemoryRegion() { munmap(data_, bytes_); }

}  // namespace saccade
