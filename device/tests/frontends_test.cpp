// Frontends that come, go, fall silent and return; and a device that restarts.
#include <doctest/doctest.h>

#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

constexpr uint64_t kMs = 1'000'000;

/// Several frontends over one device.
struct Shared {
  TestRing ring;
  TestDevice device;
  std::vector<TestFrontend> fronts;
  explicit Shared(uint32_t num_frontends, const DeviceShape& shape = {})
      : ring({num_frontends * 32, num_frontends}), device(ring, shape) {
    for (uint32_t f = 0; f < num_frontends; ++f) fronts.emplace_back(ring, f);
    for (TestFrontend& f : fronts) f.join();
    device.tick();
  }
  /// Ticks with the clock moving; `beating` frontends keep their heartbeat.
  void ticks(uint32_t count, uint64_t step_ms, const std::vector<uint32_t>& beating) {
    for (uint32_t i = 0; i < count; ++i) {
      device.now_ns += step_ms * kMs;
      for (uint32_t f : beating) fronts[f].beat();
      device.tick();
    }
  }
  uint32_t lost(uint32_t f) const { return ring.view.acks[f].lost; }
};

TEST_CASE("each frontend's slots are its own, and all are served") {
  Shared m(8);
  std::vector<Ticket> tickets;
  for (uint32_t i = 0; i < 64; ++i) tickets.push_back(m.fronts[i % 8].submit(ask_of(5, 6, i)));
  for (uint32_t i = 0; i < 500; ++i) {
    m.device.tick();
    for (uint32_t t = 0; t < 64; ++t) m.fronts[t % 8].read(tickets[t]);
  }
  for (const Ticket& t : tickets) CHECK(t.words == expect(t.ask, m.device.shape).words);
  m.device.tick();
  CHECK(m.device.idle());
}

TEST_CASE("a frontend that restarts gets its slots back, and only it loses what it had") {
  Shared m(2);
  std::vector<Ticket> old;
  for (uint32_t i = 0; i < 6; ++i) old.push_back(m.fronts[0].submit(ask_of(5, 100, i)));
  Ticket other = m.fronts[1].submit(ask_of(5, 100, 9));
  for (uint32_t i = 0; i < 4; ++i) m.device.tick();
  m.fronts[0].join();
  CHECK_FALSE(m.fronts[0].acked());
  m.device.tick();
  m.device.tick();
  CHECK(m.fronts[0].acked());
  CHECK(m.device.s.report.stats.requests_reclaimed == 6);
  CHECK(m.device.s.seats.num_running == 1);
  for (const Ticket& t : old) {
    const uint64_t word = m.ring.status_word(t.slot);
    CHECK(sac_status_state(word) == SAC_STATE_EMPTY);
    CHECK(sac_status_ticket(word) == t.ticket);
  }
  Ticket fresh = m.fronts[0].submit_at(ask_of(3, 5, 7), old[0].slot);
  for (uint32_t i = 0; i < 150; ++i) {
    m.device.tick();
    m.fronts[0].read(fresh);
    m.fronts[1].read(other);
  }
  CHECK(fresh.words == expect(fresh.ask, m.device.shape).words);
  CHECK(other.words == expect(other.ask, m.device.shape).words);
}

TEST_CASE("what is rung before the ack of a new epoch is not run") {
  Shared m(1);
  m.fronts[0].join();
  Ticket early = m.fronts[0].submit(ask_of(3, 5));
  m.device.tick();
  m.device.tick();
  CHECK(m.device.s.report.stats.requests_accepted == 0);
  CHECK(sac_status_state(m.ring.status_word(early.slot)) == SAC_STATE_EMPTY);
}

TEST_CASE("a frontend whose heartbeat stops is given up; its blocks are free; others stay") {
  DeviceShape shape;
  shape.num_seats = 2;
  Shared m(2, shape);
  Ticket dead = m.fronts[0].submit(ask_of(5, 120, 1));
  Ticket waiting = m.fronts[0].submit(ask_of(5, 120, 2));
  Ticket queued = m.fronts[0].submit(ask_of(5, 120, 3));
  m.ticks(4, 1, {0, 1});
  m.ticks(1, SAC_FRONTEND_LOST_MS - 10, {1});
  CHECK(m.lost(0) == 0);
  m.ticks(2, 20, {1});
  CHECK(m.lost(0) == 1);
  CHECK(m.device.idle());
  CHECK(m.device.s.report.stats.requests_reclaimed == 3);
  m.ticks(500, 1000, {1});
  CHECK(m.lost(0) == 1);  // counted once
  CHECK(m.lost(1) == 0);
  Ticket other = m.fronts[1].submit(ask_of(5, 20, 4));
  for (uint32_t i = 0; i < 25; ++i) {
    m.ticks(1, 1, {1});
    m.fronts[1].read(other);
  }
  CHECK(other.words == expect(other.ask, m.device.shape).words);
  for (Ticket* t : {&dead, &waiting, &queued}) {
    const uint64_t word = m.ring.status_word(t->slot);
    CHECK(sac_status_ticket(word) == t->ticket);
    CHECK(sac_status_state(word) == SAC_STATE_EMPTY);
  }
}

TEST_CASE("a frontend that was only asleep is served again when its heartbeat moves") {
  Shared m(1);
  Ticket before = m.fronts[0].submit(ask_of(5, 100));
  m.ticks(3, 1, {0});
  m.ticks(3, SAC_FRONTEND_LOST_MS, {});
  CHECK(m.lost(0) == 1);
  Ticket during = m.fronts[0].submit(ask_of(5, 10, 1));
  m.ticks(2, 1, {});
  CHECK(m.device.s.seats.num_running == 0);  // given up: not served
  for (uint32_t i = 0; i < 20; ++i) {
    m.ticks(1, 1, {0});
    m.fronts[0].read(during);
  }
  CHECK(during.words == expect(during.ask, m.device.shape).words);
  CHECK(sac_status_state(m.ring.status_word(before.slot)) == SAC_STATE_EMPTY);
}

TEST_CASE("a frontend that joins long after the device started is not given up at once") {
  TestRing ring({64, 2});
  TestDevice device(ring, {});
  device.now_ns += 60'000 * kMs;
  device.tick();
  TestFrontend front(ring, 0);
  // Only the epoch: its first heartbeat may come later.
  store_release(&front.line()->epoch, 1u);
  device.tick();
  REQUIRE(ring.view.acks[0].epoch == 1);
  Ticket t = front.submit(ask_of(3, 5));
  for (uint32_t i = 0; i < 10; ++i) {
    device.now_ns += kMs;
    device.tick();
    front.read(t);
  }
  CHECK(ring.view.acks[0].lost == 0);
  CHECK(t.words == expect(t.ask, device.shape).words);
}

TEST_CASE("a frontend given up and restarted is served as soon as it is acked") {
  Shared m(1);
  m.ticks(3, SAC_FRONTEND_LOST_MS, {});
  REQUIRE(m.lost(0) == 1);
  store_release(&m.fronts[0].line()->epoch, 2u);
  m.ticks(1, 1, {});
  REQUIRE(m.ring.view.acks[0].epoch == 2);
  Ticket t = m.fronts[0].submit(ask_of(3, 5));
  m.ticks(8, 1, {});
  m.fronts[0].read(t);
  CHECK(t.words == expect(t.ask, m.device.shape).words);
}

TEST_CASE("nothing of a frontend that was given up keeps the device awake") {
  Shared m(1);
  Ticket live = m.fronts[0].submit(ask_of(5, 100));
  m.ticks(2, 1, {0});
  // Cancelled in the very tick that gives up its frontend, and rung again after that.
  m.fronts[0].cancel(live);
  m.ticks(3, SAC_FRONTEND_LOST_MS, {});
  REQUIRE(m.lost(0) == 1);
  CHECK_FALSE(doorbell_pending(m.device.s.inbox));
  m.fronts[0].submit_at(ask_of(5, 10, 1), live.slot);
  CHECK_FALSE(doorbell_pending(m.device.s.inbox));
  m.fronts[0].beat();
  m.device.tick();
  m.fronts[0].submit(ask_of(5, 10, 1));
  CHECK(doorbell_pending(m.device.s.inbox));
}

TEST_CASE("a ticket rung over a live one ends the old request, then runs the new one") {
  Shared m(1);
  for (uint32_t ticks : {0u, 3u}) {
    CAPTURE(ticks);
    Ticket first = m.fronts[0].submit_at(ask_of(5, 100, 1), m.fronts[0].first_slot());
    for (uint32_t i = 0; i < ticks; ++i) m.device.tick();
    Ticket second = m.fronts[0].submit_at(ask_of(6, 5, 2), first.slot);
    for (uint32_t i = 0; i < 20; ++i) {
      m.device.tick();
      m.fronts[0].read(second);
    }
    CHECK(second.words == expect(second.ask, m.device.shape).words);
    CHECK(m.device.idle());
  }
}

TEST_CASE("a device that restarts empties every slot and refuses what was meant for the old one") {
  TestRing ring({32, 1});
  TestFrontend front(ring, 0);
  std::vector<Ticket> old;
  sac_descriptor for_old_life = {};
  {
    TestDevice device(ring, {});
    front.join();
    device.tick();
    for (uint32_t i = 0; i < 3; ++i) old.push_back(front.submit(ask_of(5, 50, i)));
    for (uint32_t i = 0; i < 4; ++i) device.tick();
    for (Ticket& t : old) front.read(t);
    for_old_life = front.descriptor(ask_of(5, 50), 20);
  }
  TestDevice device(ring, {});
  CHECK(ring.view.device->epoch == 2);
  CHECK(ring.view.device->phase == SAC_PHASE_READY);
  for (uint32_t i = 0; i < 5; ++i) CHECK(device.tick() == 0);
  for (Ticket& t : old) {
    front.read(t);
    CHECK(t.lost);
    CHECK(t.records() == 4);
  }
  Ticket stale = front.prepare(ask_of(5, 50), 20);
  front.write_descriptor(for_old_life, 20);
  front.ring(stale);
  device.tick();
  front.read(stale);
  CHECK(stale.finish == SAC_FINISH_STALE_EPOCH);
  Ticket fresh = front.submit(ask_of(5, 6, 8));
  for (uint32_t i = 0; i < 10; ++i) {
    device.tick();
    front.read(fresh);
  }
  CHECK(fresh.words == expect(fresh.ask, device.shape).words);
}

}  // namespace
}  // namespace saccade::test
