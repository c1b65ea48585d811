// How much of this process's memory the kernel keeps in huge pages.
#pragma once
#include <cstddef>
#include <cstdint>

namespace saccade {

/// Sums them up, from the lines of /proc/self/smaps.
class HugePageSum {
 public:
  /// Of [begin, begin + bytes). A mapping that goes beyond them counts by its share.
  HugePageSum(uintptr_t begin, size_t bytes) : begin_(begin), end_(begin + bytes) {}
  void add(const char* line);
  uint64_t bytes() const;

 private:
  double share() const;

  const uintptr_t begin_, end_;
  uintptr_t mapping_begin_ = 0, mapping_end_ = 0;  // that is being read
  uint64_t mapping_huge_bytes_ = 0;
  double before_ = 0;  // of the mappings before it
};

/// Bytes of [data, data + bytes) in huge pages, anonymous or of files; 0 if the kernel does not
/// tell. Allocates nothing.
uint64_t huge_page_bytes(const void* data, size_t bytes);

}  // namespace saccade
