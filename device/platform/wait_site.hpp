// Every place where a device plane's threads wait has a name and a budget here; a wait that
// outlasts its budget leaves a record of which thread waited for what.
#pragma once
#include "platform/hd.hpp"

namespace saccade {

enum class WaitSite : uint32_t {
  kNone = 0,
  kTeamOrder = 1,    // a member of the team, for the leader's next order: a watch on the tick
  kTeamTaken = 2,    // the leader, for all members to take its order
  kTeamDone = 3,     // any thread of the team, for the last member's share
  kTickPermit = 4,   // the leader, for the host to let it run another tick
  kStepDone = 5,     // the leader, for the results of the step that it launched
  kGraphLaunch = 6,  // no wait: a step's graph was refused; `observed` is the error of the launch
  kRelaunch = 7,     // no wait: the scheduler's own graph was refused
  kGraphIdle = 8,    // no wait: a step's graph was still busy after everything else had ended
};

SAC_HD constexpr uint64_t budget_ns(WaitSite site) {
  constexpr uint64_t kSecond = 1000000000;
  switch (site) {
    case WaitSite::kTeamOrder:
      return 10 * kSecond;  // longer than a permit may take, or the members would leave first
    case WaitSite::kTickPermit:
      return 3 * kSecond;
    case WaitSite::kStepDone:
      return 9 * kSecond;  // shorter than the members' watch, so that the record names the step
    default:
      return kSecond;
  }
}

inline const char* name_of(WaitSite site) {
  switch (site) {
    case WaitSite::kNone:
      return "none";
    case WaitSite::kTeamOrder:
      return "team order";
    case WaitSite::kTeamTaken:
      return "team taken";
    case WaitSite::kTeamDone:
      return "team done";
    case WaitSite::kTickPermit:
      return "tick permit";
    case WaitSite::kStepDone:
      return "step done";
    case WaitSite::kGraphLaunch:
      return "graph launch";
    case WaitSite::kRelaunch:
      return "relaunch";
    case WaitSite::kGraphIdle:
      return "graph idle";
  }
  return "unknown";
}

/// Written once, by the first wait that ran out. Writer: device. Lives where the host can read it
/// while the device hangs.
struct CrashRecord {
  SAC_ALIGNAS(128) uint32_t site;  // WaitSite, written last with release; kNone: no crash
  uint32_t who;                    // rank in the team; its size for the leader
  uint32_t late;  // rank of the first one that was missing; `who` if it is not one of the team
  uint32_t _pad0;
  uint64_t expected;  // number of the meeting, or of the tick, that was waited for
  uint64_t observed;  // what the late one had reached
  uint64_t tick;      // of the scheduler
  uint64_t waited_ns;
};
static_assert(sizeof(CrashRecord) == 128);

}  // namespace saccade
