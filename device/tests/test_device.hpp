// A device plane for tests: the scheduler over the null step, under a clock that the test moves,
// with every invariant checked after every tick; and what each request must produce, computed
// apart.
#pragma once
#include <functional>
#include <memory>

#include "grammar/token_tables.hpp"
#include "invariants/check.hpp"
#include "sched/tick.hpp"
#include "step/null_step.hpp"
#include "tests/batch_counts.hpp"
#include "tests/fake_fetch_plane.hpp"
#include "tests/kv_memory.hpp"
#include "tests/test_frontend.hpp"

namespace saccade::test {

template <bool kOverlapped>
struct TestEnv : ReadsAlone, SeatsAlone {
  static constexpr bool kOverlap = kOverlapped;
  static constexpr bool kSteady = kOverlapped;
  static constexpr bool kHostActs = true;
  const uint64_t& ns;  // the test may move it while a step runs
  uint32_t notified = 0;
  explicit TestEnv(const uint64_t& now) : ns(now) {}
  uint64_t now_ns() const { return ns; }
  void notify_publish() { ++notified; }
  void notify_fetch(const FetchView&) const {}
};

/// The null step with a hook that runs where a real step would be computing.
struct HookedStep {
  NullStep null = {};
  std::function<void()> during = {};
  uint64_t done = 0;           // what the step says of its end; 0: nothing
  KvMemory* memory = nullptr;  // behind the blocks, if there is any
  void launch(const StepBatch& batch) {
    check_counts(batch, null.tables);
    null.launch(batch);
    if (memory != nullptr) memory->run(batch, null.tables);
    if (during) during();
  }
  void wait() const {}
  uint64_t done_ns() const { return done; }
};

struct DeviceShape {
  uint32_t num_seats = 8;
  uint32_t max_num_batched_tokens = 64;
  uint32_t max_model_len = 128;
  uint32_t block_size = 8;
  uint32_t num_blocks = 256;
  uint32_t vocab_size = 997;
  std::vector<uint32_t> eos_ids = {};
  uint32_t log_words = 1 << 16;
  PrefillPolicy policy = PrefillPolicy::kChunked;
  bool overlapped = true;
  Policy scheduling = Policy::kFcfs;
  PolicySettings settings = {};
  uint64_t slo_ttft_ns = 5'000'000'000;
  uint64_t slo_tbt_ns = 100'000'000;
  uint32_t num_host_blocks = 0;
  uint32_t eager_window = 0;
  bool prefix_caching = false;
  CopySpeed copies = {};
  uint64_t copy_seed = 1;
  FetchLimits fetch = {};
  FetchManner fetch_manner = {};
  uint32_t num_events = 0;  // of the ring for routers
  uint32_t grammar_words = 0;
  const TokenTables* tokens = nullptr;  // with grammar_words
  uint32_t embedding_size = 0;
  std::vector<uint64_t> adapter_keys = {};  // of each adapter
};

/// A fetch plane, small enough that everything runs short.
inline FetchLimits fetch_limits(uint32_t chunk_tokens) {
  FetchLimits l = {};
  l.queue_len = 16;
  l.num_entries = 12;
  l.num_frames = 4;
  l.chunk_tokens = chunk_tokens;
  l.late_ns = 100'000'000;
  return l;
}

FetchShape fetch_shape_of(const DeviceShape& shape);
Limits limits_of(const DeviceShape& shape, const RingShape& ring);
/// Gives a scheduler with limits its memory, and resets it.
AlignedBytes furnish(Scheduler& s, const std::vector<uint32_t>& eos_ids);

/// What routers know an adapter by.
inline uint64_t adapter_name(uint32_t adapter) { return adapter == 0 ? 0 : 0xada00000 + adapter; }
void set_adapter_keys(Scheduler& s, const DeviceShape& shape);

class TestDevice {
 public:
  /// `chunks`: what the store of its fetch plane has; its own, if null.
  TestDevice(TestRing& ring, const DeviceShape& device_shape,
             FakeFetchPlane::Chunks* chunks = nullptr);
  TestDevice(const TestDevice&) = delete;
  TestDevice& operator=(const TestDevice&) = delete;

  /// One tick; throws with the first invariant that it broke. Returns the sequences of its step.
  uint32_t tick();
  const StepBatch& batch() const { return s.launch.batch; }
  const StepSeq& seq(uint32_t i) const { return s.launch.seqs[i]; }
  const Seat& seat_of(uint32_t i) const { return s.seats[seq(i).seat]; }
  std::vector<uint64_t> log() const {
    return {s.report.log.words, s.report.log.words + s.report.log.used};
  }
  /// Entries of one kind, as (slot, detail).
  std::vector<std::pair<uint32_t, uint32_t>> decisions(Decision kind) const;
  bool idle() const;

  const DeviceShape shape;
  KvMemory kv = {};
  TestCopies copies;
  std::unique_ptr<FakeFetchPlane> plane;
  Scheduler s = {};
  HookedStep step;
  uint64_t now_ns = 1'000'000'000;
  uint64_t steady_ticks = 0;

 private:
  template <bool kOverlapped>
  uint32_t tick_with();
  FakeFetchPlane::Chunks own_chunks_;
  AlignedBytes memory_;
};

/// What a request must yield, from its own words alone.
struct Expected {
  std::vector<uint64_t> words;
  uint32_t finish = SAC_FINISH_NONE;
};

Expected expect(const Ask& ask, const DeviceShape& shape);

/// A prompt of `len` tokens, different for each `salt`.
inline std::vector<uint32_t> prompt_of(uint32_t len, uint32_t salt, uint32_t vocab = 997) {
  std::vector<uint32_t> tokens(len);
  for (uint32_t i = 0; i < len; ++i) tokens[i] = (salt * 7919 + i * 104729 + 13) % vocab;
  return tokens;
}
inline Ask ask_of(uint32_t prompt_len, uint32_t max_tokens, uint32_t salt = 0) {
  Ask ask;
  ask.prompt = prompt_of(prompt_len, salt);
  ask.max_tokens = max_tokens;
  ask.seed = salt;
  return ask;
}

/// A prompt whose embedding is asked for, of a device that gives them in this size.
inline Ask embed_ask(std::vector<uint32_t> prompt, uint32_t size) {
  Ask ask;
  ask.prompt = std::move(prompt);
  ask.max_tokens = 0;
  ask.flags = SAC_REQ_EMBED;
  ask.embedding_size = size;
  return ask;
}

/// One ring, one device, one frontend: what most tests need.
struct Bench {
  TestRing ring;
  TestDevice device;
  TestFrontend front;
  explicit Bench(const DeviceShape& shape = {}, const RingShape& ring_shape = {},
                 FakeFetchPlane::Chunks* chunks = nullptr)
      : ring(ring_shape), device(ring, shape, chunks), front(ring, 0) {
    front.join();
    device.tick();
  }
  /// Ticks and reads until every ticket is complete; throws after `max_ticks`.
  void finish(std::vector<Ticket*> tickets, uint32_t max_ticks = 10000) {
    for (uint32_t i = 0; i < max_ticks; ++i) {
      bool all = true;
      for (Ticket* t : tickets) {
        front.read(*t);
        all &= t->complete();
      }
      if (all) return;
      device.tick();
    }
    throw std::runtime_error("requests did not end within the ticks given");
  }
};

}  // namespace saccade::test
