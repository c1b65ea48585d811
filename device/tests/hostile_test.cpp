// Whatever a frontend writes, the device keeps its invariants and the others get their answers.
// Built with address and undefined-behaviour sanitizers in CI; SACCADE_SEED=n replays one seed.
#include <doctest/doctest.h>

#include "tests/hostile_world.hpp"
#include "tests/random.hpp"

namespace saccade::test {
namespace {

TEST_CASE("arbitrary writes of one frontend harm neither the device nor the other frontend") {
  const Seeds seeds(400);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    Random random(seed);
    std::vector<uint8_t> bytes(random.in(1, 3000));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random.next());
    try {
      HostileWorld(seed % 2 == 0).play(bytes.data(), bytes.size());
    } catch (const std::exception& e) {
      FAIL_CHECK("seed " << seed << ": " << std::string(e.what()));
    }
  }
}

/// The device sees the doorbell during a step, and its old word when it looks again.
TEST_CASE("a ticket that was taken back before it was answered is none of the next life") {
  TestRing ring({64, 2});
  TestDevice device(ring, {});
  TestFrontend honest(ring, 0), foe(ring, 1);
  honest.join();
  foe.join();
  device.tick();
  Ticket served = honest.submit(ask_of(5, 3, 1));
  const uint32_t slot = foe.first_slot();
  const uint32_t before = *ring.doorbell_mut(slot);
  device.step.during = [&] {
    if (*ring.doorbell_mut(slot) != before) return;
    Ticket t = foe.prepare(ask_of(5, 40, 2), slot);
    foe.ring(t);
  };
  device.tick();
  REQUIRE(*ring.doorbell_mut(slot) != before);
  device.step.during = [] {};
  store_release(ring.doorbell_mut(slot), before);
  device.tick();
  foe.join();
  for (uint32_t i = 0; i < 6; ++i) {
    device.tick();
    honest.read(served);
  }
  CHECK(served.complete());
  CHECK(foe.acked());
  CHECK(device.idle());
}

/// Every frontend word of every slot, all at once, between ticks.
TEST_CASE("a region full of noise is survived") {
  const Seeds seeds(60);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    TestRing ring({64, 2});
    TestDevice device(ring, {});
    for (uint32_t round = 0; round < 40; ++round) {
      for (uint32_t slot = 0; slot < 64; ++slot) {
        *ring.doorbell_mut(slot) = static_cast<uint32_t>(random.next());
        *ring.cursor_mut(slot) = static_cast<uint32_t>(random.next());
        auto* words = reinterpret_cast<uint64_t*>(ring.descriptor_mut(slot));
        for (size_t w = 0; w < sizeof(sac_descriptor) / 8; ++w) words[w] = random.next();
      }
      for (uint64_t i = 0; i < ring.shape.arena_bytes; ++i)
        ring.arena_mut()[i] = static_cast<unsigned char>(random.next());
      for (uint32_t f = 0; f < 2; ++f)
        *ring.frontend_mut(f) = {random.in(0, 3), 1, random.next(), random.in(0, 3),
                                 random.in(0, 3), {}};
      device.tick();
    }
    CHECK(device.idle());  // none of it was a valid request
  }
}

}  // namespace
}  // namespace saccade::test
