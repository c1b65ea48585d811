#include "host/process.hpp"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace saccade {
namespace {

/// The fields after the name start with field 3. The name may hold anything, even a parenthesis.
uint64_t start_ticks_of(const std::string& stat) {
  constexpr int kFieldsBefore = 22 - 3;
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int i = 0; i < kFieldsBefore; ++i) fields >> skipped;
  uint64_t ticks = 0;
  fields >> ticks;
  return fields ? ticks : 0;
}

}  // namespace

ProcessId own_process() {
  std::ifstream file("/proc/self/stat");
  std::string stat;
  std::getline(file, stat);
  return {static_cast<uint32_t>(getpid()), start_ticks_of(stat)};
}

}  // namespace saccade
