// A small frontend for tests: rings doorbells, reads records, keeps what it has seen of each
// request.
#pragma once
#include <vector>

#include "host/futex.hpp"
#include "step/step.hpp"
#include "tests/test_ring.hpp"

namespace saccade::test {

/// What a test asks for; turned into a descriptor and an arena extent.
struct Ask {
  std::vector<uint32_t> prompt;
  uint32_t max_tokens = 8;
  uint32_t min_tokens = 0;
  uint32_t flags = SAC_REQ_IGNORE_EOS;
  uint32_t num_top_logprobs = 0;
  uint64_t seed = 0;
  uint64_t cache_salt = 0;
  uint32_t adapter = 0;
  std::vector<LogitBias> logit_bias = {};
  std::vector<uint32_t> stop_ids = {};
  std::vector<uint32_t> grammar = {};
  uint32_t embedding_size = 0;  // with SAC_REQ_EMBED: that of the device
  float temperature = 0.0f;
  float top_p = 1.0f;
  float repetition_penalty = 1.0f;
  uint32_t tenant = 0;
  uint32_t tenant_weight = 1;
};

/// One request as its frontend sees it.
struct Ticket {
  Ask ask;
  uint32_t slot = 0;
  uint32_t ticket = 0;
  uint32_t stride = 1;
  std::vector<uint64_t> words = {};  // records read so far, `stride` words each
  uint32_t state = SAC_STATE_PREFILL_PENDING;
  uint32_t finish = SAC_FINISH_NONE;
  uint32_t final_count = 0;
  uint32_t num_endings = 0;  // times that DECODE_COMPLETED was seen to begin
  bool lost = false;         // the slot was taken back: EMPTY under its own ticket

  bool ended() const { return num_endings != 0 || lost; }
  uint32_t records() const { return static_cast<uint32_t>(words.size()) / stride; }
  /// Ended, and everything that was produced has been read.
  bool complete() const { return lost || (num_endings != 0 && records() == final_count); }
  /// Token of each record: prompt records first, if they were asked for.
  std::vector<uint32_t> tokens() const {
    std::vector<uint32_t> all;
    for (size_t w = 0; w < words.size(); w += stride)
      all.push_back(static_cast<uint32_t>(words[w]));
    return all;
  }
};

inline constexpr uint32_t kNoSlot = UINT32_MAX;

class TestFrontend {
 public:
  TestFrontend(TestRing& ring, uint32_t index)
      : ring_(ring),
        index_(index),
        first_(ring.view.first_slot(index)),
        end_(ring.view.first_slot(index + 1)),
        busy_(end_ - first_, false) {}

  uint32_t first_slot() const { return first_; }
  uint32_t num_slots() const { return end_ - first_; }

  /// Begins a life: a new epoch. Nothing may be submitted before the device acks it.
  void join() {
    beat();
    epoch_ = load_relaxed(&line()->epoch) + 1;
    // SYNC: release, with the device's acquire in watch_frontend.
    store_release(&line()->epoch, epoch_);
    busy_.assign(busy_.size(), false);
  }
  bool acked() const { return load_acquire(&ring_.view.acks[index_].epoch) == epoch_; }
  void beat() { store_relaxed(&line()->heartbeat, load_relaxed(&line()->heartbeat) + 1); }

  /// No later request finds blocks that were filed before.
  void reset_prefixes() {
    // SYNC: release, like any word; with the device's read after its acquire of a later doorbell.
    store_release(&line()->prefix_generation, load_relaxed(&line()->prefix_generation) + 1);
  }

  /// A slot that may ring a new ticket, or kNoSlot.
  uint32_t free_slot() const {
    for (uint32_t slot = first_; slot < end_; ++slot)
      if (!busy_[slot - first_]) return slot;
    return kNoSlot;
  }

  /// Writes descriptor and extent, as submit does, without ringing: for tests that break a field.
  Ticket prepare(const Ask& ask, uint32_t slot) {
    uint32_t* to = ring_.extent_mut(slot);
    const size_t words =
        ask.prompt.size() + 2 * ask.logit_bias.size() + ask.stop_ids.size() + ask.grammar.size();
    if (4 * words > ring_.extent_bytes(slot)) throw std::runtime_error("test prompt too long");
    for (uint32_t token : ask.prompt) store_relaxed(to++, token);
    for (const LogitBias& b : ask.logit_bias) {
      store_relaxed(to++, b.token);
      store_relaxed(to++, static_cast<uint32_t>(record_word(0, b.bias) >> 32));
    }
    for (uint32_t stop : ask.stop_ids) store_relaxed(to++, stop);
    for (uint32_t word : ask.grammar) store_relaxed(to++, word);
    write_descriptor(descriptor(ask, slot), slot);
    Ticket t;
    t.ask = ask;
    t.slot = slot;
    t.stride = ask.embedding_size != 0 ? sac_embedding_words(ask.embedding_size)
                                       : sac_record_stride(ask.flags, ask.num_top_logprobs);
    return t;
  }

  /// The descriptor that `ask` makes in this slot.
  sac_descriptor descriptor(const Ask& ask, uint32_t slot) {
    sac_descriptor d = {};
    d.sequence = next_sequence_++;
    d.arena_extent = ring_.extent(slot);
    d.device_epoch = load_acquire(&ring_.view.device->epoch);
    d.flags = ask.flags;
    d.prompt_len = static_cast<uint32_t>(ask.prompt.size());
    d.max_tokens = ask.max_tokens;
    d.min_tokens = ask.min_tokens;
    d.num_logit_bias = static_cast<uint32_t>(ask.logit_bias.size());
    d.num_stop_ids = static_cast<uint32_t>(ask.stop_ids.size());
    d.grammar_words = static_cast<uint32_t>(ask.grammar.size());
    d.num_top_logprobs = ask.num_top_logprobs;
    d.temperature = ask.temperature;
    d.top_p = ask.top_p;
    d.repetition_penalty = ask.repetition_penalty;
    d.seed = ask.seed;
    d.cache_salt = ask.cache_salt;
    d.adapter = ask.adapter;
    d.tenant = ask.tenant;
    d.tenant_weight = ask.tenant_weight;
    return d;
  }

  void write_descriptor(const sac_descriptor& d, uint32_t slot) {
    uint32_t words[sizeof(d) / 4];
    std::memcpy(words, &d, sizeof(d));
    auto* to = reinterpret_cast<uint32_t*>(ring_.descriptor_mut(slot));
    for (size_t w = 0; w < sizeof(d) / 4; ++w) store_relaxed(to + w, words[w]);
  }

  /// Rings the next ticket of the prepared slot.
  void ring(Ticket& t) {
    busy_[t.slot - first_] = true;
    store_release(ring_.cursor_mut(t.slot), 0u);
    t.ticket =
        (sac_doorbell_ticket(load_relaxed(ring_.doorbell_mut(t.slot))) + 1) & SAC_TICKET_MASK;
    // SYNC: release, with the device's acquire of the doorbell: descriptor and extent are visible.
    store_release(ring_.doorbell_mut(t.slot), sac_doorbell(t.ticket, 0));
  }

  Ticket submit(const Ask& ask) { return submit_at(ask, free_slot()); }
  Ticket submit_at(const Ask& ask, uint32_t slot) {
    if (slot == kNoSlot) throw std::runtime_error("test frontend has no free slot");
    Ticket t = prepare(ask, slot);
    ring(t);
    return t;
  }
  void cancel(const Ticket& t) {
    store_release(ring_.doorbell_mut(t.slot), sac_doorbell(t.ticket, SAC_DOORBELL_CANCEL));
  }

  /// Reads the status, then at most `max_records` records, and moves the cursor.
  void read(Ticket& t, uint32_t max_records = UINT32_MAX) {
    const uint64_t word = ring_.status_word(t.slot);
    if (sac_status_ticket(word) != t.ticket || t.complete()) return;
    note_state(t, word);
    if (t.lost) return;
    const uint32_t capacity = ring_.shape.out_ring_words / t.stride;
    uint32_t next = t.records();
    for (; next < sac_status_count(word) && max_records != 0; ++next, --max_records) {
      const uint64_t* record = ring_.view.record(t.slot, next, t.stride, capacity);
      for (uint32_t w = 0; w < t.stride; ++w) t.words.push_back(load_relaxed(record + w));
    }
    // SYNC: release, with the device's acquire of the cursor: the records were read.
    store_release(ring_.cursor_mut(t.slot), next);
    if (t.complete()) busy_[t.slot - first_] = false;
  }

  /// As a real frontend does after ringing: wakes the device if it sleeps.
  void kick() {
    // SYNC: with IdleWait, which sets `sleeping`, fences, and looks at the doorbells again.
    fence_seq_cst();
    if (load_relaxed(&ring_.view.device->sleeping) == 0) return;
    __atomic_fetch_add(&ring_.view.wake->device_kick, 1u, __ATOMIC_RELAXED);
    futex_wake(&ring_.view.wake->device_kick);
  }
  sac_frontend_line* line() const { return ring_.frontend_mut(index_); }

 private:
  void note_state(Ticket& t, uint64_t word) {
    const uint32_t state = sac_status_state(word);
    if (state == SAC_STATE_EMPTY) {
      t.lost = true;
      busy_[t.slot - first_] = false;
    } else if (state == SAC_STATE_DECODE_COMPLETED && t.state != state) {
      ++t.num_endings;
      t.finish = sac_status_finish(word);
      t.final_count = sac_status_count(word);
    }
    t.state = state;
  }

  TestRing& ring_;
  uint32_t index_;
  uint32_t first_;
  uint32_t end_;
  uint32_t epoch_ = 0;
  uint64_t next_sequence_ = 1;
  std::vector<bool> busy_;
};

}  // namespace saccade::test
