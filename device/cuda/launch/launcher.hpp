// The ways in which steps are launched, behind one interface. What a way captures, it owns.
#pragma once
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/launch/step_kernels.hpp"
#include "cuda/live.hpp"

namespace saccade {

enum class LaunchWay : uint32_t {
  kWindow = 0,  // window.hpp: device graphs, fire-and-forget
  kLoop = 1,    // loop.hpp: one graph of WHILE and SWITCH
  kHost = 2,    // host_loop.hpp: a host thread, one copy and one launch per step
};
inline const char* name_of(LaunchWay way) {
  switch (way) {
    case LaunchWay::kWindow:
      return "device graphs";
    case LaunchWay::kLoop:
      return "while and switch";
    case LaunchWay::kHost:
      return "host";
  }
  return "unknown";
}

/// What capturing took.
struct CaptureReport {
  uint32_t num_shapes = 0;
  uint32_t num_executables = 0;
  double seconds = 0;
  size_t device_bytes = 0;  // of the GPU's memory, for all of them
  std::string sentence() const {
    char text[160];
    const double mib = static_cast<double>(device_bytes) / (1 << 20);
    std::snprintf(text, sizeof(text), "%u shapes, %u executables, %.2f s, %.1f MiB (%.3f each)",
                  num_shapes, num_executables, seconds, mib,
                  num_executables == 0 ? 0 : mib / num_executables);
    return text;
  }
};
/// Told after each shape: how many are done, and how many there are.
using CaptureProgress = std::function<void(uint32_t, uint32_t)>;

class Launcher {
 public:
  virtual ~Launcher() = default;
  /// Captures all shapes. `kernels` must outlive the launcher. Once.
  virtual void capture(const StepKernels& kernels, const std::vector<GraphShape>& shapes,
                       const CaptureProgress& progress, CaptureReport& report) = 0;
  /// Loads whatever a life launches: captures, instantiates, uploads and waits. `life` is copied.
  /// Call before anything on the GPU spins: under lazy loading the first load of a kernel may wait
  /// for all running ones. Once.
  virtual void load(const Life& life, bool overlapped) = 0;
  /// Begins the loaded life: launches, and no more. Returns at once.
  virtual void start() = 0;
  /// Waits for a life that has ended.
  virtual void finish() = 0;
};

/// `line`: where the last kernel of a step reports; `batch`: where it finds the step's number.
struct SignalTarget {
  StepLine* line;
  const StepBatch* batch;
};
/// `own_bytes`: of the scheduler's block, see residence.hpp.
std::unique_ptr<Launcher> make_window_launcher(const SignalTarget& signal, uint32_t own_bytes);
std::unique_ptr<Launcher> make_loop_launcher(const SignalTarget& signal, uint32_t own_bytes);

/// What way (c) needs besides the life: the device's copy of the tables, and both ends of the
/// upload.
struct HostLink {
  Limits limits;
  uint32_t* copy_words;    // device: the copy's first word
  uint32_t* upload_words;  // pinned: written by the tick
};
std::unique_ptr<Launcher> make_host_launcher(const HostLink& link);

}  // namespace saccade
