#include "cuda/cuda_memory.hpp"

namespace saccade {

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
