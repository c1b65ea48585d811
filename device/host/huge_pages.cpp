#include "host/huge_pages.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace saccade {
namespace {

/// f(line) for each line of a file, without its newline; what is longer than the buffer is cut off.
template <class F>
void for_each_line(int file, F&& f) {
  char buffer[4096];
  size_t used = 0;
  bool is_rest = false;  // of a line that was cut off
  for (;;) {
    const ssize_t got = read(file, buffer + used, sizeof(buffer) - 1 - used);
    if (got <= 0) return;
    used += static_cast<size_t>(got);
    char* at = buffer;
    const auto left = [&] { return used - static_cast<size_t>(at - buffer); };
    while (auto* end = static_cast<char*>(std::memchr(at, '\n', left()))) {
      *end = '\0';
      if (!is_rest) f(at);
      is_rest = false;
      at = end + 1;
    }
    used = left();
    std::memmove(buffer, at, used);
    if (used < sizeof(buffer) - 1) continue;
    buffer[used] = '\0';
    if (!is_rest) f(buffer);
    is_rest = true;
    used = 0;
  }
}

}  // namespace

void HugePageSum::add(const char* line) {
  // "7f00-7f80 rw-p ..." begins a mapping; its fields are "Name:  123 kB".
  uintptr_t begin = 0, end = 0;
  if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
    before_ += share();
    mapping_begin_ = begin;
    mapping_end_ = end;
    mapping_huge_bytes_ = 0;
    return;
  }
  for (const char* name : {"AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"}) {
    const size_t length = std::strlen(name);
    uint64_t kib = 0;
    if (std::strncmp(line, name, length) != 0) continue;
    if (std::sscanf(line + length, "%" SCNu64, &kib) == 1) mapping_huge_bytes_ += kib * 1024;
  }
}

/// What of the last mapping's huge pages lies in the span, if they are spread evenly.
double HugePageSum::share() const {
  const uintptr_t from = std::max(mapping_begin_, begin_), to = std::min(mapping_end_, end_);
  if (from >= to) return 0;
  return static_cast<double>(mapping_huge_bytes_) * static_cast<double>(to - from) /
         static_cast<double>(mapping_end_ - mapping_begin_);
}

uint64_t HugePageSum::bytes() const {
  return std::min(static_cast<uint64_t>(before_ + share()), uint64_t{end_ - begin_});
}

uint64_t huge_page_bytes(const void* data, size_t bytes) {
  const int file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  HugePageSum sum(reinterpret_cast<uintptr_t>(data), bytes);
  for_each_line(file, [&sum](const char* line) { sum.add(line); });
  close(file);
  return sum.bytes();
}

}  // namespace saccade
