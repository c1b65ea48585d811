#include <cstdlib>

#include "cuda/cuda_memory.hpp"

namespace saccade {

std::string cuda_error_name() {
  // Kernels that never end keep a lazy load waiting; all are loaded with the context instead.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return cudaGetErrorName(error);
  return count == 0 ? cudaGetErrorName(cudaErrorNoDevice) : "";
}

PinnedMemory::PinnedMemory(size_t bytes) {
  if (bytes == 0) return;
  require(cudaHostAlloc(&data_, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
          "cudaHostAlloc of " + std::to_string(bytes) + " bytes");
  std::memset(data_, 0, bytes);
  void* seen_by_device = nullptr;
  const cudaError_t error = cudaHostGetDevicePointer(&seen_by_device, data_, 0);
  if (error == cudaSuccess && seen_by_device == data_) return;
  cudaFreeHost(data_);
  require(error, "cudaHostGetDevicePointer");
  throw std::runtime_error("pinned memory has another address on the GPU than on the host");
}
PinnedMemory::~PinnedMemory() { cudaFreeHost(data_); }

RegisteredMemory::RegisteredMemory(void* data, size_t bytes) : data_(data) {
  require(cudaHostRegister(data, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
          "cudaHostRegister of " + std::to_string(bytes) + " bytes");
  void* seen_by_device = nullptr;
  const cudaError_t error = cudaHostGetDevicePointer(&seen_by_device, data, 0);
  if (error != cudaSuccess) cudaHostUnregister(data);
  require(error, "cudaHostGetDevicePointer");
  offset_ = static_cast<unsigned char*>(seen_by_device) - static_cast<unsigned char*>(data);
}
RegisteredMemory::~RegisteredMemory() { cudaHostUnregister(data_); }

}  // namespace saccade
