// One pass computes sizes and pointers: run with a null base it measures, run again with memory it
// hands out the same spans, so that the two cannot disagree.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

class Layout {
 public:
  explicit Layout(void* base) : base_(static_cast<unsigned char*>(base)) {}

  /// `count` elements of T, aligned to a cache line; null while measuring.
  template <class T>
  T* take(size_t count) {
    used_ = (used_ + SAC_LINE_BYTES - 1) / SAC_LINE_BYTES * SAC_LINE_BYTES;
    T* span = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += count * sizeof(T);
    return span;
  }
  size_t bytes() const { return used_; }

 private:
  unsigned char* base_;
  size_t used_ = 0;
};

}  // namespace saccade
