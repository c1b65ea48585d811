// The model on a GPU against the CPU's, and against itself in other company: the checks of
// tests/cuda_model_test.cpp with real blocks, with products by mma and, where the GPU has it, by
// wgmma; and how far the logprobs of the two are apart.
//   model_gpu_test [--quick]    60 seeds, or 4 for slow tools around it; by wgmma a third of them,
//                               with adapters a tenth
// Exit codes: 0 all is well, 1 a check failed, 2 an error, 3 there is no driver or no GPU.
#include "cuda/model/tests/cuda_rig.hpp"
#include "cuda/model/tests/model_checks.hpp"

namespace {

constexpr int kExitNoGpu = 3;

int run(uint32_t seeds) {
  using namespace saccade::test;
  const std::string reason = saccade::cuda_error_name();
  if (!reason.empty()) {
    std::printf("no CUDA driver or GPU: %s\n", reason.c_str());
    return kExitNoGpu;
  }
  saccade::test::Report report;
  check_model<CudaRig>(report, seeds);
  const uint32_t adapted = (seeds + 9) / 10;
  check_adapted_models<CudaRig>(report, adapted);
  check_adapted_models<CudaRig>(report, 1, Kind::kFp8Kv);
  if (gpu_has_wgmma()) {
    const uint32_t fewer = (seeds + 2) / 3;  // all kernels but the products were checked above
    check_model<CudaWgmmaRig>(report, fewer);
    check_fp8_weights<CudaWgmmaRig>(report, fewer);
    check_adapted_models<CudaWgmmaRig>(report, adapted);
    check_adapted_models<CudaWgmmaRig>(report, adapted, Kind::kFp8Weights);
    for (uint32_t seed = 1; seed <= fewer; ++seed) {
      check_ways<CudaRig, CudaWgmmaRig>(report, seed, 3 + seed * 7 % 90);
      check_ways<CudaRig, CudaWgmmaRig>(report, seed, 3 + seed * 7 % 90, Kind::kFp8Kv);
    }
  } else {
    std::printf("products by wgmma: not checked, this GPU has none\n");
  }
  return report.failed() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc == 2 && std::string(argv[1]) == "--quick";
  if (argc > 1 && !quick) {
    std::fprintf(stderr, "usage: %s [--quick]\n", argv[0]);
    return 2;
  }
  try {
    return run(quick ? 4 : 60);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 2;
  }
}
