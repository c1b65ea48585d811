// The scan of all doorbells by a team: a leader, which runs the tick, and members that wait for its
// orders. The tick stays one logical thread: members touch nothing but the board, and only between
// two meetings.
//
//   leader:  writes the order   meet            meet   gathers the masks in slot order
//   member:                     meet   looks    meet
//
// Crew: rank() (0 .. size() - 1 of a member), size() (members, without the leader, at most
// kMaxTeam), meet(site) (returns when the leader and all members have come, false when the budget
// of the site ran out), look(doorbells, seen) and mask(look) (one granule; reading apart from
// deciding, so that many reads are on their way at once), is_scribe() (true for the one thread of a
// member that writes). A member is a warp on a GPU and a thread on a host.
#pragma once
#include "platform/atomics.hpp"
#include "platform/bits.hpp"
#include "platform/wait_site.hpp"

namespace saccade {

inline constexpr uint32_t kMaxTeam = 16;
inline constexpr uint32_t kMaxGranules = SAC_MAX_SLOTS / SAC_SLOT_GRANULE;
/// Granules whose doorbells a member reads before it looks at the first: with 7 members, one round
/// trip to the memory of the ring for 4096 slots.
inline constexpr uint32_t kLooks = 19;
static_assert(7 * kLooks >= kMaxGranules);

/// Where the team meets; in shared memory on a GPU. Writer of the order: leader. Writer of found[r]
/// and of every size()-th mask from r on: member r.
struct ScanBoard {
  const uint32_t* doorbells;
  const uint32_t* seen;
  uint32_t num_slots;
  uint32_t dismissed;            // 1: members leave
  uint32_t found[kMaxTeam];      // all masks of a member, or-ed
  uint32_t masks[kMaxGranules];  // bit i of mask g: slot 32 * g + i changed
};

/// A member's share of one order.
template <class Crew>
SAC_HD void look_at_share(ScanBoard& board, Crew& crew) {
  const uint32_t num_granules = board.num_slots / SAC_SLOT_GRANULE;
  uint32_t found = 0;
  for (uint32_t first = crew.rank(); first < num_granules; first += kLooks * crew.size()) {
    typename Crew::Look looks[kLooks] = {};
    for (uint32_t i = 0; i < kLooks; ++i) {
      const uint32_t granule = first + i * crew.size();
      const uint32_t slot = granule * SAC_SLOT_GRANULE;
      if (granule < num_granules) looks[i] = crew.look(board.doorbells + slot, board.seen + slot);
    }
    for (uint32_t i = 0; i < kLooks; ++i) {
      const uint32_t granule = first + i * crew.size();
      const uint32_t mask = crew.mask(looks[i]);
      found |= mask;
      if (granule < num_granules && crew.is_scribe()) board.masks[granule] = mask;
    }
  }
  if (crew.is_scribe()) board.found[crew.rank()] = found;
}

/// A member's life: takes orders until it is dismissed or a wait runs out.
template <class Crew>
SAC_HD void serve_scans(ScanBoard& board, Crew& crew) {
  while (crew.meet(WaitSite::kScanOrder) && board.dismissed == 0) {
    look_at_share(board, crew);
    if (!crew.meet(WaitSite::kScanDone)) return;
  }
}

/// Writes to `changed` the slots that the masks name, lowest first; returns how many.
SAC_HD inline uint32_t gather_masks(const ScanBoard& board, uint32_t* changed) {
  uint32_t count = 0;
  for (uint32_t g = 0; g < board.num_slots / SAC_SLOT_GRANULE; ++g)
    for (uint32_t mask = board.masks[g]; mask != 0; mask &= mask - 1)
      changed[count++] = g * SAC_SLOT_GRANULE + lowest_bit(mask);
  return count;
}

/// The leader's side: as scan_changed. Finds nothing when the team did not come; the crew then says
/// so by itself.
template <class Crew>
SAC_HD uint32_t lead_scan(ScanBoard& board, Crew& crew, const uint32_t* doorbells,
                          const uint32_t* seen, uint32_t num_slots, uint32_t* changed) {
  board.doorbells = doorbells;
  board.seen = seen;
  board.num_slots = num_slots;
  if (!crew.meet(WaitSite::kScanTaken) || !crew.meet(WaitSite::kScanDone)) return 0;
  uint32_t any = 0;
  for (uint32_t rank = 0; rank < crew.size(); ++rank) any |= board.found[rank];
  return any == 0 ? 0 : gather_masks(board, changed);
}

/// Lets the members go; the leader must not scan afterwards.
template <class Crew>
SAC_HD void dismiss(ScanBoard& board, Crew& crew) {
  board.dismissed = 1;
  crew.meet(WaitSite::kScanTaken);
}

}  // namespace saccade
