// Too little of everything: KV blocks, seats, room in the output ring; and requests that are
// cancelled in each state they can be in.
#include <doctest/doctest.h>

#include <deque>

#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

void check_yield(const Ticket& t, const DeviceShape& shape) {
  const Expected e = expect(t.ask, shape);
  CHECK(t.words == e.words);
  CHECK(t.finish == e.finish);
  CHECK(t.num_endings == 1);
}

/// Exactly one request of full length fits.
DeviceShape tight_shape() {
  DeviceShape shape;
  shape.max_model_len = 64;
  shape.num_blocks = 8;
  shape.block_size = 8;
  shape.max_num_batched_tokens = 16;
  return shape;
}

TEST_CASE(
    "KV exhausted: requests are preempted and recomputed, and all end with their own tokens") {
  for (bool inline_prefill : {false, true}) {
    CAPTURE(inline_prefill);
    DeviceShape shape = tight_shape();
    if (inline_prefill) shape.policy = PrefillPolicy::kInline;
    Bench b(shape);
    std::vector<Ticket> tickets;
    for (uint32_t i = 0; i < 12; ++i) {
      Ask ask = ask_of(1 + i % 5, 59, i);
      if (i % 3 == 0) ask.flags |= SAC_REQ_PROMPT_LOGPROBS;
      tickets.push_back(b.front.submit(ask));
    }
    std::vector<Ticket*> all;
    for (Ticket& t : tickets) all.push_back(&t);
    b.finish(all, 5000);
    for (const Ticket& t : tickets) check_yield(t, shape);
    CHECK(b.device.decisions(Decision::kPreempt).size() > 3);
    CHECK(b.device.decisions(Decision::kResume).size() > 3);
    CHECK(b.device.s.report.stats.recomputed_tokens > 0);
    b.device.tick();
    CHECK(b.device.idle());
  }
}

TEST_CASE("the oldest request is part of every step, whatever the pressure") {
  Bench b(tight_shape());
  std::vector<Ticket> tickets;
  for (uint32_t i = 0; i < 10; ++i) tickets.push_back(b.front.submit(ask_of(3 + 6 * i, 4, i)));
  for (uint32_t i = 0; i < 3000; ++i) {
    const uint64_t served_before = b.device.s.report.stats.requests_finished;
    const uint32_t oldest = b.device.s.seats.num_running == 0 ? kNone : b.device.s.seats.running[0];
    const bool live = oldest != kNone && b.device.s.seats[oldest].finish == SAC_FINISH_NONE;
    b.device.tick();
    bool ran = false;
    for (uint32_t q = 0; q < b.device.batch().num_seqs; ++q) ran |= b.device.seq(q).seat == oldest;
    if (live) CHECK(ran);
    for (Ticket& t : tickets) b.front.read(t);
    if (served_before == tickets.size()) break;
  }
  for (const Ticket& t : tickets) check_yield(t, b.device.shape);
}

TEST_CASE("a slow reader stalls only itself") {
  Bench b;
  Ask ask = ask_of(4, 40);
  ask.flags |= SAC_REQ_LOGPROBS;
  ask.num_top_logprobs = 20;  // 3 records fit
  Ticket slow = b.front.submit(ask);
  Ticket other = b.front.submit(ask_of(4, 100, 1));
  b.finish({&other}, 110);
  check_yield(other, b.device.shape);
  const uint64_t word = b.ring.status_word(slow.slot);
  CHECK(sac_status_state(word) == SAC_STATE_DECODE_PAUSED);
  CHECK(sac_status_count(word) == 3);
  CHECK(b.device.s.report.stats.reader_stalls == 1);
  for (uint32_t i = 0; i < 5; ++i) CHECK(b.device.tick() == 0);  // nothing to do but wait
  while (!slow.complete()) {
    b.front.read(slow, 1);
    b.device.tick();
  }
  check_yield(slow, b.device.shape);
}

TEST_CASE("a stalled request gives up its blocks when others need them") {
  Bench b(tight_shape());
  Ask ask = ask_of(30, 30);
  ask.flags |= SAC_REQ_LOGPROBS;
  ask.num_top_logprobs = 20;
  Ticket slow = b.front.submit(ask);
  for (uint32_t i = 0; i < 10; ++i) b.device.tick();
  REQUIRE(b.device.s.kv.device().used() >= 4);
  Ticket other = b.front.submit(ask_of(50, 10, 1));  // needs 7 of the 8 blocks
  b.finish({&other}, 100);
  check_yield(other, b.device.shape);
  CHECK(b.device.decisions(Decision::kPreempt).size() == 1);
  b.finish({&slow}, 200);
  check_yield(slow, b.device.shape);
}

TEST_CASE("under every policy, requests without a reader give up their blocks to others") {
  for (const Policy policy :
       {Policy::kFcfs, Policy::kWf, Policy::kSf, Policy::kLvf, Policy::kGoodput}) {
    for (const uint32_t host_blocks : {0u, 8u, 64u}) {
      CAPTURE(static_cast<uint32_t>(policy));
      CAPTURE(host_blocks);
      DeviceShape shape = tight_shape();
      shape.scheduling = policy;
      shape.num_blocks = 24;
      shape.num_host_blocks = host_blocks;
      shape.eager_window = host_blocks;
      Bench b(shape);
      b.device.step.during = [&b] { b.device.now_ns += 20'000'000; };
      std::vector<Ticket> unread;
      for (uint32_t i = 0; i < 3; ++i) {
        Ask ask = ask_of(50, 14, i);
        ask.flags |= SAC_REQ_LOGPROBS;
        ask.num_top_logprobs = 20;  // 3 records fit
        unread.push_back(b.front.submit(ask));
      }
      for (uint32_t i = 0; i < 40; ++i) b.device.tick();
      REQUIRE(b.device.s.report.stats.reader_stalls == 3);
      REQUIRE(b.device.s.kv.device().used() == 21);
      for (uint32_t i = 3; i < 9; ++i) {
        Ticket other = b.front.submit(ask_of(40, 10, i));  // needs 7 blocks
        b.finish({&other}, 100);
        check_yield(other, b.device.shape);
      }
      b.finish({&unread[0], &unread[1], &unread[2]}, 300);
      for (const Ticket& t : unread) check_yield(t, b.device.shape);
    }
  }
}

/// Requests whose answers of 40 tokens fill their output rings, and whose readers take a record now
/// and then.
struct Tricklers {
  std::vector<Ticket> tickets;
  uint32_t next = 0;

  void submit(Bench& b, uint32_t count, uint32_t prompt_len) {
    for (uint32_t i = 0; i < count; ++i) {
      Ask ask = ask_of(prompt_len, 40, 1000 + i);
      ask.flags |= SAC_REQ_LOGPROBS;
      ask.num_top_logprobs = 7;  // 8 records fit
      tickets.push_back(b.front.submit(ask));
    }
  }
  /// One record of one of them.
  void trickle(Bench& b) { b.front.read(tickets[next++ % tickets.size()], 1); }
};

TEST_CASE("under every policy, readers that trickle do not hold the seats") {
  for (const Policy policy :
       {Policy::kFcfs, Policy::kWf, Policy::kSf, Policy::kLvf, Policy::kGoodput}) {
    for (const uint32_t host_blocks : {0u, 64u}) {
      CAPTURE(static_cast<uint32_t>(policy));
      CAPTURE(host_blocks);
      DeviceShape shape;
      shape.num_seats = 4;
      shape.scheduling = policy;
      shape.num_host_blocks = host_blocks;
      shape.eager_window = host_blocks;
      RingShape ring;
      ring.num_slots = 64;
      Bench b(shape, ring);
      b.device.step.during = [&b] {
        b.device.now_ns += 20'000'000;
        b.front.beat();
      };
      Tricklers company;
      company.submit(b, 24, 20);
      for (uint32_t i = 0; i < 200; ++i) {
        b.device.tick();
        company.trickle(b);
      }
      for (uint32_t i = 0; i < 12; ++i) {
        Ticket victim = b.front.submit(ask_of(30, 10, i));
        uint32_t ticks = 0;
        for (; !victim.complete() && ticks < 1000; ++ticks) {
          b.device.tick();
          b.front.read(victim);
          company.trickle(b);
        }
        // Its own steps, and those of some that came back from their readers in front of it.
        CHECK(ticks <= 60);
        REQUIRE(victim.complete());
        check_yield(victim, shape);
      }
      std::vector<Ticket*> all;
      for (Ticket& t : company.tickets) all.push_back(&t);
      b.finish(all, 3000);
      for (const Ticket& t : company.tickets) check_yield(t, shape);
      b.device.tick();
      CHECK(b.device.idle());
    }
  }
}

TEST_CASE("a reader that takes one record does not bring its request's KV back") {
  Bench b(tight_shape());
  Ask ask = ask_of(30, 30);
  ask.flags |= SAC_REQ_LOGPROBS;
  ask.num_top_logprobs = 7;  // 8 records fit
  Ticket slow = b.front.submit(ask);
  for (uint32_t i = 0; i < 12; ++i) b.device.tick();
  Ticket other = b.front.submit(ask_of(50, 10, 1));  // needs 7 of the 8 blocks
  b.finish({&other}, 100);
  const uint64_t computed = b.device.s.report.stats.prefill_tokens;
  for (uint32_t i = 0; i < 3; ++i) {
    b.front.read(slow, 1);
    b.device.tick();
  }
  CHECK(b.device.s.report.stats.prefill_tokens == computed);
  b.front.read(slow, 1);  // half of its ring
  b.device.tick();
  CHECK(b.device.s.report.stats.prefill_tokens > computed);
  b.finish({&slow}, 200);
  check_yield(slow, b.device.shape);
}

TEST_CASE("a parked request keeps all that only its seat had, over many pages") {
  DeviceShape shape;
  shape.num_seats = 1;
  shape.max_model_len = 1500;
  shape.num_blocks = 400;
  RingShape ring;
  ring.arena_bytes = ring.num_slots * 16384;
  Bench b(shape, ring);
  Ask ask = ask_of(700, 200, 3);
  ask.flags |= SAC_REQ_LOGPROBS;
  ask.num_top_logprobs = 7;  // 8 records fit
  for (uint32_t i = 0; i < 300; ++i) ask.logit_bias.push_back({i, 0.25f * static_cast<float>(i)});
  for (uint32_t i = 0; i < SAC_MAX_STOP_IDS; ++i) ask.stop_ids.push_back(i);
  ask.min_tokens = 60;
  Ticket slow = b.front.submit(ask);
  for (uint32_t i = 0; i < 30; ++i) b.device.tick();
  Ticket other = b.front.submit(ask_of(20, 5));
  b.finish({&other});
  REQUIRE(b.device.s.parking.num_parked == 1);
  CHECK(b.device.decisions(Decision::kPark).size() == 1);
  while (b.device.s.parking.num_parked != 0) {
    b.front.read(slow);
    b.device.tick();
  }
  const uint32_t seat = b.device.s.slots[slow.slot].seat;
  for (uint32_t i = 0; i < 300; ++i) {
    CHECK(b.device.s.seats.bias(seat)[i].token == i);
    CHECK(b.device.s.seats.bias(seat)[i].bias == 0.25f * static_cast<float>(i));
  }
  CHECK(b.device.s.seats.params[seat].num_logit_bias == 300);
  b.finish({&slow});
  check_yield(slow, shape);
  b.device.tick();
  CHECK(b.device.idle());
}

TEST_CASE("under every policy, a request whose reader has caught up returns, however many arrive") {
  for (const Policy policy :
       {Policy::kFcfs, Policy::kWf, Policy::kSf, Policy::kLvf, Policy::kGoodput}) {
    CAPTURE(static_cast<uint32_t>(policy));
    DeviceShape shape;
    shape.num_seats = 2;
    shape.scheduling = policy;
    Bench b(shape);
    b.device.step.during = [&b] {
      b.device.now_ns += 20'000'000;
      b.front.beat();
    };
    Ask ask = ask_of(20, 24, 1);
    ask.flags |= SAC_REQ_LOGPROBS;
    ask.num_top_logprobs = 7;  // 8 records fit
    Ticket slow = b.front.submit(ask);
    for (uint32_t i = 0; i < 20; ++i) b.device.tick();
    std::deque<Ticket> crowd;
    uint32_t ticks = 0;
    for (bool parked = false; !slow.complete() && ticks < 1000; ++ticks) {
      while (crowd.size() < 12) crowd.push_back(b.front.submit(ask_of(10, 6, ticks)));
      b.device.tick();
      parked |= b.device.s.parking.num_parked != 0;
      if (parked) b.front.read(slow);
      for (Ticket& t : crowd) b.front.read(t);
      std::erase_if(crowd, [](const Ticket& t) { return t.complete(); });
    }
    // One return, behind the twelve that waited: six steps each, two at a time.
    CHECK(ticks < 120);
    check_yield(slow, shape);
  }
}

TEST_CASE("a parked request can be cancelled, and its frontend can go away") {
  for (const bool rejoin : {false, true}) {
    CAPTURE(rejoin);
    DeviceShape shape;
    shape.num_seats = 1;
    Bench b(shape);
    Ask ask = ask_of(20, 24, 1);
    ask.flags |= SAC_REQ_LOGPROBS;
    ask.num_top_logprobs = 7;
    Ticket slow = b.front.submit(ask);
    for (uint32_t i = 0; i < 20; ++i) b.device.tick();
    Ticket other = b.front.submit(ask_of(20, 5));
    b.finish({&other});
    REQUIRE(b.device.s.parking.num_parked == 1);
    if (rejoin) {
      b.front.join();
    } else {
      b.front.cancel(slow);
    }
    for (uint32_t i = 0; i < 2; ++i) b.device.tick();
    CHECK(b.device.idle());
    const uint64_t word = b.ring.status_word(slow.slot);
    CHECK(sac_status_state(word) == (rejoin ? SAC_STATE_EMPTY : SAC_STATE_DECODE_COMPLETED));
    if (!rejoin) CHECK(sac_status_finish(word) == SAC_FINISH_CANCELLED);
    if (!rejoin) CHECK(sac_status_count(word) == 8);
  }
}

TEST_CASE("a reader that is slow during its prompt records is not given too much") {
  DeviceShape shape;
  shape.max_num_batched_tokens = 50;
  Bench b(shape);
  Ask ask = ask_of(40, 5);
  ask.flags |= SAC_REQ_LOGPROBS | SAC_REQ_PROMPT_LOGPROBS;
  ask.num_top_logprobs = 20;
  Ticket t = b.front.submit(ask);
  uint32_t written = 0;
  for (uint32_t i = 0; i < 300 && !t.complete(); ++i) {
    b.device.tick();
    written = sac_status_count(b.ring.status_word(t.slot));
    CHECK(written - t.records() <= 3);
    b.front.read(t, i % 3);
  }
  check_yield(t, shape);
}

// ---- cancel ------------------------------------------------------------------------------------

void check_cancelled(Bench& b, Ticket& t, uint32_t records) {
  b.front.cancel(t);
  b.device.tick();
  CHECK(b.device.idle());
  b.front.read(t);
  CHECK(t.finish == SAC_FINISH_CANCELLED);
  CHECK(t.num_endings == 1);
  CHECK(t.records() == records);
  const Expected e = expect(t.ask, b.device.shape);
  for (size_t w = 0; w < t.words.size(); ++w) CHECK(t.words[w] == e.words[w]);
  b.front.cancel(t);  // again: nothing to end
  b.device.tick();
  CHECK(sac_status_finish(b.ring.status_word(t.slot)) == SAC_FINISH_CANCELLED);
}

TEST_CASE("cancel frees everything within one tick: rung with its ticket") {
  Bench b;
  Ticket t = b.front.submit(ask_of(4, 4));
  check_cancelled(b, t, 0);
}

TEST_CASE("cancel frees everything within one tick: in the middle of its prompt") {
  Bench b;
  Ticket t = b.front.submit(ask_of(120, 4));
  b.device.tick();
  CHECK(sac_status_state(b.ring.status_word(t.slot)) == SAC_STATE_PREFILL_PROCESSING);
  check_cancelled(b, t, 0);
}

TEST_CASE("cancel frees everything within one tick: while decoding") {
  Bench b;
  Ticket t = b.front.submit(ask_of(4, 50));
  for (uint32_t i = 0; i < 5; ++i) b.device.tick();
  CHECK(sac_status_state(b.ring.status_word(t.slot)) == SAC_STATE_DECODE_PROCESSING);
  check_cancelled(b, t, 5);
}

TEST_CASE("cancel frees everything within one tick: held by its reader") {
  Bench b;
  Ask ask = ask_of(4, 50);
  ask.flags |= SAC_REQ_LOGPROBS;
  ask.num_top_logprobs = 20;
  Ticket t = b.front.submit(ask);
  for (uint32_t i = 0; i < 9; ++i) b.device.tick();
  CHECK(sac_status_state(b.ring.status_word(t.slot)) == SAC_STATE_DECODE_PAUSED);
  check_cancelled(b, t, 3);
}

TEST_CASE("cancel of a waiting request leaves the queue whole") {
  DeviceShape shape;
  shape.num_seats = 1;
  Bench b(shape);
  std::vector<Ticket> tickets;
  for (uint32_t i = 0; i < 4; ++i) tickets.push_back(b.front.submit(ask_of(4, 20, i)));
  b.device.tick();
  for (size_t i : {2u, 3u, 1u}) {  // from the middle, the tail, the head of the queue
    b.front.cancel(tickets[i]);
    b.device.tick();
    b.front.read(tickets[i]);
    CHECK(tickets[i].finish == SAC_FINISH_CANCELLED);
    CHECK(b.device.s.waiting.count + i != 0);
  }
  CHECK(b.device.s.waiting.count == 0);
  b.finish({&tickets[0]});
  check_yield(tickets[0], shape);
}

TEST_CASE("cancel of a preempted request") {
  Bench b(tight_shape());
  Ticket old = b.front.submit(ask_of(3, 60));
  Ticket young = b.front.submit(ask_of(3, 60, 1));
  while (b.device.decisions(Decision::kPreempt).empty()) {
    b.device.tick();
    b.front.read(old);
    b.front.read(young);
  }
  CHECK(sac_status_state(b.ring.status_word(young.slot)) == SAC_STATE_DECODE_PAUSED);
  b.front.cancel(young);
  b.device.tick();
  b.front.read(young);
  CHECK(young.finish == SAC_FINISH_CANCELLED);
  b.finish({&old});
  check_yield(old, b.device.shape);
  b.device.tick();
  CHECK(b.device.idle());
}

TEST_CASE("cancel after the end changes nothing") {
  Bench b;
  Ticket t = b.front.submit(ask_of(4, 3));
  b.finish({&t});
  b.front.cancel(t);
  b.device.tick();
  CHECK(sac_status_finish(b.ring.status_word(t.slot)) == SAC_FINISH_LENGTH);
  check_yield(t, b.device.shape);
}

}  // namespace
}  // namespace saccade::test
