// The GPU's kernels on emulated blocks: the checks that model_gpu_test.cpp runs on a real GPU.
#include <doctest/doctest.h>

#include "cuda/model/tests/emulated_model.hpp"
#include "cuda/model/tests/model_checks.hpp"

using namespace saccade;
using namespace saccade::test;

namespace {

/// A reference's own records of a prompt, as a device would leave them.
RecordsByPosition reference_records(const SmallModel& m, const std::vector<uint32_t>& tokens) {
  ModelReference reference(m, static_cast<uint32_t>(tokens.size()), 0);
  RecordsByPosition records;
  for (const uint32_t token : tokens) {
    const Vector logprobs = reference.look(token, {});
    reference.accept();
    records.push_back({{0, static_cast<float>(logprobs[0])}, {1, static_cast<float>(logprobs[1])}});
  }
  return records;
}

}  // namespace

TEST_CASE("small models of every family give the CPU's logprobs, within bf16") {
  saccade::test::Report report;
  const Seeds seeds(4);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    check_against_cpu<EmulatedRig>(report, static_cast<uint32_t>(seed),
                                   3 + static_cast<uint32_t>(seed) * 7 % 90);
  }
  // Contexts of more than one chunk; a model with near ties in the choice of experts.
  check_against_cpu<EmulatedRig>(report, 5, gpu::kContextChunk + 20);
  check_against_cpu<EmulatedRig>(report, 23, 74);
  for (const uint32_t seed : {1u, 2u}) {
    check_against_cpu<EmulatedWgmmaRig>(report, seed, 3 + seed * 7);
    check_ways<EmulatedRig, EmulatedWgmmaRig>(report, seed, 3 + seed * 7);
  }
  CHECK(report.failed() == 0);
}

TEST_CASE("an embedding is the CPU's, within bf16") {
  saccade::test::Report report;
  const Seeds seeds(4);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const auto n = static_cast<uint32_t>(seed);
    check_embedding<EmulatedRig>(report, n, 3 + n * 7 % 90);
  }
  check_embedding<EmulatedRig>(report, 5, gpu::kContextChunk + 20);
  check_embedding<EmulatedWgmmaRig>(report, 1, 10);
  check_embedding<EmulatedWgmmaRig>(report, 2, 17, Kind::kFp8Kv);
  CHECK(report.failed() == 0);
}

TEST_CASE("a request has the same records alone and in a batch, however it is cut") {
  saccade::test::Report report;
  const Seeds seeds(2);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    check_independence<EmulatedRig>(report, 1000 + static_cast<uint32_t>(seed), 60);
  }
  check_independence<EmulatedRig>(report, 23, 40);  // with experts
  check_independence<EmulatedWgmmaRig>(report, 1001, 60);
  check_independence<EmulatedWgmmaRig>(report, 23, 40);
  CHECK(report.failed() == 0);
}

TEST_CASE("a matrix in e4m3 becomes its values times their scales, in bf16") {
  SmallModel m = random_small(1, 40);
  const TensorShape shape = tensor_shape(m.config, SAC_TENSOR_O);
  std::vector<float> values = m.tensors.at({SAC_TENSOR_O, 0, 0});
  const Fp8Matrix matrix = into_fp8(values.data(), shape.rows, shape.cols);
  const ModelLimits limits = {4, 16, 40, 8, 5};
  EmulatedModel wide(m.config, limits, {}), narrow(m.config, limits, {});
  CHECK(wide.set_tensor(SAC_TENSOR_O, 0, SAC_DTYPE_F32, shape.rows, shape.cols, values.data()) ==
        "");
  CHECK(narrow.set_tensor(SAC_TENSOR_O, 0, SAC_DTYPE_FP8, shape.rows, shape.cols,
                          matrix.bytes.data(), 0, matrix.scales.data()) == "");
  const gpu::MatrixView a = wide.view().layers[0].o, b = narrow.view().layers[0].o;
  CHECK(std::memcmp(a.data, b.data, a.halves() * sizeof(*a.data)) == 0);
  CHECK(narrow.set_tensor(SAC_TENSOR_O, 0, SAC_DTYPE_FP8, shape.rows, shape.cols,
                          matrix.bytes.data()) == "o of layer 0 is in fp8 without scales");
}

TEST_CASE("a matrix that is to be in e4m3 is brought into it by the CPU's rules") {
  SmallModel m = random_small(1, 40);
  m.config.quantization = SAC_QUANTIZATION_FP8;
  const TensorShape shape = tensor_shape(m.config, SAC_TENSOR_O);
  const auto rows = static_cast<uint32_t>(shape.rows), cols = static_cast<uint32_t>(shape.cols);
  std::vector<float> values = m.tensors.at({SAC_TENSOR_O, 0, 0});
  std::fill_n(values.data() + cols, cols, 0.0f);
  values[2 * cols] = __builtin_nanf("");
  EmulatedModel model(m.config, {4, 16, 40, 8, 5}, {});
  REQUIRE(model.set_tensor(SAC_TENSOR_O, 0, SAC_DTYPE_F32, rows, cols, values.data()) == "");
  const gpu::MatrixView o = model.view().layers[0].o;
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < cols; ++i) {
      const uint32_t begin = i / gpu::kUnitInputs * gpu::kUnitInputs;
      float top = 0;
      for (uint32_t k = begin; k < std::min(begin + gpu::kUnitInputs, cols); ++k)
        top = std::max(top, std::abs(values[row * cols + k]));
      const unsigned char* unit = o.units + gpu::unit_at(o.k, row, i);
      float scale = 0;
      std::memcpy(&scale, unit + gpu::scale_at(row), sizeof(scale));
      const uint8_t code = gpu::code_of(unit, row, i);
      const bool sound = row != 2 || begin != 0;
      const float inverse = top > 0 ? 448.0f / top : 0.0f;
      Fp8 want = {0};
      if (sound) from_float(values[row * cols + i] * inverse, want);
      REQUIRE(uint32_t{code} == uint32_t{want.bits});
      REQUIRE((sound ? scale == top * (1.0f / 448.0f) : std::isnan(scale)));
    }
  }
}

TEST_CASE("with FP8 KV small models of every family give the CPU's logprobs, within its codes") {
  saccade::test::Report report;
  const Seeds seeds(4);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    check_against_cpu<EmulatedRig>(report, static_cast<uint32_t>(seed),
                                   3 + static_cast<uint32_t>(seed) * 7 % 90, Kind::kFp8Kv);
  }
  check_against_cpu<EmulatedRig>(report, 5, gpu::kContextChunk + 20, Kind::kFp8Kv);
  for (const uint32_t seed : {1u, 2u}) {
    check_against_cpu<EmulatedWgmmaRig>(report, seed, 3 + seed * 7, Kind::kFp8Kv);
    check_ways<EmulatedRig, EmulatedWgmmaRig>(report, seed, 3 + seed * 7, Kind::kFp8Kv);
  }
  CHECK(report.failed() == 0);
}

TEST_CASE("with FP8 KV a request has the same records alone and in a batch, however it is cut") {
  saccade::test::Report report;
  const Seeds seeds(2);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    check_independence<EmulatedRig>(report, 1000 + static_cast<uint32_t>(seed), 60, Kind::kFp8Kv);
  }
  check_independence<EmulatedRig>(report, 23, 40, Kind::kFp8Kv);  // with experts
  check_independence<EmulatedWgmmaRig>(report, 1001, 60, Kind::kFp8Kv);
  check_independence<EmulatedWgmmaRig>(report, 23, 40, Kind::kFp8Kv);
  CHECK(report.failed() == 0);
}

TEST_CASE("models in e4m3 give the CPU's logprobs, and the same in any company") {
  saccade::test::Report report;
  const Seeds seeds(4);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const auto number = static_cast<uint32_t>(seed);
    check_against_cpu<EmulatedWgmmaRig>(report, number, 3 + number * 7 % 90, Kind::kFp8Weights);
  }
  check_against_cpu<EmulatedWgmmaRig>(report, 8, 150, Kind::kFp8Weights);
  check_against_cpu<EmulatedWgmmaRig>(report, 7, 20, Kind::kFp8Weights);  // with experts
  check_against_cpu<EmulatedWgmmaRig>(report, 9, 150, Kind::kFp8Weights);
  check_independence<EmulatedWgmmaRig>(report, 1001, 60, Kind::kFp8Weights);
  check_independence<EmulatedWgmmaRig>(report, 23, 40, Kind::kFp8Weights);  // with experts
  CHECK(report.failed() == 0);
}

TEST_CASE("with an adapter small models give the CPU's logprobs, within bf16 and FP8 KV") {
  saccade::test::Report report;
  const Seeds seeds(2);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const auto n = static_cast<uint32_t>(seed);
    check_against_cpu<EmulatedRig>(report, n, 3 + n * 7 % 90, Kind::kBf16, 1 + n % 3);
  }
  check_against_cpu<EmulatedRig>(report, 3, 80, Kind::kBf16, 2);
  check_against_cpu<EmulatedRig>(report, 23, 30, Kind::kBf16, 2);  // with experts
  check_against_cpu<EmulatedRig>(report, 3, 30, Kind::kFp8Kv, 2);
  check_against_cpu<EmulatedWgmmaRig>(report, 1, 70, Kind::kBf16, 2);
  check_against_cpu<EmulatedWgmmaRig>(report, 2, 20, Kind::kFp8Weights, 3);
  CHECK(report.failed() == 0);
}

TEST_CASE("a request has the same records among requests of any adapters as alone") {
  saccade::test::Report report;
  const Seeds seeds(1);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed)
    check_adapters<EmulatedRig>(report, 1001 + static_cast<uint32_t>(seed), 60);
  check_adapters<EmulatedRig>(report, 1003, 30, Kind::kFp8Kv);
  check_adapters<EmulatedRig>(report, 23, 30);  // with experts
  check_adapters<EmulatedWgmmaRig>(report, 1001, 40);
  check_adapters<EmulatedWgmmaRig>(report, 1002, 40, Kind::kFp8Weights);
  CHECK(report.failed() == 0);
}

TEST_CASE("FP8 KV takes half of the bytes, and nothing else changes") {
  const ModelLimits limits = {2, 8, 64, 16, 8};
  const SmallModel wide = random_small(1, 40), narrow = random_small(1, 40, Kind::kFp8Kv);
  REQUIRE(check_gpu_model(narrow.config, limits) == "");
  const MemoryNeed a = gpu_memory_need(wide.config, limits);
  const MemoryNeed b = gpu_memory_need(narrow.config, limits);
  CHECK(a.kv == size_t{2} * wide.config.num_layers * 2 * wide.config.num_kv_heads *
                    wide.config.head_dim * 16 * 8);
  CHECK(b.kv == a.kv / 2);
  CHECK(b.weights == a.weights);
  CHECK(b.workspace == a.workspace);
}

TEST_CASE("turned choices of experts explain no other error") {
  const SmallModel m = random_small(23, 40);
  REQUIRE(m.config.num_experts > 0);
  const auto tokens = random_prompt(23, 30, m.config.vocab_size);
  RecordsByPosition records = reference_records(m, tokens);
  const auto explain = [&] {
    return explain_by_swaps(m, tokens, static_cast<uint32_t>(tokens.size()), records);
  };
  CHECK(explain().error < 1e-4);
  CHECK(explain().swaps == 0);
  records[17][1].logprob += 3 * static_cast<float>(kLogprobBound);
  CHECK(explain().error > kLogprobBound);
}
