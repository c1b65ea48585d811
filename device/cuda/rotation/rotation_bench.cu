#include <thread>

#include "cuda/cuda_memory.hpp"
#include "cuda/rotation/rotation.hpp"
#include "cuda/rotation/rotation_bench.hpp"
#include "platform/clock.hpp"

namespace saccade {
namespace {

constexpr uint64_t kBlockBytes = 2 << 20;  // of a model of 8 billion parameters, 16 tokens
constexpr uint32_t kBlocks = 512;          // 1 GiB a direction, beyond every cache
constexpr uint64_t kBudgetNs = 10ull * 1000 * 1000 * 1000;

struct Rates {
  double down, up, both;  // GB/s
};

double rate(uint64_t blocks, uint64_t ns) {
  return static_cast<double>(blocks * kBlockBytes) / static_cast<double>(ns);
}

/// Pools, and orders in a sequence that no prefetcher follows. Down uses one half of both pools, up
/// the other.
class Bed {
 public:
  Bed()
      : device_(2 * kBlocks * kBlockBytes),
        host_(2 * kBlocks * kBlockBytes),
        rings_(2 * kBlocks * sizeof(BlockCopy)) {
    for (uint32_t i = 0; i < kBlocks; ++i) {
      const uint32_t block = i * 37 % kBlocks;
      ring(true)[i] = {block, block};
      ring(false)[i] = {kBlocks + block, kBlocks + block};
    }
  }
  BlockCopy* ring(bool down) const { return rings_.as<BlockCopy>() + (down ? 0 : kBlocks); }
  unsigned char* device() const { return device_.as<unsigned char>(); }
  unsigned char* host() const { return host_.as<unsigned char>(); }
  Copies queues() const {
    Copies c = {};
    c.down.ring = ring(true);
    c.up.ring = ring(false);
    c.down.capacity = c.up.capacity = kBlocks;
    return c;
  }

 private:
  const DeviceMemory device_;
  const PinnedMemory host_;
  const PinnedMemory rings_;
};

/// Plays the tick: asks, and waits until the workers have done it.
class Player {
 public:
  explicit Player(const RotationEngine& engine) : engine_(engine) {}
  uint64_t run_ns(uint32_t down, uint32_t up) {
    queues_.down.asked += down;
    queues_.up.asked += up;
    const uint64_t begin_ns = monotonic_ns();
    engine_.submit(queues_.down, queues_.up);
    while (engine_.down_done() != queues_.down.asked || engine_.up_done() != queues_.up.asked)
      if (monotonic_ns() - begin_ns > kBudgetNs) throw std::runtime_error("copies do not end");
    return monotonic_ns() - begin_ns;
  }

 private:
  const RotationEngine engine_;
  Copies queues_ = {};
};

template <class Run>
Rates measure(Run run) {
  run(kBlocks, kBlocks);  // warm
  const double down = rate(kBlocks, run(kBlocks, 0));
  const double up = rate(kBlocks, run(0, kBlocks));
  return {down, up, rate(2 * kBlocks, run(kBlocks, kBlocks))};
}

Rates measure_workers(const Bed& bed, RotationWay way, uint32_t workers) {
  Rotation rotation({bed.queues(), bed.device(), bed.host(), kBlockBytes, workers, way, true});
  rotation.start();
  Player player(rotation.engine());
  const auto run = [&](uint32_t down, uint32_t up) { return player.run_ns(down, up); };
  const Rates rates = measure(run);
  rotation.engine().stop();
  rotation.finish();
  return rates;
}

/// The copy engines, block by block on a stream for each direction.
Rates measure_engines(const Bed& bed) {
  const Stream down_stream, up_stream;
  return measure([&](uint32_t down, uint32_t up) {
    const uint64_t begin_ns = monotonic_ns();
    for (uint32_t i = 0; i < down || i < up; ++i) {
      const size_t d = bed.ring(true)[i].device_block * kBlockBytes;
      const size_t u = bed.ring(false)[i].device_block * kBlockBytes;
      if (i < down)
        require(cudaMemcpyAsync(bed.host() + d, bed.device() + d, kBlockBytes,
                                cudaMemcpyDeviceToHost, down_stream.get()),
                "cudaMemcpyAsync down");
      if (i < up)
        require(cudaMemcpyAsync(bed.device() + u, bed.host() + u, kBlockBytes,
                                cudaMemcpyHostToDevice, up_stream.get()),
                "cudaMemcpyAsync up");
    }
    down_stream.wait();
    up_stream.wait();
    return monotonic_ns() - begin_ns;
  });
}

std::string line(const char* way, uint32_t blocks, const Rates& r) {
  char text[200];
  std::snprintf(text, sizeof(text),
                "    {\"way\": \"%s\", \"blocks\": %u, \"down_gb_s\": %.2f, \"up_gb_s\": %.2f, "
                "\"both_gb_s\": %.2f}",
                way, blocks, r.down, r.up, r.both);
  return text;
}

}  // namespace

std::string rotation_bench_json() {
  const Bed bed;
  std::string json = "[\n" + line("copy engines", 0, measure_engines(bed));
  int major = 0;
  require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
          "cudaDeviceGetAttribute");
  for (const uint32_t workers : {1u, 2u, 4u, 8u})
    json += ",\n" + line("vector", workers, measure_workers(bed, RotationWay::kVector, workers));
  for (const uint32_t workers : {1u, 2u, 4u, 8u})
    if (major >= 9)
      json += ",\n" + line("bulk", workers, measure_workers(bed, RotationWay::kBulk, workers));
  return json + "\n  ]";
}

}  // namespace saccade
