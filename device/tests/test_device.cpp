#include "tests/test_device.hpp"

#include "grammar/forced.hpp"

namespace saccade::test {

FetchShape fetch_shape_of(const DeviceShape& shape) {
  FetchShape f = {};
  f.queue_len = shape.fetch.queue_len;
  f.num_entries = shape.fetch.num_entries;
  f.entry_tokens =
      ceil_div(shape.max_model_len, shape.fetch.chunk_tokens) * shape.fetch.chunk_tokens;
  f.num_frames = shape.fetch.num_frames;
  f.block_size = shape.block_size;
  f.block_bytes = 64;
  f.chunk_tokens = shape.fetch.chunk_tokens;
  f.num_events = shape.num_events;
  return f;
}

Limits limits_of(const DeviceShape& shape, const RingShape& ring) {
  Limits l = {};
  l.num_slots = ring.num_slots;
  l.num_frontends = ring.num_frontends;
  l.num_seats = shape.num_seats;
  l.max_num_batched_tokens = shape.max_num_batched_tokens;
  l.max_model_len = shape.max_model_len;
  l.block_size = shape.block_size;
  l.num_blocks = shape.num_blocks;
  l.vocab_size = shape.vocab_size;
  l.num_eos_ids = static_cast<uint32_t>(shape.eos_ids.size());
  l.log_words = shape.log_words;
  l.grammar_words = shape.grammar_words;
  l.embedding_size = shape.embedding_size;
  l.num_adapters = static_cast<uint32_t>(shape.adapter_keys.size());
  l.prefill_policy = shape.policy;
  l.num_host_blocks = shape.num_host_blocks;
  l.eager_window = shape.eager_window;
  l.prefix_caching = shape.prefix_caching ? 1 : 0;
  l.prefix_seed = 0x5eed;
  l.fetch = shape.fetch;
  l.policy = shape.scheduling;
  l.policy_settings = shape.settings;
  l.slo_ttft_ns = shape.slo_ttft_ns;
  l.slo_tbt_ns = shape.slo_tbt_ns;
  return l;
}

AlignedBytes furnish(Scheduler& s, const std::vector<uint32_t>& eos_ids) {
  Layout measure(nullptr);
  lay_out(s, measure);
  AlignedBytes memory = aligned_bytes(measure.bytes());
  Layout hand_out(memory.get());
  lay_out(s, hand_out);
  reset(s, eos_ids.data());
  return memory;
}

void set_adapter_keys(Scheduler& s, const DeviceShape& shape) {
  std::copy(shape.adapter_keys.begin(), shape.adapter_keys.end(), s.inbox.adapter_keys);
  for (uint32_t i = 0; i < shape.adapter_keys.size(); ++i)
    s.inbox.adapter_names[i] = adapter_name(i + 1);
}

TestDevice::TestDevice(TestRing& ring, const DeviceShape& device_shape,
                       FakeFetchPlane::Chunks* chunks)
    : shape(device_shape), copies(kv, shape.copies, shape.copy_seed) {
  s.limits = limits_of(shape, ring.shape);
  if (shape.tokens != nullptr) s.seats.vocab = &shape.tokens->view();
  memory_ = furnish(s, shape.eos_ids);
  set_adapter_keys(s, shape);
  step.null = NullStep{s.launch.tables, s.launch.outputs, shape.vocab_size};
  const uint32_t host_places = shape.num_host_blocks + s.limits.num_frame_blocks();
  if (host_places != 0) {
    kv.block_size = shape.block_size;
    kv.device.resize(size_t{shape.num_blocks} * shape.block_size);
    kv.host.resize(size_t{host_places} * shape.block_size);
    step.memory = &kv;
  }
  if (shape.fetch.enabled()) {
    plane = std::make_unique<FakeFetchPlane>(fetch_shape_of(shape), kv, shape.num_host_blocks,
                                             chunks == nullptr ? own_chunks_ : *chunks,
                                             shape.fetch_manner, shape.copy_seed + 99);
    open_fetch(s.fetch, s.kv.store.events, plane->view);
  }
  join_ring(s, ring.view, now_ns);
  go_ready(s);
}

template <bool kOverlapped>
uint32_t TestDevice::tick_with() {
  TestEnv<kOverlapped> env{now_ns};
  return saccade::tick(s, step, copies, env);
}

uint32_t TestDevice::tick() {
  copies.advance();
  if (plane != nullptr) plane->advance();
  const uint32_t num_seqs = shape.overlapped ? tick_with<true>() : tick_with<false>();
  steady_ticks += s.course.steady ? 1 : 0;
  if (const char* wrong = check_invariants(s)) throw std::runtime_error(wrong);
  return num_seqs;
}

std::vector<std::pair<uint32_t, uint32_t>> TestDevice::decisions(Decision kind) const {
  std::vector<std::pair<uint32_t, uint32_t>> found;
  for (uint64_t i = 0; i + 1 < s.report.log.used; i += 2)
    if (static_cast<Decision>(s.report.log.words[i] & 0xff) == kind)
      found.emplace_back(s.report.log.words[i + 1] >> 32,
                         static_cast<uint32_t>(s.report.log.words[i + 1]));
  return found;
}

bool TestDevice::idle() const {
  return s.seats.num_running == 0 && s.waiting.count == 0 && s.kv.device().used() == 0 &&
         s.kv.host().used() == 0 && s.kv.store.copies.idle() && s.fetch.num_aside == 0 &&
         s.parking.num_parked == 0 && s.parking.num_free_pages == s.parking.num_pages &&
         s.seats.num_free == s.limits.num_seats;
}

namespace {

bool contains(const std::vector<uint32_t>& ids, uint32_t token) {
  for (uint32_t id : ids)
    if (id == token) return true;
  return false;
}

void append_record(std::vector<uint64_t>& words, const Ask& ask, uint32_t token, uint32_t vocab,
                   float logprob = -1.0f) {
  words.push_back(record_word(token, logprob));
  const uint32_t stride = sac_record_stride(ask.flags, ask.num_top_logprobs);
  for (uint32_t i = 0; i + 1 < stride; ++i)
    words.push_back(record_word((token + i) % vocab, -1.0f - static_cast<float>(i)));
}

/// A request's grammar as null steps obey it.
class ObeyedGrammar {
 public:
  ObeyedGrammar(const Ask& ask, const DeviceShape& shape)
      : ask_(ask), shape_(shape), stops_(ask.stop_ids) {
    params_.flags = ask.flags;
    params_.num_stop_ids = static_cast<uint32_t>(ask.stop_ids.size());
    params_.grammar_words = static_cast<uint32_t>(ask.grammar.size());
    tables_.params = &params_;
    tables_.stop_ids = stops_.data();
    tables_.eos_ids = shape.eos_ids.data();
    tables_.num_eos_ids = static_cast<uint32_t>(shape.eos_ids.size());
    const TokenVocab* vocab = shape.tokens == nullptr ? nullptr : &shape.tokens->view();
    tables_.grammars = {params_.grammar_words, ask.grammar.data(), &place_, vocab};
  }
  ObeyedGrammar(const ObeyedGrammar&) = delete;
  ObeyedGrammar& operator=(const ObeyedGrammar&) = delete;

  /// No grammar is one as well.
  bool is_one() const {
    const auto words = static_cast<uint32_t>(ask_.grammar.size());
    return words == 0 ||
           (words <= shape_.grammar_words && grammar_in_bounds(ask_.grammar.data(), words));
  }
  uint32_t obey(uint32_t token) const {
    return NullStep{tables_, {}, shape_.vocab_size}.obey(0, token);
  }
  /// Whether an answer is over with this token; a place further otherwise.
  bool ends_with(uint32_t token, bool stops) {
    if (stops) return true;
    const Automaton a = {ask_.grammar.data()};
    take_token(a, place_, *tables_.grammars.vocab, token);
    return must_end(a, place_);
  }
  /// The token that follows without a draw, or kNoToken.
  uint32_t forced() const {
    const auto words = static_cast<uint32_t>(ask_.grammar.size());
    const bool draws_all = (ask_.flags & SAC_REQ_LOGPROBS) != 0 || !ask_.logit_bias.empty() ||
                           sac_record_stride(ask_.flags, ask_.num_top_logprobs) != 1;
    if (words == 0 || draws_all) return kNoToken;
    const Automaton a = {ask_.grammar.data()};
    GrammarPlace at = place_;
    leave_rules(a, at);
    const uint32_t size = forced_words(a.words, words);
    const uint32_t token = find_forced(a.words + words - size, size, at.state);
    const bool fits = is_legal(a, at, *tables_.grammars.vocab, token);
    return fits && !NullStep{tables_, {}, shape_.vocab_size}.is_end(0, token) ? token : kNoToken;
  }

 private:
  const Ask& ask_;
  const DeviceShape& shape_;
  const std::vector<uint32_t> stops_;
  SeatParams params_ = {};
  GrammarPlace place_ = {};
  SeatTables tables_ = {};
};

Expected expect_embedding(const Ask& ask) {
  const auto value = [&ask](uint32_t i) {
    const auto position = static_cast<uint32_t>(ask.prompt.size()) - 1;
    return i < ask.embedding_size ? null_embedding(ask.prompt.back(), position, i) : 0.0f;
  };
  Expected e;
  e.finish = SAC_FINISH_STOP;
  for (uint32_t i = 0; i < ask.embedding_size; i += 2)
    e.words.push_back(embedding_word(value(i), value(i + 1)));
  return e;
}

}  // namespace

Expected expect(const Ask& ask, const DeviceShape& shape) {
  if (ask.embedding_size != 0) return expect_embedding(ask);
  Expected e;
  ObeyedGrammar grammar(ask, shape);
  if (!grammar.is_one()) {
    e.finish = SAC_FINISH_INVALID;
    return e;
  }
  std::vector<uint32_t> tokens = ask.prompt;
  if ((ask.flags & SAC_REQ_PROMPT_LOGPROBS) != 0)
    for (size_t i = 1; i < tokens.size(); ++i)
      append_record(e.words, ask, tokens[i], shape.vocab_size);
  uint32_t num_forced = 0;  // behind the last token that was drawn
  for (uint32_t produced = 1; e.finish == SAC_FINISH_NONE; ++produced) {
    const bool may_force = produced > 1 && num_forced < SAC_MAX_FORCED_TOKENS;
    const uint32_t forced = may_force ? grammar.forced() : kNoToken;
    num_forced = forced == kNoToken ? 0 : num_forced + 1;
    const auto position = static_cast<uint32_t>(tokens.size()) - 1;
    const uint64_t seed = null_seed(ask.seed, ask.adapter);
    const uint32_t token =
        forced != kNoToken
            ? forced
            : grammar.obey(null_token(tokens.back(), position, seed, shape.vocab_size));
    if (token == kNothingLegal) {
      e.finish = SAC_FINISH_ERROR;
      break;
    }
    tokens.push_back(token);
    append_record(e.words, ask, token, shape.vocab_size, forced == kNoToken ? -1.0f : 0.0f);
    const bool eos = (ask.flags & SAC_REQ_IGNORE_EOS) == 0 && contains(shape.eos_ids, token);
    const bool stops = eos || contains(ask.stop_ids, token);
    if (ask.grammar.empty() ? produced > ask.min_tokens && stops : grammar.ends_with(token, stops))
      e.finish = SAC_FINISH_STOP;
    else if (produced == ask.max_tokens)
      e.finish = SAC_FINISH_LENGTH;
  }
  return e;
}

}  // namespace saccade::test
