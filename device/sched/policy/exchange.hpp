// The exchange that wf, sf and lvf share: by rank, requests off the device claim free blocks and,
// within the transfer budget, blocks of running requests, which leave by rank as well.
#pragma once
#include "sched/policy/pick.hpp"

namespace saccade {

/// Which entrants may claim blocks of running requests.
enum class Claim : uint32_t { kNobody, kFirstTokens, kEverybody };

/// Whether entrants pass one that finds no room, or wait behind it.
enum class Line : uint32_t { kPass, kHold };

/// All requests off the device fit at once: only the order is left to decide.
SAC_HD inline bool everything_fits(const PolicyInput& in) {
  const uint64_t spare = spare_blocks(in);
  uint64_t needed = 0;
  for (uint32_t i = 0; i < in.num_candidates && needed <= spare; ++i)
    if (!is_running(in.candidates[i])) needed += in.candidates[i].blocks;
  return needed <= spare;
}

/// Above every lag: a request that waited longer than settings.max_wait_ns goes first and holds the
/// line.
inline constexpr int64_t kOverdueKey = int64_t{1} << 62;

SAC_HD inline bool is_overdue(const PolicyInput& in, const Candidate& c) {
  return waited_ns(in, c) > in.settings.max_wait_ns;
}
SAC_HD inline int64_t overdue_key(const PolicyInput& in, const Candidate& c) {
  return kOverdueKey + static_cast<int64_t>(waited_ns(in, c));
}
/// Running: the longer on the device, the lower in rank.
SAC_HD inline int64_t ran_key(const PolicyInput& in, const Candidate& c) {
  return -static_cast<int64_t>(since(in.now_ns, c.entered_ns));
}

/// Takes entrants by rank while seats last and their blocks fit the budget. Returns the blocks that
/// they claim.
SAC_HD inline uint64_t take_entrants(const PolicyInput& in, PolicyOutput& out, const Sides& sides,
                                     Claim claim, Line line) {
  Ranking entrants = rank_entrants(in, out, sides);
  const uint64_t spare = spare_blocks(in);
  const uint64_t most = spare + (claim == Claim::kNobody ? 0 : in.settings.b_xfer_blocks);
  uint64_t taken = 0;
  FreeSeats seats = in.seats;
  const auto has_seat = [&](const Candidate& c) { return has_seat_for(seats, c); };
  const auto fits = [&](const Candidate& c) {
    const bool claims =
        claim == Claim::kEverybody || (claim == Claim::kFirstTokens && waits_for_first_token(c));
    return has_seat(c) && taken + c.blocks <= (claims ? most : spare);
  };
  const auto holds_line = [&](uint32_t index) {
    return has_seat(in.candidates[index]) &&
           (line == Line::kHold || out.keys[index] >= kOverdueKey);
  };
  Patience patience;
  // Every request needs at least one block: when none is left, no later one can fit.
  for (uint32_t i = 0; i < entrants.size() && taken < most; ++i) {
    const uint32_t index = entrants.at(i);
    const Candidate& c = in.candidates[index];
    if (fits(c)) {
      taken += c.blocks;
      if (c.state == CandidateState::kWaiting) seats.take(c.tenant);
      out.bring_in[out.num_bring_in++] = index;
    } else if (holds_line(index)) {
      break;
    } else if (patience.ends()) {
      // What does not fit now will not fit later.
      entrants.thin(
          [&](uint32_t other) { return fits(in.candidates[other]) || holds_line(other); });
    }
  }
  return taken;
}

/// Lists victims in out.preempt, lowest in rank first, until `missing` blocks are covered. A
/// request whose unsent KV does not fit in host memory stays: the KV would be lost. Returns the
/// blocks freed.
SAC_HD inline uint64_t take_victims(const PolicyInput& in, PolicyOutput& out, const Sides& sides,
                                    uint64_t missing) {
  Ranking leavers = rank_leavers(in, out, sides);
  uint64_t host_room = in.free_host_blocks, freed = 0;
  for (uint32_t i = 0; i < leavers.size() && freed < missing; ++i) {
    const uint32_t index = leavers.at(i);
    const Candidate& c = in.candidates[index];
    if (c.blocks_to_send > host_room) continue;
    host_room -= c.blocks_to_send;
    freed += c.blocks;
    out.preempt[out.num_preempt++] = index;
  }
  return freed;
}

/// Makes the two lists match: drops from the tail of bring_in what the victims cannot make room
/// for, then from the tail of preempt the victims that the rest does not need.
SAC_HD inline void balance(const PolicyInput& in, PolicyOutput& out, uint64_t wanted,
                           uint64_t freed) {
  const uint64_t spare = spare_blocks(in);
  while (wanted > spare + freed) wanted -= in.candidates[out.bring_in[--out.num_bring_in]].blocks;
  while (out.num_preempt != 0) {
    const uint64_t last = in.candidates[out.preempt[out.num_preempt - 1]].blocks;
    if (wanted > spare + freed - last) break;
    freed -= last;
    --out.num_preempt;
  }
}

/// By rank of `key_of`: entrants come in from the top, running ones leave from the bottom.
template <class Key>
SAC_HD inline void exchange(const PolicyInput& in, PolicyOutput& out, Claim claim, Line line,
                            const Key& key_of) {
  const Sides sides = take_sides(in, out, key_of);
  const uint64_t wanted = take_entrants(in, out, sides, claim, line);
  const uint64_t spare = spare_blocks(in);
  if (wanted <= spare) return;
  balance(in, out, wanted, take_victims(in, out, sides, wanted - spare));
}

}  // namespace saccade
