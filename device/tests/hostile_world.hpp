// A hostile frontend, driven by bytes, next to an honest one on the same device. It may write
// anything at any moment into every word that a frontend may write.
#pragma once
#include <deque>

#include "tests/test_device.hpp"
#include "tests/test_grammar.hpp"

namespace saccade::test {

/// Bytes as a source of choices; zeros once they have run out.
class Choices {
 public:
  Choices(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool left() const { return at_ < size_; }
  uint8_t byte() { return at_ < size_ ? data_[at_++] : uint8_t{0}; }
  uint32_t word() {
    uint32_t w = 0;
    for (int i = 0; i < 4; ++i) w = w << 8 | byte();
    return w;
  }
  /// A number below n: mostly small bounds, so one byte is enough to reach each.
  uint32_t below(uint32_t n) { return (n <= 256 ? byte() : word()) % n; }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

class HostileWorld {
 public:
  /// rotating: with a second tier, and every request rotated all the time.
  explicit HostileWorld(bool rotating)
      : ring_(ring_shape()),
        device_(ring_, device_shape(rotating)),
        honest_(ring_, 0),
        foe_(ring_, 1) {
    honest_.join();
    foe_.join();
    device_.tick();
    device_.step.during = [this] {
      for (; during_ != 0; --during_) strike(*choices_);
    };
  }

  /// Plays the bytes; throws when an invariant breaks or the honest frontend gets a wrong answer.
  void play(const uint8_t* data, size_t size) {
    Choices choices(data, size);
    choices_ = &choices;
    while (choices.left()) {
      const uint32_t act = choices.below(8);
      if (act == 0) {
        tick(choices.below(64) == 63 ? 2000 : 1);
      } else if (act == 1) {
        during_ = choices.below(4);  // this many of the next strikes fall within a step
        tick(1);
      } else if (act == 2 && honest_.free_slot() != kNoSlot && live_.size() < 4) {
        submit_honest();
      } else {
        strike(choices);
      }
    }
    choices_ = nullptr;
    settle();
  }

 private:
  static constexpr uint32_t kEmbeddingSize = 11;
  static RingShape ring_shape() {
    RingShape r;
    r.num_slots = 64;
    r.num_frontends = 2;
    return r;
  }
  static DeviceShape device_shape(bool rotating) {
    DeviceShape d;
    d.num_seats = 40;  // more than the hostile frontend has slots: seats are not contended
    d.max_num_batched_tokens = 48;
    d.max_model_len = 48;
    d.num_blocks = 30;
    d.eos_ids = {5, 6};
    d.log_words = 0;
    static const TokenTables tokens = tables_of(test_vocabulary(d.vocab_size));
    d.tokens = &tokens;
    d.grammar_words = 128;
    d.embedding_size = kEmbeddingSize;
    d.adapter_keys = {11, 22, 33};
    if (!rotating) return d;
    d.num_host_blocks = 60;
    d.eager_window = 3;
    d.scheduling = Policy::kChurn;
    return d;
  }

  void tick(uint64_t ms) {
    device_.now_ns += ms * 1'000'000;
    honest_.beat();
    device_.tick();
    for (Ticket& t : live_) honest_.read(t);
    while (!live_.empty() && live_.front().complete()) {
      const Ticket& t = live_.front();
      const Expected e = expect(t.ask, device_.shape);
      if (t.words != e.words || t.finish != e.finish)
        throw std::runtime_error("an honest request got a wrong answer");
      live_.pop_front();
    }
  }

  void submit_honest() {
    const uint32_t n = num_submitted_++;
    Ask ask = ask_of(1 + n % 40, 1 + n % 7, n);
    if (n % 3 == 0) ask.flags |= SAC_REQ_PROMPT_LOGPROBS | SAC_REQ_LOGPROBS;
    ask.num_top_logprobs = n % 5;
    if (n % 4 == 3) ask = embed_ask(ask.prompt, kEmbeddingSize);
    ask.adapter = n / 4 % 4;
    live_.push_back(honest_.submit(ask));
  }

  /// One hostile write.
  void strike(Choices& c) {
    const uint32_t slot = foe_.first_slot() + c.below(foe_.num_slots());
    switch (c.below(8)) {
      case 0:
        return store_release(ring_.doorbell_mut(slot), c.word());
      case 1:
        return store_release(ring_.cursor_mut(slot), c.below(2) != 0 ? c.word() : c.below(80));
      case 2:
        return strike_descriptor(slot, c);
      case 3:
        return store_relaxed(foe_arena() + c.below(foe_arena_words()), c.word());
      case 4:
        return store_release(&foe_.line()->epoch, c.below(2) != 0 ? c.word() : c.below(4));
      case 5:
        store_relaxed(&foe_.line()->waiting, c.word());
        store_relaxed(&foe_.line()->prefix_generation, c.word());
        return store_relaxed(&foe_.line()->heartbeat, uint64_t{c.word()});
      default:
        return ring_plausible(slot, c);
    }
  }

  void strike_descriptor(uint32_t slot, Choices& c) {
    auto* words = reinterpret_cast<uint32_t*>(ring_.descriptor_mut(slot));
    store_relaxed(words + c.below(sizeof(sac_descriptor) / 4), c.word());
  }

  /// A request that may well be valid, over whatever is in the arena, on a slot in any state.
  void ring_plausible(uint32_t slot, Choices& c) {
    Ask ask = ask_of(1 + c.below(47), 1, c.byte());
    ask.max_tokens = 1 + c.below(48 - static_cast<uint32_t>(ask.prompt.size()));
    ask.flags = c.below(8);
    ask.num_top_logprobs = c.below(21);
    if (c.below(3) == 0) ask.grammar = strike_grammar(c);
    if (c.below(6) == 0) ask = embed_ask(ask.prompt, kEmbeddingSize);
    ask.adapter = c.below(5);  // one more than there are
    Ticket t = foe_.prepare(ask, slot);
    if (c.below(4) == 0) strike_descriptor(slot, c);
    foe_.ring(t);
    if (c.below(4) == 0) foe_.cancel(t);
  }

  /// no_ax_grammar() with its quotation marks as forced tokens.
  static std::vector<uint32_t> forcing_grammar() {
    std::vector<uint32_t> words = no_ax_grammar(true);
    words.insert(words.end(), {0, kQuote, 12, kQuote});
    return words;
  }
  static constexpr uint32_t kQuote = 10 + '"';  // the token

  /// A grammar, whole or with changed bits.
  static std::vector<uint32_t> strike_grammar(Choices& c) {
    std::vector<uint32_t> words = c.below(2) == 0   ? nested_grammar()
                                  : c.below(2) == 0 ? text_grammar()
                                                    : forcing_grammar();
    for (uint32_t i = c.below(3); i > 0; --i)
      words[c.below(static_cast<uint32_t>(words.size()))] ^= 1u << c.below(32);
    return words;
  }

  uint32_t* foe_arena() const {
    return reinterpret_cast<uint32_t*>(ring_.arena_mut() + ring_.view.first_arena_byte(1));
  }
  uint32_t foe_arena_words() const {
    return static_cast<uint32_t>(ring_.shape.arena_bytes - ring_.view.first_arena_byte(1)) / 4;
  }

  /// The hostile frontend stops: the honest one is answered, then everything is free.
  void settle() {
    during_ = 0;
    for (uint32_t i = 0; !live_.empty(); ++i) {
      if (i > 5000) throw std::runtime_error("an honest request was starved");
      tick(1);
    }
    for (uint32_t i = 0; i < 2; ++i) tick(1);  // its last epoch is seen, so that the next is new
    foe_.join();
    for (uint32_t i = 0; i < 4; ++i) tick(1);
    if (!device_.idle()) throw std::runtime_error("a hostile frontend kept blocks or seats");
  }

  TestRing ring_;
  TestDevice device_;
  TestFrontend honest_;
  TestFrontend foe_;
  std::deque<Ticket> live_;
  Choices* choices_ = nullptr;
  uint32_t during_ = 0;
  uint32_t num_submitted_ = 0;
};

}  // namespace saccade::test
