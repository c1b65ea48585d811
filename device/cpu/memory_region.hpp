// Pages that the step owns for its whole life.
#pragma once
#include <cstddef>
#include <cstdint>

namespace saccade {

/// Which side writes a region's pages first and so makes them resident.
enum class FirstTouch {
  kConstructor,
  kOwner,  // before any step: what is never written takes no memory
};

/// Zeroed, page-aligned memory, asked for as huge pages where the kernel has them, and touched
/// before the first step: nothing is paged in later, so no step pays for a fault.
class MemoryRegion {
 public:
  /// Touched by up to num_threads threads. Throws std::runtime_error naming `purpose` and the size.
  MemoryRegion(size_t bytes, const char* purpose, FirstTouch touch = FirstTouch::kConstructor,
               uint32_t num_threads = 1);
  ~MemoryRegion();
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* data_;
  size_t bytes_;
};

}  // namespace saccade
