// Single ticks over the null step: what a request yields, in which order requests are served, and
// what a step may hold.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

void check_yield(const Ticket& t, const DeviceShape& shape) {
  const Expected e = expect(t.ask, shape);
  CHECK(t.words == e.words);
  CHECK(t.finish == e.finish);
  CHECK(t.num_endings == 1);
  CHECK_FALSE(t.lost);
}

/// Runs one request alone and checks what it yields.
Ticket run_alone(Bench& b, const Ask& ask) {
  Ticket t = b.front.submit(ask);
  b.finish({&t});
  b.device.tick();
  check_yield(t, b.device.shape);
  CHECK(b.device.idle());
  return t;
}

TEST_CASE("a request yields the chain of its own tokens and ends by length") {
  Bench b;
  for (uint32_t prompt_len : {1u, 2u, 7u, 8u, 9u, 63u, 64u, 65u, 120u}) {
    CAPTURE(prompt_len);
    const Ticket t = run_alone(b, ask_of(prompt_len, 8, prompt_len));
    CHECK(t.finish == SAC_FINISH_LENGTH);
    CHECK(t.records() == 8);
  }
  run_alone(b, ask_of(1, 127));  // as long as the model allows
  run_alone(b, ask_of(127, 1));
}

TEST_CASE("a stop id ends a request, but not before min_tokens") {
  Bench b;
  Ask ask = ask_of(5, 40, 3);
  const std::vector<uint32_t> chain = run_alone(b, ask).tokens();
  ask.stop_ids = {chain[6]};
  const Ticket stopped = run_alone(b, ask);
  CHECK(stopped.finish == SAC_FINISH_STOP);
  CHECK(stopped.records() <= 7);
  ask.min_tokens = stopped.records();
  const Ticket later = run_alone(b, ask);
  CHECK(later.records() > stopped.records());
}

TEST_CASE("an end-of-sequence id ends a request unless it is told to ignore it") {
  const std::vector<uint32_t> chain = [] {
    Bench b;
    return run_alone(b, ask_of(5, 20, 4)).tokens();
  }();
  DeviceShape shape;
  shape.eos_ids = {chain[3]};
  Bench b(shape);
  Ask ask = ask_of(5, 20, 4);
  CHECK(run_alone(b, ask).finish == SAC_FINISH_LENGTH);
  ask.flags = 0;
  const Ticket t = run_alone(b, ask);
  CHECK(t.finish == SAC_FINISH_STOP);
  CHECK(t.tokens().back() == chain[3]);
}

TEST_CASE("prompt records come first, in order, whatever the chunks") {
  for (uint32_t budget : {8u, 9u, 64u, 200u}) {
    CAPTURE(budget);
    DeviceShape shape;
    shape.max_num_batched_tokens = budget;
    Bench b(shape);
    Ask ask = ask_of(50, 5, 9);
    ask.flags |= SAC_REQ_PROMPT_LOGPROBS | SAC_REQ_LOGPROBS;
    ask.num_top_logprobs = 3;
    const Ticket t = run_alone(b, ask);
    CHECK(t.records() == 49 + 5);
    ask.prompt.resize(1);
    CHECK(run_alone(b, ask).records() == 5);
  }
}

TEST_CASE("each token comes with its alternatives, and a small output ring wraps") {
  Bench b;  // 64 words: 3 records of 21 words
  for (uint32_t top : {0u, 1u, 5u, 20u}) {
    CAPTURE(top);
    Ask ask = ask_of(30, 40, top);
    ask.flags |= SAC_REQ_LOGPROBS;
    ask.num_top_logprobs = top;
    const Ticket t = run_alone(b, ask);
    CHECK(t.stride == 1 + top);
    CHECK(t.records() == 40);
    ask.flags |= SAC_REQ_PROMPT_LOGPROBS;
    run_alone(b, ask);
  }
}

TEST_CASE("without a logprob flag no alternative is written") {
  Bench b;
  Ask ask = ask_of(4, 6);
  ask.num_top_logprobs = 20;
  CHECK(run_alone(b, ask).stride == 1);
}

TEST_CASE("requests are admitted in order of arrival, without overtaking") {
  DeviceShape shape;
  shape.num_seats = 2;
  shape.num_blocks = 20;
  Bench b(shape);
  std::vector<Ticket> tickets;
  // The third needs more blocks than are left; the small ones behind it must wait for it.
  for (uint32_t len : {40u, 60u, 100u, 1u, 2u, 3u})
    tickets.push_back(b.front.submit(ask_of(len, 6)));
  std::vector<Ticket*> all;
  for (Ticket& t : tickets) all.push_back(&t);
  b.finish(all);
  const auto admitted = b.device.decisions(Decision::kAdmit);
  REQUIRE(admitted.size() == tickets.size());
  for (size_t i = 0; i < tickets.size(); ++i) {
    CHECK(admitted[i].first == tickets[i].slot);
    check_yield(tickets[i], shape);
  }
}

TEST_CASE("the order of arrival is the frontend's sequence, not the slot, and may wrap") {
  Bench b;
  std::vector<Ticket> tickets;
  const uint64_t start = UINT64_MAX - 1;
  for (uint32_t i = 0; i < 5; ++i) {
    const uint32_t slot = b.front.first_slot() + 20 - 4 * i;
    Ticket t = b.front.prepare(ask_of(4, 3, i), slot);
    sac_descriptor d = b.front.descriptor(t.ask, slot);
    d.sequence = start + i;
    b.front.write_descriptor(d, slot);
    b.front.ring(t);
    tickets.push_back(t);
  }
  b.device.tick();
  const auto admitted = b.device.decisions(Decision::kAdmit);
  REQUIRE(admitted.size() == 5);
  for (size_t i = 0; i < 5; ++i) CHECK(admitted[i].first == tickets[i].slot);
}

/// What must hold for any step: the rows are within the budget and add up, decodes come first with
/// one row each, every row is one that the sequence has not computed.
void check_batch(const TestDevice& d) {
  const StepBatch& batch = d.batch();
  CHECK(batch.num_rows <= d.shape.max_num_batched_tokens);
  uint32_t rows = 0, samples = 0;
  bool prompts_began = false;
  for (uint32_t i = 0; i < batch.num_seqs; ++i) {
    const StepSeq& q = d.seq(i);
    const Seat& seat = d.seat_of(i);
    CHECK(q.first_row == rows);
    CHECK(q.num_rows >= 1);
    CHECK(q.first_position + q.num_rows == seat.num_computed);
    // After commit a sampled sequence knows one token more than it has computed.
    if (q.sample != 0) CHECK(seat.num_tokens == seat.num_computed + 1);
    const bool decode = q.sample != 0 && q.num_rows == 1;
    CHECK_FALSE((decode && prompts_began && seat.num_produced > 1));
    prompts_began |= !decode;
    rows += q.num_rows;
    samples += q.sample;
  }
  CHECK(rows == batch.num_rows);
  CHECK(samples == batch.num_samples);
}

TEST_CASE("the token budget is never exceeded; decodes ride first, prompts in chunks") {
  DeviceShape shape;
  shape.num_seats = 6;
  shape.max_num_batched_tokens = 16;
  Bench b(shape);
  std::vector<Ticket> tickets;
  for (uint32_t i = 0; i < 20; ++i) tickets.push_back(b.front.submit(ask_of(1 + i * 5, 10 + i, i)));
  uint32_t mixed = 0;
  for (uint32_t i = 0; i < 2000 && (i == 0 || !b.device.idle()); ++i) {
    if (b.device.tick() != 0) {
      check_batch(b.device);
      const StepBatch& batch = b.device.batch();
      mixed += batch.num_seqs > 1 && batch.num_rows > batch.num_seqs ? 1 : 0;
    }
    for (Ticket& t : tickets) b.front.read(t);
  }
  for (const Ticket& t : tickets) check_yield(t, shape);
  CHECK(mixed > 5);  // prompts did ride with decodes
}

TEST_CASE("a running decode gets a token in every step while prompts are chunked") {
  DeviceShape shape;
  shape.max_num_batched_tokens = 9;
  Bench b(shape);
  Ticket decode = b.front.submit(ask_of(2, 60));
  while (decode.records() == 0) {
    b.device.tick();
    b.front.read(decode);
  }
  Ticket prompt = b.front.submit(ask_of(100, 2, 1));
  while (prompt.records() == 0) {
    const uint32_t before = decode.records();
    b.device.tick();
    b.front.read(decode);
    b.front.read(prompt);
    CHECK(decode.records() == before + 1);
  }
  b.finish({&decode, &prompt});
  check_yield(decode, shape);
  check_yield(prompt, shape);
}

TEST_CASE("inline prefill: decodes pause while admitted prompts run, then resume") {
  DeviceShape shape;
  shape.policy = PrefillPolicy::kInline;
  shape.max_num_batched_tokens = 10;
  Bench b(shape);
  Ticket decode = b.front.submit(ask_of(2, 60));
  while (decode.records() < 3) {
    b.device.tick();
    b.front.read(decode);
  }
  Ticket prompt = b.front.submit(ask_of(95, 2, 1));
  uint32_t ticks = 0;
  while (prompt.records() == 0) {
    const uint32_t before = decode.records();
    b.device.tick();
    b.front.read(decode);
    b.front.read(prompt);
    CHECK(decode.records() == before);
    REQUIRE(++ticks <= 10);
  }
  CHECK(ticks == 10);  // the whole budget was the prompt's
  b.finish({&decode, &prompt});
  check_yield(decode, shape);
  check_yield(prompt, shape);
}

TEST_CASE("inline prefill: a stream of one-token prompts does not starve a decode") {
  DeviceShape shape;
  shape.policy = PrefillPolicy::kInline;
  shape.num_seats = 3;
  Bench b(shape);
  Ticket decode = b.front.submit(ask_of(2, 30));
  std::vector<Ticket> prompts;
  for (uint32_t i = 0; i < 400 && !decode.complete(); ++i) {
    prompts.push_back(b.front.submit(ask_of(20, 1, i)));  // ends with its prompt, never decodes
    b.device.tick();
    b.front.read(decode);
    for (Ticket& t : prompts) b.front.read(t);
  }
  CHECK(decode.complete());
}

TEST_CASE("tickets of a slot wrap at 2^24") {
  Bench b;
  const uint32_t slot = b.front.first_slot();
  // The slot as a long life would have left it: its last ticket is the highest one.
  b.front.submit_at(ask_of(1, 1), slot);
  store_release(b.ring.doorbell_mut(slot), sac_doorbell(SAC_TICKET_MASK, SAC_DOORBELL_CANCEL));
  for (uint32_t i = 0; i < 3; ++i) b.device.tick();
  REQUIRE(sac_status_ticket(b.ring.status_word(slot)) == SAC_TICKET_MASK);
  for (uint32_t ticket : {0u, 1u}) {
    Ticket t = b.front.submit_at(ask_of(3, 4, ticket), slot);
    CHECK(t.ticket == ticket);
    b.finish({&t});
    check_yield(t, b.device.shape);
  }
}

TEST_CASE("a doorbell rung right after the end is served, before the old seat is retired") {
  Bench b;
  const uint32_t slot = b.front.first_slot();
  Ticket first = b.front.submit_at(ask_of(3, 1), slot);
  b.device.tick();
  b.front.read(first);
  REQUIRE(first.complete());
  CHECK_FALSE(b.device.idle());  // the seat is retired by the next tick
  Ticket second = b.front.submit_at(ask_of(3, 4, 1), slot);
  b.finish({&second});
  check_yield(second, b.device.shape);
}

TEST_CASE("statistics add up") {
  Bench b;
  Ticket a = b.front.submit(ask_of(10, 5));
  Ticket c = b.front.submit(ask_of(70, 3, 1));
  b.finish({&a, &c});
  b.device.tick();
  const sac_device_stats& st = *b.ring.view.stats;
  CHECK(st.requests_accepted == 2);
  CHECK(st.requests_finished == 2);
  CHECK(st.prefill_tokens == 80);
  CHECK(st.decode_tokens == 4 + 2);
  CHECK(st.recomputed_tokens == 0);
  CHECK(st.num_running == 0);
  CHECK(st.blocks_used == 0);
  CHECK(st.blocks_used_max >= 11);
}

/// A device on which a step takes 5 ms and 0.3 ms for each row, with streams and their gaps.
struct PacedRig {
  static constexpr uint64_t kMs = 1'000'000;
  Bench b;
  std::vector<Ticket> streams;
  uint64_t longest_gap_ns = 0;
  uint64_t rows = 0;

  explicit PacedRig(PrefillPolicy policy, uint64_t slo_tbt_ns = 100 * kMs)
      : b(shape(policy), ring()) {
    b.device.s.waiting.slo_tbt_ns = slo_tbt_ns;
    b.device.step.during = [this] {
      b.device.now_ns += 5 * kMs + b.device.batch().num_rows * 3 * kMs / 10;
      rows = b.device.batch().num_rows;
      b.front.beat();
    };
  }
  static DeviceShape shape(PrefillPolicy policy) {
    DeviceShape shape;
    shape.max_model_len = 2500;
    shape.num_blocks = 2000;
    shape.max_num_batched_tokens = 512;
    shape.policy = policy;
    return shape;
  }
  static RingShape ring() {
    RingShape ring;
    ring.arena_bytes = ring.num_slots * 16384;
    return ring;
  }
  void tick() {
    const uint64_t before_ns = b.device.now_ns;
    b.device.tick();
    for (Ticket& t : streams) b.front.read(t);
    longest_gap_ns = std::max(longest_gap_ns, b.device.now_ns - before_ns);
  }
  /// A stream that decodes, on a device that has computed prompts.
  void warm_up() {
    Ticket first = b.front.submit(ask_of(600, 20));
    b.finish({&first});
    streams.push_back(b.front.submit(ask_of(8, 2000, 1)));
    for (uint32_t i = 0; i < 20; ++i) tick();
    longest_gap_ns = 0;
  }
  /// The oldest stream.
  const Seat& stream() const { return b.device.s.seats[b.device.s.seats.running[0]]; }
  /// Its mean time between tokens.
  uint64_t mean_gap_ns() const {
    return (stream().last_token_ns - stream().first_token_ns) / (stream().num_produced - 1);
  }
  /// Ticks until a prompt of 1,900 tokens has yielded its token.
  uint32_t run_prompt() {
    Ticket prompt = b.front.submit(ask_of(1900, 1, 2));
    uint32_t ticks = 0;
    for (; !prompt.complete() && ticks < 1000; ++ticks) {
      tick();
      b.front.read(prompt);
    }
    check_yield(prompt, b.device.shape);
    return ticks;
  }
};

TEST_CASE("paced: a long prompt leaves the gaps of streams within their target") {
  PacedRig chunked(PrefillPolicy::kChunked);
  chunked.warm_up();
  CHECK(chunked.run_prompt() == 4);
  CHECK(chunked.longest_gap_ns == 158'600'000);  // 512 rows
  for (const uint64_t target_ms : {50u, 100u, 1000u}) {
    CAPTURE(target_ms);
    PacedRig paced(PrefillPolicy::kPaced, target_ms * PacedRig::kMs);
    paced.warm_up();
    const uint32_t ticks = paced.run_prompt();
    CHECK(paced.longest_gap_ns <= std::min<uint64_t>(target_ms, 159) * PacedRig::kMs);
    // The time of steps is used: less than a quarter of it is left.
    CHECK(ticks <= 1 + 1900 / ((std::min<uint64_t>(target_ms, 158) * 3 / 4 - 5) * 10 / 3));
  }
}

TEST_CASE("paced: where targets are missed anyway, prompts still have half of the time") {
  PacedRig rig(PrefillPolicy::kPaced, 1);
  rig.warm_up();
  CHECK(rig.run_prompt() <= 1900 / 16 + 1);
  CHECK(rig.longest_gap_ns <= 11 * PacedRig::kMs);
}

TEST_CASE("paced: a prompt that would be late gets the time that streams have in hand") {
  constexpr uint64_t kTarget = 50 * PacedRig::kMs;
  PacedRig in_time(PrefillPolicy::kPaced, kTarget), late(PrefillPolicy::kPaced, kTarget);
  for (PacedRig* rig : {&in_time, &late}) rig->warm_up();
  // The gaps alone leave 125 rows a step, and so 16 steps or 700 ms.
  late.b.device.s.waiting.slo_ttft_ns = 1'000 * PacedRig::kMs;
  CHECK(in_time.run_prompt() == 16);
  CHECK(in_time.longest_gap_ns <= kTarget);
  CHECK(late.run_prompt() <= 8);
  CHECK(late.longest_gap_ns > kTarget);
  CHECK(late.longest_gap_ns <= 2 * kTarget);
}

TEST_CASE("paced: streams lend no more than they have in hand") {
  constexpr uint64_t kTarget = 50 * PacedRig::kMs;
  PacedRig rig(PrefillPolicy::kPaced, kTarget);
  rig.warm_up();
  rig.b.device.s.waiting.slo_ttft_ns = PacedRig::kMs;  // no prompt can be in time
  uint64_t most_ns = 0;
  for (uint32_t i = 0; i < 20; ++i) {
    Ticket prompt = rig.b.front.submit(ask_of(1900, 1, 2));
    while (!prompt.complete()) {
      rig.tick();
      rig.b.front.read(prompt);
      most_ns = std::max(most_ns, rig.mean_gap_ns());
    }
  }
  CHECK(most_ns <= kTarget);
  CHECK(most_ns >= kTarget * 3 / 4);  // and no less
  CHECK(rig.longest_gap_ns <= 2 * kTarget);
}

TEST_CASE("paced: without a stream a prompt has the whole budget") {
  PacedRig rig(PrefillPolicy::kPaced);
  Ticket first = rig.b.front.submit(ask_of(600, 20));
  rig.b.finish({&first});
  CHECK(rig.run_prompt() == 4);
}

TEST_CASE("paced: one step that took far too long is not taken for the rule") {
  PacedRig rig(PrefillPolicy::kPaced);
  rig.warm_up();
  rig.run_prompt();
  const uint64_t usual = rig.b.device.s.course.cost.prompts.cost_ns(1000);
  const auto normal = rig.b.device.step.during;
  rig.b.device.step.during = [&] {
    normal();
    if (rig.rows > 1) rig.b.device.now_ns += 2'000 * PacedRig::kMs;
  };
  Ticket prompt = rig.b.front.submit(ask_of(200, 1, 9));
  rig.tick();
  rig.b.device.step.during = normal;
  CHECK(rig.b.device.s.course.cost.prompts.cost_ns(1000) < usual * 5 / 4);
  rig.b.finish({&prompt});
}

}  // namespace
}  // namespace saccade::test
