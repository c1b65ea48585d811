// Twins of the machines of launch/, made of host threads: a block is a team of threads, a step's
// graph is a job that another thread runs, and CUDA's rules for graphs are checked as they are
// used. Meant to be run under ThreadSanitizer.
#pragma once
#include <array>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "cuda/launch/host_loop.hpp"
#include "cuda/launch/loop.hpp"
#include "cuda/launch/window.hpp"
#include "cuda/machine.hpp"
#include "tests/test_device.hpp"

namespace saccade::test {

/// What the threads of a block share.
struct ThreadTeam {
  explicit ThreadTeam(uint32_t num_members)
      : size(num_members), barrier(static_cast<std::ptrdiff_t>(num_members) + 1) {}
  const uint32_t size;
  std::barrier<> barrier;
  TeamBoard board = {};
};

/// A thread that plays a whole warp; rank `size` leads.
class ThreadCrew {
 public:
  struct Granule {
    std::array<uint32_t, SAC_SLOT_GRANULE> now;
    const uint32_t* seen;
  };
  ThreadCrew(ThreadTeam& team, uint32_t rank, CrashRecord* crash)
      : team_(team), rank_(rank), crash_(crash) {}

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return team_.size; }
  uint32_t width() const { return 1; }
  uint32_t lane() const { return 0; }
  bool is_scribe() const { return true; }
  bool failed() const { return failed_; }
  void set_tick(uint64_t tick) { tick_ = tick; }
  void nap() const { std::this_thread::yield(); }
  bool meet(WaitSite) {
    team_.barrier.arrive_and_wait();
    return true;
  }
  Granule look(const uint32_t* doorbells, const uint32_t* seen) const {
    Granule granule = {{}, seen};
    for (uint32_t i = 0; i < SAC_SLOT_GRANULE; ++i) granule.now[i] = load_relaxed(doorbells + i);
    return granule;
  }
  uint32_t note(const Granule& granule, uint32_t* rung) const {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < SAC_SLOT_GRANULE; ++i) {
      if (granule.now[i] == granule.seen[i]) continue;
      rung[i] = granule.now[i];
      mask |= 1u << i;
    }
    return mask;
  }
  bool any(bool here) const { return here; }
  uint32_t most(uint32_t word) const { return word; }
  uint32_t merge(uint32_t mask) const { return mask; }
  void settle() const {}
  void report(WaitSite site, uint32_t late, uint64_t expected, uint64_t observed,
              uint64_t waited_ns) {
    failed_ = true;
    *crash_ = {0, rank_, late, 0, expected, observed, tick_, waited_ns};
    store_release(&crash_->site, static_cast<uint32_t>(site));
  }

 private:
  ThreadTeam& team_;
  const uint32_t rank_;
  CrashRecord* crash_;
  uint64_t tick_ = 0;
  bool failed_ = false;
};

/// A block: the members serve its orders, `lead_with(board, crew)` runs on this thread.
template <class LeadWith>
void run_team(uint32_t num_members, CrashRecord* crash, LeadWith lead_with) {
  ThreadTeam team(num_members);
  std::vector<std::thread> members;
  for (uint32_t rank = 0; rank < num_members; ++rank)
    members.emplace_back([&team, rank, crash] {
      ThreadCrew crew(team, rank, crash);
      serve_team(team.board, crew);
    });
  ThreadCrew leader(team, num_members, crash);
  lead_with(team.board, leader);
  for (std::thread& t : members) t.join();
}

/// What runs where a step's kernels would: the null step, and KV memory behind the blocks.
struct TwinStep {
  StepMail* mail = nullptr;
  SeatTables tables = {};
  StepOutputs outputs = {};
  uint32_t vocab_size = 0;
  KvMemory* kv = nullptr;

  /// `image`: the state as it is laid out; of it steps know addresses only.
  void look_at(const LifeState& image) {
    const Scheduler& s = image.scheduler;
    mail = image.mail;
    tables = tables_of(image);
    outputs = s.launch.outputs;
    vocab_size = s.limits.vocab_size;
  }
  void run() {
    check_counts(mail->batch, tables);
    NullStep null{tables, outputs, vocab_size};
    null.launch(mail->batch);
    if (kv != nullptr) kv->run(mail->batch, tables);
    signal_step(mail->line, mail->batch.step);
  }
};

/// Device graphs of steps under CUDA's rules. A graph counts as running for a while after its last
/// kernel has reported to the scheduler.
class TwinGraphs {
 public:
  explicit TwinGraphs(TwinStep& step, uint64_t seed) : step_(step), random_(seed) {
    for (std::thread& t : runners_) t = std::thread([this] { serve(); });
  }
  ~TwinGraphs() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : runners_) t.join();
  }

  /// Called by the leader, from step to step.
  std::function<void(uint64_t step)> at_fire;

  Fired fire(uint32_t graph, uint64_t step) {
    if (at_fire) at_fire(step);
    const std::lock_guard lock(mutex_);
    const uint64_t executable = graph * kInstances + step % kInstances;
    for (const Job& j : jobs_)
      if (j.executable == executable) return {Fired::kBusy, 1};
    if (++fires_ > kFireAndForgetMax) broken_ = "more than 120 fire-and-forget launches";
    jobs_.push_back({executable, random_.one_in(50) ? random_.in(1, 400) : 0, false});
    changed_.notify_all();
    return {Fired::kLaunched, 0};
  }
  uint32_t relaunch() {
    const std::lock_guard lock(mutex_);
    if (tail_) broken_ = "two launches of itself are pending";
    tail_ = true;
    return 0;
  }
  /// The scheduler's kernel has returned: waits for its children. True: it was put at the tail.
  bool end_execution() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.empty(); });
    fires_ = 0;
    const bool again = tail_;
    tail_ = false;
    return again;
  }
  /// Empty, or the rule that was broken.
  std::string broken() {
    const std::lock_guard lock(mutex_);
    return broken_;
  }

 private:
  struct Job {
    uint64_t executable;
    uint32_t lingers_us;
    bool begun;
  };

  Job* next_job() {
    for (Job& j : jobs_)
      if (!j.begun) return &j;
    return nullptr;
  }
  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return over_ || next_job() != nullptr; });
      Job* job = next_job();
      if (job == nullptr) return;
      job->begun = true;
      const Job mine = *job;
      lock.unlock();
      run_step();
      if (mine.lingers_us != 0)
        std::this_thread::sleep_for(std::chrono::microseconds(mine.lingers_us));
      lock.lock();
      std::erase_if(jobs_, [&](const Job& j) { return j.executable == mine.executable; });
      changed_.notify_all();
    }
  }
  void run_step() {
    try {
      step_.run();
    } catch (const std::exception& e) {
      const std::lock_guard lock(mutex_);
      broken_ = e.what();
    }
  }

  TwinStep& step_;
  Random random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // running
  uint32_t fires_ = 0;
  bool tail_ = false;
  bool over_ = false;
  std::string broken_;
  std::thread runners_[2];
};

/// What all twins have: the state, laid out in host memory, and the thread that is the GPU.
class ThreadMachine : public Machine {
 public:
  static constexpr uint32_t kMembers = 3;

  ThreadMachine(const DeviceShape& shape, const Limits& limits, const RingView& ring)
      : Machine(&control_),
        grid_(ShapeGrid::standard(limits.max_num_batched_tokens, limits.num_seats,
                                  limits.num_adapters != 0)) {
    LifeState image = {};
    image.scheduler.limits = limits;
    if (shape.tokens != nullptr) image.scheduler.seats.vocab = &shape.tokens->view();
    Layout measure(nullptr);
    lay_out(image, measure);
    memory_ = aligned_bytes(measure.bytes());
    Layout hand_out(memory_.get());
    life_.state = lay_out(image, hand_out);
    set_adapter_keys(image.scheduler, shape);
    *life_.state = image;
    life_.ring = ring;
    life_.control = &control_;
    life_.shapes = grid_.table(grid_.words().data());
    for (size_t i = 0; i < shape.eos_ids.size(); ++i)
      life_.eos_ids[i] = image.mail->eos_ids[i] = shape.eos_ids[i];
    step_.look_at(image);
    own_memory_ = aligned_bytes(own_bytes(limits));
  }
  const LifeState& state() const { return *life_.state; }
  /// Before start: copies between the tiers, and what steps write and read behind the blocks.
  void set_kv(const RotationEngine& rotation, KvMemory* kv) {
    life_.rotation = rotation;
    step_.kv = kv;
  }
  /// Empty, or the first rule of CUDA, or of KV, that was broken. After the end of the life.
  std::string broken() const override { return broken_; }

 protected:
  virtual void run_gpu(bool overlapped) = 0;
  void launch(bool overlapped) override {
    gpu_ = std::thread([this, overlapped] { run_gpu(overlapped); });
  }
  void end() {
    if (!gpu_.joinable()) return;
    permit(kStop);
    reap();
  }
  void reap() override { gpu_.join(); }
  LifeOutcome collect() override {
    const LifeState& st = *life_.state;
    const DecisionLog& log = st.scheduler.report.log;
    return {{log.words, log.words + log.used},
            log.dropped,
            {st.times, st.times + st.num_times},
            st.scheduler.report.stats,
            st.relaunches};
  }

  OwnMemory& own() const { return *reinterpret_cast<OwnMemory*>(own_memory_.get()); }
  size_t own_size() const { return own_bytes(life_.state->scheduler.limits); }

  Control control_ = {};
  ShapeGrid grid_;
  AlignedBytes memory_;
  AlignedBytes own_memory_;  // of the block
  Life life_ = {};
  TwinStep step_;
  std::string broken_;

 private:
  std::thread gpu_;
};

/// Way (a).
class WindowTwin : public ThreadMachine {
 public:
  using ThreadMachine::ThreadMachine;
  ~WindowTwin() override { end(); }
  /// Before start: no step is waited for.
  void leave_all_steps() { life_.leave_ns = 1; }
  /// Before start: called by the leader whenever it launches a step.
  std::function<void(uint64_t step)> at_fire;

 protected:
  void run_gpu(bool overlapped) override {
    TwinGraphs graphs(step_, 1);
    graphs.at_fire = at_fire;
    do {
      run_team(kMembers, &control_.crash, [&](TeamBoard& board, ThreadCrew& crew) {
        Residence<ThreadCrew> here(life_, own(), own_size(), board, crew);
        if (overlapped) {
          lead_window<true>(here, board, crew, graphs);
        } else {
          lead_window<false>(here, board, crew, graphs);
        }
      });
    } while (graphs.end_execution());
    broken_ = graphs.broken();
  }
};

/// Way (b): WHILE and SWITCH, as the host would read them.
class LoopTwin : public ThreadMachine {
 public:
  using ThreadMachine::ThreadMachine;
  ~LoopTwin() override { end(); }

 protected:
  struct Conditions {
    uint32_t size;
    uint32_t again = 1;
    uint32_t body = 0;
    void run(uint32_t graph) {
      again = 1;
      body = graph;
    }
    void stop() {
      again = 0;
      body = size;
    }
  };
  void run_gpu(bool) override {
    Conditions conditions{static_cast<uint32_t>(grid_.shapes().size())};
    while (conditions.again != 0) {
      run_team(kMembers, &control_.crash, [&](TeamBoard& board, ThreadCrew& crew) {
        Residence<ThreadCrew> here(life_, own(), own_size(), board, crew);
        lead_round(here, board, crew, conditions);
      });
      if (conditions.body < conditions.size) run_body(conditions.body);
    }
  }
  void run_body(uint32_t body) {
    const StepBatch& b = life_.state->mail->batch;
    if (!serves(grid_.shapes()[body], b)) broken_ = "a graph is too small";
    try {
      step_.run();
    } catch (const std::exception& e) {
      broken_ = e.what();
    }
  }
};

/// Way (c): the tick on one thread, its steps on another, over a copy of the tables that only the
/// uploads change.
class HostTwin : public ThreadMachine {
 public:
  HostTwin(const DeviceShape& shape, const Limits& limits, const RingView& ring)
      : ThreadMachine(shape, limits, ring),
        copy_memory_(copy_bytes(limits)),
        copy_(hand_out(limits, copy_memory_.get())),
        writer_(limits, copy_),
        upload_(writer_.max_words()) {}
  ~HostTwin() override { end(); }

 protected:
  void run_gpu(bool overlapped) override {
    Link link{*this};
    HostStep<Link> step(*life_.state, life_.shapes, writer_, upload_.data(), link);
    live_on_host(life_, overlapped, step);
  }

 private:
  struct Link {
    HostTwin& twin;
    std::thread running = {};
    void start(uint32_t graph, size_t words) {
      const std::vector<uint32_t>& all = twin.upload_;
      running = std::thread([this, graph, sent = std::vector(all.begin(), all.begin() + words)] {
        twin.run_step(graph, sent);
      });
    }
    void wait() { running.join(); }
  };

  static size_t copy_bytes_of(const Limits& limits) {
    Layout measure(nullptr);
    lay_out(limits, measure);
    return measure.bytes();
  }
  static AlignedBytes copy_bytes(const Limits& limits) {
    return aligned_bytes(copy_bytes_of(limits));
  }
  static TableCopy hand_out(const Limits& limits, void* memory) {
    Layout at(memory);
    return lay_out(limits, at);
  }
  void run_step(uint32_t graph, const std::vector<uint32_t>& upload) {
    auto* words = reinterpret_cast<uint32_t*>(copy_.batch);
    for (uint32_t p = 0; p < upload[0]; ++p)
      for (uint32_t lane = 0; lane < 4; ++lane) apply_patch(upload.data(), words, p, lane, 4);
    if (!serves(grid_.shapes()[graph], *copy_.batch)) broken_ = "a graph is too small";
    const Scheduler& s = life_.state->scheduler;
    NullStep null{copy_.seats(s.limits, s.seats.vocab), s.launch.outputs, s.limits.vocab_size};
    try {
      check_counts(*copy_.batch, null.tables);
    } catch (const std::exception& e) {
      broken_ = e.what();
    }
    null.launch(*copy_.batch);
  }

  AlignedBytes copy_memory_;
  TableCopy copy_;
  PatchWriter writer_;
  std::vector<uint32_t> upload_;
};

/// A ring and a machine that serves it.
template <class Twin>
struct TwinRig {
  TestRing ring;
  Twin machine;
  TwinRig(const DeviceShape& device, const RingShape& shape)
      : ring(shape), machine(device, limits_of(device, shape), ring.view) {}
};
struct WindowRig : TwinRig<WindowTwin> {
  static constexpr const char* kName = "threads, device-launched graphs";
  using TwinRig::TwinRig;
};
/// Each step is left alone.
struct LeavingRig : TwinRig<WindowTwin> {
  static constexpr const char* kName = "threads, device-launched graphs left alone";
  LeavingRig(const DeviceShape& device, const RingShape& shape) : TwinRig(device, shape) {
    machine.leave_all_steps();
  }
};
struct LoopRig : TwinRig<LoopTwin> {
  static constexpr const char* kName = "threads, WHILE and SWITCH";
  using TwinRig::TwinRig;
};
struct HostRig : TwinRig<HostTwin> {
  static constexpr const char* kName = "threads, scheduler on the host";
  using TwinRig::TwinRig;
};

}  // namespace saccade::test
