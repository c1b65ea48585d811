// The life of a device plane inside a team of threads: join the ring, tick until told to stop,
// leave. The same source is the body of the scheduler's kernels and of their twins made of host
// threads. How a step is launched, and what becomes of the team meanwhile, is in launch/.
//
// Crew, besides what cuda/team.hpp asks for: failed() (a wait of the leader ran out),
// report(site, late, expected, observed, waited_ns) (leaves the crash record), set_tick(tick), and
// nap() (a short pause when there was nothing to do).
#pragma once
#include "cuda/control.hpp"
#include "cuda/launch/shape_grid.hpp"
#include "cuda/launch/step_line.hpp"
#include "cuda/rotation/lanes.hpp"
#include "cuda/team.hpp"
#include "platform/clock.hpp"
#include "sched/tick.hpp"

namespace saccade {

inline constexpr uint32_t kMaxTickTimes = 1u << 16;
/// Up to this many seats the leader works alone: an order costs two meetings of the team.
inline constexpr uint32_t kAloneUpTo = 2;
/// How often the ring is read while a step runs: 16 KiB of doorbells, 0.8 GB/s of the bus.
inline constexpr uint64_t kReadIntervalNs = 20 * 1000;
/// Greatest age at which a tick takes such a reading: an interval, and the time of a reading.
inline constexpr uint64_t kReadAheadNs = 30 * 1000;

/// What a tick that ran a step took, nanoseconds by the clock of the thread that ran it.
struct StepTimes {
  uint32_t gap_ns;      // from the results of the step before to this one's launch
  uint32_t publish_ns;  // from this step's results to when all of them are published
  uint32_t tick_ns;     // the whole tick
};

/// Where a tick is when the code that runs it ends and starts again.
enum class Resume : uint32_t {
  kBirth = 0,    // nothing has happened yet
  kTick = 1,     // between two ticks
  kLaunch = 2,   // a batch waits for its launch
  kResults = 3,  // a step was launched; its results must be taken
};

/// What the scheduler and the kernels of steps tell each other; in device memory.
struct StepMail {
  StepLine line;                 // writer: the last kernel of a step
  StepBatch batch;               // writer: the leader, before it launches
  uint32_t eos_ids[kMaxEosIds];  // writer: host, before the life
};

/// The state that only the leader writes; read by the host before and after a life. It outlives
/// each run of the code that works on it.
struct LifeState {
  Scheduler scheduler;
  StepMail* mail;
  StepSeq* step_seqs;  // [num_seats]: of mail->batch
  Resume resume;
  uint32_t num_times;
  StepTimes* times;  // [kMaxTickTimes]: the first ones suffice
  uint64_t tick_began_ns;
  uint64_t beats;
  uint64_t permit;      // as last read; permits only grow
  uint64_t relaunches;  // of the scheduler's own graph
};

/// What a life is given. Copied to the device as it is.
struct Life {
  LifeState* state;
  RingView ring;
  Control* control;
  ShapeTable shapes;
  RotationEngine rotation;
  uint64_t leave_ns;  // way (a): steps expected to last this long are left alone; 0 = none is
  uint32_t eos_ids[kMaxEosIds];
};

/// Hands out the state and every array it points to; call with a measuring Layout first. Limits
/// must be set in `image`, whose copy must then be put where the first span is.
inline LifeState* lay_out(LifeState& image, Layout& at) {
  auto* state = at.take<LifeState>(1);
  lay_out(image.scheduler, at);
  image.times = at.take<StepTimes>(kMaxTickTimes);
  image.mail = at.take<StepMail>(1);
  image.step_seqs = at.take<StepSeq>(image.scheduler.limits.num_seats);
  return state;
}

/// What steps read of a state that is laid out: the same for life, and known before it.
inline SeatTables tables_of(const LifeState& image) {
  const Limits& l = image.scheduler.limits;
  const Seats& seats = image.scheduler.seats;
  return {l.num_seats,
          l.max_model_len,
          l.max_blocks_per_seq(),
          l.num_eos_ids,
          seats.params,
          seats.history,
          image.scheduler.kv.block_tables,
          seats.logit_bias,
          seats.stop_ids,
          image.mail->eos_ids,
          {l.grammar_words, seats.automata, seats.places, seats.vocab}};
}

/// The environment of a tick that runs in a team. Readers poll the ring, so there is nothing to
/// notify.
template <bool kOverlapped, class Crew>
struct TeamEnv {
  static constexpr bool kOverlap = kOverlapped;
  static constexpr bool kSteady = true;
  static constexpr bool kHostActs = false;  // the tick runs where the steps do
  const Life& life;
  TeamBoard& board;
  Crew& crew;

  SAC_HD uint64_t now_ns() const { return monotonic_ns(); }
  SAC_HD void notify_publish() const {}
  SAC_HD void notify_fetch(const FetchView&) const {}
  SAC_HD bool takes(const ReadAhead& ahead) const {
    return ahead.at_ns != 0 && now_ns() - ahead.at_ns < kReadAheadNs;
  }
  /// Reads the host's permit as well.
  SAC_HD uint32_t read_peers(const PeerReading& reading, uint32_t* changed) const {
    board.word_at = &life.control->host.permit;
    board.word = life.state->permit;
    const uint32_t found = read_peers_by_team(board, crew, reading, changed);
    if (!crew.failed()) life.state->permit = board.word;
    return found;
  }
  SAC_HD void fetch(Fetch* fetches, uint32_t count) const {
    fetch_by_team(board, crew, fetches, count);
  }
  SAC_HD bool is_grammar(const uint32_t* words, uint32_t count) const {
    return check_grammar_by_team(board, crew, words, count);
  }
  SAC_HD void each_seat(Scheduler& s, SeatVerb verb, uint32_t count) const {
    if (count <= kAloneUpTo) return each_seat_alone(s, verb, count);
    each_seat_by_team(board, crew, s, verb, count);
  }
};

/// True: one more tick may run. False: told to stop, or the host did not answer within the budget.
/// A permit that was read for an earlier tick is as good as a new one: what the host writes to the
/// ring before it grants a tick, it writes before it grants a later one.
template <class Crew>
SAC_HD bool await_permit(const Life& life, Crew& crew) {
  LifeState& st = *life.state;
  Control& control = *life.control;
  const uint64_t ticks_done = st.scheduler.course.tick;
  const uint64_t begin_ns = monotonic_ns();
  for (;;) {
    store_relaxed(&control.life.heartbeat, ++st.beats);
    if (st.permit == kStop) return false;
    if (ticks_done < st.permit) return true;
    // SYNC: acquire, with the host's release of its permit: what it wrote to the ring before is
    // seen by this tick.
    st.permit = load_acquire(&control.host.permit);
    st.scheduler.inbox.ahead = ReadAhead{};  // the host may have written to the ring since
    const uint64_t waited_ns = monotonic_ns() - begin_ns;
    if (ticks_done < st.permit || waited_ns <= budget_ns(WaitSite::kTickPermit)) continue;
    crew.report(WaitSite::kTickPermit, crew.rank(), ticks_done + 1, st.permit, waited_ns);
    return false;
  }
}

/// What comes before the first tick.
SAC_HD inline void begin_life(const Life& life) {
  Scheduler& s = life.state->scheduler;
  reset(s, life.eos_ids);
  join_ring(s, life.ring, monotonic_ns());
  go_ready(s);
  life.state->resume = Resume::kTick;
  store_release(&life.control->life.phase, kLifeRuns);
}

/// What comes after the last one.
SAC_HD inline void end_life(const Life& life) {
  life.rotation.stop();
  // SYNC: release, with the host's acquire: the crash record, if there is one, is whole.
  store_release(&life.control->life.phase, kLifeLeft);
}

/// Notes how long after the results before it a step is launched.
SAC_HD inline void note_gap(LifeState& st, uint64_t launch_ns, uint64_t results_ns) {
  if (st.num_times < kMaxTickTimes)
    st.times[st.num_times].gap_ns = static_cast<uint32_t>(launch_ns - results_ns);
}
/// Closes the entry of a tick that ran a step and has published its results.
SAC_HD inline void note_published(LifeState& st) {
  if (st.num_times >= kMaxTickTimes) return;
  const uint64_t now_ns = monotonic_ns();
  StepTimes& t = st.times[st.num_times++];
  t.publish_ns = static_cast<uint32_t>(now_ns - st.scheduler.course.step_done_ns);
  t.tick_ns = static_cast<uint32_t>(now_ns - st.tick_began_ns);
}

SAC_HD inline void report_tick(const Life& life) {
  // SYNC: released by end_tick's fence, with the host's acquire: what the tick wrote to the ring is
  // visible.
  store_relaxed(&life.control->life.ticks_done, life.state->scheduler.course.tick);
}

/// Runs ticks until one has a batch to launch. False: the life is over.
template <class Env, class Crew>
SAC_HD_INLINE bool find_batch(const Life& life, Env& env, Crew& crew) {
  LifeState& st = *life.state;
  RotationEngine rotation = life.rotation;
  while (!crew.failed() && await_permit(life, crew)) {
    crew.set_tick(st.scheduler.course.tick + 1);
    st.tick_began_ns = monotonic_ns();
    if (begin_tick(st.scheduler, rotation, env) != 0) {
      st.resume = Resume::kLaunch;
      return !crew.failed();
    }
    end_tick(st.scheduler, env);
    report_tick(life);
    crew.nap();
  }
  return false;
}

SAC_HD inline uint32_t graph_of(const Life& life) {
  return life.shapes.find(life.state->scheduler.launch.batch);
}

/// Leaves the batch where the step's kernels find it.
template <class Env>
SAC_HD void mail_batch(LifeState& st, Env& env) {
  Scheduler& s = st.scheduler;
  st.mail->batch = s.launch.batch;
  st.mail->batch.seqs = st.step_seqs;
  if (s.launch.batch.num_seqs <= kAloneUpTo) {
    for (uint32_t i = 0; i < s.launch.batch.num_seqs; ++i) st.step_seqs[i] = s.launch.seqs[i];
    return;
  }
  const auto words = static_cast<uint32_t>(s.launch.batch.num_seqs * sizeof(StepSeq) / 4);
  s.inbox.fetches[0] = {reinterpret_cast<uint32_t*>(st.step_seqs),
                        reinterpret_cast<const uint32_t*>(s.launch.seqs), words, 0};
  env.fetch(s.inbox.fetches, 1);
}

/// Call before a batch's launch, once that is certain.
template <class Env>
SAC_HD void begin_step(const Life& life, Env& env) {
  LifeState& st = *life.state;
  mail_batch(st, env);
  const uint64_t results_ns = st.scheduler.course.step_done_ns;
  note_launch(st.scheduler, env);
  note_gap(st, st.scheduler.course.launch_ns, results_ns);
  st.resume = Resume::kResults;
}

/// Takes the completed results, and ends the tick.
template <class Env>
SAC_HD void finish_step(const Life& life, Env& env) {
  LifeState& st = *life.state;
  take_results(st.scheduler, load_relaxed(&st.mail->line.done_ns), env);
  end_tick(st.scheduler, env);
  note_published(st);
  st.resume = Resume::kTick;
  report_tick(life);
}

/// Takes the results of a step that has certainly ended, since this code runs after it. False: a
/// step other than the launched one has reported.
template <class Env, class Crew>
SAC_HD bool take_ended_step(const Life& life, Env& env, Crew& crew) {
  const uint64_t step = life.state->scheduler.launch.batch.step;
  // SYNC: acquire, with the release of signal_step: the step's results are visible.
  const uint64_t done = load_acquire(&life.state->mail->line.done);
  if (done == step) {
    finish_step(life, env);
    return true;
  }
  crew.report(WaitSite::kStepDone, crew.rank(), step, done, 0);
  return false;
}

/// Begins a life, and its copies where there are any. From the first start on, kernels spin:
/// nothing may be loaded, allocated or freed on the GPU until they have ended.
template <class Way, class Copying>
void start_life(Way& way, Copying* copying, const Life& life, bool overlapped) {
  way.load(life, overlapped);
  if (copying != nullptr) copying->start();
  way.start();
}

}  // namespace saccade
