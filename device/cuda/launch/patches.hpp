// What a scheduler on the host sends to the device before each step: one upload that brings the
// device's copy of the step's tables up to date, packed so that it takes one copy. It names only
// what changed and what the step reads; the first kernel of the step's graph applies it.
//
// An upload is words: [0] number of patches, then of each {destination, offset, count}, then the
// words themselves. Destinations count words from the start of the copy.
#pragma once
#include <cstring>
#include <stdexcept>
#include <vector>

#include "platform/layout.hpp"
#include "sched/state.hpp"

namespace saccade {

struct Patch {
  uint32_t to;      // word of the copy
  uint32_t offset;  // word of the upload
  uint32_t count;   // words
};

/// One patch by `lanes` threads, of which this is number `lane`.
SAC_HD inline void apply_patch(const uint32_t* upload, uint32_t* copy, uint32_t index,
                               uint32_t lane, uint32_t lanes) {
  const Patch p = reinterpret_cast<const Patch*>(upload + 1)[index];
  for (uint32_t i = lane; i < p.count; i += lanes) copy[p.to + i] = upload[p.offset + i];
}

/// The device's copy of what a step reads: as lay_out hands it out from one span.
struct TableCopy {
  StepBatch* batch;
  StepSeq* seqs;           // [num_seats]
  SeatParams* params;      // [num_seats]
  uint32_t* history;       // [num_seats][max_model_len]
  uint32_t* block_tables;  // [num_seats][max_blocks_per_seq]
  LogitBias* logit_bias;   // [num_seats][SAC_MAX_LOGIT_BIAS]
  uint32_t* stop_ids;      // [num_seats][SAC_MAX_STOP_IDS]
  uint32_t* eos_ids;       // [kMaxEosIds]
  uint32_t* automata;      // [num_seats][grammar_words]
  GrammarPlace* places;    // [num_seats]

  /// `vocab`: in the device's addresses.
  SAC_HD SeatTables seats(const Limits& l, const TokenVocab* vocab) const {
    return {l.num_seats,
            l.max_model_len,
            l.max_blocks_per_seq(),
            l.num_eos_ids,
            params,
            history,
            block_tables,
            logit_bias,
            stop_ids,
            eos_ids,
            {l.grammar_words, automata, places, vocab}};
  }
};
inline TableCopy lay_out(const Limits& l, Layout& at) {
  const size_t seats = l.num_seats;
  TableCopy c = {};
  c.batch = at.take<StepBatch>(1);
  c.seqs = at.take<StepSeq>(seats);
  c.params = at.take<SeatParams>(seats);
  c.history = at.take<uint32_t>(seats * l.max_model_len);
  c.block_tables = at.take<uint32_t>(seats * l.max_blocks_per_seq());
  c.logit_bias = at.take<LogitBias>(seats * SAC_MAX_LOGIT_BIAS);
  c.stop_ids = at.take<uint32_t>(seats * SAC_MAX_STOP_IDS);
  c.eos_ids = at.take<uint32_t>(kMaxEosIds);
  c.automata = at.take<uint32_t>(seats * l.grammar_words);
  c.places = at.take<GrammarPlace>(l.grammar_words == 0 ? 0 : seats);
  return c;
}

class PatchWriter {
 public:
  /// `copy`: where the device's copy is, in the device's addresses; it begins with its batch.
  PatchWriter(const Limits& limits, const TableCopy& copy)
      : limits_(limits),
        copy_(copy),
        patches_(3 + size_t{kPatchesPerSeq} * limits.num_seats),
        words_(1 + patches_.size() * 3 + max_payload(limits)),
        sent_(limits.num_seats),
        blocks_(size_t{limits.num_seats} * limits.max_blocks_per_seq()) {}

  /// Words of the largest upload.
  size_t max_words() const { return words_; }

  /// Packs what the step of s.launch.batch needs into `upload`, [max_words()]. Returns its words.
  size_t write(const Scheduler& s, uint32_t* upload) {
    upload_ = upload;
    used_ = 1 + patches_.size() * 3;
    num_patches_ = 0;
    StepBatch batch = s.launch.batch;
    batch.seqs = copy_.seqs;
    add(copy_.batch, &batch, 1);
    add(copy_.seqs, s.launch.seqs, batch.num_seqs);
    if (batch.step == 1) add(copy_.eos_ids, s.seats.eos_ids, kMaxEosIds);
    for (uint32_t i = 0; i < batch.num_seqs; ++i) add_seq(s, s.launch.seqs[i]);
    upload[0] = num_patches_;
    std::memcpy(upload + 1, patches_.data(), num_patches_ * sizeof(Patch));
    return used_;
  }

 private:
  /// What the device already has of a seat.
  struct Sent {
    uint64_t arrival = UINT64_MAX;  // of the request it belongs to
    uint32_t tokens = 0;
    uint32_t blocks = 0;
  };
  static constexpr uint32_t kPatchesPerSeq = 7;

  /// All that a step can name: each seat's request may be new to the device, with KV of all its
  /// tokens found by prefix, or kept while it was parked.
  static size_t max_payload(const Limits& l) {
    const size_t grammar = l.grammar_words == 0 ? 0 : l.grammar_words + sizeof(GrammarPlace) / 4;
    const size_t per_seat = sizeof(StepSeq) / 4 + sizeof(SeatParams) / 4 + l.max_model_len +
                            l.max_blocks_per_seq() + SAC_MAX_LOGIT_BIAS * sizeof(LogitBias) / 4 +
                            SAC_MAX_STOP_IDS + grammar;
    return sizeof(StepBatch) / 4 + kMaxEosIds + l.num_seats * per_seat;
  }

  template <class T>
  void add(const T* to, const T* from, size_t count) {
    static_assert(sizeof(T) % 4 == 0);
    if (count == 0) return;
    const auto base = reinterpret_cast<uintptr_t>(copy_.batch);
    const auto words = static_cast<uint32_t>(count * sizeof(T) / 4);
    const auto at = static_cast<uint32_t>((reinterpret_cast<uintptr_t>(to) - base) / 4);
    if (num_patches_ == patches_.size() || used_ + words > words_)
      throw std::runtime_error("a step's upload exceeds what was set aside for it");
    std::memcpy(upload_ + used_, from, count * sizeof(T));
    patches_[num_patches_++] = {at, static_cast<uint32_t>(used_), words};
    used_ += words;
  }

  void add_seq(const Scheduler& s, const StepSeq& q) {
    Sent& sent = sent_[q.seat];
    const Seat& seat = s.seats[q.seat];
    if (sent.arrival != seat.arrival) {
      sent = {seat.arrival, 0, 0};
      const SeatParams& p = s.seats.params[q.seat];
      add(copy_.params + q.seat, &p, 1);
      add(copy_.logit_bias + size_t{q.seat} * SAC_MAX_LOGIT_BIAS, s.launch.tables.bias(q.seat),
          p.num_logit_bias);
      add(copy_.stop_ids + size_t{q.seat} * SAC_MAX_STOP_IDS, s.launch.tables.stops(q.seat),
          p.num_stop_ids);
      add(copy_.automata + size_t{q.seat} * limits_.grammar_words, s.seats.automaton(q.seat),
          p.grammar_words);
    }
    if (seat.asked.grammar_words != 0) add(copy_.places + q.seat, s.seats.places + q.seat, 1);
    // One beyond the rows: the record of a prompt's next token names it.
    const uint32_t tokens = min_u32(seat.num_tokens, q.first_position + q.num_rows + 1);
    if (tokens > sent.tokens) {
      const size_t at = size_t{q.seat} * limits_.max_model_len + sent.tokens;
      add(copy_.history + at, s.seats.history + at, tokens - sent.tokens);
      sent.tokens = tokens;
    }
    add_blocks(s, q, sent);
  }

  /// From the first block that differs from what was sent.
  void add_blocks(const Scheduler& s, const StepSeq& q, Sent& sent) {
    const size_t row = size_t{q.seat} * limits_.max_blocks_per_seq();
    const uint32_t count = ceil_div(q.first_position + q.num_rows, limits_.block_size);
    const uint32_t* now = s.kv.block_tables + row;
    uint32_t* before = blocks_.data() + row;
    uint32_t same = 0;
    while (same < min_u32(sent.blocks, count) && now[same] == before[same]) ++same;
    add(copy_.block_tables + row + same, now + same, count - same);
    std::memcpy(before + same, now + same, (count - same) * sizeof(uint32_t));
    // What is beyond was not compared, and is as it was sent unless this part was rewritten.
    sent.blocks = same < min_u32(sent.blocks, count) ? count : max_u32(sent.blocks, count);
  }

  const Limits limits_;
  const TableCopy copy_;
  std::vector<Patch> patches_;
  const size_t words_;
  std::vector<Sent> sent_;
  std::vector<uint32_t> blocks_;  // as sent
  uint32_t* upload_ = nullptr;
  size_t used_ = 0;
  uint32_t num_patches_ = 0;
};

}  // namespace saccade
