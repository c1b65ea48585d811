// Launching steps from the device, way (a): each step is a device graph that the scheduler's kernel
// launches with fire-and-forget while it keeps running.
//
// CUDA's rules (Programming Guide 4.2.6), and how they are kept:
//   - A graph may have 120 fire-and-forget graphs in total during one execution; the count restarts
//     with each launch of the parent. So the scheduler fires at most kWindow of them, then
//     launches its own graph as a tail launch and returns. All state is in LifeState; the next
//     execution resumes between two steps.
//   - A tail launch runs when the graph and all its children are complete, and only one launch of
//     itself may be pending. The scheduler makes one, as its last act.
//   - A device graph that is still running may not be launched again (cudaErrorInvalidValue). A
//     step's last kernel tells the scheduler before its graph counts as complete, so each shape is
//     instantiated twice and steps alternate. If a graph is refused as busy all the same, the
//     scheduler relaunches itself early: the tail launch waits for every child.
//   - While the scheduler's kernel waits, its block holds a multiprocessor that step kernels cannot
//     use: of 132, 0.76 % of a step. A step that is expected to last life.leave_ns is left alone
//     instead: the scheduler puts itself at the tail and returns, and takes the results when it
//     starts again, after all of the step.
//   - The launch is made by one thread; a launch from the device must come from a kernel of a graph
//     that was itself instantiated for device launch if it is to launch itself.
//
// Graphs: fire(graph, step) launches a step; relaunch() puts the scheduler's own graph at the tail.
#pragma once
#include "cuda/residence.hpp"

namespace saccade {

inline constexpr uint32_t kFireAndForgetMax = 120;
/// Fires per execution; one less than allowed, so that no reading of the rule is at its edge.
inline constexpr uint32_t kWindow = kFireAndForgetMax - 1;
/// Executables per shape.
inline constexpr uint32_t kInstances = 2;

struct Fired {
  enum Outcome : uint32_t { kLaunched = 0, kBusy = 1, kFailed = 2 } outcome;
  uint32_t error;  // of the CUDA runtime, when failed
};

/// Waits for the results of the running step, reading the ring meanwhile. False: they did not come
/// within the budget.
template <class Env, class Crew>
SAC_HD bool await_step(const Life& life, Env& env, Crew& crew) {
  Scheduler& s = life.state->scheduler;
  const uint64_t step = s.launch.batch.step;
  const uint64_t begin_ns = monotonic_ns();
  while (!crew.failed()) {
    const uint64_t now_ns = monotonic_ns();
    if (Env::kOverlap && now_ns - s.inbox.ahead.at_ns >= kReadIntervalNs) read_beside_step(s, env);
    // SYNC: acquire, with the release of signal_step: the step's results are visible.
    const uint64_t done = load_acquire(&life.state->mail->line.done);
    if (done == step) return true;
    if (now_ns - begin_ns <= budget_ns(WaitSite::kStepDone)) continue;
    crew.report(WaitSite::kStepDone, crew.rank(), step, done, now_ns - begin_ns);
  }
  return false;
}

/// Whether the launched step is long enough to be worth leaving and coming back.
SAC_HD inline bool leaves_step(const Life& life) {
  return life.leave_ns != 0 && life.state->scheduler.course.mean_step_ns >= life.leave_ns;
}

/// Launches steps until the window is used up or a step is left alone (true: the scheduler must be
/// launched again), or the life is over (false).
template <class Env, class Crew, class Graphs>
SAC_HD_INLINE bool fire_steps(const Life& life, Env& env, Crew& crew, Graphs& graphs) {
  LifeState& st = *life.state;
  if (st.resume == Resume::kResults && !take_ended_step(life, env, crew)) return false;
  for (uint32_t fires = 0; !crew.failed(); ++fires) {
    if (st.resume == Resume::kTick && !find_batch(life, env, crew)) return false;
    if (fires == kWindow) return true;
    const uint64_t step = st.scheduler.launch.batch.step;
    begin_step(life, env);
    const Fired fired = graphs.fire(graph_of(life), step);
    if (fired.outcome == Fired::kLaunched) {
      if (leaves_step(life)) return true;
      if (await_step(life, env, crew)) finish_step(life, env);
      continue;
    }
    st.resume = Resume::kLaunch;
    if (fired.outcome == Fired::kBusy && fires != 0) return true;
    const bool busy = fired.outcome == Fired::kBusy;
    crew.report(busy ? WaitSite::kGraphIdle : WaitSite::kGraphLaunch, crew.rank(), step,
                fired.error, 0);
  }
  return false;
}

/// The leader's part of one execution of the scheduler's graph.
template <bool kOverlapped, class Crew, class Graphs>
SAC_HD_INLINE void lead_window(Residence<Crew>& here, TeamBoard& board, Crew& crew,
                               Graphs& graphs) {
  const Life& life = here.life();
  LifeState& st = *life.state;
  TeamEnv<kOverlapped, Crew> env{life, board, crew};
  if (st.resume == Resume::kBirth) begin_life(life);
  const bool again = fire_steps(life, env, crew, graphs);
  if (again) ++st.relaunches;
  here.check_in();
  dismiss(board, crew);
  if (again && !crew.failed()) {
    const uint32_t error = graphs.relaunch();
    if (error == 0) return;
    crew.report(WaitSite::kRelaunch, crew.rank(), st.relaunches, error, 0);
  }
  end_life(life);
}

}  // namespace saccade
