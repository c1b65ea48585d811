// A device plane on a host: the scheduler's memory, the step it drives, and the loop.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "capi/adapter_keys.hpp"
#include "capi/saccade_device.h"
#include "cpu/copy_engine.hpp"
#include "cpu/cpu_step.hpp"
#include "cpu/memory_region.hpp"
#include "grammar/token_tables.hpp"
#include "host/pages.hpp"
#include "plane/roof_desk.hpp"
#include "plane/timed_null_step.hpp"
#include "sched/state.hpp"
#include "sim/paced_device.hpp"

/// The opaque handle of the C interface.
struct sac_device {
  sac_device_config config = {};
  std::vector<uint32_t> eos_ids;
  saccade::Pages memory;
  saccade::Scheduler scheduler = {};
  std::unique_ptr<saccade::CpuStep> cpu;             // SAC_DEVICE_CPU
  std::unique_ptr<saccade::MemoryRegion> host_kv;    // the second tier, if there is one
  std::unique_ptr<saccade::CopyEngine> copy_engine;  // its threads end before what they copy goes
  saccade::RoofDesk roof;                            // SAC_DEVICE_CPU
  saccade::TimedNullStep null;                       // SAC_DEVICE_NULL
  saccade::InstantCopies instant_copies;
  saccade::sim::PacedStep paced;  // SAC_DEVICE_SIM
  saccade::sim::PacedCopies paced_copies;
  saccade::TokenTables tokens;           // for grammars, where there are any
  uint64_t kv_block_bytes = 0;           // SAC_DEVICE_CPU, SAC_DEVICE_SIM
  saccade::FetchShape fetch_shape = {};  // of the region for a fetch plane, if there is to be one
  bool loaded = false;
  bool attached = false;
  std::atomic<bool> stop{false};

  /// Null, or what went wrong: SAC_ERR_* in `code`, the sentence returned.
  std::string create(const sac_device_config& c, const sac_model_config* model, uint32_t vocab_size,
                     int* code);
  void create_cpu(const sac_model_config& model);
  void start_copies(unsigned char* frames);
  std::string set_vocab(const uint32_t* offsets, const uint8_t* bytes, uint32_t num_tokens);
  saccade::AdapterKeys adapter_keys() const;
  std::string create_sim(uint32_t vocab_size);
  std::string attach(void* region, uint64_t region_bytes);
  /// Bytes of the region for a fetch plane; 0: there is none.
  uint64_t fetch_bytes() const;
  void open_fetch(void* region, const uint8_t (&model_id)[32], uint64_t instance_id);
  uint32_t tick();
  void run();
  /// Measures the roof if a frontend wants it and no request would wait for it.
  void answer_roof();
};
