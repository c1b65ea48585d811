// The model on a GPU against the CPU's, and against itself in other company: the checks of
// tests/cuda_model_test.cpp with real blocks.
// Exit codes: 0 all is well, 1 a check failed, 2 an error, 3 there is no driver or no GPU.
#include "cuda/model/tests/cuda_rig.hpp"
#include "cuda/model/tests/model_checks.hpp"

namespace {

constexpr int kExitNoGpu = 3;

int run() {
  using namespace saccade::test;
  const std::string reason = no_gpu_reason();
  if (!reason.empty()) {
    std::printf("no CUDA driver or GPU: %s\n", reason.c_str());
    return kExitNoGpu;
  }
  Report report;
  check_model<CudaRig>(report, 60);
  return report.failed() == 0 ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  }
}
