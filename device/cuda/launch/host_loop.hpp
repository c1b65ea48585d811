// Way (c), the baseline: the tick runs on a host thread, and each step costs a round trip between
// host and device: one copy up, one launch, one wait. The policy, the steps and the copies between
// the tiers are the same as where the scheduler lives on the device.
//
// Link: start(graph, words) (copies this many words of the upload and launches the step after it),
// wait() (returns when its results are in host memory).
#pragma once
#include "cuda/launch/patches.hpp"
#include "cuda/live.hpp"
#include "host/host_env.hpp"

namespace saccade {

template <class Link>
class HostStep {
 public:
  HostStep(LifeState& state, const ShapeTable& shapes, PatchWriter& writer, uint32_t* upload,
           Link& link)
      : state_(state), shapes_(shapes), writer_(writer), upload_(upload), link_(link) {}

  void launch(const StepBatch& batch) {
    link_.start(shapes_.find(batch), writer_.write(state_.scheduler, upload_));
    note_gap(state_, monotonic_ns(), state_.scheduler.course.step_done_ns);
  }
  void wait() { link_.wait(); }
  uint64_t done_ns() const { return 0; }

 private:
  LifeState& state_;
  const ShapeTable& shapes_;
  PatchWriter& writer_;
  uint32_t* upload_;
  Link& link_;
};

/// May one more tick run? Waits until the host has said; the host is this process.
inline bool await_host_permit(Control& control, uint64_t ticks_done) {
  for (;;) {
    // SYNC: acquire, with the release of Machine::permit.
    const uint64_t permit = load_acquire(&control.host.permit);
    if (permit == kStop) return false;
    if (ticks_done < permit) return true;
    std::this_thread::yield();
  }
}

template <bool kOverlapped, class Step>
void tick_on_host(const Life& life, Step& step) {
  LifeState& st = *life.state;
  Scheduler& s = st.scheduler;
  HostEnv<kOverlapped> env{life.ring};
  RotationEngine rotation = life.rotation;
  while (await_host_permit(*life.control, s.course.tick)) {
    store_relaxed(&life.control->life.heartbeat, ++st.beats);
    st.tick_began_ns = monotonic_ns();
    const uint32_t num_seqs = tick(s, step, rotation, env);
    if (num_seqs != 0) note_published(st);
    report_tick(life);
    const bool freely = load_relaxed(&life.control->host.permit) == kRunFreely;
    if (num_seqs == 0 && freely && !s.has_finished()) IdleWait::wait(s);
  }
}

/// The whole life, on the calling thread.
template <class Step>
void live_on_host(const Life& life, bool overlapped, Step& step) {
  begin_life(life);
  if (overlapped) {
    tick_on_host<true>(life, step);
  } else {
    tick_on_host<false>(life, step);
  }
  end_life(life);
}

}  // namespace saccade
