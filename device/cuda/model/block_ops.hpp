// Sums over the threads of a block. All threads call; the first kOpsBytes of shared memory belong
// to these functions.
#pragma once
#include "cuda/model/words.hpp"

namespace saccade::gpu {

/// A word per warp, of up to 32 warps.
inline constexpr uint32_t kOpsBytes = 128;

/// A kernel begins while the previous one still runs, and waits for it here. A kernel with work to
/// do before that says so (kAwaitsPrevious) and waits itself, in each thread.
template <class Kernel, class Block>
SAC_DEVICE void run_kernel(const Block& b, const typename Kernel::Args& args) {
  b.launch_next();
  if constexpr (!requires { Kernel::kAwaitsPrevious; }) b.await_previous();
  Kernel::run(b, args);
}

/// The sum over a warp, in all lanes, by one tree: the same in any company.
template <class Block, class T>
SAC_DEVICE T warp_sum(const Block& b, T value) {
  SAC_UNROLL
  for (uint32_t mask = kWarpThreads / 2; mask > 0; mask /= 2) value += b.shuffle_xor(value, mask);
  return value;
}
template <class Block>
SAC_DEVICE float warp_max(const Block& b, float value) {
  SAC_UNROLL
  for (uint32_t mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    value = max_f(value, b.shuffle_xor(value, mask));
  }
  return value;
}

/// Each warp's value, visible to all threads.
template <uint32_t kThreads, class Block, class T>
SAC_DEVICE const T* share_by_warp(const Block& b, T value) {
  static_assert(sizeof(T) == 4 && kThreads <= 32 * kWarpThreads);
  T* words = reinterpret_cast<T*>(b.shared());
  b.sync();  // no thread still reads the last words
  if (b.lane() == 0) words[b.warp()] = value;
  b.sync();
  return words;
}

/// The sum over the block, in all threads: by warps' trees, then warp after warp.
template <uint32_t kThreads, class Block, class T>
SAC_DEVICE T block_sum(const Block& b, T value) {
  const T* sums = share_by_warp<kThreads>(b, warp_sum(b, value));
  T total = sums[0];
  for (uint32_t w = 1; w < kThreads / kWarpThreads; ++w) total += sums[w];
  return total;
}
template <uint32_t kThreads, class Block>
SAC_DEVICE float block_max(const Block& b, float value) {
  const float* tops = share_by_warp<kThreads>(b, warp_max(b, value));
  float top = tops[0];
  for (uint32_t w = 1; w < kThreads / kWarpThreads; ++w) top = max_f(top, tops[w]);
  return top;
}

/// The sum over the threads below this one; adds that over all threads to `total`.
template <uint32_t kThreads, class Block>
SAC_DEVICE uint32_t running_sum(const Block& b, uint32_t value, uint32_t& total) {
  uint32_t sum = value;  // with the lanes below
  SAC_UNROLL
  for (uint32_t by = 1; by < kWarpThreads; by *= 2) {
    const uint32_t below = b.shuffle_up(sum, by);
    if (b.lane() >= by) sum += below;
  }
  const uint32_t of_warp = b.shuffle(sum, kWarpThreads - 1);
  const uint32_t* warps = share_by_warp<kThreads>(b, of_warp);
  uint32_t before = 0, all = 0;
  for (uint32_t w = 0; w < kThreads / kWarpThreads; ++w) {
    before += w < b.warp() ? warps[w] : 0;
    all += warps[w];
  }
  total += all;
  return before + sum - value;
}

/// True in all threads of the last of `count` blocks that arrive here: what the others wrote before
/// is visible to it past the first cache (load_far). Leaves 0 behind, for the next kernel. `word`:
/// shared memory that no thread uses meanwhile.
template <class Block>
SAC_DEVICE bool arrive_last(const Block& b, uint32_t* arrivals, uint32_t count, uint32_t* word) {
  b.sync();
  if (count == 1) return true;
  if (b.thread() == 0) {
    // SYNC: release of what all threads of the block wrote, by the barrier above and this fence,
    // with the acquire of the block that arrives last.
    b.fence();
    const bool last = b.add(arrivals, 1u) + 1 == count;
    if (last) *arrivals = 0;
    b.fence();  // SYNC: acquire, with the releases of the other blocks
    *word = last ? 1 : 0;
  }
  b.sync();
  return *word != 0;
}

}  // namespace saccade::gpu
