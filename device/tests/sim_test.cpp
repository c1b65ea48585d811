// Seeded simulation of the whole device plane; and planted bugs that the invariants must report.
// SACCADE_SEED=n replays one seed, SACCADE_SEEDS=n runs seeds 1 .. n.
#include <doctest/doctest.h>

#include "tests/world.hpp"

namespace saccade::test {
namespace {

TEST_CASE("random worlds keep every promise") {
  const Seeds seeds(300);
  uint64_t tokens = 0, preemptions = 0, stalls = 0, reclaimed = 0;
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    CAPTURE(seed);
    try {
      World world(seed, world_options(seed));
      world.run();
      const sac_device_stats& st = world.device().s.stats;
      tokens += st.decode_tokens;
      preemptions += st.preemptions;
      stalls += st.reader_stalls;
      reclaimed += st.requests_reclaimed;
    } catch (const std::exception& e) {
      FAIL_CHECK("seed " << seed << ": " << std::string(e.what()));
    }
  }
  MESSAGE("decode tokens " << tokens << ", preemptions " << preemptions << ", reader stalls "
                           << stalls << ", requests reclaimed " << reclaimed);
  if (seeds.first == seeds.last) return;
  // The swarm does reach what it is there for.
  CHECK(preemptions > 100);
  CHECK(stalls > 100);
  CHECK(reclaimed > 100);
}

// ---- canaries: each plants one bug in a running scheduler
// ----------------------------------------

const char* violation_after(const std::function<void(Scheduler&)>& plant) {
  DeviceShape shape;
  shape.num_seats = 3;
  Bench b(shape);
  for (uint32_t i = 0; i < 6; ++i) b.front.submit(ask_of(20, 50, i));
  for (uint32_t i = 0; i < 4; ++i) b.device.tick();
  REQUIRE(check_invariants(b.device.s) == nullptr);
  REQUIRE(b.device.s.num_running == 3);
  REQUIRE(b.device.s.num_waiting == 3);
  plant(b.device.s);
  return check_invariants(b.device.s);
}

TEST_CASE("every planted bug is reported") {
  using S = Scheduler;
  const std::function<void(S&)> bugs[] = {
      // blocks
      [](S& s) { s.block_table(s.running[0])[0] = s.block_table(s.running[1])[0]; },
      [](S& s) { s.block_table(s.running[0])[0] = s.limits.num_blocks; },
      [](S& s) { s.pool.states[s.block_table(s.running[0])[0]].owner = kNoOwner; },
      [](S& s) { --s.seats[s.running[0]].num_blocks; },
      [](S& s) { s.pool.release(s.block_table(s.running[0])[0], 0, s.copies); },
      [](S& s) { s.pool.allocate(0, s.step_done); },
      [](S& s) { s.pool.free_ring[s.pool.head] = s.pool.free_ring[s.pool.head + 1]; },
      [](S& s) { s.pool.free_ring[s.pool.head] = s.limits.num_blocks; },
      [](S& s) { s.pool.free_ring[s.pool.head] = s.block_table(s.running[2])[1]; },
      // seats
      [](S& s) { --s.num_running; },
      [](S& s) { s.running[0] = s.running[1]; },
      [](S& s) { std::swap(s.running[0], s.running[1]); },
      [](S& s) { s.running[1] = s.limits.num_seats; },
      [](S& s) { s.seats[s.running[0]].slot = s.seats[s.running[1]].slot; },
      [](S& s) { s.seats[s.running[0]].slot = s.limits.num_slots; },
      [](S& s) { ++s.seats[s.running[0]].ticket; },
      [](S& s) { s.seats[s.running[0]].num_tokens = s.limits.max_model_len + 1; },
      [](S& s) { s.seats[s.running[0]].num_computed += 1; },
      // the waiting list and the slots
      [](S& s) { s.requests[s.waiting_head].next = s.waiting_head; },
      [](S& s) { s.requests[s.waiting_head].next = kNone; },
      [](S& s) { s.requests[s.waiting_tail].prev = kNone; },
      [](S& s) { s.waiting_head = s.limits.num_slots; },
      [](S& s) { ++s.num_waiting; },
      [](S& s) { s.requests[s.waiting_head].arrival = UINT64_MAX; },
      [](S& s) { s.requests[s.waiting_head].state = SAC_STATE_DECODE_COMPLETED; },
      [](S& s) { s.requests[s.waiting_head].candidate = s.requests[s.waiting_tail].candidate; },
      [](S& s) { std::swap(s.candidates[0], s.candidates[1]); },
      [](S& s) { s.requests[s.seats[s.running[0]].slot].seat = kNone; },
      [](S& s) { s.requests[40].state = SAC_STATE_PREFILL_PENDING; },
      [](S& s) { s.requests[40].seat = 0; },
  };
  for (size_t i = 0; i < std::size(bugs); ++i) {
    CAPTURE(i);
    CHECK(violation_after(bugs[i]) != nullptr);
  }
}

TEST_CASE("a scheduler that frees a block too early is caught by the simulation") {
  // The hook stands where a step runs: a block of a running request is handed to the pool again, as
  // a retire without its list update would.
  const uint64_t seed = 3;
  World world(seed, world_options(seed));
  Scheduler& s = world.device().s;
  world.device().step.during = [&s] {
    if (s.step == 5) s.pool.release(s.block_table(s.running[0])[0], s.step, s.copies);
  };
  CHECK_THROWS(world.run());
}

}  // namespace
}  // namespace saccade::test
