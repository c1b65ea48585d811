// From rows of logits to records, a block per row: sample/sampler.hpp by many threads, with its
// arithmetic and, bit for bit, its results. Floats are summed in its lanes and in its order, all
// other sums are of integers, and lists keep the order of token ids.
#pragma once
#include "cuda/model/block_ops.hpp"
#include "cuda/model/plan.hpp"
#include "sample/sampler.hpp"

namespace saccade::gpu {

/// A block's working memory, in device memory.
struct SampleMemory {
  uint32_t* counts;   // [vocab]: occurrences of tokens; zero between rows
  float* edited;      // [vocab]: the row with bias and penalties
  uint32_t* ids;      // [vocab]: candidates in order of id
  uint32_t* weights;  // [vocab]

  static constexpr size_t words(uint32_t vocab) { return size_t{vocab} * 4; }
  SAC_HD static SampleMemory at(uint32_t* words, uint32_t vocab) {
    const size_t v = vocab;
    return {words, reinterpret_cast<float*>(words) + v, words + 2 * v, words + 3 * v};
  }
};

/// Rows of logits, which many blocks clean and sum up before one block per row draws.
struct LogitRows {
  /// What one block takes of a row: segments of which each lane has one sum.
  static constexpr uint32_t kSegment = kBlock * kSumBlocks;
  static constexpr uint32_t kPart = 4 * kSegment;
  static constexpr uint32_t kThreads = kPart / kSumBlocks;
  static constexpr uint32_t kPartSums = kPart / kSegment * kBlock;
  static_assert(kThreads == kPartSums, "a thread per sum");

  const PlanCounts* counts;
  uint32_t first;  // of the plan's logits
  uint32_t room;   // rows
  float* logits;   // [room][stride]
  uint32_t stride;
  uint32_t vocab_size;
  float* tops;  // [rows][parts]: the greatest
  float* sums;  // [rows][parts][kPartSums]: of exponentials

  SAC_HD static constexpr uint32_t parts_of(uint32_t vocab) { return ceil_div(vocab, kPart); }
  SAC_HD uint32_t parts() const { return ceil_div(vocab_size, kPart); }
  SAC_HD float* row(uint32_t i) const { return logits + size_t{i} * stride; }
  SAC_HD float* row_tops(uint32_t i) const { return tops + size_t{i} * parts(); }
  SAC_HD float* row_sums(uint32_t i) const { return sums + size_t{i} * parts() * kPartSums; }
  SAC_HD uint32_t num_rows() const {
    return min_u32(room, counts->num_logits - min_u32(first, counts->num_logits));
  }
};

/// Cleans logits in place; the greatest of each part. Grid: blocks that walk over the rows, parts.
struct CleanLogitsKernel {
  using Args = LogitRows;
  static constexpr uint32_t kThreads = LogitRows::kThreads;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kSharedBytes = kOpsBytes;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t num_rows = a.num_rows();
    for (uint32_t i = b.x(); i < num_rows; i += b.grid_x()) clean_part(b, a, i);
  }

 private:
  template <class Block>
  SAC_DEVICE static void clean_part(const Block& b, const Args& a, uint32_t row) {
    constexpr uint32_t kEach = LogitRows::kPart / kThreads;
    float* logits = a.row(row);
    const uint32_t begin = b.y() * LogitRows::kPart + b.thread();
    float raw[kEach];
    SAC_UNROLL
    for (uint32_t i = 0; i < kEach; ++i) {
      const uint32_t at = begin + i * kThreads;
      raw[i] = at < a.vocab_size ? logits[at] : -infinity();
    }
    float max = -infinity();
    SAC_UNROLL
    for (uint32_t i = 0; i < kEach; ++i) {
      const float z = clean(raw[i]);
      if (!(z == raw[i])) logits[begin + i * kThreads] = z;
      max = max_f(max, z);
    }
    const float top = block_max<kThreads>(b, max);
    if (b.thread() == 0) a.row_tops(row)[b.y()] = top;
  }
};

/// The greatest of a row, from those of its parts; in all lanes.
template <class Block>
SAC_DEVICE float row_max(const Block& b, const float* tops, uint32_t parts) {
  float max = -infinity();
  for (uint32_t i = b.lane(); i < parts; i += kWarpThreads) max = max_f(max, tops[i]);
  return warp_max(b, max);
}

/// See normalize(): sums of 16 terms per lane. Grid: as CleanLogitsKernel's.
struct SumLogitsKernel {
  using Args = LogitRows;
  static constexpr uint32_t kThreads = LogitRows::kThreads;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kSharedBytes = 0;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t num_rows = a.num_rows();
    for (uint32_t i = b.x(); i < num_rows; i += b.grid_x()) sum_part(b, a, i);
  }

 private:
  template <class Block>
  SAC_DEVICE static void sum_part(const Block& b, const Args& a, uint32_t row) {
    const float max = row_max(b, a.row_tops(row), a.parts());
    const float* logits = a.row(row);
    const uint32_t begin =
        b.y() * LogitRows::kPart + b.thread() / kBlock * LogitRows::kSegment + b.thread() % kBlock;
    float z[kSumBlocks];
    SAC_UNROLL
    for (uint32_t i = 0; i < kSumBlocks; ++i) {
      const uint32_t at = begin + i * kBlock;
      z[i] = at < a.vocab_size ? logits[at] : 0.0f;
    }
    float sum = 0;
    SAC_UNROLL
    for (uint32_t i = 0; i < kSumBlocks; ++i) {
      if (begin + i * kBlock < a.vocab_size) sum += exp_fixed(z[i] - max);
    }
    a.row_sums(row)[b.y() * LogitRows::kPartSums + b.thread()] = sum;
  }
};

/// Masks of the tokens that rows under a grammar may go on with: fill_mask() by many threads, each
/// with its own tokens. Grid: blocks that walk over the rows, parts of the vocabulary.
struct MaskKernel {
  static constexpr uint32_t kThreads = 256;  // one for each byte that a token may begin with
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kPart = 4 * kThreads;  // tokens of a block

  struct Args {
    StepPlan plan;
    SeatTables seats;
    LogitRows rows;
    uint32_t* masks;  // [rows.room][mask_words]
  };

  SAC_HD static constexpr uint32_t mask_words(uint32_t vocab) { return ceil_div(vocab, 32); }
  SAC_HD static constexpr uint32_t parts_of(uint32_t vocab) { return ceil_div(vocab, kPart); }

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t num_rows = a.rows.num_rows(), vocab = a.rows.vocab_size;
    for (uint32_t i = b.x(); i < num_rows; i += b.grid_x()) {
      const LogitsRow& at = a.plan.logits[a.rows.first + i];
      if (at.end != kSampled) continue;
      const RowGrammar grammar = a.seats.grammar(at.seat);
      if (grammar.words != nullptr)
        fill_part(b, grammar, vocab, a.masks + i * size_t{mask_words(vocab)});
    }
  }

 private:
  struct Shared {
    GrammarPlace at;          // without rules that are over
    uint32_t plain;           // characters of plain text that may follow
    uint32_t first_bytes[8];  // bit by byte: whether a token may begin with it
  };

 public:
  static constexpr uint32_t kSharedBytes = sizeof(Shared);

 private:
  template <class Block>
  SAC_DEVICE static void fill_part(const Block& b, const RowGrammar& row, uint32_t vocab_size,
                                   uint32_t* mask) {
    const Automaton a = {row.words};
    const Shared& s = look_at_place(b, a, *row.place);
    const uint32_t begin = b.y() * kPart;
    const uint32_t end = min_u32(begin + kPart, vocab_size);
    // Plain tokens: known where plain text may follow, walked elsewhere.
    const uint32_t* known = row.vocab->plain_mask(s.plain);
    const uint32_t* all = row.vocab->plain_mask(s.plain == 0 ? 0 : SAC_GRAMMAR_PLAIN_BYTES);
    for (uint32_t first = begin + b.warp() * kWarpThreads; first < end; first += kThreads) {
      const uint32_t token = first + b.lane(), word = first / 32;
      const bool walks = token < end && (all[word] >> b.lane() & 1) == 0;
      const uint32_t legal = b.ballot(walks && is_legal_from(a, s, *row.vocab, token));
      if (b.lane() == 0) mask[word] = known[word] | legal;
    }
    b.sync();  // before the place is another row's
  }

  template <class Block>
  SAC_DEVICE static const Shared& look_at_place(const Block& b, const Automaton& a,
                                                const GrammarPlace& place) {
    Shared& s = *reinterpret_cast<Shared*>(b.shared());
    if (b.thread() == 0) {
      s.at = place;
      leave_rules(a, s.at);
      s.plain = plain_from(a, s.at);
    }
    b.sync();
    GrammarPlace next = s.at;
    const uint32_t bits = b.ballot(take_byte(a, next, b.thread(), [](uint32_t) {}));
    if (b.lane() == 0) s.first_bytes[b.warp()] = bits;
    b.sync();
    return s;
  }

  SAC_DEVICE static bool is_legal_from(const Automaton& a, const Shared& s, const TokenVocab& vocab,
                                       uint32_t token) {
    const uint32_t length = vocab.length(token);
    if (length == 0) return false;
    const uint8_t* bytes = vocab.bytes + vocab.offsets[token];
    if ((s.first_bytes[bytes[0] / 32] >> bytes[0] % 32 & 1) == 0) return false;
    GrammarPlace at = s.at;
    return length == 1 || take_bytes(a, at, bytes, length);
  }
};

struct SampleKernel {
  static constexpr uint32_t kThreads = 512;
  static constexpr uint32_t kBlocksPerSm = 1;
  static constexpr uint32_t kWarps = kThreads / kWarpThreads;

  struct Args {
    StepPlan plan;
    SeatTables seats;
    StepOutputs outputs;
    LogitRows rows;  // clean and summed up
    uint32_t vocab_size;
    uint32_t* memory;  // [grid][memory_words]
    size_t memory_words;
    uint32_t* masks;  // of rows under a grammar: MaskKernel's
  };

  /// Grid: as many blocks as have memory; they walk over the rows.
  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t first = a.rows.first, rows = a.rows.num_rows();
    const SampleMemory memory = SampleMemory::at(a.memory + b.x() * a.memory_words, a.vocab_size);
    for (uint32_t i = b.x(); i < rows; i += b.grid_x()) {
      const LogitsRow& at = a.plan.logits[first + i];
      if (at.end == kEmbedded) continue;
      write_record(b, a, memory, at, i);
      b.sync();  // before the memory is another row's
    }
  }

 private:
  /// In shared memory.
  struct Shared {
    unsigned char ops[kOpsBytes];
    uint64_t bins[256];
    double lanes[kBlock];
    uint64_t totals[kWarps];
    uint32_t counts[kWarps];
    uint64_t left;
    uint32_t key;
    uint32_t found;
    uint32_t top_ids[SAC_MAX_TOP_LOGPROBS];
  };

 public:
  static constexpr uint32_t kSharedBytes = sizeof(Shared);

 private:
  template <class Block>
  SAC_DEVICE static Shared& shared(const Block& b) {
    return *reinterpret_cast<Shared*>(b.shared());
  }

  /// Tokens with weights, in order of id: a list, or (ids null) all tokens with weight 1 each.
  struct Tokens {
    const uint32_t* ids;
    const uint32_t* weights;
    uint32_t count;

    SAC_DEVICE uint32_t id(uint32_t i) const { return ids == nullptr ? i : ids[i]; }
    SAC_DEVICE uint64_t weight(uint32_t i, Measure measure) const {
      return measure == Measure::kCount ? 1 : weights[i];
    }
  };

  template <class Block>
  SAC_DEVICE static void write_record(const Block& b, const Args& a, const SampleMemory& memory,
                                      const LogitsRow& at, uint32_t index) {
    float* logits = a.rows.row(index);
    const SeatParams& params = a.seats.params[at.seat];
    const uint32_t* tokens = a.seats.tokens(at.seat);
    const LogNormalizer norm = normalize_row(b, a.rows, index);
    uint32_t token = 0;
    if (at.end == kScored) {
      token = tokens[at.position + 1];
    } else {
      const SampleRow row = {&params,
                             tokens,
                             at.position + 1,
                             a.vocab_size,
                             a.seats.bias(at.seat),
                             a.seats.stops(at.seat),
                             a.seats.eos_ids,
                             a.seats.num_eos_ids,
                             a.seats.grammar(at.seat)};
      uint32_t* mask = a.masks + index * size_t{MaskKernel::mask_words(a.vocab_size)};
      token = draw_token(b, row, memory, {logits, norm.max, a.rows.row_tops(index), mask});
    }
    uint64_t* record = (at.end == kSampled ? a.outputs.sampled : a.outputs.prompt_records) +
                       size_t{at.record} * kRecordWords;
    if (b.thread() == 0) {
      const float logit = token < a.vocab_size ? logits[token] : -infinity();
      record[0] = record_word(token, norm.logprob(logit));
    }
    write_top(b, logits, a.vocab_size, norm, record_tops(params), record + 1);
  }

  /// Cleans the row in place; its maximum.
  template <class Block>
  SAC_DEVICE static float clean_row(const Block& b, float* logits, uint32_t n) {
    float max = -infinity();
    for (uint32_t i = b.thread(); i < n; i += kThreads) {
      const float z = clean(logits[i]);
      logits[i] = z;
      max = max_f(max, z);
    }
    return block_max<kThreads>(b, max);
  }

  /// See normalize(): sums of 16 terms per lane, accumulated in double lane by lane, then one tree.
  template <class Block>
  SAC_DEVICE static LogNormalizer normalize_row(const Block& b, const LogitRows& rows,
                                                uint32_t index) {
    const float max = row_max(b, rows.row_tops(index), rows.parts());
    const uint32_t segments = ceil_div(rows.vocab_size, LogitRows::kSegment);
    const float* sums = rows.row_sums(index) + b.thread();
    double* lanes = shared(b).lanes;
    if (b.thread() < kBlock) {
      constexpr uint32_t kAtOnce = 16;  // loads that do not wait for each other
      double total = 0;
      for (uint32_t first = 0; first < segments; first += kAtOnce) {
        float part[kAtOnce];
        SAC_UNROLL
        for (uint32_t s = 0; s < kAtOnce; ++s) {
          part[s] = first + s < segments ? sums[(first + s) * kBlock] : 0.0f;
        }
        SAC_UNROLL
        for (uint32_t s = 0; s < kAtOnce; ++s) total += part[s];
      }
      lanes[b.thread()] = total;
    }
    for (uint32_t width = kBlock / 2; width > 0; width /= 2) {
      b.sync();
      if (b.thread() < width) lanes[b.thread()] += lanes[b.thread() + width];
    }
    b.sync();
    return {max, static_cast<float>(::log(lanes[0]))};
  }

  /// What other kernels made of a row.
  struct CleanRow {
    const float* logits;
    float max;
    const float* tops;
    uint32_t* mask;  // without a grammar, anything
  };

  template <class Block>
  SAC_DEVICE static uint32_t draw_token(const Block& b, const SampleRow& row,
                                        const SampleMemory& memory, const CleanRow& clean) {
    const float* logits = clean.logits;
    const float* edited = logits;
    const float* tops = clean.tops;
    float max = clean.max;
    if (has_edits(row) || has_grammar(row)) {
      for (uint32_t i = b.thread(); i < row.vocab_size; i += kThreads) memory.edited[i] = logits[i];
      b.sync();
      edit(b, row, memory);
      if (has_grammar(row)) obey(b, row, memory.edited, clean.mask);
      max = clean_row(b, memory.edited, row.vocab_size);
      edited = memory.edited;
    }
    if (has_grammar(row) && max == -infinity()) return first_allowed(b, row, clean.mask);
    const SeatParams& p = *row.params;
    if (!(p.temperature >= kGreedyTemperature) || max == -infinity()) {
      if (edited != logits) tops = nullptr;
      return first_best(b, edited, row.vocab_size, max, tops);
    }
    Tokens c = gather_candidates(b, edited, row.vocab_size, max, p, memory);
    if (p.top_k != 0 && p.top_k < c.count) keep_best_k(b, edited, p.top_k, c, memory);
    if (p.top_p < 1.0f && c.count != 0) keep_best_p(b, edited, p.top_p, c, memory);
    return draw_candidate(b, c, random_bits(p.seed, row.num_tokens));
  }

  // ---- edits ----------------------------------------------------------------------------------

  template <class Block>
  SAC_DEVICE static void edit(const Block& b, const SampleRow& row, const SampleMemory& memory) {
    if (b.thread() == 0) {  // few; a token may come twice
      mask_stops(row, memory.edited);
      add_bias(row, memory.edited);
    }
    b.sync();
    if (has_penalties(*row.params)) penalize_history(b, row, memory);
    b.sync();
  }

  /// See obey_grammar(); the mask has what the grammar allows, and then the ends as well.
  template <class Block>
  SAC_DEVICE static void obey(const Block& b, const SampleRow& row, float* logits, uint32_t* mask) {
    if (b.thread() == 0) mask_ends(row, may_end({row.grammar.words}, *row.grammar.place), mask);
    b.sync();
    for (uint32_t i = b.thread(); i < row.vocab_size; i += kThreads)
      if ((mask[i / 32] >> i % 32 & 1) == 0) logits[i] = -infinity();
    b.sync();
  }
  /// See first_legal().
  template <class Block>
  SAC_DEVICE static uint32_t first_allowed(const Block& b, const SampleRow& row,
                                           const uint32_t* mask) {
    uint32_t& found = shared(b).found;
    if (b.thread() == 0) found = kNothingLegal;
    b.sync();
    for (uint32_t i = b.thread(); i < row.vocab_size; i += kThreads) {
      if ((mask[i / 32] >> i % 32 & 1) != 0) {
        b.min(&found, i);
        break;
      }
    }
    b.sync();
    return found;
  }

  /// Marks what was seen, counts what was produced; then the first thread to take a token's count
  /// applies it and leaves zero.
  template <class Block>
  SAC_DEVICE static void penalize_history(const Block& b, const SampleRow& row,
                                          const SampleMemory& memory) {
    constexpr uint32_t kSeen = 1u << 31;
    const auto for_history = [&](uint32_t begin, auto&& f) {
      for (uint32_t i = begin + b.thread(); i < row.num_tokens; i += kThreads) {
        if (row.tokens[i] < row.vocab_size) f(row.tokens[i]);
      }
      b.sync();
    };
    for_history(0, [&](uint32_t token) { b.max(&memory.counts[token], kSeen); });
    for_history(row.params->prompt_len, [&](uint32_t token) { b.add(&memory.counts[token], 1u); });
    for_history(0, [&](uint32_t token) {
      const uint32_t count = b.exchange(&memory.counts[token], 0);
      if (count == 0) return;
      memory.edited[token] = penalize(*row.params, memory.edited[token], count & ~kSeen);
    });
  }

  // ---- choice ---------------------------------------------------------------------------------

  /// tops: of the row's parts, or null where they were not computed.
  template <class Block>
  SAC_DEVICE static uint32_t first_best(const Block& b, const float* logits, uint32_t n, float max,
                                        const float* tops) {
    if (tops == nullptr) return first_equal(b, logits, 0, n, max);
    const uint32_t part = first_equal(b, tops, 0, LogitRows::parts_of(n), max);
    b.sync();  // all threads have read what was found
    const uint32_t begin = part * LogitRows::kPart;
    return first_equal(b, logits, begin, min_u32(begin + LogitRows::kPart, n), max);
  }

  /// The first of [begin, end) that is `value`; the last where none is.
  template <class Block>
  SAC_DEVICE static uint32_t first_equal(const Block& b, const float* values, uint32_t begin,
                                         uint32_t end, float value) {
    uint32_t& found = shared(b).found;
    if (b.thread() == 0) found = end - 1;
    b.sync();
    for (uint32_t i = begin + b.thread(); i < end; i += kThreads) {
      if (values[i] == value) {
        b.min(&found, i);
        break;
      }
    }
    b.sync();
    return found;
  }

  /// The part of n elements that a warp walks: parts are in order.
  struct Part {
    uint32_t begin;
    uint32_t end;
  };
  template <class Block>
  SAC_DEVICE static Part part_of(const Block& b, uint32_t n) {
    const uint32_t size = ceil_div(n, kWarps * kWarpThreads) * kWarpThreads;
    return {min_u32(b.warp() * size, n), min_u32((b.warp() + 1) * size, n)};
  }
  template <class Block>
  SAC_DEVICE static uint32_t lanes_below(const Block& b, uint32_t votes) {
    return b.popcount(votes & ((1u << b.lane()) - 1));
  }

  /// Sum of the values of the warps before this one; `all` becomes that of all warps.
  template <class Block>
  SAC_DEVICE static uint32_t before_warp(const Block& b, uint32_t* words, uint32_t mine,
                                         uint32_t& all) {
    if (b.lane() == 0) words[b.warp()] = mine;
    b.sync();
    uint32_t before = 0;
    all = 0;
    for (uint32_t w = 0; w < kWarps; ++w) {
      before += w < b.warp() ? words[w] : 0;
      all += words[w];
    }
    b.sync();
    return before;
  }

  /// See gather(): tokens with a weight that pass min_p.
  template <class Block>
  SAC_DEVICE static Tokens gather_candidates(const Block& b, const float* logits, uint32_t n,
                                             float max, const SeatParams& p,
                                             const SampleMemory& memory) {
    const float inverse_temperature = 1.0f / p.temperature;
    const float bound = max - (kReach + 0.1f) * p.temperature;
    const auto weight_at = [&](uint32_t i, uint32_t end) -> uint32_t {
      if (i >= end || !(logits[i] >= bound)) return 0;
      const float e = exp_fixed((logits[i] - max) * inverse_temperature);
      return e >= p.min_p ? weight_of(e) : 0;
    };
    const Part part = part_of(b, n);
    uint32_t mine = 0;
    for (uint32_t i = part.begin; i < part.end; i += kWarpThreads) {
      mine += b.popcount(b.ballot(weight_at(i + b.lane(), part.end) != 0));
    }
    uint32_t count = 0;
    uint32_t at = before_warp(b, shared(b).counts, mine, count);
    for (uint32_t i = part.begin; i < part.end; i += kWarpThreads) {
      const uint32_t weight = weight_at(i + b.lane(), part.end);
      const uint32_t votes = b.ballot(weight != 0);
      if (weight != 0) {
        memory.ids[at + lanes_below(b, votes)] = i + b.lane();
        memory.weights[at + lanes_below(b, votes)] = weight;
      }
      at += b.popcount(votes);
    }
    b.sync();
    return {memory.ids, memory.weights, count};
  }

  /// See find_key(): the key at which the measure, summed from the best down, reaches `left`;
  /// subtracts what is above from `left`.
  template <class Block>
  SAC_DEVICE static uint32_t find_cut(const Block& b, const float* logits, const Tokens& c,
                                      Measure measure, uint64_t& left) {
    Shared& s = shared(b);
    uint32_t prefix = 0;
    for (uint32_t shift = 32; shift > 0;) {
      shift -= 8;
      for (uint32_t i = b.thread(); i < 256; i += kThreads) s.bins[i] = 0;
      b.sync();
      const uint32_t above = shift == 24 ? 0 : ~uint32_t{0} << (shift + 8);
      for (uint32_t i = b.thread(); i < c.count; i += kThreads) {
        const uint32_t key = ordered_key(logits[c.id(i)]);
        if (((key ^ prefix) & above) == 0) {
          b.add(&s.bins[(key >> shift) & 255], c.weight(i, measure));
        }
      }
      b.sync();
      if (b.thread() == 0) {
        uint32_t bin = 255;
        for (; bin > 0 && s.bins[bin] < left; --bin) left -= s.bins[bin];
        s.key = bin;
        s.left = left;
      }
      b.sync();
      prefix |= s.key << shift;
      left = s.left;
      b.sync();
    }
    return prefix;
  }

  /// f(i, place, stays) for each token; those above the key and the first `ties` equal to it stay,
  /// and have places in order of id. Returns how many stay.
  template <class Block, class F>
  SAC_DEVICE static uint32_t for_each_token(const Block& b, const float* logits, const Tokens& c,
                                            Cut cut, F&& f) {
    const Part part = part_of(b, c.count);
    const auto votes = [&](uint32_t i, uint32_t& above, uint32_t& equal) {
      const bool there = i + b.lane() < part.end;
      const uint32_t key = there ? ordered_key(logits[c.id(i + b.lane())]) : 0;
      above = b.ballot(there && key > cut.key);
      equal = b.ballot(there && key == cut.key);
    };
    uint32_t above = 0, equal = 0;
    for (uint32_t i = part.begin; i < part.end; i += kWarpThreads) {
      uint32_t up, level;
      votes(i, up, level);
      above += b.popcount(up);
      equal += b.popcount(level);
    }
    uint32_t all_above = 0, all_equal = 0;
    above = before_warp(b, shared(b).counts, above, all_above);
    equal = before_warp(b, shared(b).counts, equal, all_equal);
    for (uint32_t i = part.begin; i < part.end; i += kWarpThreads) {
      uint32_t up, level;
      votes(i, up, level);
      const uint32_t bit = 1u << b.lane();
      const uint32_t equal_before = equal + lanes_below(b, level);
      const uint32_t place = above + lanes_below(b, up) + min_u32(equal_before, cut.ties);
      const bool stays = (up & bit) != 0 || ((level & bit) != 0 && equal_before < cut.ties);
      if (i + b.lane() < part.end) f(i + b.lane(), place, stays);
      above += b.popcount(up);
      equal += b.popcount(level);
    }
    b.sync();
    return all_above + min_u32(all_equal, cut.ties);
  }

  /// A token that does not stay gets weight 0: nothing moves, and a weight of 0 is never drawn.
  template <class Block>
  SAC_DEVICE static void keep_tokens(const Block& b, const float* logits, Cut cut, const Tokens& c,
                                     const SampleMemory& memory) {
    for_each_token(b, logits, c, cut, [&](uint32_t i, uint32_t, bool stays) {
      if (!stays) memory.weights[i] = 0;
    });
  }

  /// See keep_top_k().
  template <class Block>
  SAC_DEVICE static void keep_best_k(const Block& b, const float* logits, uint32_t k,
                                     const Tokens& c, const SampleMemory& memory) {
    uint64_t left = k;
    const uint32_t key = find_cut(b, logits, c, Measure::kCount, left);
    keep_tokens(b, logits, {key, c.count}, c, memory);
  }

  /// See keep_top_p(). What top-k removed is below any key that is found here.
  template <class Block>
  SAC_DEVICE static void keep_best_p(const Block& b, const float* logits, float p, const Tokens& c,
                                     const SampleMemory& memory) {
    const double reach = static_cast<double>(p) * static_cast<double>(total_weight(b, c));
    uint64_t left = static_cast<uint64_t>(reach);
    if (static_cast<double>(left) < reach || left == 0) ++left;
    const uint32_t key = find_cut(b, logits, c, Measure::kWeight, left);
    uint32_t& each = shared(b).found;  // tokens of one key have one weight
    if (b.thread() == 0) each = 1;
    b.sync();
    for (uint32_t i = b.thread(); i < c.count; i += kThreads) {
      if (ordered_key(logits[c.ids[i]]) == key) b.max(&each, c.weights[i]);
    }
    b.sync();
    const Cut cut = {key, static_cast<uint32_t>((left + each - 1) / each)};
    b.sync();
    keep_tokens(b, logits, cut, c, memory);
  }

  /// Sum of the weights of [begin, end), in all lanes.
  template <class Block>
  SAC_DEVICE static uint64_t warp_weight(const Block& b, const Tokens& c, Part part) {
    uint64_t sum = 0;
    for (uint32_t i = part.begin + b.lane(); i < part.end; i += kWarpThreads) sum += c.weights[i];
    return warp_sum(b, sum);
  }
  template <class Block>
  SAC_DEVICE static uint64_t total_weight(const Block& b, const Tokens& c) {
    Shared& s = shared(b);
    const uint64_t mine = warp_weight(b, c, part_of(b, c.count));
    if (b.lane() == 0) s.totals[b.warp()] = mine;
    b.sync();
    uint64_t total = 0;
    for (uint32_t w = 0; w < kWarps; ++w) total += s.totals[w];
    return total;
  }

  /// See draw(): the warp in whose part the draw falls walks it.
  template <class Block>
  SAC_DEVICE static uint32_t draw_candidate(const Block& b, const Tokens& c, uint64_t bits) {
    Shared& s = shared(b);
    uint64_t left = multiply_high(bits, total_weight(b, c));
    if (b.thread() == 0) s.found = 0;  // only without candidates
    b.sync();
    uint32_t owner = 0;
    for (; owner + 1 < kWarps && left >= s.totals[owner]; ++owner) left -= s.totals[owner];
    if (b.warp() == owner) {
      const Part part = part_of(b, c.count);
      for (uint32_t i = part.begin; i < part.end; i += kWarpThreads) {
        const bool there = i + b.lane() < part.end;
        const uint64_t weight = there ? c.weights[i + b.lane()] : 0;
        uint64_t sum = weight;  // with the lanes below
        for (uint32_t by = 1; by < kWarpThreads; by *= 2) {
          const uint64_t below = b.shuffle_up(sum, by);
          if (b.lane() >= by) sum += below;
        }
        if (left < sum && left >= sum - weight) s.found = c.ids[i + b.lane()];
        const uint64_t all = b.shuffle(sum, kWarpThreads - 1);
        if (left < all) break;
        left -= all;
      }
    }
    b.sync();
    return s.found;
  }

  // ---- logprobs -------------------------------------------------------------------------------

  /// See write_top(): the best by logit, then by id, through the cut that top-k uses.
  template <class Block>
  SAC_DEVICE static void write_top(const Block& b, const float* logits, uint32_t n,
                                   const LogNormalizer& norm, uint32_t num_top, uint64_t* words) {
    num_top = min_u32(num_top, SAC_MAX_TOP_LOGPROBS);
    if (num_top == 0) return;
    const Tokens all = {nullptr, nullptr, n};
    uint32_t* ids = shared(b).top_ids;
    uint64_t left = min_u32(num_top, n);
    const uint32_t key = find_cut(b, logits, all, Measure::kCount, left);
    const Cut cut = {key, static_cast<uint32_t>(left)};
    const uint32_t count =
        for_each_token(b, logits, all, cut, [&](uint32_t i, uint32_t place, bool stays) {
          if (stays) ids[place] = i;
        });
    const uint32_t j = b.thread();
    if (j >= num_top) return;
    if (j >= count) {
      words[j] = record_word(0, -infinity());
      return;
    }
    const float logit = logits[ids[j]];
    uint32_t rank = 0;
    for (uint32_t other = 0; other < count; ++other) {
      const float z = logits[ids[other]];
      rank += z > logit || (z == logit && other < j) ? 1 : 0;
    }
    words[rank] = record_word(ids[j], norm.logprob(logit));
  }
};

}  // namespace saccade::gpu
