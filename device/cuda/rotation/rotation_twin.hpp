// The rotation's lanes with host threads as workers, under the tick of a twin, over memory that
// reveals a block that is read too early or overwritten too soon.
#pragma once
#include "cuda/checks.hpp"
#include "cuda/rotation/bulk_pipeline.hpp"
#include "cuda/rotation/lanes.hpp"
#include "cuda/thread_machine.hpp"

namespace saccade::test {

/// A worker that is one thread.
class ThreadCopier {
 public:
  explicit ThreadCopier(uint64_t seed) : random_(seed) {}
  uint64_t await(const RotationWork& work, uint64_t done) {
    return await_order(work, done, [] { std::this_thread::yield(); });
  }
  void copy(unsigned char* to, const unsigned char* from, uint64_t bytes) {
    if (random_.one_in(16)) std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::memcpy(to, from, bytes);
  }
  void publish(uint64_t* progress, uint64_t done) { store_release(progress, done); }

 private:
  Random random_;
};

/// Pools, lanes and the threads that serve them, alongside a machine.
class RotationTwin {
 public:
  static constexpr RotationWorkers kWorkers = {2, 3};  // not alike: no lane takes the other's

  RotationTwin(const DeviceShape& shape, const Scheduler& s) {
    kv.block_size = shape.block_size;
    kv.device.resize(size_t{shape.num_blocks} * shape.block_size);
    kv.host.resize(size_t{shape.num_host_blocks} * shape.block_size);
    RotationWork down = {};
    down.lanes = &lanes_;
    down.device_pool = reinterpret_cast<unsigned char*>(kv.device.data());
    down.host_pool = reinterpret_cast<unsigned char*>(kv.host.data());
    down.block_bytes = shape.block_size * sizeof(uint64_t);
    RotationWork up = down;
    down.ring = s.kv.store.copies.down.ring;
    down.capacity = shape.num_host_blocks;
    down.is_down = 1;
    down.num_workers = kWorkers.down;
    up.ring = s.kv.store.copies.up.ring;
    up.capacity = shape.num_blocks;
    up.num_workers = kWorkers.up;
    for (uint32_t n = 0; n < kWorkers.total(); ++n) {
      const RotationWork work = work_of(down, up, n);
      threads_.emplace_back([work, n] {
        ThreadCopier copier(n + 1);
        serve_lane(work, copier);
      });
    }
  }
  /// After the end of the life, which tells the workers to leave.
  ~RotationTwin() {
    for (std::thread& t : threads_) t.join();
  }
  RotationEngine engine() { return {&lanes_, kWorkers}; }

  KvMemory kv = {};

 private:
  RotationLanes lanes_ = {};
  std::vector<std::thread> threads_;
};

/// Shares cover a block once, whatever its size and the number of workers.
inline void check_shares(Report& report) {
  bool ok = true;
  for (uint64_t bytes = 16; bytes <= 4096; bytes += 16)
    for (uint32_t workers = 1; workers <= kMaxRotationWorkers; ++workers) {
      uint64_t next = 0;
      for (uint32_t w = 0; w < workers; ++w) {
        const RotationShare share = share_of(bytes, w, workers);
        ok &= share.offset == next && share.offset % kRotationUnitBytes == 0;
        next += share.bytes;
      }
      ok &= next == bytes;
    }
  report.check(ok, "rotation: shares cover each block once");
}

/// Every worker of every lane is there once, whatever their numbers.
inline void check_workers(Report& report) {
  bool ok = true;
  for (uint32_t up = 1; up <= kMaxRotationWorkers; ++up) {
    const RotationWorkers derived = rotation_workers(up);
    ok &= derived.up == up && derived.down == std::max(1u, up / 4);
    for (uint32_t down = 1; down <= kMaxRotationWorkers; ++down) {
      RotationWork works[2] = {};
      works[1].is_down = 1;
      works[1].num_workers = down;
      works[0].num_workers = up;
      uint32_t next[2] = {};
      for (uint32_t n = 0; n < RotationWorkers{down, up}.total(); ++n) {
        const RotationWork work = work_of(works[1], works[0], n);
        ok &= work.worker == next[work.is_down]++;
      }
      ok &= next[1] == down && next[0] == up;
    }
  }
  report.check(ok, "rotation: each lane has all of its workers");
}

/// A Bulk that checks the order: a stage is loaded only when its store has read it, and stored only
/// when its load has ended.
class CheckedBulk {
 public:
  bool ok = true;
  uint32_t overlapped = 0;  // loads that began while others were under way

  void load(uint32_t stage, const unsigned char* from, uint32_t bytes) {
    ok &= !loading_[stage] && unread_[stage] == 0 && bytes % kRotationUnitBytes == 0;
    for (const bool other : loading_) overlapped += other ? 1 : 0;
    loading_[stage] = true;
    from_[stage] = from;
    bytes_[stage] = bytes;
  }
  void await_load(uint32_t stage, uint32_t parity) {
    ok &= loading_[stage] && parity == loads_[stage] % 2;
    ++loads_[stage];
    loading_[stage] = false;
    std::memcpy(memory_[stage], from_[stage], bytes_[stage]);
  }
  void store(uint32_t stage, unsigned char* to, uint32_t bytes) {
    ok &= !loading_[stage] && bytes == bytes_[stage];
    stores_.push_back({stage, to});
    unread_[stage] = 1;
  }
  void await_read(uint32_t pending) {
    while (stores_.size() > pending) end_store();
  }
  void await_stores() { await_read(0); }

 private:
  struct Store {
    uint32_t stage;
    unsigned char* to;
  };
  void end_store() {
    const Store s = stores_.front();
    stores_.pop_front();
    std::memcpy(s.to, memory_[s.stage], bytes_[s.stage]);
    unread_[s.stage] = 0;
  }

  unsigned char memory_[kBulkStages][kBulkStageBytes];
  const unsigned char* from_[kBulkStages] = {};
  uint32_t bytes_[kBulkStages] = {};
  uint32_t loads_[kBulkStages] = {};
  uint32_t unread_[kBulkStages] = {};
  bool loading_[kBulkStages] = {};
  std::deque<Store> stores_;
};

/// Shares of any size arrive whole, through stages that are never reused too early.
inline void check_bulk_pipeline(Report& report) {
  auto bulk = std::make_unique<CheckedBulk>();
  BulkPipeline pipeline;
  bool ok = true;
  for (uint64_t bytes : {16u, 4096u, kBulkStageBytes, kBulkStageBytes + 16, 5 * kBulkStageBytes,
                         7 * kBulkStageBytes - 32, 40 * kBulkStageBytes + 512}) {
    std::vector<unsigned char> from(bytes), to(bytes);
    for (uint64_t i = 0; i < bytes; ++i) from[i] = static_cast<unsigned char>(i * 131 + bytes);
    pipeline.copy(*bulk, to.data(), from.data(), bytes);
    ok &= to == from;
  }
  report.check(ok && bulk->ok && bulk->overlapped > 50,
               "rotation: bulk copies keep the order of their stages");
}

/// Requests whose KV goes down and comes back yield their own tokens, and every step reads the KV
/// that its request wrote. Returns how many blocks came back: the fewer, the longer steps take.
template <class Rig>
uint64_t play_rotation(Report& report, uint64_t seed) {
  const DeviceShape shape = rotation_device(seed);
  Rig rig(shape, script_ring());
  RotationTwin rotation(shape, rig.machine.state().scheduler);
  rig.machine.set_kv(rotation.engine(), &rotation.kv);
  rig.machine.start(true);
  ScriptRun run;
  run.requests = play(seed, rig.ring, [&](uint64_t ticks) { rig.machine.run_ticks(ticks); });
  const LifeOutcome outcome = rig.machine.stop();
  run.broken = rig.machine.broken();
  report_rotation(report, Rig::kName, seed, run, outcome.stats, 0);
  return outcome.stats.blocks_up;
}

/// As often as it takes on a busy host to bring enough blocks back.
template <class Rig>
void check_rotation(Report& report, uint64_t seed) {
  constexpr uint32_t kMostPlays = 5;
  constexpr uint64_t kLeastUp = 50;  // less shows nothing
  uint64_t up = 0;
  for (uint32_t i = 0; i < kMostPlays && up <= kLeastUp; ++i)
    up += play_rotation<Rig>(report, seed);
  report.check(up > kLeastUp, std::string(Rig::kName) + ", rotation, seed " + std::to_string(seed) +
                                  ": " + std::to_string(up) + " blocks came back");
}

}  // namespace saccade::test
