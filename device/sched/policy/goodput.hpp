// goodput: as many requests as possible meet both of their targets. Each request has a next
// deadline: for its first token, arrival + TTFT target; then for token n + 1, first token + n times
// its TBT target (TBT targets are means, so a fast start is time in hand). Slack is the time left
// until the deadline.
//
//   1. Requests that can still make it come in by class, then by slack; a larger prompt counts as a
//      later deadline, since under overload some will be late, and more small ones fit.
//   2. Requests that cannot (late ones) come in behind them by age, into what room is left; but one
//      in settings.late_share blocks that come in is theirs, so that each gets its turn.
//   3. No new request comes in while steps are, or were, so long that running requests would miss
//      their TBT, while the device is promised to as many as can share it, or while the prompts on
//      it fill the next step: waiting requests can still be reordered, running ones cannot.
//   4. Rotation: an entrant whose slack runs out takes blocks of requests with far more slack; they
//      return when theirs runs out. Where requests need every step, (3) leaves nothing to rotate.
//
// docs/policies.md has the reasons, the bound for late requests, and where this loses.
#pragma once
#include "sched/policy/exchange.hpp"
#include "sched/policy/fcfs.hpp"

namespace saccade {

/// Shares of the TBT target that a step may take: for a request that runs in every step, and for
/// one that shares the device by rotation, counted as if it ran in each step.
inline constexpr double kStepShare = 0.95;
inline constexpr double kRotationShare = 0.75;
/// This share of the device may be promised however long steps are; the rest is room to grow.
inline constexpr double kAlwaysPromised = 0.95;
/// A TBT target below this many times the shortest step cannot be met by letting fewer in.
inline constexpr double kReachable = 2.0;
/// Steps are as short as they can be while at most one in this many blocks is held.
inline constexpr uint64_t kLittle = 8;
/// Each block of a prompt moves its deadline by 1 / kSizeParts of its TTFT target.
inline constexpr double kSizeParts = 100;
/// An entrant claims blocks of others when it has less slack than this.
inline constexpr int64_t kUrgentNs = 500'000'000;
/// The others must have this much more slack: a rotation costs two transfers.
inline constexpr int64_t kClaimNs = 1'000'000'000;
/// For growth alone, this much slack is enough.
inline constexpr int64_t kGrowthSlackNs = 200'000'000;
/// A request this far behind its TBT target counts as late.
inline constexpr int64_t kGiveUpNs = 1'000'000'000;

inline constexpr int64_t kMostSlackNs = int64_t{1} << 52;  // 52 days
inline constexpr int32_t kMostClass = 100;
inline constexpr int64_t kLateKey = -(int64_t{1} << 61);  // below every class

/// Time until the request's next deadline, ns; negative: missed. In doubles: a target of a day
/// times many tokens overflows 64 bits.
SAC_HD inline int64_t slack_ns(const PolicyInput& in, const Candidate& c) {
  double slack = 0;
  if (waits_for_first_token(c)) {
    const uint32_t prompt_steps =
        ceil_div(max_u32(c.prompt_tokens_left, 1), max_u32(in.step_rows, 1));
    // On its path: the step in flight, and the steps that compute its prompt.
    slack = static_cast<double>(c.slo_ttft_ns) -
            static_cast<double>(since(in.now_ns, c.arrival_ns)) -
            static_cast<double>(in.step_ns) * (1.0 + prompt_steps);
  } else {
    slack = static_cast<double>(c.slo_tbt_ns) * c.produced -
            static_cast<double>(since(in.now_ns, c.first_token_ns));
  }
  constexpr double kMost = static_cast<double>(kMostSlackNs);
  return static_cast<int64_t>(slack < -kMost ? -kMost : slack > kMost ? kMost : slack);
}

SAC_HD inline bool is_late(const Candidate& c, int64_t slack) {
  return slack < (waits_for_first_token(c) ? 0 : -kGiveUpNs);
}

SAC_HD inline int64_t class_key(const Candidate& c) {
  const int32_t p = c.priority;
  return -(int64_t{1} << 53) * (p < -kMostClass ? -kMostClass : p > kMostClass ? kMostClass : p);
}

/// Entrants: larger comes in sooner. Running: larger leaves later.
SAC_HD inline int64_t goodput_key(const PolicyInput& in, const Candidate& c) {
  const int64_t slack = slack_ns(in, c);
  if (is_running(c)) return -slack;
  if (is_late(c, slack)) return kLateKey - static_cast<int64_t>(c.order);
  if (!waits_for_first_token(c)) return class_key(c) - slack;
  const double size = static_cast<double>(c.slo_ttft_ns) / kSizeParts * c.blocks;
  constexpr double kMost = static_cast<double>(kMostSlackNs / 2);
  return class_key(c) - slack - static_cast<int64_t>(size < kMost ? size : kMost);
}

/// Its mean time between tokens exceeds the share of its target that steps may take, and it can
/// still be helped.
SAC_HD inline bool lags(const PolicyInput& in, const Candidate& c) {
  if (waits_for_first_token(c)) return false;
  const double took = static_cast<double>(since(in.now_ns, c.first_token_ns));
  const double allowed = static_cast<double>(c.slo_tbt_ns) * c.produced;
  return took > kStepShare * allowed && took < allowed + static_cast<double>(kGiveUpNs);
}

/// What the device has promised, and what that allows; gathered in one pass.
struct DeviceLoad {
  uint64_t total = 0;    // blocks of the device
  uint64_t started = 0;  // blocks of all requests that are on it or were
  double demand = 0;     // the same, weighted by the share of steps that each TBT target needs
  uint64_t reached = 0;  // blocks of requests whose TBT target can be met
  uint64_t missed = 0;   // of these, blocks of requests whose TBT target current steps would miss,
                         // or whose tokens have come too slowly so far
  uint32_t waiting = 0;  // requests without a seat
  uint64_t waiting_rows = 0;  // rows of the next step that they would take
  uint64_t rows = 0;          // rows of it that running requests would take

  /// Counts a request in its current state.
  SAC_HD void see(const PolicyInput& in, const Candidate& c, uint64_t least_step_ns) {
    if (is_running(c)) {
      total += c.blocks;
      rows += c.rows;
    }
    if (c.state == CandidateState::kWaiting) {
      ++waiting;
      waiting_rows += c.rows;
    } else {
      add(in, c, least_step_ns);
    }
  }
  /// Counts a request that has begun.
  SAC_HD void add(const PolicyInput& in, const Candidate& c, uint64_t least_step_ns) {
    const double target = static_cast<double>(c.slo_tbt_ns);
    const double step = static_cast<double>(in.step_ns);
    started += c.blocks;
    demand += c.blocks * step / target;
    if (target < kReachable * static_cast<double>(least_step_ns)) return;
    reached += c.blocks;
    if (step > kStepShare * target || lags(in, c)) missed += c.blocks;
  }
  /// Counts a new request that comes in.
  SAC_HD void let_in(const PolicyInput& in, const Candidate& c, uint64_t least_step_ns) {
    add(in, c, least_step_ns);
    rows += c.rows;
  }
  /// All waiting requests come onto the device, and into the next step.
  SAC_HD bool takes_all(const PolicyInput& in) const {
    return waiting <= in.seats.free && rows + waiting_rows <= in.step_rows && !steps_too_long();
  }
  /// Steps are too long for most of the requests that could meet their targets.
  SAC_HD bool steps_too_long() const { return missed * 2 > reached; }
  SAC_HD bool has_room_for(const Candidate& c, uint64_t step_ns) const {
    const double all = static_cast<double>(total);
    const double needs = static_cast<double>(step_ns) / static_cast<double>(c.slo_tbt_ns);
    return started == 0 || static_cast<double>(started + c.blocks) <= kAlwaysPromised * all ||
           demand + c.blocks * needs <= kRotationShare * all;
  }
};

/// It came in since the last tick, for the first time.
SAC_HD inline bool is_fresh(const Candidate& c, uint64_t last_tick_ns) {
  return is_running(c) && c.entered_ns >= last_tick_ns &&
         (waits_for_first_token(c) || c.first_token_ns > c.entered_ns);
}

/// Tracks the shortest step, and forgets it over some hundred ticks with little on the device.
/// Longer steps under load do not count: letting fewer requests in would shorten them.
SAC_HD inline void note_step(const PolicyInput& in, uint64_t held, PolicyState& state) {
  if (in.step_ns == 0) return;
  if (state.least_step_ns == 0 || in.step_ns < state.least_step_ns) {
    state.least_step_ns = in.step_ns;
  } else if (held * kLittle <= in.free_blocks + held) {
    state.least_step_ns += (in.step_ns - state.least_step_ns) >> 8;
  }
}

/// Updates the late requests' credit and turn from what came in since the last tick, and the
/// shortest step.
SAC_HD inline void follow(const PolicyInput& in, PolicyState& state) {
  bool still_waits = false, has_seat = true;
  uint64_t held = 0;
  for (uint32_t i = 0; i < in.num_candidates; ++i) {
    const Candidate& c = in.candidates[i];
    if (is_running(c)) held += c.blocks;
    if (is_fresh(c, state.last_tick_ns)) state.late_credit += c.blocks;
    if (c.order + 1 != state.late_turn) continue;
    still_waits |= !is_running(c);
    has_seat = has_seat_for(in.seats, c);
  }
  note_step(in, held, state);
  if (state.late_turn != 0 && !still_waits) state.late_turn = state.late_credit = 0;
  if (!has_seat) state.late_turn = 0;  // another may have it
  state.last_tick_ns = in.now_ns;
}

/// A tick without a decision: no entrants, no fresh request, no late turn. `held`: blocks of all
/// running requests.
SAC_HD inline void pass_goodput(const PolicyInput& in, uint64_t held, PolicyState& state) {
  note_step(in, held, state);
  state.last_tick_ns = in.now_ns;
}

/// Gives the oldest late request that there is a seat for its turn, if enough has come in since the
/// last turn. The request whose turn it is goes before all others.
SAC_HD inline void grant_turn(const PolicyInput& in, PolicyState& state, PolicyOutput& out,
                              const Sides& sides) {
  uint32_t oldest = in.num_candidates;  // none
  for (uint32_t i = 0; i < sides.num_entrants; ++i) {
    const uint32_t index = out.bring_in[i];
    const uint64_t order = in.candidates[index].order;
    const bool has_turn = order + 1 == state.late_turn;
    const bool may_have_it = state.late_turn == 0 && out.keys[index] <= kLateKey &&
                             has_seat_for(in.seats, in.candidates[index]);
    if (!has_turn && !may_have_it) continue;
    if (oldest == in.num_candidates || order < in.candidates[oldest].order) oldest = index;
  }
  if (oldest == in.num_candidates) return;
  const Candidate& c = in.candidates[oldest];
  if (state.late_turn == 0 && state.late_credit < uint64_t{in.settings.late_share} * c.blocks)
    return;
  state.late_turn = c.order + 1;
  out.keys[oldest] = kOverdueKey;
}

/// Blocks that are free, or come free by preempting the requests with the most slack.
struct Room {
  int64_t blocks;     // now; negative: running requests lack this many to grow
  uint64_t host;      // free host blocks
  uint64_t given;     // blocks taken from running requests
  uint32_t num_seen;  // leavers looked at, most slack first

  /// Preempts requests, most slack first, until `needed` blocks are there, but none with less slack
  /// than `least_slack`.
  SAC_HD bool make(const PolicyInput& in, Ranking& leavers, PolicyOutput& out, int64_t needed,
                   int64_t least_slack) {
    while (blocks < needed && num_seen < leavers.size() && given < in.settings.b_xfer_blocks) {
      const uint32_t index = leavers.at(num_seen);
      const Candidate& c = in.candidates[index];
      if (-out.keys[index] < least_slack) break;
      ++num_seen;
      if (c.blocks_to_send > host) continue;
      host -= c.blocks_to_send;
      blocks += c.blocks;
      given += c.blocks;
      out.preempt[out.num_preempt++] = index;
    }
    return blocks >= needed;
  }
  /// The same, or nothing.
  SAC_HD bool make_all(const PolicyInput& in, Ranking& leavers, PolicyOutput& out, int64_t needed,
                       int64_t least_slack) {
    const Room before = *this;
    const uint32_t num_preempt = out.num_preempt;
    if (make(in, leavers, out, needed, least_slack)) return true;
    *this = before;
    out.num_preempt = num_preempt;
    return false;
  }
};

/// What the device has promised, and what of that to tenants within their shares: these are held
/// back by no others.
struct DeviceLoads {
  DeviceLoad all;
  DeviceLoad within;

  SAC_HD void see(const PolicyInput& in, const Candidate& c, uint64_t least_step_ns) {
    all.see(in, c, least_step_ns);
    if (!is_over_share(in, c)) within.see(in, c, least_step_ns);
  }
  SAC_HD void let_in(const PolicyInput& in, const Candidate& c, uint64_t least_step_ns) {
    all.let_in(in, c, least_step_ns);
    if (!is_over_share(in, c)) within.let_in(in, c, least_step_ns);
    if (in.tenant_rows != nullptr) in.tenant_rows[c.tenant] += c.rows;
  }
  SAC_HD const DeviceLoad& as_seen_by(const PolicyInput& in, const Candidate& c) const {
    return is_over_share(in, c) ? all : within;
  }
};

/// May this entrant come in if it finds room? Only new requests are held back, and never the one
/// whose turn it is.
SAC_HD inline bool is_welcome(const PolicyInput& in, const PolicyState& state,
                              const DeviceLoads& loads, const Candidate& c) {
  const DeviceLoad& load = loads.as_seen_by(in, c);
  if (c.state != CandidateState::kWaiting || c.order + 1 == state.late_turn) return true;
  // A step divides its rows between tenants: only a tenant's own hold it back.
  const uint64_t rows = in.tenant_rows == nullptr ? load.rows : in.tenant_rows[c.tenant];
  return !load.steps_too_long() && rows < in.step_rows && load.has_room_for(c, in.step_ns);
}

/// Lets entrants in by rank of out.keys, until one finds no room.
SAC_HD inline void let_in(const PolicyInput& in, const PolicyState& state, DeviceLoads& load,
                          PolicyOutput& out, const Sides& sides) {
  Ranking entrants = rank_entrants(in, out, sides);
  Ranking leavers = rank_leavers(in, out, sides);
  Room room = {int64_t{in.free_blocks} - in.growth_blocks, in.free_host_blocks, 0, 0};
  FreeSeats seats = in.seats;
  if (room.blocks < 0) room.make(in, leavers, out, 0, kGrowthSlackNs);
  const auto may_enter = [&](uint32_t index) {
    const Candidate& c = in.candidates[index];
    return has_seat_for(seats, c) && is_welcome(in, state, load, c);
  };
  Patience patience;
  for (uint32_t i = 0; i < entrants.size(); ++i) {
    const uint32_t index = entrants.at(i);
    const Candidate& c = in.candidates[index];
    if (!may_enter(index)) {
      // What is held back now stays held back: each entrant leaves less room and fewer rows for
      // others, and while steps are too long, no new request is let in.
      if (patience.ends()) entrants.thin(may_enter);
      continue;
    }
    const int64_t slack = slack_ns(in, c);
    const bool claims = !is_late(c, slack) && slack < kUrgentNs;
    if (c.blocks > room.blocks &&
        !(claims && room.make_all(in, leavers, out, c.blocks, slack + kClaimNs)))
      return;
    room.blocks -= c.blocks;
    if (c.state == CandidateState::kWaiting) {
      seats.take(c.tenant);
      load.let_in(in, c, state.least_step_ns);
    }
    out.bring_in[out.num_bring_in++] = index;
  }
}

SAC_HD inline void decide_goodput(const PolicyInput& in, PolicyState& state, PolicyOutput& out) {
  follow(in, state);
  DeviceLoads load;
  load.all.total = load.within.total = in.free_blocks;
  const Sides sides = take_sides(in, out, [&](const Candidate& c) {
    load.see(in, c, state.least_step_ns);
    return goodput_key(in, c);
  });
  if (load.all.takes_all(in) && everything_fits(in)) return decide_fcfs(in, out);
  grant_turn(in, state, out, sides);
  let_in(in, state, load, out, sides);
}

}  // namespace saccade
