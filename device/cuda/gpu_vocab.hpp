// The bytes of every token in the GPU's memory, for grammars. Its view has one address for life, so
// that steps may be captured before the tokens are known.
#pragma once
#include <memory>

#include "cuda/cuda_memory.hpp"
#include "grammar/token_tables.hpp"

namespace saccade {

class GpuVocab {
 public:
  GpuVocab() : view_(sizeof(TokenVocab)) {}
  /// In the GPU's memory; without tokens until `set`.
  const TokenVocab* view() const { return view_.as<TokenVocab>(); }

  /// Copies what kernels use: they walk tokens one by one, not the trees.
  void set(const TokenVocab& host) {
    const size_t masks = (SAC_GRAMMAR_PLAIN_BYTES + 1) * size_t{ceil_div(host.num_tokens, 32)};
    TokenVocab to = {host.num_tokens, 0,       0,       host.offsets,
                     host.bytes,      nullptr, nullptr, host.plain_masks};
    offsets_ = put(to.offsets, host.num_tokens + size_t{1});
    bytes_ = put(to.bytes, host.offsets[host.num_tokens]);
    plain_masks_ = put(to.plain_masks, masks);
    copy(view_.data(), &to, sizeof(to));
  }

 private:
  /// Memory with a copy of an array, which is named instead of it.
  template <class T>
  static std::unique_ptr<DeviceMemory> put(const T*& array, size_t count) {
    auto memory = std::make_unique<DeviceMemory>(count * sizeof(T));
    copy(memory->data(), array, count * sizeof(T));
    array = memory->template as<const T>();
    return memory;
  }
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes != 0) require(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  }

  const DeviceMemory view_;
  std::unique_ptr<DeviceMemory> offsets_, bytes_, plain_masks_;
};

}  // namespace saccade
