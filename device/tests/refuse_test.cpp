// What the device refuses: descriptors out of bounds, and regions that do not fit.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/test_device.hpp"

namespace saccade::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Change = std::function<void(sac_descriptor&)>;
struct Case {
  const char* what;
  Change change;
};

/// Submits a good request with one change; returns it as its frontend sees it after its end.
Ticket submit_changed(Bench& b, const Change& change, const Ask& ask = ask_of(10, 4)) {
  const uint32_t slot = b.front.free_slot();
  Ticket t = b.front.prepare(ask, slot);
  sac_descriptor d = b.front.descriptor(ask, slot);
  change(d);
  b.front.write_descriptor(d, slot);
  b.front.ring(t);
  for (uint32_t i = 0; i < 300 && !t.complete(); ++i) {
    b.device.tick();
    b.front.read(t);
  }
  return t;
}

void check_refused(Bench& b, const Ticket& t, uint32_t finish) {
  CHECK(t.finish == finish);
  CHECK(t.num_endings == 1);
  CHECK(t.final_count == 0);
  CHECK(b.device.idle());
  CHECK(b.device.decisions(Decision::kAdmit).empty());
  CHECK(b.device.s.report.stats.requests_accepted == 0);
}

DeviceShape adapter_shape() {
  DeviceShape shape;
  shape.adapter_keys = {11, 22};
  return shape;
}

TEST_CASE("each field beyond its bounds is refused, and nothing is run") {
  Bench b(adapter_shape());
  const uint32_t len = b.device.shape.max_model_len;
  const uint64_t arena = b.ring.shape.arena_bytes;
  const Case cases[] = {
      {"prompt_len 0", [](auto& d) { d.prompt_len = 0; }},
      {"prompt_len = max_model_len", [=](auto& d) { d.prompt_len = len; }},
      {"prompt_len huge", [](auto& d) { d.prompt_len = UINT32_MAX; }},
      {"max_tokens 0", [](auto& d) { d.max_tokens = 0; }},
      {"max_tokens beyond the model", [=](auto& d) { d.max_tokens = len - d.prompt_len + 1; }},
      {"max_tokens huge", [](auto& d) { d.max_tokens = UINT32_MAX; }},
      {"min_tokens > max_tokens", [](auto& d) { d.min_tokens = d.max_tokens + 1; }},
      {"num_logit_bias", [](auto& d) { d.num_logit_bias = SAC_MAX_LOGIT_BIAS + 1; }},
      {"num_logit_bias huge", [](auto& d) { d.num_logit_bias = UINT32_MAX; }},
      {"num_stop_ids", [](auto& d) { d.num_stop_ids = SAC_MAX_STOP_IDS + 1; }},
      {"num_stop_ids huge", [](auto& d) { d.num_stop_ids = UINT32_MAX; }},
      {"num_top_logprobs", [](auto& d) { d.num_top_logprobs = SAC_MAX_TOP_LOGPROBS + 1; }},
      {"num_top_logprobs huge", [](auto& d) { d.num_top_logprobs = UINT32_MAX; }},
      {"adapter that is not there", [](auto& d) { d.adapter = 3; }},
      {"adapter huge", [](auto& d) { d.adapter = UINT32_MAX; }},
      {"unknown flag", [](auto& d) { d.flags = SAC_REQ_KNOWN_FLAGS + 1; }},
      {"temperature < 0", [](auto& d) { d.temperature = -0.001f; }},
      {"temperature > 100", [](auto& d) { d.temperature = 100.1f; }},
      {"temperature NaN", [](auto& d) { d.temperature = kNaN; }},
      {"temperature inf", [](auto& d) { d.temperature = kInf; }},
      {"top_p 0", [](auto& d) { d.top_p = 0.0f; }},
      {"top_p > 1", [](auto& d) { d.top_p = 1.001f; }},
      {"top_p NaN", [](auto& d) { d.top_p = kNaN; }},
      {"min_p < 0", [](auto& d) { d.min_p = -0.001f; }},
      {"min_p > 1", [](auto& d) { d.min_p = 1.001f; }},
      {"min_p NaN", [](auto& d) { d.min_p = kNaN; }},
      {"repetition_penalty 0", [](auto& d) { d.repetition_penalty = 0.0f; }},
      {"repetition_penalty > 10", [](auto& d) { d.repetition_penalty = 10.1f; }},
      {"repetition_penalty NaN", [](auto& d) { d.repetition_penalty = kNaN; }},
      {"presence_penalty < -2", [](auto& d) { d.presence_penalty = -2.1f; }},
      {"presence_penalty > 2", [](auto& d) { d.presence_penalty = 2.1f; }},
      {"presence_penalty NaN", [](auto& d) { d.presence_penalty = kNaN; }},
      {"frequency_penalty < -2", [](auto& d) { d.frequency_penalty = -2.1f; }},
      {"frequency_penalty > 2", [](auto& d) { d.frequency_penalty = 2.1f; }},
      {"frequency_penalty NaN", [](auto& d) { d.frequency_penalty = kNaN; }},
      {"extent off its alignment", [](auto& d) { d.arena_extent += 4; }},
      {"extent at the end", [=](auto& d) { d.arena_extent = arena; }},
      {"extent over the end",
       [=](auto& d) {
         d.arena_extent = arena - 64;
         d.prompt_len = 17;
       }},
      {"extent far outside", [](auto& d) { d.arena_extent = UINT64_MAX - 63; }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    check_refused(b, submit_changed(b, c.change), SAC_FINISH_INVALID);
  }
  CHECK(b.device.s.report.stats.requests_rejected == std::size(cases));
}

TEST_CASE("an extent in another frontend's share of the arena is refused") {
  TestRing ring({64, 2});
  TestDevice device(ring, {});
  TestFrontend front(ring, 1);
  front.join();
  device.tick();
  const Ask ask = ask_of(10, 4);
  for (uint64_t extent : {uint64_t{0}, ring.view.first_arena_byte(1) - 64}) {
    Ticket t = front.prepare(ask, front.first_slot());
    sac_descriptor d = front.descriptor(ask, t.slot);
    d.arena_extent = extent;
    front.write_descriptor(d, t.slot);
    front.ring(t);
    device.tick();
    front.read(t);
    CHECK(t.finish == SAC_FINISH_INVALID);
  }
}

TEST_CASE("each field at its bounds is accepted") {
  Bench b(adapter_shape());
  const uint64_t arena = b.ring.shape.arena_bytes;
  const Case cases[] = {
      {"max_tokens", [](auto& d) { d.max_tokens = 128 - d.prompt_len; }},
      {"min_tokens", [](auto& d) { d.min_tokens = d.max_tokens; }},
      {"adapter", [](auto& d) { d.adapter = 2; }},
      {"num_top_logprobs", [](auto& d) { d.num_top_logprobs = SAC_MAX_TOP_LOGPROBS; }},
      {"all flags", [](auto& d) { d.flags = SAC_REQ_IGNORE_EOS; }},
      {"temperature", [](auto& d) { d.temperature = 100.0f; }},
      {"top_p", [](auto& d) { d.top_p = 1e-6f; }},
      {"min_p", [](auto& d) { d.min_p = 1.0f; }},
      {"repetition_penalty", [](auto& d) { d.repetition_penalty = 10.0f; }},
      {"penalties",
       [](auto& d) {
         d.presence_penalty = -2.0f;
         d.frequency_penalty = 2.0f;
       }},
      {"top_k", [](auto& d) { d.top_k = UINT32_MAX; }},
      {"last extent",
       [=](auto& d) {
         d.arena_extent = arena - 64;
         d.prompt_len = 16;
       }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    CHECK(submit_changed(b, c.change).finish == SAC_FINISH_LENGTH);
  }
  CHECK(b.device.s.report.stats.requests_rejected == 0);
}

TEST_CASE("the largest lists of biases and stop ids fit") {
  RingShape ring;
  ring.num_slots = 32;
  ring.arena_bytes = 32 * 16384;
  Bench b({}, ring);
  Ask ask = ask_of(10, 4);
  for (uint32_t i = 0; i < SAC_MAX_LOGIT_BIAS; ++i)
    ask.logit_bias.push_back({i % 997, -1e4f + static_cast<float>(i)});
  ask.stop_ids.assign(SAC_MAX_STOP_IDS, 996);
  ask.min_tokens = 4;
  CHECK(submit_changed(
            b, [](auto&) {}, ask)
            .finish == SAC_FINISH_LENGTH);
  const SeatParams& p = b.device.s.seats.params[0];
  CHECK(p.num_logit_bias == SAC_MAX_LOGIT_BIAS);
  CHECK(b.device.s.launch.tables.bias(0)[1023].token == 1023 % 997);
  CHECK(b.device.s.launch.tables.bias(0)[1023].bias == -1e4f + 1023.0f);
  CHECK(b.device.s.launch.tables.stops(0)[127] == 996);
}

TEST_CASE("a token id at or beyond the vocabulary is refused wherever it is") {
  const uint32_t vocab = DeviceShape{}.vocab_size;
  for (uint32_t bad : {vocab, UINT32_MAX}) {
    for (uint32_t at : {0u, 9u}) {
      Bench b;
      Ask ask = ask_of(10, 4);
      ask.prompt[at] = bad;
      check_refused(b,
                    submit_changed(
                        b, [](auto&) {}, ask),
                    SAC_FINISH_INVALID);
    }
    Bench b;
    Ask biased = ask_of(10, 4);
    biased.logit_bias = {{1, 0.0f}, {bad, 1.0f}};
    check_refused(b,
                  submit_changed(
                      b, [](auto&) {}, biased),
                  SAC_FINISH_INVALID);
    Ask stopping = ask_of(10, 4);
    stopping.stop_ids = {1, bad};
    check_refused(b,
                  submit_changed(
                      b, [](auto&) {}, stopping),
                  SAC_FINISH_INVALID);
  }
  for (float bad : {kNaN, kInf, -kInf, 1.1e4f}) {
    Bench b;
    Ask biased = ask_of(10, 4);
    biased.logit_bias = {{1, bad}};
    check_refused(b,
                  submit_changed(
                      b, [](auto&) {}, biased),
                  SAC_FINISH_INVALID);
  }
}

TEST_CASE("a refused request does not touch its neighbours") {
  Bench b;
  Ticket t = b.front.submit(ask_of(20, 40, 5));
  for (uint32_t i = 0; i < 3; ++i) b.device.tick();
  const uint32_t used = b.device.s.kv.device().used();
  const Ticket bad = submit_changed(b, [](auto& d) { d.prompt_len = 0; });
  CHECK(bad.finish == SAC_FINISH_INVALID);
  CHECK(b.device.s.kv.device().used() == used);
  b.finish({&t});
  CHECK(t.words == expect(t.ask, b.device.shape).words);
}

TEST_CASE("a request meant for an earlier life of the device is refused as such") {
  Bench b;
  for (uint32_t off : {1u, 2u}) {
    const Ticket t = submit_changed(b, [=](auto& d) { d.device_epoch -= off; });
    check_refused(b, t, SAC_FINISH_STALE_EPOCH);
  }
  // The epoch is checked first: no other field of a stale request is believed.
  const Ticket t = submit_changed(b, [](auto& d) {
    d.device_epoch = 0;
    d.prompt_len = 0;
  });
  check_refused(b, t, SAC_FINISH_STALE_EPOCH);
}

// ---- regions -----------------------------------------------------------------------------------

const char* open_changed(const std::function<void(sac_region_header&)>& change,
                         uint64_t cut_bytes = 0) {
  TestRing ring(RingShape{64, 2});
  auto* h = static_cast<sac_region_header*>(ring.region());
  change(*h);
  RingView view;
  return open_ring(ring.region(), ring.region_bytes() - cut_bytes, &view);
}

TEST_CASE("a region with any header field out of bounds is refused with a sentence") {
  CHECK(open_changed([](auto&) {}) == nullptr);
  CHECK(open_changed([](auto& h) { h.magic ^= 1; }) != nullptr);
  CHECK(open_changed([](auto& h) { h.abi_version++; }) != nullptr);
  CHECK(open_changed([](auto& h) { h.header_bytes--; }) != nullptr);
  CHECK(open_changed([](auto& h) { h.layout_hash++; }) != nullptr);
  CHECK(open_changed([](auto& h) { h.region_bytes++; }) != nullptr);
  CHECK(open_changed([](auto&) {}, 1) != nullptr);
  CHECK(open_changed([](auto& h) { h.num_frontends = 0; }) != nullptr);
  CHECK(open_changed([](auto& h) { h.num_frontends = SAC_MAX_FRONTENDS + 1; }) != nullptr);
  CHECK(open_changed([](auto& h) { h.num_frontends = 3; }) != nullptr);
  for (uint32_t n : {0u, 31u, 65u, SAC_MAX_SLOTS + 32, UINT32_MAX})
    CHECK(open_changed([=](auto& h) { h.num_slots = n; }) != nullptr);
  for (uint32_t n : {0u, 48u, 65u, SAC_MAX_OUT_RING_WORDS + 16, UINT32_MAX})
    CHECK(open_changed([=](auto& h) { h.out_ring_words = n; }) != nullptr);
  CHECK(open_changed([](auto& h) { h.arena_bytes = UINT64_MAX; }) != nullptr);
  for (uint32_t i = 0; i < 11; ++i) {
    CAPTURE(i);
    const auto set = [i](uint64_t offset) {
      return [=](sac_region_header& h) { (&h.device_offset)[i] = offset; };
    };
    CHECK(open_changed(set(UINT64_MAX)) != nullptr);
    CHECK(open_changed(set(UINT64_MAX / 128 * 128)) != nullptr);
    CHECK(open_changed(set(129)) != nullptr);
  }
}

TEST_CASE("the address of a region must be on a line, and its header inside") {
  TestRing ring(RingShape{});
  RingView view;
  CHECK(open_ring(nullptr, 4096, &view) != nullptr);
  CHECK(open_ring(static_cast<char*>(ring.region()) + 64, 4096, &view) != nullptr);
  CHECK(open_ring(ring.region(), sizeof(sac_region_header) - 1, &view) != nullptr);
}

}  // namespace
}  // namespace saccade::test
