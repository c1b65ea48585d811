// A device without a scheduler around the policies: requests arrive, hold blocks, yield one token
// per tick and leave. A policy's answer is checked against its contract and carried out at once.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "sched/policy/decide.hpp"

namespace saccade::test {

/// A policy's answer, by candidates' order numbers.
struct Answer {
  std::vector<uint64_t> bring_in;
  std::vector<uint64_t> preempt;
  bool operator==(const Answer&) const = default;
};

inline uint64_t sum_blocks(const std::vector<Candidate>& all, const std::vector<uint64_t>& orders) {
  uint64_t sum = 0;
  for (const Candidate& c : all)
    if (std::find(orders.begin(), orders.end(), c.order) != orders.end()) sum += c.blocks;
  return sum;
}

/// What policy.hpp promises about every answer.
inline void check_contract(const PolicyInput& in, const std::vector<Candidate>& all,
                           const Answer& answer) {
  std::set<uint64_t> seen;
  uint64_t sent = 0;
  for (const uint64_t order : answer.bring_in) CHECK(seen.insert(order).second);
  for (const uint64_t order : answer.preempt) CHECK(seen.insert(order).second);
  for (const Candidate& c : all) {
    const bool in_list = std::count(answer.bring_in.begin(), answer.bring_in.end(), c.order) != 0;
    const bool out_list = std::count(answer.preempt.begin(), answer.preempt.end(), c.order) != 0;
    if (in_list) CHECK(c.state != CandidateState::kRunning);
    if (!out_list) continue;
    CHECK(c.state == CandidateState::kRunning);
    CHECK(c.fixed == 0);
    CHECK(c.produced > 0);
    CHECK(in.now_ns - c.entered_ns > in.settings.min_run_ns);
    sent += c.blocks_to_send;
  }
  CHECK(sent <= in.free_host_blocks);
  CHECK(sum_blocks(all, answer.bring_in) <= in.free_blocks + sum_blocks(all, answer.preempt));
}

/// Asks a policy and checks its contract.
inline Answer ask(Policy policy, PolicyInput in, const std::vector<Candidate>& all,
                  PolicyState& state) {
  const size_t n = all.size();
  std::vector<uint32_t> bring_in(n), preempt(n), scratch(n);
  std::vector<int64_t> keys(n);
  in.num_candidates = static_cast<uint32_t>(n);
  in.candidates = all.data();
  PolicyOutput out = {bring_in.data(), preempt.data(), scratch.data(), keys.data(), 99, 99};
  decide(policy, in, state, out);
  REQUIRE(out.num_bring_in <= n);
  REQUIRE(out.num_preempt <= n);
  Answer answer;
  for (uint32_t i = 0; i < out.num_bring_in; ++i)
    answer.bring_in.push_back(all.at(bring_in[i]).order);
  for (uint32_t i = 0; i < out.num_preempt; ++i) answer.preempt.push_back(all.at(preempt[i]).order);
  check_contract(in, all, answer);
  return answer;
}
inline Answer ask(Policy policy, const PolicyInput& in, const std::vector<Candidate>& all) {
  PolicyState state = {};
  return ask(policy, in, all, state);
}

/// One request of a world, and what became of it.
struct Job {
  Candidate c;
  uint32_t prompt;
  uint32_t output;
  uint64_t done_ns = 0;
};

class PolicyWorld {
 public:
  static constexpr uint64_t kTickNs = 50'000'000;
  static constexpr uint32_t kBlockSize = 16;

  PolicyWorld(Policy policy, uint32_t blocks, const PolicySettings& settings)
      : policy_(policy), free_(blocks) {
    in_.settings = settings;
    in_.free_host_blocks = 1 << 20;
    in_.seats = {1 << 20, 1 << 20, nullptr};
    in_.step_ns = kTickNs;
    in_.step_rows = 2048;
  }

  void arrive(uint32_t prompt, uint32_t output, int32_t priority = 0) {
    Candidate c = {};
    c.order = jobs.size();
    c.arrival_ns = c.entered_ns = now_ns;
    c.slo_ttft_ns = 5'000'000'000;
    c.slo_tbt_ns = 100'000'000;
    c.priority = priority;
    c.blocks = blocks_for(prompt + 1);
    c.prompt_tokens_left = c.rows = prompt;
    jobs.push_back({c, prompt, output});
    live.push_back(c.order);
  }

  void tick() {
    std::vector<Candidate> all;
    in_.growth_blocks = 0;
    for (const uint64_t i : live) {
      all.push_back(jobs[i].c);
      in_.growth_blocks += lacking(jobs[i]);
    }
    in_.now_ns = now_ns;
    in_.free_blocks = free_;
    const Answer answer = ask(policy_, in_, all, state_);
    for (const uint64_t i : answer.preempt) leave(jobs[i]);
    for (const uint64_t i : answer.bring_in) enter(jobs[i]);
    note(answer);
    grow();
    now_ns += kTickNs;
    run();
    ++num_ticks;
  }
  /// Ticks until no request is left, at most `most_ticks` times. True if none is left.
  bool finish(uint64_t most_ticks) {
    for (uint64_t i = 0; i < most_ticks && !live.empty(); ++i) tick();
    return live.empty();
  }

  std::vector<Job> jobs;
  std::vector<uint64_t> live;  // oldest first
  std::string log;             // ticks at which anything was decided
  uint64_t now_ns = 1'000'000'000;
  uint64_t num_ticks = 0;

 private:
  static uint32_t blocks_for(uint32_t tokens) { return ceil_div(tokens, kBlockSize); }
  static uint32_t tokens(const Job& j) { return j.prompt + j.c.produced; }
  static uint32_t lacking(const Job& j) {
    if (j.c.state != CandidateState::kRunning) return 0;
    return blocks_for(tokens(j)) - min_u32(j.c.blocks, blocks_for(tokens(j)));
  }

  void enter(Job& j) {
    free_ -= j.c.blocks;
    j.c.state = CandidateState::kRunning;
    j.c.entered_ns = now_ns;
  }
  void leave(Job& j) {
    free_ += j.c.blocks;
    j.c.state = CandidateState::kRotatedOut;
    j.c.entered_ns = now_ns;
    j.c.blocks = blocks_for(tokens(j) + 1);
  }
  /// The oldest get the blocks that they lack; the youngest leave to make room.
  void grow() {
    for (size_t i = 0; i < live.size(); ++i) {
      Job& j = jobs[live[i]];
      for (size_t k = live.size(); lacking(j) > free_ && k > i;) {
        Job& youngest = jobs[live[--k]];
        if (youngest.c.state == CandidateState::kRunning) leave(youngest);
      }
      const uint32_t more = lacking(j);
      free_ -= more;
      if (j.c.state == CandidateState::kRunning) j.c.blocks += more;
    }
  }
  void run() {
    std::erase_if(live, [&](uint64_t i) {
      Job& j = jobs[i];
      if (j.c.state != CandidateState::kRunning) return false;
      j.c.prompt_tokens_left = 0;
      j.c.rows = 1;
      j.c.last_token_ns = now_ns;
      if (j.c.produced++ == 0) j.c.first_token_ns = now_ns;
      if (j.c.produced < j.output) return false;
      j.done_ns = now_ns;
      free_ += j.c.blocks;
      return true;
    });
  }
  void note(const Answer& answer) {
    if (answer.bring_in.empty() && answer.preempt.empty()) return;
    log += (log.empty() ? "" : "; ") + std::to_string(num_ticks);
    for (const uint64_t i : answer.preempt) log += " -" + std::to_string(i);
    for (const uint64_t i : answer.bring_in) log += " +" + std::to_string(i);
  }

  Policy policy_;
  PolicyInput in_ = {};
  PolicyState state_ = {};
  uint32_t free_;
};

}  // namespace saccade::test
