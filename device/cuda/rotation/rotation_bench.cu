#include "cuda/rotation/rotation_bed.hpp"
#include "cuda/rotation/rotation_bench.hpp"

namespace saccade {
namespace {

/// Fewer blocks down than up, and as many for comparison.
constexpr RotationWorkers kMeasured[] = {{1, 1}, {1, 2}, {1, 4}, {2, 4}, {2, 8}, {4, 4}};

struct Rates {
  double down, up, both;  // GB/s
};

double rate(uint64_t blocks, uint64_t ns) {
  return static_cast<double>(blocks * Bed::kBlockBytes) / static_cast<double>(ns);
}

template <class Run>
Rates measure(Run run) {
  run(Bed::kBlocks, Bed::kBlocks);  // warm
  const double down = rate(Bed::kBlocks, run(Bed::kBlocks, 0));
  const double up = rate(Bed::kBlocks, run(0, Bed::kBlocks));
  return {down, up, rate(2 * Bed::kBlocks, run(Bed::kBlocks, Bed::kBlocks))};
}

Rates measure_workers(const Bed& bed, RotationWay way, RotationWorkers workers) {
  BedRotation rotation(bed, way, workers);
  return measure([&](uint32_t down, uint32_t up) { return rotation.run_ns(down, up); });
}

/// The copy engines, on a stream for each direction: block by block, or all of it in one piece,
/// which is the peak of the link.
Rates measure_engines(const Bed& bed, bool one_piece) {
  const Stream down_stream, up_stream;
  const auto copy_down = [&](size_t at, size_t bytes) {
    require(cudaMemcpyAsync(bed.host() + at, bed.device() + at, bytes, cudaMemcpyDeviceToHost,
                            down_stream.get()),
            "cudaMemcpyAsync down");
  };
  const auto copy_up = [&](size_t at, size_t bytes) {
    require(cudaMemcpyAsync(bed.device() + at, bed.host() + at, bytes, cudaMemcpyHostToDevice,
                            up_stream.get()),
            "cudaMemcpyAsync up");
  };
  return measure([&](uint32_t down, uint32_t up) {
    const uint64_t begin_ns = monotonic_ns();
    if (one_piece) {
      if (down != 0) copy_down(0, down * Bed::kBlockBytes);
      if (up != 0) copy_up(Bed::kBlocks * Bed::kBlockBytes, up * Bed::kBlockBytes);
    } else {
      for (uint32_t i = 0; i < down || i < up; ++i) {
        if (i < down)
          copy_down(bed.ring(true)[i].device_block * Bed::kBlockBytes, Bed::kBlockBytes);
        if (i < up) copy_up(bed.ring(false)[i].device_block * Bed::kBlockBytes, Bed::kBlockBytes);
      }
    }
    down_stream.wait();
    up_stream.wait();
    return monotonic_ns() - begin_ns;
  });
}

std::string line(const char* way, RotationWorkers blocks, const Rates& r) {
  char text[200];
  std::snprintf(text, sizeof(text),
                "    {\"way\": \"%s\", \"blocks_down\": %u, \"blocks_up\": %u, "
                "\"down_gb_s\": %.2f, \"up_gb_s\": %.2f, \"both_gb_s\": %.2f}",
                way, blocks.down, blocks.up, r.down, r.up, r.both);
  return text;
}

}  // namespace

std::string rotation_bench_json() {
  const Bed bed;
  std::string json = "[\n" + line("copy engines, one piece", {}, measure_engines(bed, true));
  json += ",\n" + line("copy engines, by blocks", {}, measure_engines(bed, false));
  int major = 0;
  require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
          "cudaDeviceGetAttribute");
  for (const RotationWorkers& workers : kMeasured)
    json += ",\n" + line("vector", workers, measure_workers(bed, RotationWay::kVector, workers));
  for (const RotationWorkers& workers : kMeasured)
    if (major >= 9)
      json += ",\n" + line("bulk", workers, measure_workers(bed, RotationWay::kBulk, workers));
  return json + "\n  ]";
}

}  // namespace saccade
