// Policies against the formulas of the paper (SuperInfer: virtual lag time, largest first), against
// their contract, and in small worlds whose decisions are listed here in full.
#include <doctest/doctest.h>

#include "tests/policy_world.hpp"
#include "tests/random.hpp"

namespace saccade::test {
namespace {

constexpr uint64_t kS = 1'000'000'000;
constexpr uint64_t kNow = 100 * kS;
constexpr Policy kPolicies[] = {Policy::kFcfs, Policy::kWf, Policy::kSf, Policy::kLvf,
                                Policy::kGoodput};

/// Negative seconds wrap around, so that subtracting them adds.
uint64_t s(double seconds) {
  return static_cast<uint64_t>(static_cast<int64_t>(__builtin_round(seconds * 1e9)));
}

/// `ago`: since arrival, since the last token, or since it came onto the device.
Candidate at(CandidateState state, uint64_t order, double ago, uint32_t blocks = 1) {
  Candidate c = {};
  c.order = order;
  c.state = state;
  c.blocks = blocks;
  c.slo_ttft_ns = 5 * kS;
  c.slo_tbt_ns = kS / 10;
  c.arrival_ns = state == CandidateState::kWaiting ? kNow - s(ago) : kNow - 50 * kS;
  c.entered_ns = kNow - s(ago);
  if (state == CandidateState::kWaiting) return c;
  c.first_token_ns = kNow - 40 * kS;
  c.last_token_ns = state == CandidateState::kRotatedOut ? kNow - s(ago) : kNow;
  c.produced = 10;
  return c;
}
Candidate waiting(uint64_t order, double ago, uint32_t blocks = 1) {
  return at(CandidateState::kWaiting, order, ago, blocks);
}
Candidate rotated(uint64_t order, double ago, uint32_t blocks = 1) {
  return at(CandidateState::kRotatedOut, order, ago, blocks);
}
Candidate running(uint64_t order, double ago, uint32_t blocks = 1) {
  return at(CandidateState::kRunning, order, ago, blocks);
}

/// As published, without the rules added here.
PolicyInput published(uint32_t free_blocks) {
  PolicyInput in = {};
  in.now_ns = kNow;
  in.free_blocks = free_blocks;
  in.free_host_blocks = 1 << 20;
  in.seats = {1 << 20, 1 << 20, nullptr};
  in.step_rows = 2048;
  in.settings.min_run_ns = 0;
  in.settings.max_wait_ns = 1000 * kS;
  return in;
}

double lag_s(const PolicyInput& in, const Candidate& c) {
  return static_cast<double>(virtual_lag_ns(in, c)) / 1e9;
}

TEST_CASE("virtual lag time of a waiting request: its wait beyond beta_f of its TTFT target") {
  PolicyInput in = published(0);
  CHECK(lag_s(in, waiting(0, 4.0)) == doctest::Approx(4.0 - 0.5 * 5.0));
  CHECK(lag_s(in, waiting(0, 2.5)) == 0.0);
  CHECK(lag_s(in, waiting(0, 1.0)) == 0.0);
  in.settings.beta_f = 0.0f;
  CHECK(lag_s(in, waiting(0, 1.0)) == doctest::Approx(1.0));
  in.settings.beta_f = 0.25f;
  Candidate own_target = waiting(0, 4.0);
  own_target.slo_ttft_ns = 8 * kS;
  CHECK(lag_s(in, own_target) == doctest::Approx(4.0 - 0.25 * 8.0));
}

TEST_CASE("virtual lag time of a rotated-out request: alpha times its pause beyond beta_b") {
  PolicyInput in = published(0);
  CHECK(lag_s(in, rotated(0, 0.2)) == doctest::Approx(3.0 * 0.2));
  in.settings.beta_b = 1.0f;
  CHECK(lag_s(in, rotated(0, 0.2)) == doctest::Approx(3.0 * (0.2 - 0.1)));
  CHECK(lag_s(in, rotated(0, 0.05)) == 0.0);
  in.settings.beta_b = -10.0f;  // a head start of a second
  CHECK(lag_s(in, rotated(0, 0.2)) == doctest::Approx(3.0 * (0.2 + 1.0)));
  in.settings.alpha = 1.0f;
  CHECK(lag_s(in, rotated(0, 0.2)) == doctest::Approx(1.2));
}

TEST_CASE("virtual lag time of a running request: minus the time since it came in") {
  const PolicyInput in = published(0);
  CHECK(lag_s(in, running(0, 3.0)) == doctest::Approx(-3.0));
  CHECK(lag_s(in, running(0, 0.0)) == 0.0);
}

TEST_CASE("without a token, a request that lost its blocks waits as if it never had any") {
  Candidate c = rotated(0, 0.2);
  c.first_token_ns = c.last_token_ns = 0;
  c.produced = 0;
  c.arrival_ns = kNow - 4 * kS;
  CHECK(lag_s(published(0), c) == doctest::Approx(1.5));
}

TEST_CASE("lvf: the largest lag comes in, the smallest leaves, within the budget") {
  PolicyInput in = published(2);
  in.settings.b_xfer_blocks = 6;  // left = 8
  const std::vector<Candidate> all = {
      waiting(10, 3.0, 4),  // 0.5
      rotated(11, 1.0, 4),  // 3.0: first
      waiting(12, 9.0, 2),  // 6.5: before it
      running(0, 5.0, 3),   // -5: second to leave
      running(1, 8.0, 3),   // -8: first to leave
      running(2, 1.0, 3),
  };
  // 2 + 4 of 8 fit, the other 4 do not. 4 blocks are missing: two leave.
  const Answer answer = ask(Policy::kLvf, in, all);
  CHECK(answer.bring_in == std::vector<uint64_t>{12, 11});
  CHECK(answer.preempt == std::vector<uint64_t>{1, 0});
}

TEST_CASE("lvf: a request that does not fit is skipped, and smaller ones behind it come in") {
  PolicyInput in = published(3);
  in.settings.b_xfer_blocks = 0;
  const Answer answer =
      ask(Policy::kLvf, in, {waiting(1, 9.0, 4), waiting(2, 8.0, 2), running(0, 1.0, 5)});
  CHECK(answer.bring_in == std::vector<uint64_t>{2});
  CHECK(answer.preempt.empty());
}

TEST_CASE("lvf: when everything fits it is first come, first served") {
  const Answer answer =
      ask(Policy::kLvf, published(6), {rotated(3, 9.0, 2), waiting(2, 1.0, 4), running(0, 5.0, 9)});
  CHECK(answer.bring_in == std::vector<uint64_t>{2, 3});
  CHECK(answer.preempt.empty());
}

TEST_CASE("lvf: ties of lag go to the class, then to age") {
  PolicyInput in = published(2);
  in.settings.b_xfer_blocks = 0;
  std::vector<Candidate> all = {waiting(7, 1.0, 1), waiting(5, 1.5, 1), waiting(6, 2.0, 1)};
  all[0].priority = -1;
  CHECK(ask(Policy::kLvf, in, all).bring_in == std::vector<uint64_t>{7, 5});
}

/// Algorithm 1 of the paper as printed: sorted lists, sets and three sums.
Answer algorithm_1(const PolicyInput& in, std::vector<Candidate> all) {
  // In ns, which a double holds exactly, so that equal lags are equal here too.
  const auto ns = [](uint64_t t) { return static_cast<double>(t); };
  const auto vlt = [&](const Candidate& c) {
    const double now = ns(in.now_ns);
    if (c.state == CandidateState::kRunning) return -(now - ns(c.entered_ns));
    if (c.state == CandidateState::kRotatedOut)
      return in.settings.alpha *
             std::max(0.0, now - ns(c.last_token_ns) - in.settings.beta_b * ns(c.slo_tbt_ns));
    return std::max(0.0, now - ns(c.arrival_ns) - in.settings.beta_f * ns(c.slo_ttft_ns));
  };
  double b_hbm = in.free_blocks, off = 0;
  for (const Candidate& c : all)
    if (c.state != CandidateState::kRunning) off += c.blocks;
  Answer answer;
  if (b_hbm >= off) {
    std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.order < b.order; });
    for (const Candidate& c : all)
      if (c.state != CandidateState::kRunning) answer.bring_in.push_back(c.order);
    return answer;
  }
  std::sort(all.begin(), all.end(), [&](auto& a, auto& b) {
    return vlt(a) != vlt(b) ? vlt(a) > vlt(b) : a.order < b.order;
  });
  double b_left = b_hbm + in.settings.b_xfer_blocks;
  for (const Candidate& c : all) {
    if (c.state == CandidateState::kRunning || c.blocks > b_left) continue;
    answer.bring_in.push_back(c.order);
    b_left -= c.blocks;
  }
  double b_swap = in.settings.b_xfer_blocks - b_left;
  for (size_t i = all.size(); i > 0 && b_swap > 0; --i) {
    if (vlt(all[i - 1]) >= 0) continue;
    answer.preempt.push_back(all[i - 1].order);
    b_swap -= all[i - 1].blocks;
  }
  return answer;
}

TEST_CASE("lvf agrees with the paper's algorithm wherever its victims suffice") {
  const Seeds seeds(3000);
  uint64_t compared = 0;
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    PolicyInput in = published(random.in(0, 40));
    in.settings.b_xfer_blocks = random.in(0, 60);
    in.settings.alpha = static_cast<float>(random.in(0, 8)) / 2;
    in.settings.beta_b = static_cast<float>(random.in(0, 20)) - 10;
    std::vector<Candidate> all;
    for (uint64_t i = 0, n = random.in(1, 30); i < n; ++i)
      all.push_back(at(static_cast<CandidateState>(random.in(0, 2)), i,
                       random.in(1, 12000) / 1000.0, random.in(1, 20)));
    const Answer expected = algorithm_1(in, all);
    if (sum_blocks(all, expected.bring_in) > in.free_blocks + sum_blocks(all, expected.preempt))
      continue;
    ++compared;
    CHECK(ask(Policy::kLvf, in, all) == expected);
  }
  if (seeds.last > 1000) CHECK(compared > seeds.last / 4);
}

TEST_CASE("lvf: an entrant that cannot get room stays out, and no request leaves for it") {
  PolicyInput in = published(0);
  const Answer answer =
      ask(Policy::kLvf, in,
          {waiting(1, 9.0, 2), waiting(2, 8.0, 5), running(0, 5.0, 1), running(3, 4.0, 2)});
  CHECK(answer.bring_in == std::vector<uint64_t>{1});
  CHECK(answer.preempt == std::vector<uint64_t>{0, 3});
}

TEST_CASE("no request leaves by choice before a token, within the minimum run, or while fixed") {
  for (const Policy policy : {Policy::kWf, Policy::kLvf, Policy::kGoodput}) {
    CAPTURE(static_cast<uint32_t>(policy));
    PolicyInput in = published(0);
    in.settings.min_run_ns = kS / 2;
    std::vector<Candidate> all = {waiting(9, 4.9, 1), running(0, 0.4, 4), running(1, 5, 4),
                                  running(2, 6, 4)};
    all[2].produced = 0;
    all[2].first_token_ns = all[2].last_token_ns = 0;
    all[3].fixed = 1;
    CHECK(ask(policy, in, all) == Answer{});
  }
}

TEST_CASE("a request whose unsent blocks do not fit in host memory stays") {
  PolicyInput in = published(0);
  in.free_host_blocks = 2;
  std::vector<Candidate> all = {waiting(9, 4.0, 1), running(0, 8, 4), running(1, 5, 4)};
  all[1].blocks_to_send = 3;
  all[2].blocks_to_send = 2;
  CHECK(ask(Policy::kLvf, in, all).preempt == std::vector<uint64_t>{1});
  in.free_host_blocks = 0;
  CHECK(ask(Policy::kLvf, in, all) == Answer{});
}

TEST_CASE("a request that finds no seat claims no blocks, and does not hold the line") {
  for (const Policy policy : {Policy::kWf, Policy::kSf, Policy::kLvf}) {
    CAPTURE(static_cast<uint32_t>(policy));
    PolicyInput in = published(2);
    in.settings.b_xfer_blocks = 4;
    in.settings.max_wait_ns = 20 * kS;
    in.seats = {0, 0, nullptr};
    // One of them waited longer than max_wait.
    CHECK(ask(policy, in, {waiting(7, 21.0, 4), waiting(8, 9.0, 3), running(0, 5.0, 4)}) ==
          Answer{});
    CHECK(ask(policy, in,
              {waiting(7, 21.0, 4), waiting(8, 9.0, 3), rotated(9, 1.0, 2), running(0, 5.0, 4)}) ==
          Answer{{9}, {}});
    in.seats = {1, 1, nullptr};
    in.free_blocks = 4;
    CHECK(ask(policy, in, {waiting(7, 21.0, 4), waiting(8, 9.0, 3), running(0, 5.0, 4)}) ==
          Answer{{7}, {}});
  }
}

TEST_CASE("blocks that running requests need for their next token are not given away") {
  for (const Policy policy : kPolicies) {
    CAPTURE(static_cast<uint32_t>(policy));
    PolicyInput in = published(5);
    in.growth_blocks = 3;
    in.settings.b_xfer_blocks = 0;
    CHECK(ask(policy, in, {waiting(1, 1.0, 3), running(0, 1, 9)}).bring_in.empty());
    CHECK(ask(policy, in, {waiting(1, 1.0, 2), running(0, 1, 9)}).bring_in.size() == 1);
  }
}

TEST_CASE("wf brings in new requests first, sf rotated-out ones") {
  PolicyInput in = published(2);
  in.settings.b_xfer_blocks = 2;
  const std::vector<Candidate> all = {rotated(0, 9.0, 2), waiting(1, 1.0, 2), waiting(2, 0.5, 2),
                                      running(3, 5.0, 2)};
  CHECK(ask(Policy::kWf, in, all) == Answer{{1, 2}, {3}});
  CHECK(ask(Policy::kSf, in, all) == Answer{{0}, {}});
  CHECK(ask(Policy::kFcfs, in, all) == Answer{{0}, {}});
}

TEST_CASE("a request that waited longer than max_wait goes first and holds the line") {
  for (const Policy policy : {Policy::kWf, Policy::kSf, Policy::kLvf}) {
    CAPTURE(static_cast<uint32_t>(policy));
    PolicyInput in = published(3);
    in.settings.b_xfer_blocks = 0;
    in.settings.max_wait_ns = 20 * kS;
    const Answer held =
        ask(policy, in, {rotated(5, 21.0, 4), rotated(6, 1.0, 1), waiting(7, 9.0, 1)});
    CHECK(held.bring_in.empty());
    in.free_blocks = 4;
    const Answer first =
        ask(policy, in, {waiting(5, 21.0, 4), rotated(6, 1.0, 1), waiting(7, 9.0, 1)});
    CHECK(first.bring_in == std::vector<uint64_t>{5});
  }
}

std::vector<Candidate> random_candidates(Random& random) {
  std::vector<Candidate> all;
  for (uint64_t i = 0, n = random.in(0, 40); i < n; ++i) {
    Candidate c = at(static_cast<CandidateState>(random.in(0, 2)), i, random.in(0, 100000) / 1000.0,
                     random.in(1, 20));
    c.arrival_ns = std::min(c.arrival_ns, c.entered_ns);
    c.priority = static_cast<int32_t>(random.in(0, 4)) - 2;
    c.slo_ttft_ns = random.in(1, 10000) * uint64_t{1'000'000};
    c.slo_tbt_ns = random.in(1, 500) * uint64_t{1'000'000};
    c.prompt_tokens_left = random.in(0, 4000);
    c.rows = random.in(1, 4000);
    if (c.state == CandidateState::kRunning) {
      c.fixed = random.one_in(8) ? 1 : 0;
      c.blocks_to_send = random.in(0, 3);
    }
    if (c.state != CandidateState::kWaiting && random.one_in(6)) {
      c.produced = 0;
      c.first_token_ns = c.last_token_ns = 0;
    }
    all.push_back(c);
  }
  return all;
}

TEST_CASE("any candidates: the contract holds, whatever their order") {
  const Seeds seeds(4000);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    std::vector<Candidate> all = random_candidates(random);
    PolicyInput in = published(random.in(0, 60));
    in.growth_blocks = random.in(0, 10);
    in.free_host_blocks = random.in(0, 20);
    in.step_ns = random.in(0, 200) * uint64_t{1'000'000};
    in.step_rows = random.in(0, 4096);
    in.settings.b_xfer_blocks = random.in(0, 80);
    in.settings.min_run_ns = random.in(0, 2) * kS;
    in.settings.max_wait_ns = random.in(1, 100) * kS;
    std::vector<Candidate> shuffled = all;
    for (size_t i = shuffled.size(); i > 1; --i)
      std::swap(shuffled[i - 1], shuffled[random.in(0, static_cast<uint32_t>(i) - 1)]);
    for (const Policy policy : kPolicies) {
      CAPTURE(static_cast<uint32_t>(policy));
      CHECK(ask(policy, in, all) == ask(policy, in, shuffled));
    }
  }
}

TEST_CASE("any candidates that fit: all come in by age, none leaves") {
  const Seeds seeds(500);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::vector<Candidate> all = random_candidates(random);
    Answer expected;
    for (const Candidate& c : all)
      if (c.state != CandidateState::kRunning) expected.bring_in.push_back(c.order);
    PolicyInput in = published(static_cast<uint32_t>(sum_blocks(all, expected.bring_in)) + 4);
    in.growth_blocks = 4;
    in.step_rows = 1 << 20;
    for (const Policy policy : kPolicies) {
      CAPTURE(static_cast<uint32_t>(policy));
      CHECK(ask(policy, in, all) == expected);
    }
  }
}

// --- goodput ------------------------------------------------------------------------------------

TEST_CASE("goodput: requests that can make their TTFT come in before those too late for it") {
  PolicyInput in = published(2);
  in.settings.b_xfer_blocks = 0;
  CHECK(
      ask(Policy::kGoodput, in, {waiting(0, 6.0), waiting(1, 5.5), waiting(2, 4.0), waiting(3, 3)})
          .bring_in == std::vector<uint64_t>{2, 3});
  // Room for one more: late requests by age.
  in.free_blocks = 3;
  CHECK(
      ask(Policy::kGoodput, in, {waiting(0, 6.0), waiting(1, 5.5), waiting(2, 4.0), waiting(3, 3)})
          .bring_in == std::vector<uint64_t>{2, 3, 0});
  // The step in flight and the one that computes the prompt are on its path.
  in.free_blocks = 1;
  in.step_ns = kS / 10;
  CHECK(ask(Policy::kGoodput, in, {waiting(0, 4.9), waiting(1, 4.0)}).bring_in ==
        std::vector<uint64_t>{1});
}

TEST_CASE("goodput: where steps are full, not memory, requests wait where they can be reordered") {
  PolicyInput in = published(1000);
  std::vector<Candidate> all = {waiting(0, 1.0), waiting(1, 4.0), waiting(2, 3.0), waiting(3, 0.5)};
  for (Candidate& c : all) c.rows = 900;
  // By slack, until the next step is full: 2,048 rows.
  CHECK(ask(Policy::kGoodput, in, all).bring_in == std::vector<uint64_t>{1, 2, 0});
  Candidate prefills = running(5, 1.0, 100);
  prefills.rows = 2047;
  all.push_back(prefills);
  CHECK(ask(Policy::kGoodput, in, all).bring_in == std::vector<uint64_t>{1});
  all.back().rows = 2048;
  CHECK(ask(Policy::kGoodput, in, all) == Answer{});
  SUBCASE("but not who was on the device already") {
    all.push_back(rotated(4, 0.1));
    CHECK(ask(Policy::kGoodput, in, all).bring_in == std::vector<uint64_t>{4});
  }
  SUBCASE("nor the late one whose turn it is") {
    all[0].arrival_ns = kNow - 60 * kS;
    PolicyState state = {};
    state.late_credit = 16;
    CHECK(ask(Policy::kGoodput, in, all, state).bring_in == std::vector<uint64_t>{0});
  }
  SUBCASE("by age when all of it fits the next step") {
    in.step_rows = 4 * 900 + 2048;
    CHECK(ask(Policy::kGoodput, in, all).bring_in == std::vector<uint64_t>{0, 1, 2, 3});
  }
}

TEST_CASE("goodput: where seats are short, not blocks, late requests do not hold up the others") {
  PolicyInput in = published(100);
  in.seats = {1, 1, nullptr};
  const std::vector<Candidate> all = {waiting(0, 6.0), waiting(1, 4.0), waiting(2, 3.0),
                                      rotated(3, 0.1)};
  const Answer answer = ask(Policy::kGoodput, in, all);
  CHECK(answer.bring_in == std::vector<uint64_t>{1, 3});
}

TEST_CASE("a free seat of one tenant's share is not given to another's request") {
  for (const Policy policy : {Policy::kWf, Policy::kSf, Policy::kLvf, Policy::kGoodput}) {
    CAPTURE(static_cast<uint32_t>(policy));
    PolicyInput in = published(4);
    in.settings.max_wait_ns = 20 * kS;
    uint32_t own[2] = {0, 1};
    in.seats = {1, 0, own};
    in.over = 1;
    // The other's is overdue, and the next late one to have its turn.
    std::vector<Candidate> all = {waiting(0, 60.0), waiting(1, 1.0), waiting(2, 0.5),
                                  waiting(3, 0.1, 10)};
    for (uint32_t i = 1; i < 4; ++i) all[i].tenant = 1;
    PolicyState state = {};
    state.late_credit = 1000;
    CHECK(ask(policy, in, all, state).bring_in == std::vector<uint64_t>{1});
    // Nor while it has the turn that it got when there was a seat for it.
    own[1] = 1;
    state.late_turn = 1;
    CHECK(ask(policy, in, all, state).bring_in == std::vector<uint64_t>{1});
    if (policy == Policy::kGoodput) CHECK(state.late_turn == 0);
    // A spare seat is for anyone.
    own[1] = 1;
    in.seats = {2, 1, own};
    CHECK(ask(policy, in, all, state).bring_in.size() == 2);
  }
}

TEST_CASE("goodput: the more important class first, then the tighter target") {
  PolicyInput in = published(1);
  in.settings.b_xfer_blocks = 0;
  std::vector<Candidate> all = {waiting(0, 1.0), waiting(1, 1.0), waiting(2, 1.0)};
  all[1].slo_ttft_ns = 2 * kS;
  CHECK(ask(Policy::kGoodput, in, all).bring_in == std::vector<uint64_t>{1});
  all[2].priority = -1;
  CHECK(ask(Policy::kGoodput, in, all).bring_in == std::vector<uint64_t>{2});
}

TEST_CASE("goodput: among equal deadlines the small prompt first") {
  PolicyInput in = published(20);
  in.settings.b_xfer_blocks = 0;
  CHECK(ask(Policy::kGoodput, in, {waiting(0, 1.05, 18), waiting(1, 1.0, 4)}).bring_in ==
        std::vector<uint64_t>{1});
}

/// On the device for 10 s, with `slack` seconds in hand.
Candidate ahead(uint64_t order, double slack, uint32_t blocks) {
  Candidate c = running(order, 10.0, blocks);
  c.produced = 200;
  c.first_token_ns = kNow + s(slack) - 20 * kS;
  return c;
}

TEST_CASE("goodput: an urgent request takes blocks of requests with far more time in hand") {
  PolicyInput in = published(0);
  in.step_ns = kS / 50;  // a fifth of the TBT target: the device can be shared
  const std::vector<Candidate> hurry = {waiting(9, 4.9, 2), ahead(0, 0.9, 4), ahead(1, 3.0, 4)};
  CHECK(ask(Policy::kGoodput, in, hurry) == Answer{{9}, {1}});
  SUBCASE("not while it has time itself") {
    CHECK(ask(Policy::kGoodput, in, {waiting(9, 1.0, 2), ahead(1, 3.0, 4)}) == Answer{});
  }
  SUBCASE("not for one that is late already") {
    CHECK(ask(Policy::kGoodput, in, {waiting(9, 5.1, 2), ahead(1, 3.0, 4)}) == Answer{});
  }
  SUBCASE("not from those with as little time") {
    CHECK(ask(Policy::kGoodput, in, {waiting(9, 4.9, 2), ahead(1, 0.9, 4)}) == Answer{});
  }
  SUBCASE("not when steps take most of the target: there is nothing to share") {
    in.step_ns = kS / 11;
    CHECK(ask(Policy::kGoodput, in, {waiting(9, 4.7, 2), ahead(0, 3.0, 40)}) == Answer{});
  }
  SUBCASE("and who was rotated out comes back when its own time runs out") {
    Candidate out = ahead(5, 0.2, 3);
    out.state = CandidateState::kRotatedOut;
    CHECK(ask(Policy::kGoodput, in, {out, ahead(0, 0.9, 4), ahead(1, 3.0, 4)}) == Answer{{5}, {1}});
  }
}

TEST_CASE("goodput: growth takes blocks of the request with most time in hand") {
  PolicyInput in = published(0);
  in.growth_blocks = 1;
  CHECK(ask(Policy::kGoodput, in, {ahead(0, 1.0, 4), ahead(1, 2.0, 4), waiting(3, 1.0, 9)}) ==
        Answer{{}, {1}});
}

TEST_CASE("goodput: no new request while steps are longer than the targets of running ones") {
  PolicyInput in = published(100);
  PolicyState state = {};
  state.least_step_ns = kS / 50;
  in.step_ns = s(0.097);
  const std::vector<Candidate> all = {waiting(1, 1.0, 2), ahead(0, 2.0, 4)};
  CHECK(ask(Policy::kGoodput, in, all, state) == Answer{});
  in.step_ns = s(0.09);
  CHECK(ask(Policy::kGoodput, in, all, state).bring_in == std::vector<uint64_t>{1});
  // A target that no step can meet holds no request back.
  state.least_step_ns = s(0.06);
  in.step_ns = s(0.097);
  CHECK(ask(Policy::kGoodput, in, all, state).bring_in == std::vector<uint64_t>{1});
}

TEST_CASE("goodput: the shortest step is not forgotten under load") {
  PolicyInput in = published(10);
  PolicyState state = {};
  state.least_step_ns = kS / 50;
  in.step_ns = s(0.097);
  const auto after_an_hour = [&](uint32_t held) {
    const std::vector<Candidate> all = {waiting(1, 1.0, 2), ahead(0, 2.0, held)};
    for (uint32_t tick = 0; tick < 36'000; ++tick) ask(Policy::kGoodput, in, all, state);
    return ask(Policy::kGoodput, in, all, state).bring_in;
  };
  CHECK(after_an_hour(90).empty());
  // With next to nothing on the device, steps are as short as they can be: the target is out of
  // reach.
  CHECK(after_an_hour(1) == std::vector<uint64_t>{1});
}

TEST_CASE("goodput: no new request while running ones are behind the mean of their target") {
  PolicyInput in = published(100);
  PolicyState state = {};
  state.least_step_ns = kS / 50;
  in.step_ns = s(0.05);
  // 200 tokens may take 20 s; hand_s of them are still in hand.
  const auto brought = [&](double hand_s) {
    return ask(Policy::kGoodput, in, {waiting(1, 1.0, 2), ahead(0, hand_s, 4)}, state).bring_in;
  };
  const std::vector<uint64_t> nobody, the_new = {1};
  CHECK(brought(1.1) == the_new);
  CHECK(brought(0.9) == nobody);
  CHECK(brought(-0.5) == nobody);
  CHECK(brought(-1.5) == the_new);  // lost already: it holds no request back
}

// --- small worlds -------------------------------------------------------------------------------

/// Four blocks of sixteen tokens; requests of one or two blocks come faster than they leave.
std::string decisions(Policy policy) {
  PolicySettings settings;
  settings.b_xfer_blocks = 2;
  settings.min_run_ns = kS / 5;
  PolicyWorld world(policy, 4, settings);
  for (uint32_t i = 0; i < 6; ++i) {
    world.arrive(i % 2 == 0 ? 12 : 20, 24);
    for (uint32_t t = 0; t < 4; ++t) world.tick();
  }
  CHECK(world.finish(1000));
  return world.log;
}

TEST_CASE("decisions in a small world, policy by policy: tick, - leaves, + comes in") {
  // None leaves by choice: the youngest leave when an older one grows, and come back in between.
  const std::string by_age = "0 +0; 4 +1; 24 +1 +2; 35 +2 +3; 54 +3 +4; 65 +4 +5; 84 +5";
  CHECK(decisions(Policy::kFcfs) == by_age);
  CHECK(decisions(Policy::kSf) == by_age);
  CHECK(decisions(Policy::kWf) ==
        "0 +0; 4 +1; 8 -0 +2; 12 -1 +3; 16 -2 +4; 20 -3 +5; 34 +0; 38 +1; 50 +1; "
        "61 +2 +3; 77 +3; 88 +4; 91 +5");
  CHECK(decisions(Policy::kLvf) ==
        "0 +0; 4 +1; 8 -0 +2; 9 -1 +0; 14 -2 +1; 15 -0 +2; 19 -1 +0; 20 -2 +1; "
        "24 -0 +2 +3; 29 -3 +0; 30 -2 +3; 34 +1; 39 -1 +2 +4; 44 -4 -2 +3; 49 -3 +1; "
        "54 -1 +2; 56 +4 +3; 61 -3 +1; 62 +4; 67 -4 +3; 72 -3 +4; 77 -4 +3; 80 +4 +5; "
        "85 -4 +5; 90 -5 +4; 92 +5");
  CHECK(decisions(Policy::kGoodput) ==
        "0 +0; 4 +1; 17 -0 +2; 22 -1 +0; 26 -2; 29 +2; 42 -2 +1; 48 +2; 50 +3 +4; 63 -4; "
        "73 -3 +4; 84 +3; 85 +5");
}

TEST_CASE("under endless overload every request gets its turn within the bound") {
  const Seeds seeds(4);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    for (const Policy policy : kPolicies) {
      CAPTURE(seed);
      CAPTURE(static_cast<uint32_t>(policy));
      Random random(seed);
      PolicySettings settings;
      settings.max_wait_ns = 10 * kS;
      PolicyWorld world(policy, 200, settings);
      // About 13 blocks and 60 ticks each on 200 blocks: room for four in 16 ticks; five arrive.
      for (uint32_t t = 0; t < 6000; ++t) {
        if (t % 16 < 15 && t % 3 == 0) world.arrive(random.in(50, 250), random.in(20, 100));
        world.tick();
      }
      // The first tenth of the requests have ended while the overload continues.
      for (const Job& j : world.jobs)
        if (j.c.order < world.jobs.size() / 10) CHECK(j.done_ns != 0);
      CHECK(world.finish(20000));
    }
  }
}

}  // namespace
}  // namespace saccade::test
