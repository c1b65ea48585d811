// The CPU device's copy engine: one thread per direction, which copies block after block as the
// queues ask, while steps run. Host memory is a second pool of the same blocks.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>

#include "kv/copies.hpp"

namespace saccade {

/// Both pools; block b is at base + b * block_bytes, a multiple of 64.
struct CopyPools {
  unsigned char* device = nullptr;
  unsigned char* host = nullptr;
  size_t block_bytes = 0;
  uint32_t num_host_blocks = UINT32_MAX;  // places behind them are in frames
  unsigned char* frames = nullptr;        // of the fetch plane

  unsigned char* device_block(uint32_t block) const { return device + size_t{block} * block_bytes; }
  unsigned char* host_block(uint32_t block) const {
    return block < num_host_blocks ? host + size_t{block} * block_bytes
                                   : frames + size_t{block - num_host_blocks} * block_bytes;
  }
};

/// A kv/copies.hpp engine. Nothing is allocated after construction; an idle thread sleeps.
class CopyEngine {
 public:
  /// The queues' rings and the pools stay where they are for the life of the engine. Throws
  /// std::system_error when a thread cannot be started.
  CopyEngine(const CopyPools& pools, const Copies& copies);
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;

  void submit(const CopyQueue& down, const CopyQueue& up) {
    down_.ask(down.asked);
    up_.ask(up.asked);
  }
  uint64_t down_done() const { return down_.done(); }
  uint64_t up_done() const { return up_.done(); }

 private:
  /// One direction and its thread.
  class Lane {
   public:
    Lane(const CopyPools& pools, const CopyQueue& queue, bool down);
    void start() {
      thread_ = std::thread([this] { run(); });
    }
    /// Ends the thread; requested copies that have not begun are never made.
    void stop();
    void ask(uint64_t asked);
    uint64_t done() const;

   private:
    void run();
    void copy(const BlockCopy& block) const;

    const CopyPools pools_;
    const BlockCopy* const ring_;
    const uint32_t capacity_;
    const bool down_;
    alignas(128) std::atomic<uint64_t> asked_{0};  // writer: the tick
    std::atomic<uint32_t> kick_{0};                // changes with asked_ and stopped_; futex word
    std::atomic<bool> stopped_{false};
    alignas(128) std::atomic<uint64_t> done_{0};  // writer: the lane's thread
    std::thread thread_;
  };

  Lane down_;
  Lane up_;
};

}  // namespace saccade
