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
      const sac_device_stats& st = world.device().s.report.stats;
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
  REQUIRE(b.device.s.seats.num_running == 3);
  REQUIRE(b.device.s.waiting.count == 3);
  plant(b.device.s);
  return check_invariants(b.device.s);
}

TEST_CASE("every planted bug is reported") {
  using S = Scheduler;
  const std::function<void(S&)> bugs[] = {
      // blocks
      [](S& s) {
        s.kv.block_table(s.seats.running[0])[0] = s.kv.block_table(s.seats.running[1])[0];
      },
      [](S& s) { s.kv.block_table(s.seats.running[0])[0] = s.limits.num_blocks; },
      [](S& s) {
        s.kv.device().pool.states[s.kv.block_table(s.seats.running[0])[0]].owner = kNoOwner;
      },
      [](S& s) { --s.seats[s.seats.running[0]].num_blocks; },
      [](S& s) {
        s.kv.device().pool.release(s.kv.block_table(s.seats.running[0])[0], 0, s.kv.store.copies);
      },
      [](S& s) { s.kv.device().pool.allocate(0, s.kv.store.step_done); },
      [](S& s) {
        s.kv.device().pool.free_ring[s.kv.device().pool.head] =
            s.kv.device().pool.free_ring[s.kv.device().pool.head + 1];
      },
      [](S& s) { s.kv.device().pool.free_ring[s.kv.device().pool.head] = s.limits.num_blocks; },
      [](S& s) {
        s.kv.device().pool.free_ring[s.kv.device().pool.head] =
            s.kv.block_table(s.seats.running[2])[1];
      },
      // seats
      [](S& s) { --s.seats.num_running; },
      [](S& s) { s.seats.running[0] = s.seats.running[1]; },
      [](S& s) { std::swap(s.seats.running[0], s.seats.running[1]); },
      [](S& s) { s.seats.running[1] = s.limits.num_seats; },
      [](S& s) { s.seats[s.seats.running[0]].slot = s.seats[s.seats.running[1]].slot; },
      [](S& s) { s.seats[s.seats.running[0]].slot = s.limits.num_slots; },
      [](S& s) { ++s.seats[s.seats.running[0]].ticket; },
      [](S& s) { s.seats[s.seats.running[0]].num_tokens = s.limits.max_model_len + 1; },
      [](S& s) { s.seats[s.seats.running[0]].num_computed += 1; },
      // the waiting list and the slots
      [](S& s) { s.slots[s.waiting.head].next = s.waiting.head; },
      [](S& s) { s.slots[s.waiting.head].next = kNone; },
      [](S& s) { s.slots[s.waiting.tail].prev = kNone; },
      [](S& s) { s.waiting.head = s.limits.num_slots; },
      [](S& s) { ++s.waiting.count; },
      [](S& s) { s.slots[s.waiting.head].arrival = UINT64_MAX; },
      [](S& s) { s.slots[s.waiting.head].state = SAC_STATE_DECODE_COMPLETED; },
      [](S& s) { s.slots[s.waiting.head].candidate = s.slots[s.waiting.tail].candidate; },
      [](S& s) { std::swap(s.waiting.candidates[0], s.waiting.candidates[1]); },
      [](S& s) { s.slots[s.seats[s.seats.running[0]].slot].seat = kNone; },
      [](S& s) { s.slots[40].state = SAC_STATE_PREFILL_PENDING; },
      [](S& s) { s.slots[40].seat = 0; },
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
    if (s.course.step == 5)
      s.kv.device().pool.release(s.kv.block_table(s.seats.running[0])[0], s.course.step,
                                 s.kv.store.copies);
  };
  CHECK_THROWS(world.run());
}

}  // namespace
}  // namespace saccade::test
