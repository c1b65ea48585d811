// A device plane on a host: the scheduler's memory, the step it drives, and the loop.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_step.hpp"
#include "host/saccade_device.h"
#include "host/timed_null_step.hpp"
#include "sched/state.hpp"

namespace saccade {

/// Zeroed anonymous pages, owned. Null with `bytes()` == 0 until `map` succeeds.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();
  bool map(size_t bytes);
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace saccade

/// The opaque handle of the C interface.
struct sac_device {
  sac_device_config config = {};
  std::vector<uint32_t> eos_ids;
  saccade::Pages memory;
  saccade::Scheduler scheduler = {};
  std::unique_ptr<saccade::CpuStep> cpu;  // SAC_DEVICE_CPU
  saccade::TimedNullStep null;            // SAC_DEVICE_NULL
  uint64_t kv_block_bytes = 0;            // SAC_DEVICE_CPU
  bool loaded = false;
  bool attached = false;
  std::atomic<bool> stop{false};

  /// Null, or what went wrong: SAC_ERR_* in `code`, the sentence returned.
  std::string create(const sac_device_config& c, const sac_model_config* model, uint32_t vocab_size,
                     int* code);
  std::string attach(void* region, uint64_t region_bytes);
  uint32_t tick();
  void run();
};
