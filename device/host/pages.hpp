// Memory of a device plane on a host: mapped once, unmapped with its owner.
#pragma once
#include <sys/mman.h>

#include <cstddef>

namespace saccade {

/// Zeroed anonymous pages, owned. Null until `map` succeeds.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  /// Call it once.
  bool map(size_t bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    data_ = p;
    bytes_ = bytes;
    return true;
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace saccade
