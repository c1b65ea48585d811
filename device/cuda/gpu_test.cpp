// The persistent kernel on a GPU against the specification on the CPU.
//   gpu_test            one line per check
//   gpu_test --bench    latencies as JSON
// Exit codes: 0 all is well, 1 a check failed, 2 an error, 3 there is no driver or no GPU, 4 the
// kernel hangs.
#include <cstring>

#include "cuda/bench.hpp"
#include "cuda/checks.hpp"
#include "cuda/cuda_device.hpp"

namespace saccade::test {
namespace {

constexpr int kExitNoGpu = 3;
constexpr uint64_t kSeeds = 8;
constexpr uint32_t kBenchRequests = 5000;
constexpr uint32_t kScanSamples = 500;
constexpr uint32_t kScansPerSample = 64;  // the GPU's clock may step by a microsecond

/// A ring in pinned memory and the kernel that serves it.
struct CudaRig {
  static constexpr const char* kName = "GPU";
  PinnedMemory memory;
  TestRing ring;
  CudaDevice machine;
  CudaRig(const Limits& limits, const std::vector<uint32_t>& eos_ids, const RingShape& shape)
      : memory(region_header(shape).region_bytes),
        ring(shape, memory.data()),
        machine(limits, eos_ids, ring.view) {}
};

int bench() {
  const Latencies l = measure<CudaRig>(kBenchRequests);
  const std::vector<double> scan_ns = time_scans(SAC_MAX_SLOTS, kScanSamples, kScansPerSample);
  std::printf("{\n  \"gpu\": %s,\n  %s,\n  %s\n}\n", cuda_device_json().c_str(),
              latencies_json(l).c_str(), percentiles_json("scan_4096_slots_us", scan_ns).c_str());
  return 0;
}

int run(bool benchmark) {
  const std::string error = cuda_error_name();
  if (!error.empty()) {
    std::printf("no CUDA driver or GPU: %s\n", error.c_str());
    return kExitNoGpu;
  }
  if (benchmark) return bench();
  Report report;
  check_all<CudaRig>(report, kSeeds);
  return report.failed() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace saccade::test

int main(int argc, char** argv) {
  const bool benchmark = argc == 2 && std::strcmp(argv[1], "--bench") == 0;
  if (argc > 1 && !benchmark) {
    std::fprintf(stderr, "usage: %s [--bench]\n", argv[0]);
    return 2;
  }
  try {
    return saccade::test::run(benchmark);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  }
}
