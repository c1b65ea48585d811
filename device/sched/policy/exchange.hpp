// The exchange that wf, sf and lvf share: by rank, those off the device claim blocks that are free
// and, within the transfer budget, blocks of those on it, who leave by rank as well.
#pragma once
#include "sched/policy/pick.hpp"

namespace saccade {

/// Who may claim blocks of running requests.
enum class Claim : uint32_t { kNobody, kFirstTokens, kEverybody };

/// What an entrant that finds no room means to those behind it.
enum class Line : uint32_t { kPass, kHold };

/// Blocks of everyone who is not on the device fit: nothing to decide but the order.
SAC_HD inline bool everything_fits(const PolicyInput& in) {
  uint64_t needed = 0;
  for (uint32_t i = 0; i < in.num_candidates; ++i)
    if (!is_running(in.candidates[i])) needed += in.candidates[i].blocks;
  return needed <= spare_blocks(in);
}

/// Lies above every lag: who waited longer than settings.max_wait_ns goes first and holds the line.
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

/// May this one be preempted by choice? Not before it has yielded a token (its prompt would wait
/// for nothing), and not before it has run for a while.
SAC_HD inline bool may_leave(const PolicyInput& in, const Candidate& c) {
  return is_running(c) && c.fixed == 0 && c.produced != 0 &&
         since(in.now_ns, c.entered_ns) > in.settings.min_run_ns;
}

/// Takes entrants by rank while their blocks fit the budget. Returns the blocks that they claim.
SAC_HD inline uint64_t take_entrants(const PolicyInput& in, PolicyOutput& out, Claim claim,
                                     Line line) {
  Ranking entrants = rank_entrants(in, out);
  const uint64_t spare = spare_blocks(in);
  const uint64_t most = spare + (claim == Claim::kNobody ? 0 : in.settings.b_xfer_blocks);
  uint64_t taken = 0;
  // Everyone needs a block at least: when none is left, nobody further down can fit.
  for (uint32_t i = 0; i < entrants.size() && taken < most; ++i) {
    const uint32_t index = entrants.at(i);
    const Candidate& c = in.candidates[index];
    const bool claims =
        claim == Claim::kEverybody || (claim == Claim::kFirstTokens && waits_for_first_token(c));
    const uint64_t budget = spare + (claims ? in.settings.b_xfer_blocks : 0);
    if (taken + c.blocks <= budget) {
      taken += c.blocks;
      out.bring_in[out.num_bring_in++] = index;
    } else if (line == Line::kHold || out.keys[index] >= kOverdueKey) {
      break;
    }
  }
  return taken;
}

/// Those who may leave, from the bottom of the rank of out.keys; lies in out.scratch.
SAC_HD inline Ranking rank_leavers(const PolicyInput& in, PolicyOutput& out) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < in.num_candidates; ++i)
    if (may_leave(in, in.candidates[i])) out.scratch[count++] = i;
  return {in, out.keys, out.scratch, count, Ranking::End::kLast};
}

/// Lists in out.preempt, lowest in rank first, who leaves until `missing` blocks are covered. KV
/// that finds no room in host memory would be lost: its owner stays. Returns the blocks that come
/// free.
SAC_HD inline uint64_t take_victims(const PolicyInput& in, PolicyOutput& out, uint64_t missing) {
  Ranking leavers = rank_leavers(in, out);
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

/// Makes the two lists fit each other: from the tail of bring_in goes what the victims cannot make
/// room for, then from the tail of preempt whoever the rest has no need of.
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

/// out.keys: entrants come in from the top of their rank, running ones leave from the bottom.
SAC_HD inline void exchange(const PolicyInput& in, PolicyOutput& out, Claim claim, Line line) {
  const uint64_t wanted = take_entrants(in, out, claim, line);
  const uint64_t spare = spare_blocks(in);
  if (wanted <= spare) return;
  balance(in, out, wanted, take_victims(in, out, wanted - spare));
}

}  // namespace saccade
