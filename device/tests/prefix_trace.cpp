// Hit rate of the prefix cache over a trace of a real service, through the shipped tick: what
// bench/prefix/simulate.py compares with its own simulations.
//
//   prefix_trace --blocks N [--host-blocks N] < REQUESTS
//
// REQUESTS has one line per request: the ids of its prompt's blocks; equal ids mean equal prefixes.
// Requests come one after the other. A block of the trace is a block of the device, of kBlockTokens
// tokens that its id decides; one token more is asked for, so that all blocks of a prompt count.
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>

#include "host/host_env.hpp"
#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

constexpr uint32_t kBlockTokens = 4;
constexpr uint32_t kVocab = 1u << 31;

std::vector<uint32_t> prompt_of(const std::string& line) {
  std::istringstream words(line);
  std::vector<uint32_t> prompt;
  for (uint32_t id = 0; words >> id;) {
    if (id >= kVocab) throw std::runtime_error("an id is too large");
    prompt.push_back(id);
    for (uint32_t i = 1; i < kBlockTokens; ++i) prompt.push_back(i);
  }
  prompt.push_back(0);
  return prompt;
}

DeviceShape shape_of(size_t longest, uint32_t num_blocks, uint32_t num_host_blocks) {
  DeviceShape shape;
  shape.num_seats = 1;
  shape.max_model_len = static_cast<uint32_t>(longest + 1);
  shape.max_num_batched_tokens = shape.max_model_len;
  shape.block_size = kBlockTokens;
  shape.num_blocks = num_blocks;
  shape.num_host_blocks = num_host_blocks;
  shape.eager_window = num_host_blocks == 0 ? 0 : 64;
  shape.vocab_size = kVocab;
  shape.log_words = 0;
  shape.prefix_caching = true;
  return shape;
}

struct Totals {
  uint64_t requests = 0, blocks = 0, hits = 0, changes = 0;
};

class Replay {
 public:
  Replay(size_t longest, uint32_t num_blocks, uint32_t num_host_blocks)
      : ring_(ring_shape(longest)),
        device_(ring_, shape_of(longest, num_blocks, num_host_blocks)),
        front_(ring_, 0) {
    front_.join();
    tick();
  }
  /// One request, to its end.
  void serve(const std::vector<uint32_t>& prompt) {
    const Eviction& eviction = device_.s.kv.store.eviction;
    const uint32_t chosen = eviction.chosen;
    Ask ask;
    ask.prompt = prompt;
    ask.max_tokens = 1;
    Ticket t = front_.submit(ask);
    for (uint32_t i = 0; !t.complete(); ++i) {
      if (i > 10000) throw std::runtime_error("a request does not end");
      tick();
      front_.read(t);
    }
    ++totals_.requests;
    totals_.blocks += prompt.size() / kBlockTokens;
    totals_.hits += ring_.view.status[t.slot].num_cached_tokens / kBlockTokens;
    tick();  // its seat is free
    totals_.changes += eviction.chosen != chosen ? 1 : 0;
  }
  const Totals& totals() const { return totals_; }

 private:
  static RingShape ring_shape(size_t longest) {
    RingShape shape;
    shape.arena_bytes = uint64_t{64} * 128 * ceil_div(static_cast<uint32_t>(longest), 32);
    return shape;
  }
  void tick() {
    front_.beat();
    device_.copies.advance();
    HostEnv<false> env{device_.s.report.ring};
    saccade::tick(device_.s, device_.step.null, device_.copies, env);
  }

  TestRing ring_;
  TestDevice device_;
  TestFrontend front_;
  Totals totals_;
};

int run(uint32_t num_blocks, uint32_t num_host_blocks) {
  std::vector<std::vector<uint32_t>> prompts;
  size_t longest = 1;
  for (std::string line; std::getline(std::cin, line);) {
    prompts.push_back(prompt_of(line));
    longest = std::max(longest, prompts.back().size());
  }
  Replay replay(longest, num_blocks, num_host_blocks);
  for (const std::vector<uint32_t>& prompt : prompts) replay.serve(prompt);
  const Totals& t = replay.totals();
  std::printf("{\"requests\": %lu, \"blocks\": %lu, \"hits\": %lu, \"changes\": %lu}\n", t.requests,
              t.blocks, t.hits, t.changes);
  return 0;
}

}  // namespace
}  // namespace saccade::test

int main(int argc, char** argv) {
  uint32_t num_blocks = 0, num_host_blocks = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--blocks") == 0) num_blocks = std::strtoul(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--host-blocks") == 0)
      num_host_blocks = std::strtoul(argv[i + 1], nullptr, 10);
  }
  try {
    return saccade::test::run(num_blocks, num_host_blocks);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "prefix_trace: %s\n", e.what());
    return 2;
  }
}
