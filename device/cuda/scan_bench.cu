#include "cuda/block_crew.cuh"
#include "cuda/cuda_memory.hpp"
#include "cuda/scan_bench.hpp"
#include "platform/clock.hpp"

namespace saccade {
namespace {

/// Doorbells are where a ring's would be.
struct ScanBench {
  PeerReading reading;        // doorbells pinned, the rest on the device
  uint32_t* changed;          // [num_slots], device
  uint32_t scans_per_sample;  // the clock is too coarse for one
  uint32_t num_samples;
  uint64_t* sample_ns;  // [num_samples], device
  CrashRecord* crash;   // pinned
};

__global__ void __launch_bounds__(kBlockThreads, 1) scan_bench_kernel(const ScanBench b) {
  run_block(b.crash, [&](TeamBoard& board, BlockLeader& crew) {
    for (uint32_t sample = 0; sample < b.num_samples && !crew.failed(); ++sample) {
      const uint64_t begin_ns = monotonic_ns();
      for (uint32_t i = 0; i < b.scans_per_sample; ++i)
        read_peers_by_team(board, crew, b.reading, b.changed);
      b.sample_ns[sample] = monotonic_ns() - begin_ns;
    }
    if (!crew.failed()) dismiss(board, crew);
  });
}

}  // namespace

std::vector<double> time_scans(uint32_t num_slots, uint32_t num_samples,
                               uint32_t scans_per_sample) {
  const PinnedMemory doorbells(num_slots * sizeof(uint32_t));
  const PinnedMemory crash(sizeof(CrashRecord));
  const DeviceMemory seen(num_slots * sizeof(uint32_t));
  const DeviceMemory rung(num_slots * sizeof(uint32_t));
  const DeviceMemory peers(sizeof(Peers));
  const DeviceMemory readers(sizeof(ReaderCursors));
  const DeviceMemory changed(num_slots * sizeof(uint32_t));
  const DeviceMemory sample_ns(num_samples * sizeof(uint64_t));
  const Stream stream;
  Peers image = {};
  image.rung = rung.as<uint32_t>();
  require(cudaMemcpy(peers.data(), &image, sizeof(image), cudaMemcpyHostToDevice), "cudaMemcpy");
  require(cudaMemset(readers.data(), 0, sizeof(ReaderCursors)), "cudaMemset");  // no seats
  PeerReading reading = {};
  reading.num_slots = num_slots;
  reading.doorbells = doorbells.as<const uint32_t>();
  reading.peers = peers.as<Peers>();
  reading.cursors = readers.as<ReaderCursors>();
  reading.seen = seen.as<const uint32_t>();
  const ScanBench bench = {reading,     changed.as<uint32_t>(),   scans_per_sample,
                           num_samples, sample_ns.as<uint64_t>(), crash.as<CrashRecord>()};
  scan_bench_kernel<<<1, kBlockThreads, 0, stream.get()>>>(bench);
  require(cudaGetLastError(), "launch of the scan benchmark");
  stream.wait();
  if (crash.as<const CrashRecord>()->site != 0)
    throw std::runtime_error("the team did not meet within its budget");
  std::vector<double> scan_ns;
  for (const uint64_t ns : copy_back(bench.sample_ns, num_samples))
    scan_ns.push_back(static_cast<double>(ns) / scans_per_sample);
  return scan_ns;
}

}  // namespace saccade
