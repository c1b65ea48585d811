// Launching steps from the device, way (b): one graph, launched once by the host:
//
//   WHILE (run) { scheduler kernel -> SWITCH (shape) { step of shape 0 | step of shape 1 | ... } }
//
// The scheduler's kernel takes the results of the step before it, ticks until there is a batch, and
// sets the two conditions; the graph's edges give the order, so nothing is polled between a step
// and its results, no processor is held while a step runs, and no launch is ever counted. Nothing
// runs during a step: the tick is the serial one.
//
// CUDA's rules (Programming Guide 4.2.4), and how they are kept:
//   - A conditional body may hold kernels, copies, memsets, child graphs and conditionals, and no
//     kernel in it may launch from the device: this way and way (a) exclude each other, and share
//     only the kernels of the step.
//   - A handle's value is set by cudaGraphSetConditional upstream of its node, or for WHILE inside
//     its body. Its value before that is not relied upon: both are set in every round.
//   - A SWITCH whose value is its size or more runs no body: how a round without a step ends.
//   - A graph with conditionals has one executable at a time: shapes are not instantiated twice.
//
// Conditions: run(graph) (one more round, with this step), stop() (none).
#pragma once
#include "cuda/residence.hpp"

namespace saccade {

/// The leader's part of one round.
template <class Crew, class Conditions>
SAC_HD_INLINE void lead_round(Residence<Crew>& here, TeamBoard& board, Crew& crew,
                              Conditions& conditions) {
  const Life& life = here.life();
  LifeState& st = *life.state;
  TeamEnv<false, Crew> env{life, board, crew};
  if (st.resume == Resume::kBirth) begin_life(life);
  crew.set_tick(st.scheduler.course.tick);
  if (st.resume == Resume::kResults) take_ended_step(life, env, crew);
  const bool again = !crew.failed() && find_batch(life, env, crew);
  if (again) begin_step(life, env);
  here.check_in();
  dismiss(board, crew);
  if (again && !crew.failed()) {
    conditions.run(graph_of(life));
    return;
  }
  conditions.stop();
  end_life(life);
}

}  // namespace saccade
