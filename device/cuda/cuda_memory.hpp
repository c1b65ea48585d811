// Owners of what the CUDA runtime hands out. Everything throws std::runtime_error naming the call
// that failed, and, of an allocation, its size.
#pragma once
#include <cuda_runtime_api.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace saccade {

inline void require(cudaError_t error, const std::string& call) {
  if (error != cudaSuccess)
    throw std::runtime_error(call + ": " + cudaGetErrorName(error) + ", " +
                             cudaGetErrorString(error));
}

/// Name of the error that keeps kernels from running here (no driver, no GPU); empty if they can.
/// Call before anything else of the runtime: it sets how kernels are loaded.
std::string cuda_error_name();

/// Zeroed memory of the GPU; null for no bytes.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) {
    if (bytes == 0) return;
    require(cudaMalloc(&data_, bytes), "cudaMalloc of " + std::to_string(bytes) + " bytes");
    require(cudaMemset(data_, 0, bytes), "cudaMemset");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

/// Zeroed host memory that a GPU reaches under the same address: pinned, mapped, portable.
class PinnedMemory {
 public:
  explicit PinnedMemory(size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

/// Someone else's memory, such as a mapped file that another process shares, pinned and mapped for
/// the GPU while this lives.
class RegisteredMemory {
 public:
  RegisteredMemory(void* data, size_t bytes);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  /// What to add to a host address to get the GPU's.
  ptrdiff_t offset() const { return offset_; }

 private:
  void* data_;
  ptrdiff_t offset_ = 0;
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

template <class T>
std::vector<T> copy_back(const T* from, size_t count) {
  std::vector<T> to(count);
  if (count != 0)
    require(cudaMemcpy(to.data(), from, count * sizeof(T), cudaMemcpyDefault), "cudaMemcpy");
  return to;
}

/// Free memory of the GPU.
inline size_t free_device_bytes() {
  size_t free = 0, total = 0;
  require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

}  // namespace saccade
