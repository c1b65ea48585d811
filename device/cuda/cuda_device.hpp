// A device plane on a GPU: what it allocates, and the machine that it is. No CUDA header is needed
// to use it. Everything throws std::runtime_error naming the call that failed.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capi/adapter_keys.hpp"
#include "cuda/launch/launcher.hpp"
#include "cuda/machine.hpp"
#include "cuda/model/shape.hpp"
#include "cuda/rotation/rotation.hpp"
#include "grammar/token_tables.hpp"

namespace saccade {

/// Name and compute capability of the GPU that is used, and the driver's version, as JSON.
std::string cuda_device_json();

/// Blocks that bring KV up; rotation_workers() says how many take it down.
inline constexpr uint32_t kRotationBlocks = 4;

/// Leaving a step and coming back takes some 20 us; waiting instead holds a multiprocessor, which
/// costs 0.76 % of the step on an H100.
inline constexpr uint64_t kLeaveNs = 4 * 1000 * 1000;

struct CudaDeviceSpec {
  Limits limits;  // num_slots: of the region, or the most that it may have
  std::vector<uint32_t> eos_ids;
  LaunchWay way = LaunchWay::kWindow;
  uint64_t leave_ns = kLeaveNs;  // see Life
  RotationWorkers rotation_workers = saccade::rotation_workers(kRotationBlocks);
  RotationWay rotation_way = RotationWay::kVector;
};

/// The device's blocks; the device plane allocates the host's. Block b is at
/// base + b * block_bytes. Without a second tier, none of this is used.
struct DeviceBlocks {
  unsigned char* base = nullptr;
  uint64_t block_bytes = 0;
};

/// Order of calls: step_tables (to make the kernels with), prepare, attach, then a Machine's.
/// set_tokens and what adapter_keys() points to at any time before attach.
/// Everything is allocated before start; from start to stop only way (c) waits for the host.
class CudaDevice : public Machine {
 public:
  explicit CudaDevice(const CudaDeviceSpec& spec);
  /// Stops the life. A life that does not end can only be ended with its process: then the crash
  /// record is printed and the process exits with kExitHung.
  ~CudaDevice() override;

  /// What steps read and write; the same for life.
  StepTables step_tables() const;
  /// Captures steps of the standard grid.
  CaptureReport prepare(std::unique_ptr<StepKernels> kernels, const DeviceBlocks& kv,
                        const CaptureProgress& progress);
  /// The bytes of every token. Without them grammars are refused.
  void set_tokens(TokenTables tokens);
  const TokenTables& tokens() const;
  /// Words of a grammar that a request may bring.
  uint32_t grammar_words() const;
  /// Values of an embedding; 0: none is given, also where one does not fit a slot's output ring.
  uint32_t embedding_size(const RingView& ring) const;
  /// Of each adapter; copied where the tick runs when the life begins.
  AdapterKeys adapter_keys();
  /// The ring, in memory and under addresses that the GPU reaches.
  void attach(const RingView& ring);

 protected:
  void launch(bool overlapped) override;
  void reap() override;
  LifeOutcome collect() override;

 private:
  struct Impl;
  explicit CudaDevice(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The same ring under other addresses: each moved by `offset` bytes.
RingView moved(const RingView& ring, ptrdiff_t offset);

}  // namespace saccade
