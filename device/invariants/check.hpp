// Invariants of the scheduler's state, checked off the hot path.
#pragma once
#include "sched/state.hpp"

namespace saccade {

/// Null, or the first violation: every block has at most one owner and none is lost; every seat is
/// either free or running once; lists and counts agree; nothing exceeds its bound. Host only.
const char* check_invariants(const Scheduler& s);
/// The part of it that is about the fetch plane.
const char* check_fetches(const Scheduler& s);

}  // namespace saccade
