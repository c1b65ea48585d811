#include <cstdlib>
#include <cstring>

#include "cuda/cuda_device.hpp"
#include "cuda/persistent.cuh"

namespace saccade {
namespace {

void require(cudaError_t error, const char* call) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorName(error) + ", " +
                             cudaGetErrorString(error));
}

/// Zeroed memory of the GPU.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) {
    require(cudaMalloc(&data_, bytes), "cudaMalloc");
    require(cudaMemset(data_, 0, bytes), "cudaMemset");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// A stream that the default stream does not wait for.
class Stream {
 public:
  Stream() {
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
            "cudaStreamCreateWithFlags");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }
  void wait() const { require(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

size_t life_bytes(const Limits& limits) {
  LifeState image = {};
  image.scheduler.limits = limits;
  Layout measure(nullptr);
  lay_out(image, measure);
  return measure.bytes();
}

template <class T>
std::vector<T> copy_back(const T* from, size_t count) {
  std::vector<T> to(count);
  if (count != 0)
    require(cudaMemcpy(to.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return to;
}

}  // namespace

std::string cuda_error_name() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cudaGetErrorName(error);
  return count == 0 ? cudaGetErrorName(cudaErrorNoDevice) : "";
}

std::string cuda_device_json() {
  int device = 0;
  int driver = 0;
  cudaDeviceProp p;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  require(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties");
  return std::string("{\"name\": \"") + p.name + "\", \"compute_capability\": \"" +
         std::to_string(p.major) + "." + std::to_string(p.minor) +
         "\", \"driver\": " + std::to_string(driver) + "}";
}

PinnedMemory::PinnedMemory(size_t bytes) {
  require(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
          "cudaHostAlloc");
  std::memset(data_, 0, bytes);
  void* seen_by_device = nullptr;
  const cudaError_t error = cudaHostGetDevicePointer(&seen_by_device, data_, 0);
  if (error == cudaSuccess && seen_by_device == data_) return;
  cudaFreeHost(data_);
  require(error, "cudaHostGetDevicePointer");
  throw std::runtime_error("pinned memory has another address on the GPU than on the host");
}
PinnedMemory::~PinnedMemory() { cudaFreeHost(data_); }

struct CudaDevice::Impl {
  PinnedMemory pinned;
  DeviceMemory memory;
  Stream stream;
  Life life = {};
  bool running = false;

  explicit Impl(const Limits& limits) : pinned(sizeof(Control)), memory(life_bytes(limits)) {
    LifeState image = {};
    image.scheduler.limits = limits;
    Layout hand_out(memory.data());
    life.state = lay_out(image, hand_out);
    life.control = static_cast<Control*>(pinned.data());
    require(cudaMemcpy(life.state, &image, sizeof(image), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
};

CudaDevice::CudaDevice(std::unique_ptr<Impl> impl)
    : Machine(impl->life.control), impl_(std::move(impl)) {}

CudaDevice::CudaDevice(const Limits& limits, const std::vector<uint32_t>& eos_ids,
                       const RingView& ring)
    : CudaDevice(std::make_unique<Impl>(limits)) {
  if (ring.num_slots != limits.num_slots || eos_ids.size() != limits.num_eos_ids)
    throw std::runtime_error("limits.num_slots or num_eos_ids differs from what is given");
  impl_->life.ring = ring;
  for (size_t i = 0; i < eos_ids.size(); ++i) impl_->life.eos_ids[i] = eos_ids[i];
}

CudaDevice::~CudaDevice() {
  if (!impl_->running) return;
  try {
    stop();
  } catch (const std::exception& e) {
    // Freeing what a kernel uses would wait for it without end.
    std::fprintf(stderr, "the persistent kernel cannot be stopped: %s\n", e.what());
    std::_Exit(kExitHung);
  }
}

void CudaDevice::launch(bool overlapped) {
  require(launch_life(impl_->life, overlapped, impl_->stream.get()), "launch of the life kernel");
  impl_->running = true;
}

void CudaDevice::reap() {
  impl_->stream.wait();
  impl_->running = false;
}

LifeOutcome CudaDevice::collect() {
  const LifeState state = copy_back(impl_->life.state, 1)[0];
  const DecisionLog& log = state.scheduler.log;
  return {copy_back(log.words, log.used), log.dropped, copy_back(state.tick_ns, state.num_tick_ns)};
}

std::vector<double> time_scans(uint32_t num_slots, uint32_t num_samples,
                               uint32_t scans_per_sample) {
  const PinnedMemory doorbells(num_slots * sizeof(uint32_t));
  const PinnedMemory crash(sizeof(CrashRecord));
  const DeviceMemory seen(num_slots * sizeof(uint32_t));
  const DeviceMemory changed(num_slots * sizeof(uint32_t));
  const DeviceMemory sample_ns(num_samples * sizeof(uint64_t));
  const Stream stream;
  const ScanBench bench = {static_cast<const uint32_t*>(doorbells.data()),
                           static_cast<const uint32_t*>(seen.data()),
                           static_cast<uint32_t*>(changed.data()),
                           num_slots,
                           scans_per_sample,
                           num_samples,
                           static_cast<uint64_t*>(sample_ns.data()),
                           static_cast<CrashRecord*>(crash.data())};
  require(launch_scan_bench(bench, stream.get()), "launch of the scan benchmark");
  stream.wait();
  if (static_cast<const CrashRecord*>(crash.data())->site != 0)
    throw std::runtime_error("the scan team did not meet within its budget");
  std::vector<double> scan_ns;
  for (const uint64_t ns : copy_back(bench.sample_ns, num_samples))
    scan_ns.push_back(static_cast<double>(ns) / scans_per_sample);
  return scan_ns;
}

}  // namespace saccade
