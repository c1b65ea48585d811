// Attention of few queries over paged bf16 or fp8 KV by vdpbf16ps: of decodes, above all.
//
// Such rows wait for memory, so KV is read in the order in which it lies there: block by block of
// positions, all heads of each, K of a range (kAttentionRange) before its V, and the next block is
// prefetched meanwhile. Positions are the lanes of scores, dimensions those of results, and neither
// K nor V is stored in another form.
//
// Every element is the same chain of products and sums as in Bf16Attention, which computes the rows
// of a prompt: a row's bits do not depend on which of the two it meets.
#pragma once
#include "cpu/attention_bf16.hpp"
#include "cpu/kv_ahead.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// f(0) .. f(kCount - 1), each compiled on its own: arrays that it indexes stay in registers.
template <uint32_t kCount, uint32_t kAt = 0, class F>
SAC_INLINE void repeat(F&& f) {
  if constexpr (kAt < kCount) {
    f(kAt);
    repeat<kCount, kAt + 1>(f);
  }
}

/// 16 rows of 32 elements, `stride` bytes apart: quarter q of each, which is four pairs of
/// elements, is quarters[q][0 .. 3], of rows r, r + 4, r + 8 and r + 12 in quarters[q][r].
SAC_INLINE void load_quarters(const Bf16* row, size_t stride, __m512i (&quarters)[4][4]) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  const auto load = [&](uint32_t r) { return _mm512_loadu_si512(bytes + r * stride); };
  for (uint32_t r = 0; r < 4; ++r) {
    const __m512i v0 = load(r), v1 = load(r + 4), v2 = load(r + 8), v3 = load(r + 12);
    const __m512i even01 = _mm512_shuffle_i32x4(v0, v1, 0x88);
    const __m512i even23 = _mm512_shuffle_i32x4(v2, v3, 0x88);
    const __m512i odd01 = _mm512_shuffle_i32x4(v0, v1, 0xdd);
    const __m512i odd23 = _mm512_shuffle_i32x4(v2, v3, 0xdd);
    quarters[0][r] = _mm512_shuffle_i32x4(even01, even23, 0x88);
    quarters[1][r] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
    quarters[2][r] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
    quarters[3][r] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
  }
}

/// The four pairs of a quarter, each a word of every row, in the order of rows.
SAC_INLINE void pairs_of(const __m512i (&quarter)[4], __m512i (&words)[4]) {
  const __m512i low01 = _mm512_unpacklo_epi32(quarter[0], quarter[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(quarter[2], quarter[3]);
  const __m512i high01 = _mm512_unpackhi_epi32(quarter[0], quarter[1]);
  const __m512i high23 = _mm512_unpackhi_epi32(quarter[2], quarter[3]);
  words[0] = _mm512_unpacklo_epi64(low01, low23);
  words[1] = _mm512_unpackhi_epi64(low01, low23);
  words[2] = _mm512_unpacklo_epi64(high01, high23);
  words[3] = _mm512_unpackhi_epi64(high01, high23);
}

/// f(pair, words) for each pair of elements of 16 rows of 32, in ascending order: words are that
/// pair of every row. Only a quarter of them is in registers at a time.
template <class F>
SAC_INLINE void for_each_pair(const Bf16* row, size_t stride, F&& f) {
  __m512i quarters[4][4];
  load_quarters(row, stride, quarters);
  repeat<4>([&](uint32_t q) __attribute__((always_inline)) {
    __m512i words[4];
    pairs_of(quarters[q], words);
    repeat<4>([&](uint32_t w) __attribute__((always_inline)) { f(4 * q + w, words[w]); });
  });
}

/// The same of fp8, transposed before it is widened: pairs are half as long then.
template <class F>
SAC_INLINE void for_each_pair(const Fp8* row, size_t stride, F&& f) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  __m512i v[8], w[8];
  for (uint32_t r = 0; r < 8; ++r) {  // rows r and r + 8
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + r * stride));
    const auto* high = reinterpret_cast<const __m256i*>(bytes + (r + 8) * stride);
    v[r] = _mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_loadu_si256(high), 1);
  }
  // 8 by 8 pairs in each quarter.
  for (uint32_t i = 0; i < 8; i += 2) {
    w[i] = _mm512_unpacklo_epi16(v[i], v[i + 1]);
    w[i + 1] = _mm512_unpackhi_epi16(v[i], v[i + 1]);
  }
  for (uint32_t i = 0; i < 8; i += 4) {
    for (uint32_t j = 0; j < 2; ++j) {
      v[i + 2 * j] = _mm512_unpacklo_epi32(w[i + j], w[i + 2 + j]);
      v[i + 2 * j + 1] = _mm512_unpackhi_epi32(w[i + j], w[i + 2 + j]);
    }
  }
  for (uint32_t i = 0; i < 4; ++i) {
    w[2 * i] = _mm512_unpacklo_epi64(v[i], v[i + 4]);
    w[2 * i + 1] = _mm512_unpackhi_epi64(v[i], v[i + 4]);
  }
  // Quarters: pairs i and 8 + i of rows 0 .. 7, of rows 8 .. 15.
  for (__m512i& both : w) both = _mm512_shuffle_i64x2(both, both, 0xd8);
  repeat<8>([&](uint32_t i)
                __attribute__((always_inline)) { f(i, widen_fp8(_mm512_castsi512_si256(w[i]))); });
  repeat<8>([&](uint32_t i) __attribute__((always_inline)) {
    f(8 + i, widen_fp8(_mm512_extracti64x4_epi64(w[i], 1)));
  });
}

/// 32 elements in bf16.
SAC_INLINE __m512i load_step(const Bf16* at) { return _mm512_loadu_si512(at); }
SAC_INLINE __m512i load_step(const Fp8* at) {
  return widen_fp8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

/// Two elements in every word.
SAC_INLINE __m512i broadcast_pair(const void* pair) {
  int32_t word;
  __builtin_memcpy(&word, pair, sizeof(word));
  return _mm512_set1_epi32(word);
}

/// Adds words times a pair that is broadcast from memory. As an intrinsic, compilers broadcast into
/// a register, for several uses far apart, and spill it in between.
SAC_INLINE void add_products(__m512& sum, __m512i words, const Bf16* pair) {
  const auto* both = reinterpret_cast<const __attribute__((may_alias)) uint32_t*>(pair);
  asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(words), "m"(*both));
}

/// Query vectors of a kv head that count as few.
inline constexpr uint32_t kMostQueries = 8;

/// One row, or few, for up to kQueries query vectors of each kv head of the call.
template <class Kv, uint32_t kQueries>
class FewAttention {
 public:
  /// Floats of scratch memory.
  static constexpr size_t scratch_floats(uint32_t head_dim, uint32_t num_kv_heads) {
    const size_t depth = ceil_div(head_dim, kPanelStep) * kPanelStep;
    return num_kv_heads * head_floats(depth) + depth / 2 * kPanelStep;
  }

  static void run(const AttentionArgs& a) { FewAttention(a).walk(); }

 private:
  static constexpr uint32_t kGroup = kAttentionRange;  // positions of one softmax
  static constexpr uint32_t kHalf = 16;                // positions of one vector of scores
  /// Bytes of K or V, all heads, that are read before the next are expected to be there.
  static constexpr size_t kBlockBytes = 64 << 10;
  /// Rows of V that a head takes before the next head does: few, so that V is read nearly in the
  /// order in which it lies there, for the processor's own prefetching from one level of cache to
  /// the next. But results go through memory each time, and there are more of more queries.
  static constexpr uint32_t kRowsOfValues = kQueries > 4 ? 8 : 4;
  static_assert(kPanelStep % kRowsOfValues == 0, "blocks are whole steps");
  /// Queries with fewer sums than this in flight take two halves of K at a time.
  static constexpr uint32_t kHalves = kQueries > 4 ? 1 : 2;
  /// Steps of dimensions whose sums fit the registers.
  static constexpr uint32_t kSteps = kQueries > 4 ? 1 : kQueries > 2 ? 2 : 4;

  /// The state of one kv head's queries. Those beyond the last see nothing.
  struct Head {
    Bf16* q;         // [kQueries][depth]
    float* scores;   // [kQueries][256]
    Bf16* weights;   // [kQueries][256]
    float* results;  // [kQueries][depth] of one range, in the order in which unpacking leaves them
    float* total;    // [kQueries][depth]: the ranges so far
    float* max;      // [kQueries], of the ranges so far
    float* sum;
    float* part_max;  // [kQueries], of one range
    float* part_sum;
  };

  static constexpr size_t head_floats(size_t depth) {
    return kQueries * (depth / 2 + kGroup + kGroup / 2 + 2 * depth) + 4 * kMostQueries;
  }

  /// Positions, counted from the first of a range.
  struct Span {
    uint32_t begin;
    uint32_t end;
  };

  explicit FewAttention(const AttentionArgs& args)
      : a_(args),
        depth_(ceil_div(args.head_dim, kPanelStep) * kPanelStep),
        count_(args.num_rows * args.group),
        first_(max_u32(begin_of(0), args.first_range * kGroup)),
        end_(end_of(args)),
        block_(positions_of_block(args)),
        in_place_(depth_ == args.head_dim && args.kv.block_size >= kHalf) {}

  static uint32_t end_of(const AttentionArgs& a) {
    const uint32_t end = a.first_position + a.num_rows;
    return a.end_range < ceil_div(end, kGroup) ? a.end_range * kGroup : end;
  }
  /// In whole steps.
  static uint32_t positions_of_block(const AttentionArgs& a) {
    const size_t step_bytes = size_t{a.num_kv_heads} * a.head_dim * sizeof(Kv) * kPanelStep;
    const auto steps = static_cast<uint32_t>(kBlockBytes / step_bytes);
    return min_u32(max_u32(steps, 1) * kPanelStep, kGroup);
  }

  Head head(uint32_t index) const {
    float* at = a_.scratch + index * head_floats(depth_);
    Head h;
    h.q = reinterpret_cast<Bf16*>(at);
    h.scores = at + kQueries * depth_ / 2;
    h.weights = reinterpret_cast<Bf16*>(h.scores + kQueries * kGroup);
    h.results = h.scores + kQueries * (kGroup + kGroup / 2);
    h.total = h.results + kQueries * depth_;
    h.max = h.total + kQueries * depth_;
    h.sum = h.max + kMostQueries;
    h.part_max = h.sum + kMostQueries;
    h.part_sum = h.part_max + kMostQueries;
    return h;
  }
  /// [32 positions][depth] of K of one head, where it is not read in place.
  Bf16* copied() const {
    return reinterpret_cast<Bf16*>(a_.scratch + a_.num_kv_heads * head_floats(depth_));
  }

  uint32_t begin_of(uint32_t row) const {
    const uint32_t end = a_.first_position + row + 1;
    return a_.window != 0 && end > a_.window ? end - a_.window : 0;
  }

  void walk() {
    if (first_ >= end_) return;
    prefetch_first();
    for (uint32_t h = 0; h < a_.num_kv_heads; ++h) open(head(h), h);
    for (uint32_t base = first_ / kGroup * kGroup; base < end_; base += kGroup) attend(base);
    if (a_.parts != nullptr) return;
    for (uint32_t h = 0; h < a_.num_kv_heads; ++h) close(head(h), h);
  }

  /// One range. Whole steps that no query sees are left out: they would add nothing to any sum.
  void attend(uint32_t base) {
    const uint32_t seen = max_u32(first_, base) - base;
    const Span span = {seen / kPanelStep * kPanelStep,
                       ceil_div(min_u32(end_ - base, kGroup), kPanelStep) * kPanelStep};
    for (uint32_t at = span.begin; at < span.end; at += block_) {
      const Span block = {at, min_u32(at + block_, span.end)};
      expect(base, span, block, false);
      for (uint32_t h = 0; h < a_.num_kv_heads; ++h) score(h, base, block);
    }
    for (uint32_t h = 0; h < a_.num_kv_heads; ++h) weigh(head(h), base, span);
    for (uint32_t at = span.begin; at < span.end; at += block_) {
      const Span block = {at, min_u32(at + block_, span.end)};
      expect(base, span, block, true);
      accumulate(base, block, at == span.begin);
    }
    for (uint32_t h = 0; h < a_.num_kv_heads; ++h) finish(h, base / kGroup);
  }

  /// Prefetches what comes after a block of K or V while that is attended to.
  void expect(uint32_t base, Span span, Span block, bool is_value) {
    const uint32_t steps = (block.end - block.begin) / kPanelStep;
    const uint32_t calls = steps * a_.num_kv_heads *
                           (is_value ? kPanelStep / 2 * num_passes() : 2 * depth_ / kPanelStep);
    const auto rows = [&](const KvView& kv, bool of_value, uint32_t begin, uint32_t end) {
      const size_t bytes = size_t{a_.num_kv_heads} * a_.head_dim * sizeof(Kv);
      ahead_ = {kv, of_value ? kv.v_offset : kv.k_offset, begin, max_u32(begin, end), bytes, calls};
    };
    if (block.end < span.end) {
      return rows(a_.kv, is_value, base + block.end, min_u32(base + block.end + block_, end_));
    }
    if (!is_value) {
      const uint32_t begin = base + max_u32(span.begin, first_ < base ? 0 : first_ - base);
      return rows(a_.kv, true, begin, min_u32(base + span.begin + block_, end_));
    }
    if (base + kGroup < end_) {
      return rows(a_.kv, false, base + kGroup, min_u32(base + kGroup + block_, end_));
    }
    rows(a_.ahead, false, a_.ahead_begin, min_u32(a_.ahead_begin + block_, a_.ahead_end));
  }

  /// Passes over a block of V.
  uint32_t num_passes() const {
    const uint32_t whole = a_.head_dim / (kSteps * kPanelStep);
    return whole + ceil_div(a_.head_dim - whole * kSteps * kPanelStep, kPanelStep);
  }

  /// The first rows, which no item before may have expected.
  void prefetch_first() const {
    const size_t bytes = size_t{a_.num_kv_heads} * a_.head_dim * sizeof(Kv);
    for (uint32_t t = first_; t < min_u32(first_ + kPanelStep, end_); ++t) {
      const auto* row = reinterpret_cast<const char*>(key(t));
      for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(row + i, 0, 2);
    }
  }

  /// Rows of the call's first head.
  const Kv* key(uint32_t position) const { return kv_row<Kv>(a_.kv, a_.kv.k_offset, position); }
  const Kv* value(uint32_t position) const { return kv_row<Kv>(a_.kv, a_.kv.v_offset, position); }

  void open(const Head& h, uint32_t index) const {
    for (uint32_t i = 0; i < kQueries; ++i) {
      for (uint32_t d = 0; d < depth_; d += kPanelStep) {
        _mm512_storeu_si512(h.q + i * depth_ + d, query_step(a_, count_, index, i, d));
        _mm512_storeu_ps(h.total + i * depth_ + d, _mm512_setzero_ps());
        _mm512_storeu_ps(h.total + i * depth_ + d + 16, _mm512_setzero_ps());
      }
      h.max[i] = -__builtin_inff();
      h.sum[i] = 0.0f;
    }
  }

  /// Scores of one head at the positions of a block.
  void score(uint32_t index, uint32_t base, Span block) {
    const Head h = head(index);
    KvAhead<Kv> ahead = ahead_;  // the stores might alias it
    for (uint32_t t = block.begin; t < block.end; t += kPanelStep) {
      if (in_place_) {
        const Kv* const halves[2] = {half(base + t) + index * a_.head_dim,
                                     half(base + t + kHalf) + index * a_.head_dim};
        multiply(halves, a_.kv.token_stride * sizeof(Kv), h.q, ahead, h.scores + t);
      } else {
        copy_keys(index, base + t);
        const Bf16* const halves[2] = {copied(), copied() + kHalf * depth_};
        multiply(halves, depth_ * sizeof(Bf16), h.q, ahead, h.scores + t);
      }
    }
    ahead_ = ahead;
  }

  /// The rows of K from a position on. Halves that no query sees repeat a seen one.
  const Kv* half(uint32_t position) const {
    return key(max_u32(first_ / kHalf * kHalf, min_u32(position, (end_ - 1) / kHalf * kHalf)));
  }

  /// Positions that no query sees repeat a seen one.
  void copy_keys(uint32_t index, uint32_t position) const {
    for (uint32_t i = 0; i < kPanelStep; ++i) {
      const Kv* row = key(max_u32(first_, min_u32(position + i, end_ - 1))) + index * a_.head_dim;
      for (uint32_t d = 0; d < depth_; d += kPanelStep) {
        const __m512i step = load_masked(row + d, step_mask(a_.head_dim - d));
        _mm512_storeu_si512(copied() + i * depth_ + d, step);
      }
    }
  }

  /// scores[query][0 .. 31], two halves at a time, unless each has sums enough: those of one query
  /// and half wait for each other.
  template <class T>
  void multiply(const T* const (&halves)[2], size_t stride, const Bf16* q, KvAhead<Kv>& ahead,
                float* scores) const {
    for (uint32_t first = 0; first < 2; first += kHalves) {
      __m512 sums[kHalves][kQueries];
      repeat<kHalves>([&](uint32_t h) __attribute__((always_inline)) {
        for (__m512& sum : sums[h]) sum = _mm512_setzero_ps();
      });
      for (uint32_t d = 0; d < depth_; d += kPanelStep) {
        repeat<kHalves>([&](uint32_t h) __attribute__((always_inline)) {
          ahead.fetch();
          const auto add = [&](uint32_t pair, __m512i words) __attribute__((always_inline)) {
            repeat<kQueries>([&](uint32_t i) __attribute__((always_inline)) {
              add_products(sums[h][i], words, q + i * depth_ + d + 2 * pair);
            });
          };
          for_each_pair(halves[first + h] + d, stride, add);
        });
      }
      repeat<kHalves>([&](uint32_t h) __attribute__((always_inline)) {
        for (uint32_t i = 0; i < kQueries; ++i) {
          _mm512_storeu_ps(scores + i * kGroup + (first + h) * kHalf, sums[h][i]);
        }
      });
    }
  }

  /// The positions of [base + p, base + p + 16) that a query sees.
  __mmask16 seen_by(uint32_t query, uint32_t position) const {
    const uint32_t row = query / a_.group;
    const uint32_t begin = begin_of(row), end = a_.first_position + row + 1;
    const auto until = [position](uint32_t p) {
      return p <= position ? 0 : p - position >= kHalf ? 0xffffu : (1u << (p - position)) - 1;
    };
    return static_cast<__mmask16>(query < count_ ? until(end) & ~until(begin) : 0);
  }

  /// The softmax of a range.
  void weigh(const Head& h, uint32_t base, Span span) const {
    alignas(64) float sums[kQueries][kGroup / 2];  // of pairs of weights
    for (uint32_t i = 0; i < kQueries; ++i) {
      const float* scores = h.scores + i * kGroup;
      const __m512 low = _mm512_set1_ps(-__builtin_inff());
      __m512 tops = low;
      for (uint32_t p = span.begin; p < span.end; p += kHalf) {
        tops = _mm512_mask_max_ps(tops, seen_by(i, base + p), tops, _mm512_loadu_ps(scores + p));
      }
      const __m512 scale = _mm512_set1_ps(a_.scale * a_.kv.k_scale * 1.44269504f);
      const __m512 top = _mm512_mul_ps(_mm512_set1_ps(_mm512_reduce_max_ps(tops)), scale);
      // A query that sees nothing here keeps -inf; shifting by zero instead is harmless.
      const __mmask16 blind = _mm512_cmp_ps_mask(top, low, _CMP_EQ_OQ);
      const __m512 shift = _mm512_mask_blend_ps(blind, top, _mm512_setzero_ps());
      for (uint32_t p = span.begin; p < span.end; p += kHalf) {
        const __m512 s = _mm512_loadu_ps(scores + p);
        const __m512 weight =
            _mm512_maskz_mov_ps(seen_by(i, base + p), exp2_lanes(_mm512_fmsub_ps(s, scale, shift)));
        const auto narrow = (__m256i)_mm512_cvtneps_pbh(weight);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(h.weights + i * kGroup + p), narrow);
        store_pair_sums(weight, sums[i] + p / 2);
      }
      h.part_max[i] = _mm512_cvtss_f32(top);
      h.part_sum[i] = 0.0f;
    }
    // In ascending order, as wherever a query meets this range.
    for (uint32_t p = span.begin / 2; p < span.end / 2; ++p) {
      for (uint32_t i = 0; i < kQueries; ++i) h.part_sum[i] += sums[i][p];
    }
  }

  /// out[i] = lanes 2 i and 2 i + 1.
  SAC_INLINE void store_pair_sums(__m512 v, float* out) {
    const __m512 sums = _mm512_add_ps(v, _mm512_permute_ps(v, 0xb1));
    const __m512i even = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 14, 12, 10, 8, 6, 4, 2, 0);
    _mm256_storeu_ps(out, _mm512_castps512_ps256(_mm512_permutexvar_ps(even, sums)));
  }

  /// results (+)= V^T weights at the positions of a block, of all heads, a few rows at a time.
  void accumulate(uint32_t base, Span block, bool is_first) {
    for (uint32_t p = block.begin; p < block.end; p += kRowsOfValues) {
      const Kv* rows[kRowsOfValues];  // of the first head; null where no query sees one
      for (uint32_t i = 0; i < kRowsOfValues; ++i) {
        const uint32_t position = base + p + i;
        rows[i] = position >= first_ && position < end_ ? value(position) : nullptr;
      }
      for (uint32_t h = 0; h < a_.num_kv_heads; ++h) {
        accumulate_rows(rows, h, p, is_first && p == block.begin);
      }
    }
  }

  /// Of one head, at the positions from p on.
  void accumulate_rows(const Kv* const* rows, uint32_t index, uint32_t p, bool is_first) {
    alignas(64) static constexpr uint8_t kZeros[SAC_MAX_HEAD_DIM * sizeof(Kv)] = {};
    const Kv* of_head[kRowsOfValues];
    for (uint32_t i = 0; i < kRowsOfValues; ++i) {
      of_head[i] =
          rows[i] == nullptr ? reinterpret_cast<const Kv*>(kZeros) : rows[i] + index * a_.head_dim;
    }
    const Head h = head(index);
    const Bf16* weights = h.weights + p;
    uint32_t d = 0;
    for (; d + kSteps * kPanelStep <= a_.head_dim; d += kSteps * kPanelStep) {
      accumulate_steps<kSteps, true>(of_head, weights, d, h.results, is_first);
    }
    for (; d < a_.head_dim; d += kPanelStep) {
      accumulate_steps<1, false>(of_head, weights, d, h.results, is_first);
    }
  }

  /// kWidth times 32 dimensions from d on, all of them there if kWhole. They are the lanes of two
  /// vectors: as unpacking leaves them, four of one and four of the other in turn.
  template <uint32_t kWidth, bool kWhole>
  void accumulate_steps(const Kv* const* rows, const Bf16* weights, uint32_t d, float* results,
                        bool is_first) {
    const __mmask32 mask = step_mask(kWhole ? kPanelStep : a_.head_dim - d);
    const auto load = [mask](const Kv* at) __attribute__((always_inline)) {
      return kWhole ? load_step(at) : load_masked(at, mask);
    };
    __m512 low[kWidth][kQueries], high[kWidth][kQueries];
    const auto place = [ =, this ](uint32_t s, uint32_t i) __attribute__((always_inline)) {
      return results + i * depth_ + d + s * kPanelStep;
    };
    repeat<kWidth>([&](uint32_t s) __attribute__((always_inline)) {
      repeat<kQueries>([&](uint32_t i) __attribute__((always_inline)) {
        low[s][i] = is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(place(s, i));
        high[s][i] = is_first ? _mm512_setzero_ps() : _mm512_loadu_ps(place(s, i) + 16);
      });
    });
    KvAhead<Kv> ahead = ahead_;  // the stores might alias it
    for (uint32_t p = 0; p < kRowsOfValues; p += 2) {
      ahead.fetch();
      const Kv* const even_row = rows[p] + d;
      const Kv* const odd_row = rows[p + 1] + d;
      __m512i both[kQueries];
      for (uint32_t i = 0; i < kQueries; ++i) both[i] = broadcast_pair(weights + i * kGroup + p);
      repeat<kWidth>([&](uint32_t s) __attribute__((always_inline)) {
        const __m512i even = load(even_row + s * kPanelStep);
        const __m512i odd = load(odd_row + s * kPanelStep);
        const __m512i first = _mm512_unpacklo_epi16(even, odd);
        const __m512i second = _mm512_unpackhi_epi16(even, odd);
        repeat<kQueries>([&](uint32_t i) __attribute__((always_inline)) {
          low[s][i] = _mm512_dpbf16_ps(low[s][i], (__m512bh)first, (__m512bh)both[i]);
          high[s][i] = _mm512_dpbf16_ps(high[s][i], (__m512bh)second, (__m512bh)both[i]);
        });
      });
    }
    ahead_ = ahead;
    repeat<kWidth>([&](uint32_t s) __attribute__((always_inline)) {
      repeat<kQueries>([&](uint32_t i) __attribute__((always_inline)) {
        _mm512_storeu_ps(place(s, i), low[s][i]);
        _mm512_storeu_ps(place(s, i) + 16, high[s][i]);
      });
    });
  }

  /// Adds a range's results to those of the ranges before it, or writes them as parts.
  void finish(uint32_t index, uint32_t range) const {
    const Head h = head(index);
    for (uint32_t i = 0; i < count_; ++i) {
      float* const values = h.results + i * depth_;
      for (uint32_t d = 0; d < depth_; d += kPanelStep) join_quarters(values + d);
      if (a_.parts != nullptr) {
        write_part(h, i,
                   a_.parts + range * a_.part_stride +
                       (index * count_ + i) * attention_part_floats(a_.head_dim));
      } else {
        merge(h, i);
      }
    }
  }

  /// 32 dimensions in the order of unpacking, four floats of one half and of the other in turn,
  /// become ascending.
  SAC_INLINE void join_quarters(float* values) {
    const __m512 low = _mm512_loadu_ps(values), high = _mm512_loadu_ps(values + 16);
    const __m512i order = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
    const __m512i rest = _mm512_add_epi32(order, _mm512_set1_epi32(8));
    _mm512_storeu_ps(values, _mm512_permutex2var_ps(low, order, high));
    _mm512_storeu_ps(values + 16, _mm512_permutex2var_ps(low, rest, high));
  }

  void write_part(const Head& h, uint32_t query, float* out) const {
    const uint32_t padded = ceil_div(a_.head_dim, 16) * 16;
    for (uint32_t d = 0; d < padded; d += 16) {
      _mm512_storeu_ps(out + d, _mm512_loadu_ps(h.results + query * depth_ + d));
    }
    out[padded] = h.part_max[query];
    out[padded + 1] = h.part_sum[query];
  }

  void merge(const Head& h, uint32_t query) const {
    Merged merged = {_mm512_set1_ps(h.max[query]), _mm512_set1_ps(h.sum[query])};
    __m512 before, now;
    merged.add(_mm512_set1_ps(h.part_max[query]), _mm512_set1_ps(h.part_sum[query]), before, now);
    for (uint32_t d = query * depth_; d < (query + 1) * depth_; d += 16) {
      const __m512 so_far = _mm512_loadu_ps(h.total + d), part = _mm512_loadu_ps(h.results + d);
      _mm512_storeu_ps(h.total + d, merge_values(so_far, before, part, now));
    }
    h.max[query] = _mm512_cvtss_f32(merged.max);
    h.sum[query] = _mm512_cvtss_f32(merged.sum);
  }

  void close(const Head& h, uint32_t index) const {
    for (uint32_t i = 0; i < count_; ++i) {
      float* const values = h.total + i * depth_;
      const __m512 factor = _mm512_div_ps(_mm512_set1_ps(a_.kv.v_scale), _mm512_set1_ps(h.sum[i]));
      for (uint32_t d = 0; d < depth_; d += 16) {
        _mm512_storeu_ps(values + d, _mm512_mul_ps(_mm512_loadu_ps(values + d), factor));
      }
      store_activations(a_.out, a_.out_row + i / a_.group,
                        a_.out_column + (index * a_.group + i % a_.group) * a_.head_dim, values,
                        a_.head_dim);
    }
  }

  const AttentionArgs& a_;
  const uint32_t depth_;        // head_dim in whole steps
  const uint32_t count_;        // queries of a kv head
  const uint32_t first_, end_;  // positions that some query sees
  const uint32_t block_;        // positions of a block
  const bool in_place_;         // K is read in place
  KvAhead<Kv> ahead_;
};

}  // namespace SAC_ISA
}  // namespace saccade
