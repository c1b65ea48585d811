// The GPU's kernels on emulated blocks: the checks that model_gpu_test.cpp runs on a real GPU.
#include <doctest/doctest.h>

#include "cuda/model/tests/emulated_model.hpp"
#include "cuda/model/tests/model_checks.hpp"

using namespace saccade;
using namespace saccade::test;

TEST_CASE("small models of every family give the CPU's logprobs, within bf16") {
  Report report;
  const Seeds seeds(4);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    check_against_cpu<EmulatedRig>(report, static_cast<uint32_t>(seed),
                                   3 + static_cast<uint32_t>(seed) * 7 % 90, kLogprobBound);
  }
  CHECK(report.failed() == 0);
}
