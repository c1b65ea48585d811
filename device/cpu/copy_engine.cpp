#include "cpu/copy_engine.hpp"

#include "cpu/stream_copy.hpp"

namespace saccade {

CopyEngine::Lane::Lane(const CopyPools& pools, const CopyQueue& queue, bool down)
    : pools_(pools), ring_(queue.ring), capacity_(queue.capacity), down_(down) {}

void CopyEngine::Lane::ask(uint64_t asked) {
  if (asked == asked_.load(std::memory_order_relaxed)) return;
  // SYNC: release, with the acquire in run(): the ring entries up to `asked` are written, and so is
  // the KV that they name, by steps that the caller has waited for.
  asked_.store(asked, std::memory_order_release);
  kick_.fetch_add(1, std::memory_order_release);
  kick_.notify_one();
}

uint64_t CopyEngine::Lane::done() const {
  // SYNC: acquire, with the release in run(): the counted copies' bytes are visible, and their ring
  // entries are no longer read.
  return done_.load(std::memory_order_acquire);
}

void CopyEngine::Lane::run() {
  uint64_t done = 0;
  while (!stopped_.load(std::memory_order_relaxed)) {
    // Read before `asked`: a later request changes it, and the wait returns.
    const uint32_t kick = kick_.load(std::memory_order_acquire);
    // SYNC: acquire, with ask().
    const uint64_t asked = asked_.load(std::memory_order_acquire);
    if (done == asked) {
      if (!stopped_.load(std::memory_order_relaxed)) kick_.wait(kick, std::memory_order_acquire);
      continue;
    }
    copy(ring_[done++ % capacity_]);
    // SYNC: release, with done().
    done_.store(done, std::memory_order_release);
  }
}

void CopyEngine::Lane::copy(const BlockCopy& block) const {
  unsigned char* device = pools_.device_block(block.device_block);
  unsigned char* host = pools_.host_block(block.host_block);
  if (down_) {
    stream_copy(host, device, pools_.block_bytes);
  } else {
    stream_copy(device, host, pools_.block_bytes);
  }
}

void CopyEngine::Lane::stop() {
  stopped_.store(true, std::memory_order_relaxed);
  // SYNC: the change of kick_ is what run() waits for; it then sees stopped_.
  kick_.fetch_add(1, std::memory_order_release);
  kick_.notify_one();
  if (thread_.joinable()) thread_.join();
}

CopyEngine::CopyEngine(const CopyPools& pools, const Copies& copies)
    : down_(pools, copies.down, true), up_(pools, copies.up, false) {
  down_.start();
  try {
    up_.start();
  } catch (...) {
    down_.stop();
    throw;
  }
}

CopyEngine::~CopyEngine() {
  down_.stop();
  up_.stop();
}

}  // namespace saccade
