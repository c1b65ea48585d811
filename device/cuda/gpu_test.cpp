// The device plane on a GPU against the specification on the CPU.
//   gpu_test              one line per check
//   gpu_test --quick      the same with fewer seeds, for slow tools around it
//   gpu_test --probe      says which GPU it would use, as JSON
//   gpu_test --bench      latencies of each way to launch steps, as JSON
//   gpu_test --rotation   bandwidth of the rotation, as JSON
// Exit codes: 0 all is well, 1 a check failed, 2 an error, 3 there is no driver or no GPU, 4 a
// kernel hangs.
#include <cstring>

#include "cuda/bench.hpp"
#include "cuda/checks.hpp"
#include "cuda/cuda_device.hpp"
#include "cuda/cuda_memory.hpp"
#include "cuda/gpu_ring.hpp"
#include "cuda/kv_step.hpp"
#include "cuda/latency_bench.hpp"
#include "cuda/rotation/rotation_bench.hpp"
#include "cuda/scan_bench.hpp"

namespace saccade::test {
namespace {

constexpr int kExitNoGpu = 3;
constexpr uint64_t kSeeds = 4;
constexpr uint32_t kBenchRequests = 2000;
constexpr uint32_t kBenchSeats[] = {1, 64, 256};
constexpr uint32_t kScanSamples = 500;
constexpr uint32_t kScansPerSample = 64;  // the GPU's clock may step by a microsecond

CudaDeviceSpec spec_of(const Limits& limits, const std::vector<uint32_t>& eos_ids, LaunchWay way,
                       RotationWay rotation = RotationWay::kVector, uint64_t leave_ns = kLeaveNs) {
  CudaDeviceSpec spec;
  spec.limits = limits;
  spec.eos_ids = eos_ids;
  spec.way = way;
  spec.rotation_way = rotation;
  spec.leave_ns = leave_ns;
  return spec;
}

/// What is told of the device's tokens and adapters before it is attached.
void tell(CudaDevice& machine, const DeviceShape& shape) {
  if (shape.tokens != nullptr) machine.set_tokens(script_tokens());
  for (uint32_t i = 0; i < shape.adapter_keys.size(); ++i) {
    const std::string wrong =
        set_adapter_key(machine.adapter_keys(), i + 1, shape.adapter_keys[i], adapter_name(i + 1));
    if (!wrong.empty()) throw std::runtime_error(wrong);
  }
}

/// A ring in pinned memory and the device that serves it with null steps.
template <LaunchWay kWay, bool kLeaves = false>
struct CudaRig {
  static constexpr const char* kName = kLeaves ? "GPU, device graphs left alone"
                                       : kWay == LaunchWay::kWindow ? "GPU, device graphs"
                                       : kWay == LaunchWay::kLoop   ? "GPU, WHILE and SWITCH"
                                                                    : "GPU, scheduler on the host";
  PinnedMemory memory;
  TestRing ring;
  CudaDevice machine;
  CaptureReport captured;
  CudaRig(const DeviceShape& device, const RingShape& shape)
      : memory(region_header(shape).region_bytes),
        ring(shape, memory.data()),
        machine(spec_of(limits_of(device, shape), device.eos_ids, kWay, RotationWay::kVector,
                        kLeaves ? 1 : kLeaveNs)) {
    auto kernels = std::make_unique<NullKernels>(machine.step_tables(), device.vocab_size, 0);
    captured = machine.prepare(std::move(kernels), {}, [](uint32_t, uint32_t) {});
    tell(machine, device);
    machine.attach(ring.view);
  }
};
using WindowRig = CudaRig<LaunchWay::kWindow>;
using LeavingRig = CudaRig<LaunchWay::kWindow, true>;
using LoopRig = CudaRig<LaunchWay::kLoop>;
using HostRig = CudaRig<LaunchWay::kHost>;

/// Requests whose KV goes down and comes back, under each way to launch and to copy.
void check_rotation(Report& report, uint64_t seed, LaunchWay way, RotationWay rotation) {
  const DeviceShape shape = rotation_device(seed);
  const Limits limits = limits_of(shape, script_ring());
  const PinnedMemory memory(region_header(script_ring()).region_bytes);
  TestRing ring(script_ring(), memory.data());
  CudaDevice machine(spec_of(limits, shape.eos_ids, way, rotation));
  auto owned = std::make_unique<KvStepKernels>(machine.step_tables(), shape.vocab_size,
                                               shape.block_size, shape.num_blocks);
  const KvStepKernels& kernels = *owned;
  machine.prepare(std::move(owned), {kernels.pool(), kernels.block_bytes()},
                  [](uint32_t, uint32_t) {});
  tell(machine, shape);
  machine.attach(ring.view);
  machine.start(true);
  ScriptRun run;
  run.requests = play(seed, ring, [&](uint64_t ticks) { machine.run_ticks(ticks); });
  const LifeOutcome outcome = machine.stop();
  const uint32_t wrong = kernels.wrong_words();
  if (wrong != 0) run.broken = std::to_string(wrong) + " words of KV were another's";
  const std::string name = std::string("GPU, ") + name_of(way) +
                           (rotation == RotationWay::kBulk ? ", bulk copies" : ", vector copies");
  // How many come back depends on how long steps take: on an H200 from 36 on.
  report_rotation(report, name.c_str(), seed, run, outcome.stats, 20);
}

/// Does a NIC's work between the ticks: copies both sides' areas from one memory to the other.
class Relay {
 public:
  Relay(const TestRing& ring, unsigned char* on_gpu) : ring_(ring), on_gpu_(on_gpu) {
    std::memcpy(&header_, ring.region(), sizeof(header_));
  }
  /// What frontends have written; a NIC would deliver doorbells last.
  void bring() const {
    copy(header_.wake_offset, header_.status_offset, cudaMemcpyHostToDevice);
    copy(header_.descriptors_offset, header_.out_ring_offset, cudaMemcpyHostToDevice);
    copy(header_.arena_offset, header_.region_bytes, cudaMemcpyHostToDevice);
  }
  /// What the device has written.
  void fetch() const {
    copy(header_.device_offset, header_.wake_offset, cudaMemcpyDeviceToHost);
    copy(header_.status_offset, header_.descriptors_offset, cudaMemcpyDeviceToHost);
    copy(header_.out_ring_offset, header_.arena_offset, cudaMemcpyDeviceToHost);
  }

 private:
  void copy(uint64_t begin, uint64_t end, cudaMemcpyKind kind) const {
    auto* host = static_cast<unsigned char*>(ring_.region());
    const bool up = kind == cudaMemcpyHostToDevice;
    require(cudaMemcpyAsync((up ? on_gpu_ : host) + begin, (up ? host : on_gpu_) + begin,
                            end - begin, kind, stream_.get()),
            "cudaMemcpyAsync");
    stream_.wait();
  }

  const TestRing& ring_;
  unsigned char* on_gpu_;
  sac_region_header header_;
  Stream stream_;
};

/// The script with the ring in the GPU's memory, where frontends reach it by copies only.
void check_gpu_ring(Report& report, uint64_t seed, LaunchWay way) {
  const DeviceShape shape = script_device(seed);
  const Limits limits = limits_of(shape, script_ring());
  TestRing ring(script_ring());
  std::unique_ptr<GpuRing> on_gpu;
  try {
    on_gpu = std::make_unique<GpuRing>(ring.region(), ring.region_bytes());
  } catch (const std::runtime_error& e) {
    std::printf("skipped  a ring in the GPU's memory: %s\n", e.what());
    return;
  }
  CudaDevice machine(spec_of(limits, shape.eos_ids, way));
  auto kernels = std::make_unique<NullKernels>(machine.step_tables(), limits.vocab_size, 0);
  machine.prepare(std::move(kernels), {}, [](uint32_t, uint32_t) {});
  const RingView there =
      moved(ring.view, on_gpu->data() - static_cast<unsigned char*>(ring.region()));
  tell(machine, shape);
  machine.attach(there);
  const Relay relay(ring, on_gpu->data());
  machine.start(false);
  ScriptRun run;
  run.requests = play(seed, ring, [&](uint64_t ticks) {
    relay.bring();
    machine.run_ticks(ticks);
    relay.fetch();
  });
  run.decisions = machine.stop().decisions;
  const ScriptRun expected = run_reference(seed);
  report.check(equal_words(expected, run) && run.decisions == expected.decisions,
               std::string("GPU, ") + name_of(way) +
                   ", ring in its memory: " + std::to_string(run.requests.size()) + " requests, " +
                   std::to_string(run.decisions.size() / 2) + " decisions as on the CPU");
}

/// What is measured next, so that a run that is cut off says where it was.
void say_measuring(const char* what, const std::string& how) {
  std::fprintf(stderr, "measuring %s: %s\n", what, how.c_str());
}

template <class Rig>
std::string bench_way(const char* name) {
  std::string captured;
  say_measuring(name, "one request at a time");
  const Latencies l =
      measure<Rig>(kBenchRequests, [&](const Rig& rig) { captured = rig.captured.sentence(); });
  std::string batches;
  for (const uint32_t seats : kBenchSeats) {
    say_measuring(name, std::to_string(seats) + " at once");
    batches +=
        (batches.empty() ? "\n    " : ",\n    ") + batch_json(seats, measure_batch<Rig>(seats));
  }
  return std::string("  \"") + name + "\": {\n    \"captured\": \"" + captured + "\",\n    " +
         latencies_json(l) + ",\n  \"batches\": [" + batches + "]\n  }";
}

int bench() {
  const std::vector<double> scan_ns = time_scans(SAC_MAX_SLOTS, kScanSamples, kScansPerSample);
  std::printf("{\n  \"gpu\": %s,\n  \"access_ns\": %s,\n  %s,\n%s,\n%s,\n%s,\n%s\n}\n",
              cuda_device_json().c_str(), access_ns_json().c_str(),
              percentiles_json("scan_4096_slots_us", scan_ns).c_str(),
              bench_way<WindowRig>("device_graphs").c_str(),
              bench_way<LeavingRig>("device_graphs_left").c_str(),
              bench_way<LoopRig>("while_switch").c_str(), bench_way<HostRig>("host").c_str());
  return 0;
}

int test(bool quick) {
  saccade::test::Report report;
  const uint64_t seeds = quick ? 1 : kSeeds;
  check_scripts<WindowRig>(report, seeds);
  check_scripts<LeavingRig>(report, seeds);
  check_left_steps<LeavingRig>(report);
  check_scripts<LoopRig>(report, seeds);
  check_scripts<HostRig>(report, seeds);
  check_free_run<WindowRig>(report, 3);
  check_free_run<LoopRig>(report, 4);
  check_cached_prompt<WindowRig>(report);
  check_cached_prompt<HostRig>(report);
  check_windows<WindowRig>(report);
  for (const LaunchWay way : {LaunchWay::kWindow, LaunchWay::kLoop, LaunchWay::kHost})
    for (const RotationWay rotation : {RotationWay::kVector, RotationWay::kBulk})
      check_rotation(report, 1 + static_cast<uint64_t>(way), way, rotation);
  for (const LaunchWay way : {LaunchWay::kWindow, LaunchWay::kLoop}) check_gpu_ring(report, 3, way);
  if (!quick) {
    check_crash_record<WindowRig>(report);
    check_crash_record<LoopRig>(report);
  }
  return report.failed() == 0 ? 0 : 1;
}

int run(const std::string& what) {
  const std::string error = cuda_error_name();
  if (!error.empty()) {
    std::printf("no CUDA driver or GPU: %s\n", error.c_str());
    return kExitNoGpu;
  }
  if (what == "--bench") return bench();
  if (what == "--probe") return std::printf("%s\n", cuda_device_json().c_str()) < 0 ? 2 : 0;
  if (what != "--rotation") return test(what == "--quick");
  std::printf("{\n  \"gpu\": %s,\n  \"rotation\": %s\n}\n", cuda_device_json().c_str(),
              rotation_bench_json().c_str());
  return 0;
}

}  // namespace
}  // namespace saccade::test

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  const std::vector<std::string> known = {"", "--quick", "--probe", "--bench", "--rotation"};
  if (argc > 2 || std::find(known.begin(), known.end(), what) == known.end()) {
    std::fprintf(stderr, "usage: %s [--quick | --probe | --bench | --rotation]\n", argv[0]);
    return 2;
  }
  try {
    return saccade::test::run(what);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  }
}
