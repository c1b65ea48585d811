// Attention over paged bf16 or fp8 KV by products of bf16 pairs: AMX tiles, or a vector
// instruction.
//
// KV is walked once, range by range (kAttentionRange), and within a range head by head: all heads
// of a token are adjacent in memory. Prompts take two ranges at a time, so that query state moves
// between the caches half as often. The query vectors of a kv head, (row, head) pairs, go in tiles
// of 16, two at a time. Everything is transposed, one query per lane: scores are [position][query],
// so that K is read in place from its block, and the results are [dimension][query], so that
// weights are used as the softmax produces them. A range is one softmax, a function of the query's
// own scores, and is merged with the ranges before it in ascending order, here or by merge_bf16():
// both compute each element alike, so that different workers can compute ranges of one row.
// Weights become bf16 for the second product, as in the other engines' bf16 attention; V is
// transposed once per range. Every value of fp8 is exact in bf16: such KV is copied in bf16, and
// the rest is the same.
#pragma once
#include <type_traits>

#include "cpu/attention_impl.hpp"
#include "cpu/pack_impl.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Rows of 16 words become columns.
SAC_INLINE void transpose_words(__m512i (&v)[16]) {
  __m512i a[16], b[16];
  for (uint32_t i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  for (uint32_t i = 0; i < 16; i += 4) {
    b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  for (uint32_t i = 0; i < 4; ++i) {
    const __m512i low0 = _mm512_shuffle_i32x4(b[i], b[i + 4], 0x88);
    const __m512i low1 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0x88);
    const __m512i high0 = _mm512_shuffle_i32x4(b[i], b[i + 4], 0xdd);
    const __m512i high1 = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0xdd);
    v[i] = _mm512_shuffle_i32x4(low0, low1, 0x88);
    v[i + 8] = _mm512_shuffle_i32x4(low0, low1, 0xdd);
    v[i + 4] = _mm512_shuffle_i32x4(high0, high1, 0x88);
    v[i + 12] = _mm512_shuffle_i32x4(high0, high1, 0xdd);
  }
}

/// Every magnitude of fp8 in bf16.
struct Fp8Table {
  alignas(64) uint16_t bf16[128] = {};

  constexpr Fp8Table() {
    for (uint32_t m = 1; m < 128; ++m) bf16[m] = static_cast<uint16_t>((m << 4) + (120u << 7));
    for (uint32_t m = 1; m < 8; ++m) {  // 2^-9 m
      const uint32_t exponent = m < 2 ? 0 : m < 4 ? 1 : 2;
      const uint32_t fraction = (m << (7 - exponent)) & 0x7fu;
      bf16[m] = static_cast<uint16_t>((127 - 9 + exponent) << 7 | fraction);
    }
    bf16[127] = 0x7fc0;  // NaN
  }
};
inline constexpr Fp8Table kFp8Table;

/// 32 values of fp8 in bf16.
SAC_INLINE __m512i widen_fp8(__m256i bytes) {
  const uint16_t* table = kFp8Table.bf16;
  const __m512i v = _mm512_cvtepu8_epi16(bytes);
  const __m512i low =
      _mm512_permutex2var_epi16(_mm512_load_si512(table), v, _mm512_load_si512(table + 32));
  const __m512i high =
      _mm512_permutex2var_epi16(_mm512_load_si512(table + 64), v, _mm512_load_si512(table + 96));
  const __mmask32 is_high = _mm512_test_epi16_mask(v, _mm512_set1_epi16(0x40));
  const __m512i magnitude = _mm512_mask_blend_epi16(is_high, low, high);
  // magnitude | (sign & 0x8000)
  return _mm512_ternarylogic_epi32(magnitude, _mm512_slli_epi16(v, 8), _mm512_set1_epi16(-0x8000),
                                   0xf8);
}

/// The first `count` of 32 elements.
SAC_INLINE __mmask32 step_mask(uint32_t count) {
  return count >= kPanelStep ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
}
/// 32 elements in bf16, zero where the mask is.
SAC_INLINE __m512i load_masked(const Bf16* at, __mmask32 mask) {
  return _mm512_maskz_loadu_epi16(mask, at);
}
SAC_INLINE __m512i load_masked(const Fp8* at, __mmask32 mask) {
  return widen_fp8(_mm256_maskz_loadu_epi8(mask, at));
}

/// 32 dimensions, from d on, of one of the `count` query vectors of a kv head, as bf16: zero beyond
/// the head's dimensions and for a query beyond the last.
SAC_INLINE __m512i query_step(const AttentionArgs& a, uint32_t count, uint32_t head, uint32_t query,
                              uint32_t d) {
  if (query >= count) return _mm512_setzero_si512();
  const float* q =
      a.q + query / a.group * a.row_stride + (head * a.group + query % a.group) * a.head_dim + d;
  const __mmask32 mask = step_mask(a.head_dim - d);
  const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), q);
  const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), q + 16);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/// Softmaxes merged so far: their greatest score, in powers of two, and the sum of their weights.
/// One query per lane.
struct Merged {
  __m512 max;
  __m512 sum;

  /// Adds a part with (max, sum). The caller must scale what it has accumulated by `before` and the
  /// new part by `now`. A part that sees nothing has max -inf and sum zero; its factor does not
  /// matter then, but is finite.
  void add(__m512 part_max, __m512 part_sum, __m512& before, __m512& now) {
    const __m512 best = _mm512_max_ps(max, part_max);
    before = exp2_lanes(_mm512_sub_ps(max, best));
    now = exp2_lanes(_mm512_sub_ps(part_max, best));
    sum = _mm512_fmadd_ps(sum, before, _mm512_mul_ps(part_sum, now));
    max = best;
  }
};

SAC_INLINE __m512 merge_values(__m512 total, __m512 before, __m512 part, __m512 now) {
  return _mm512_fmadd_ps(total, before, _mm512_mul_ps(part, now));
}

/// merge_attention() for parts that Bf16Attention wrote.
inline void merge_bf16(const MergeArgs& a) {
  const uint32_t padded = ceil_div(a.head_dim, 16) * 16;
  for (uint32_t h = 0; h < a.num_heads; ++h) {
    float* total = a.scratch;
    for (uint32_t d = 0; d < padded; ++d) total[d] = 0.0f;
    Merged merged = {_mm512_set1_ps(-__builtin_inff()), _mm512_setzero_ps()};
    for (uint32_t r = a.first_range; r < a.end_range; ++r) {
      const float* part = a.parts + r * a.part_stride + h * attention_part_floats(a.head_dim);
      __m512 before, now;
      merged.add(_mm512_set1_ps(part[padded]), _mm512_set1_ps(part[padded + 1]), before, now);
      for (uint32_t d = 0; d < padded; d += 16) {
        const __m512 of_part = _mm512_loadu_ps(part + d);
        const __m512 so_far = _mm512_loadu_ps(total + d);
        _mm512_storeu_ps(total + d, merge_values(so_far, before, of_part, now));
      }
    }
    const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(a.v_scale), merged.sum);
    for (uint32_t d = 0; d < padded; d += 16) {
      _mm512_storeu_ps(total + d, _mm512_mul_ps(_mm512_loadu_ps(total + d), inverse));
    }
    store_activations(a.out, a.out_row, h * a.head_dim, total, a.head_dim);
  }
}

/// The left side of a product: at each step two tiles of 16 rows of 32 elements.
template <class T>
struct RowsOf {
  const T* half[2];        // where they begin
  size_t stride;           // bytes from row to row
  size_t step;             // elements from one step to the next
  const T* ahead[2] = {};  // halves that are read after these, if that is known; where they are in
                           // memory, their rows are far apart: one tile of queries prefetches them
};
using RowTiles = RowsOf<Bf16>;
/// The right side: at each step [16 pairs of elements][16 lanes][2].
inline constexpr size_t kLaneStep = 512;
/// Elements of a step of multiply_pairs(): [16 rows][32] on the left, as many on the right.
inline constexpr size_t kPairStep = 512;

/// `Tiles` multiplies: open() and close() around a call, and
///   multiply<n>(a, b, steps, out)
///       out[i] = [32 rows][16 lanes], the sum over steps of a x b[i]
/// Each element is one chain over ascending steps and pairs, whatever n is. With kValuesInPairs it
/// has
///   multiply_pairs(a, b, stride, steps, out)
///       out = [2][16 rows][16 lanes], the sums over steps of a x b and a x (b + stride): at each
///       step, kPairStep apart, a is [16 rows][32] and b [16 pairs][16 lanes][2]
/// with which one tile of queries weighs V without transposing it.
/// `Kv` is how K and V are stored: Bf16 or Fp8.
template <class Tiles, class Kv>
class Bf16Attention {
 public:
  static constexpr uint32_t kRows = 256;

  static constexpr size_t scratch_floats(uint32_t head_dim, uint32_t group, uint32_t num_kv_heads) {
    const size_t depth = ceil_div(head_dim, kPanelStep) * kPanelStep;
    // Either many rows of one head or one row of many: each head begins a tile.
    const size_t tiles = size_t{max_u32(kRows, num_kv_heads)} * ceil_div(group, kQueries);
    return tiles * tile_floats(depth) + shared_floats(depth);
  }

  static void run(const AttentionArgs& a) {
    Bf16Attention(a).walk();
    Tiles::close();
  }
  static void merge(const MergeArgs& a) { merge_bf16(a); }

 private:
  static constexpr uint32_t kQueries = 16;  // of a tile
  static constexpr uint32_t kTogether = 2;  // tiles of queries that share each load of KV
  static constexpr uint32_t kGroup = kAttentionRange;  // positions of one softmax
  static constexpr uint32_t kSubtile = 16;             // positions of one tile of scores
  static constexpr size_t kWordRow = 64;               // bytes of a row of 16 words
  static constexpr size_t kTileWords = 256;            // of a whole tile
  /// With more query tiles than this, K is copied into tiles first: its rows are so far apart that
  /// they share few cache sets, and only sequential reads arrive in time.
  static constexpr uint32_t kInPlaceTiles = 4;
  /// Groups of one head at a time, and elements of their K or V in tiles.
  static constexpr uint32_t kGroups = 2;
  static constexpr size_t block_elements(size_t depth) { return kGroups * kGroup * depth; }

  /// The positions or steps of a consecutive span that some query sees.
  struct Seen {
    uint32_t begin;
    uint32_t end;
    bool has(uint32_t t) const { return t >= begin && t < end; }
  };

  /// The state of 16 queries. Lanes beyond the last query see nothing.
  struct QueryTile {
    Bf16* q;       // [depth / 2][16][2]
    float* total;  // [depth][16]: the ranges so far
    float* max;    // [16]
    float* sum;
    uint32_t* begin;  // they see positions [begin, end)
    uint32_t* end;
  };

  static constexpr size_t tile_floats(size_t depth) {
    return depth / 2 * kQueries + depth * kQueries + 4 * kQueries;
  }
  /// Scores of the active tiles, or a tile's results as rows.
  static constexpr size_t score_floats(size_t depth) {
    return max_size(size_t{kTogether} * kGroup, depth) * kQueries;
  }
  /// Those, the weights, the range's results, V, and K where it is not read in place.
  static constexpr size_t shared_floats(size_t depth) {
    return score_floats(depth) + kTogether * (kGroup * kQueries / 2 + depth * kQueries) +
           block_elements(depth);
  }
  static constexpr size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

  explicit Bf16Attention(const AttentionArgs& args)
      : a_(args),
        depth_(ceil_div(args.head_dim, kPanelStep) * kPanelStep),
        count_(args.num_rows * args.group),
        tiles_(ceil_div(count_, kQueries)),  // of one kv head
        in_pairs_(Tiles::kValuesInPairs && tiles_ == 1),
        in_place_(std::is_same<Kv, Bf16>::value && tiles_ <= kInPlaceTiles &&
                  depth_ == args.head_dim && args.kv.block_size >= kSubtile) {
    scores_ = args.scratch + args.num_kv_heads * tiles_ * tile_floats(depth_);
    weights_ = reinterpret_cast<Bf16*>(scores_ + score_floats(depth_));
    results_ = reinterpret_cast<float*>(weights_ + size_t{kTogether} * kGroup * kQueries);
    values_ = reinterpret_cast<Bf16*>(results_ + size_t{kTogether} * depth_ * kQueries);
    keys_ = values_ + block_elements(depth_);
  }

  QueryTile tile(uint32_t head, uint32_t index) const {
    float* at = a_.scratch + (head * tiles_ + index) * tile_floats(depth_);
    QueryTile t;
    t.q = reinterpret_cast<Bf16*>(at);
    t.total = at + depth_ / 2 * kQueries;
    t.max = t.total + depth_ * kQueries;
    t.sum = t.max + kQueries;
    t.begin = reinterpret_cast<uint32_t*>(t.sum + kQueries);
    t.end = t.begin + kQueries;
    return t;
  }

  float* scores(uint32_t i) const { return scores_ + size_t{i} * kGroup * kQueries; }
  Bf16* weights(uint32_t i) const { return weights_ + size_t{i} * kGroup * kQueries; }
  float* results(uint32_t i) const { return results_ + size_t{i} * depth_ * kQueries; }

  /// Positions [begin, end) of a sequence, all heads of the call.
  struct Rows {
    const KvView* kv;
    uint32_t begin;
    uint32_t end;
  };

  void walk() {
    const uint32_t first = max_u32(begin_of(0), a_.first_range * kGroup);
    uint32_t end = a_.first_position + a_.num_rows;
    if (a_.end_range < ceil_div(end, kGroup)) end = a_.end_range * kGroup;
    if (first >= end) return;
    const uint32_t length = (a_.num_kv_heads == 1 ? kGroups : 1) * kGroup;
    const auto seen_at = [&](uint32_t base) {
      return Seen{max_u32(first, base) - base, min_u32(length, end - base)};
    };
    uint32_t base = first / kGroup * kGroup;
    if (!in_pairs_)
      prefetch(Rows{&a_.kv, base + seen_at(base).begin, base + seen_at(base).end}, 0, 1);
    Tiles::open();
    for_each_tile([this](uint32_t head, uint32_t i) { open(head, i); });
    for (; base < end; base += length) {
      const Seen seen = seen_at(base);
      const uint32_t later = min_u32(base + 2 * length, end);
      const Rows next = base + length < end ? Rows{&a_.kv, base + length, later}
                                            : Rows{&a_.ahead, a_.ahead_begin,
                                                   min_u32(a_.ahead_begin + length, a_.ahead_end)};
      for (uint32_t head = 0; head < a_.num_kv_heads; ++head) attend(head, base, seen, next);
    }
    if (a_.parts != nullptr) return;
    for_each_tile([this](uint32_t head, uint32_t i) { close(head, i); });
  }

  /// Runs all of a head's queries over the positions of some groups.
  void attend(uint32_t head, uint32_t base, Seen seen, const Rows& next) {
    const uint32_t parts = ceil_div(tiles_, kTogether);
    if (!in_pairs_) transpose_values(head, base, seen);
    if (!in_place_) copy_keys(head, base, seen);
    for (uint32_t p = 0; p < parts; ++p) {
      if (!in_pairs_) prefetch(next, head * parts + p, a_.num_kv_heads * parts);
      for (uint32_t at = 0; at < seen.end; at += kGroup) {
        const uint32_t i = p * kTogether;
        if (i + 1 < tiles_) {
          fold<2>(head, i, base, at, seen);
        } else {
          if (in_pairs_) next_key_ = key_after(head, base, at, seen, next);
          fold<1>(head, i, base, at, seen);
        }
      }
    }
  }

  /// The row of K that is read after the group at base + at of a head; null if that is not known.
  const Kv* key_after(uint32_t head, uint32_t base, uint32_t at, Seen seen,
                      const Rows& next) const {
    if (at + kGroup < seen.end) return key(head, base + at + kGroup);
    if (head + 1 < a_.num_kv_heads) return key(head + 1, base + seen.begin / kSubtile * kSubtile);
    if (next.begin >= next.end) return nullptr;
    return kv_row<Kv>(*next.kv, next.kv->k_offset, next.begin / kSubtile * kSubtile);
  }

  template <class F>
  void for_each_tile(F&& f) const {
    for (uint32_t head = 0; head < a_.num_kv_heads; ++head) {
      for (uint32_t i = 0; i < tiles_; ++i) f(head, i);
    }
  }

  /// Folds the range at base + at into kTiles tiles. Skips whole steps that none of them sees: they
  /// would add nothing to any sum. Inlined in walk(), its loops would get fewer registers.
  template <uint32_t kTiles>
  __attribute__((noinline)) void fold(uint32_t head, uint32_t index, uint32_t base, uint32_t at,
                                      Seen seen) {
    const uint32_t last = min_u32((index + kTiles) * kQueries, count_) - 1;
    const uint32_t end = a_.first_position + last / a_.group + 1;
    const uint32_t begin = begin_of(index * kQueries / a_.group);
    const uint32_t group = base + at;
    if (end <= group || begin >= group + kGroup) return;
    const Seen steps = {(max_u32(begin, group) - group) / kPanelStep,
                        ceil_div(min_u32(end - group, kGroup), kPanelStep)};
    QueryTile tiles[kTiles];
    for (uint32_t i = 0; i < kTiles; ++i) tiles[i] = tile(head, index + i);
    for (uint32_t s = steps.begin; s < steps.end; ++s) {
      score<kTiles>(tiles, head, base, at, s, seen);
    }
    Merged parts[kTiles];
    for (uint32_t i = 0; i < kTiles; ++i) parts[i] = weigh(tiles[i], i, group, steps);
    if (in_pairs_) {
      accumulate_pairs(head, base, at, seen, steps);
    } else {
      accumulate<kTiles>(values_ + at * depth_, steps);
    }
    for (uint32_t i = 0; i < kTiles; ++i) {
      if (a_.parts == nullptr) {
        merge(tiles[i], parts[i], results(i));
      } else {
        write_parts(head, index + i, group / kGroup, parts[i], results(i));
      }
    }
  }

  uint32_t begin_of(uint32_t row) const {
    const uint32_t end = a_.first_position + row + 1;
    return a_.window != 0 && end > a_.window ? end - a_.window : 0;
  }

  /// Query vectors as columns of words, for the products with K.
  void open(uint32_t head, uint32_t index) const {
    const QueryTile t = tile(head, index);
    for (uint32_t lane = 0; lane < kQueries; ++lane) {
      const uint32_t query = index * kQueries + lane;
      const bool used = query < count_;
      t.begin[lane] = used ? begin_of(query / a_.group) : 0;
      t.end[lane] = used ? a_.first_position + query / a_.group + 1 : 0;
      t.max[lane] = -__builtin_inff();
      t.sum[lane] = 0.0f;
    }
    for (uint32_t d = 0; d < depth_; d += kPanelStep) {
      __m512i words[kQueries];
      for (uint32_t lane = 0; lane < kQueries; ++lane) {
        words[lane] = query_step(a_, count_, head, index * kQueries + lane, d);
      }
      transpose_words(words);
      for (uint32_t pair = 0; pair < kPanelStep / 2; ++pair) {
        _mm512_storeu_si512(t.q + (d / 2 + pair) * (2 * kQueries), words[pair]);
      }
    }
    for (uint32_t i = 0; i < depth_ * kQueries; ++i) t.total[i] = 0.0f;
  }

  /// Prefetches one of several parts of the next rows, in memory order, so that memory and
  /// arithmetic overlap.
  void prefetch(const Rows& rows, uint32_t part, uint32_t parts) const {
    const size_t bytes = row_bytes();
    const uint32_t count = rows.end - rows.begin;
    const uint32_t last = rows.begin + count * (part + 1) / parts;
    for (uint32_t t = rows.begin + count * part / parts; t < last; ++t) {
      prefetch_lines(kv_row<Kv>(*rows.kv, rows.kv->k_offset, t), bytes);
      prefetch_lines(kv_row<Kv>(*rows.kv, rows.kv->v_offset, t), bytes);
    }
  }

  /// K or V of a position, all heads of the call.
  size_t row_bytes() const { return size_t{a_.num_kv_heads} * a_.head_dim * sizeof(Kv); }

  static void prefetch_lines(const Kv* row, size_t bytes) {
    const char* at = reinterpret_cast<const char*>(row);
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
  }

  const Kv* key(uint32_t head, uint32_t position) const {
    return kv_row<Kv>(a_.kv, a_.kv.k_offset, position) + head * a_.head_dim;
  }

  const Kv* value(uint32_t head, uint32_t position) const {
    return kv_row<Kv>(a_.kv, a_.kv.v_offset, position) + head * a_.head_dim;
  }

  /// values_ = [group][depth / 32][8 steps of 32 positions][2] tiles of [16 dimensions][32
  /// positions]; zero at positions that no query sees: memory there may hold anything, and a weight
  /// of zero would not cancel it.
  void transpose_values(uint32_t head, uint32_t base, Seen seen) const {
    const uint32_t end = ceil_div(seen.end, kPanelStep) * kPanelStep;
    for (uint32_t at = seen.begin / kPanelStep * kPanelStep; at < end; at += kPanelStep) {
      const Kv* rows[kPanelStep];
      for (uint32_t i = 0; i < kPanelStep; ++i) {
        rows[i] = seen.has(at + i) ? value(head, base + at + i) : nullptr;
      }
      for (uint32_t d = 0; d < depth_; d += 16) {
        __m512i words[16];
        for (uint32_t i = 0; i < 16; ++i) {
          words[i] = load_words(rows[2 * i], rows[2 * i + 1], d);
        }
        transpose_words(words);
        Bf16* out = values_ + at / kGroup * kGroup * depth_ + d / kPanelStep * kPanelStep * kGroup +
                    at % kGroup * kPanelStep + d % kPanelStep * kPanelStep;
        for (uint32_t i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * kPanelStep, words[i]);
      }
    }
  }

  /// 16 dimensions of two rows, each a word with the first row's in its low half; zero beyond the
  /// head and for no row.
  __m512i load_words(const Bf16* first, const Bf16* second, uint32_t d) const {
    const __m512i low = _mm512_cvtepu16_epi32(load_half(first, d));
    const __m512i high = _mm512_cvtepu16_epi32(load_half(second, d));
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }
  __m512i load_words(const Fp8* first, const Fp8* second, uint32_t d) const {
    const __m128i low = load_half(first, d), high = load_half(second, d);
    const __m256i pairs =
        _mm256_set_m128i(_mm_unpackhi_epi8(low, high), _mm_unpacklo_epi8(low, high));
    return widen_fp8(pairs);
  }

  /// 16 dimensions of a row, zero beyond the head and for no row.
  __m256i load_half(const Bf16* row, uint32_t d) const {
    const __mmask16 mask = half_mask(row, d);
    return mask == 0 ? _mm256_setzero_si256() : _mm256_maskz_loadu_epi16(mask, row + d);
  }
  __m128i load_half(const Fp8* row, uint32_t d) const {
    const __mmask16 mask = half_mask(row, d);
    return mask == 0 ? _mm_setzero_si128() : _mm_maskz_loadu_epi8(mask, row + d);
  }
  __mmask16 half_mask(const Kv* row, uint32_t d) const {
    if (row == nullptr || d >= a_.head_dim) return 0;
    return static_cast<__mmask16>((1u << min_u32(16, a_.head_dim - d)) - 1);
  }

  /// 32 dimensions of a row, zero beyond the head.
  __m512i load_step(const Kv* row, uint32_t d) const {
    return load_masked(row + d, step_mask(a_.head_dim - d));
  }

  /// keys_ = [step of 32 positions][depth / 32][2] tiles of [16 positions][32 dimensions].
  /// Positions that no query sees repeat a seen one.
  void copy_keys(uint32_t head, uint32_t base, Seen seen) const {
    const uint32_t end = ceil_div(seen.end, kPanelStep) * kPanelStep;
    for (uint32_t t = seen.begin / kPanelStep * kPanelStep; t < end; ++t) {
      const Kv* row = key(head, base + max_u32(seen.begin, min_u32(t, seen.end - 1)));
      Bf16* out = keys_ + t / kPanelStep * kPanelStep * depth_ + t % kPanelStep * kPanelStep;
      for (uint32_t d = 0; d < depth_; d += kPanelStep) {
        _mm512_storeu_si512(out + d * kPanelStep, load_step(row, d));
      }
    }
  }

  /// The rows of K of 32 positions, copied.
  RowTiles copied_keys(uint32_t t) const {
    const Bf16* k = keys_ + t * depth_;
    return {{k, k + 2 * kTileWords}, kWordRow, 4 * kTileWords};
  }

  /// The same where they are. Halves that no query sees repeat a seen one.
  RowsOf<Kv> keys_in_place(uint32_t head, uint32_t base, uint32_t t, Seen seen) const {
    const uint32_t first = seen.begin / kSubtile * kSubtile;
    const uint32_t last = (seen.end - 1) / kSubtile * kSubtile;
    const auto half = [&](uint32_t at) {
      return key(head, base + max_u32(first, min_u32(at, last)));
    };
    RowsOf<Kv> k = {{half(t), half(t + kSubtile)}, a_.kv.token_stride * sizeof(Kv), kPanelStep};
    if (t + kPanelStep < seen.end) {
      k.ahead[0] = half(t + kPanelStep);
      k.ahead[1] = half(t + kPanelStep + kSubtile);
    } else if (in_pairs_) {
      k.ahead[0] = value(head, base + max_u32(first, t / kGroup * kGroup));
    }
    return k;
  }

  /// scores = K q, [position][16 queries], of step s of the group at base + at.
  template <uint32_t kTiles>
  void score(const QueryTile* tiles, uint32_t head, uint32_t base, uint32_t at, uint32_t s,
             Seen seen) {
    const uint32_t t = at + s * kPanelStep;
    if constexpr (std::is_same<Kv, Bf16>::value) {
      if (in_place_) return score_rows<kTiles>(tiles, keys_in_place(head, base, t, seen), s);
    }
    score_rows<kTiles>(tiles, copied_keys(t), s);
  }

  template <uint32_t kTiles>
  void score_rows(const QueryTile* tiles, const RowTiles& k, uint32_t s) {
    const Bf16* q[kTiles];
    float* out[kTiles];
    for (uint32_t i = 0; i < kTiles; ++i) {
      q[i] = tiles[i].q;
      out[i] = scores(i) + s * 2 * kTileWords;
    }
    Tiles::template multiply<kTiles>(k, q, depth_ / kPanelStep, out);
  }

  /// The softmax of a range; weights = [position / 2][16 queries][2].
  Merged weigh(const QueryTile& t, uint32_t i, uint32_t base, Seen steps) {
    const __m512i begin = _mm512_loadu_si512(t.begin), end = _mm512_loadu_si512(t.end);
    if (_mm512_reduce_min_epu32(end) >= base + steps.end * kPanelStep &&
        _mm512_reduce_max_epu32(begin) <= base + steps.begin * kPanelStep) {
      return weigh_seen(i, steps, [](uint32_t) { return static_cast<__mmask16>(0xffff); });
    }
    return weigh_seen(i, steps, [&](uint32_t p) {
      const __m512i at = _mm512_set1_epi32(static_cast<int>(base + p));
      return static_cast<__mmask16>(_mm512_cmple_epu32_mask(begin, at) &
                                    _mm512_cmplt_epu32_mask(at, end));
    });
  }

  /// sees(p): the queries that see position p of the range.
  template <class Sees>
  Merged weigh_seen(uint32_t i, Seen steps, Sees&& sees) {
    const uint32_t first = steps.begin * kPanelStep, last = steps.end * kPanelStep;
    const float* scores = this->scores(i);
    const __m512 low = _mm512_set1_ps(-__builtin_inff());
    __m512 tops[4] = {low, low, low, low};
    for (uint32_t p = first; p < last; p += 4) {
      for (uint32_t j = 0; j < 4; ++j) {
        const __m512 s = _mm512_loadu_ps(scores + (p + j) * kQueries);
        tops[j] = _mm512_mask_max_ps(tops[j], sees(p + j), tops[j], s);
      }
    }
    const __m512 scale = _mm512_set1_ps(a_.scale * a_.kv.k_scale * 1.44269504f);
    const __m512 top = _mm512_mul_ps(
        _mm512_max_ps(_mm512_max_ps(tops[0], tops[1]), _mm512_max_ps(tops[2], tops[3])), scale);
    // A query that sees nothing here keeps -inf; shifting by zero instead is harmless.
    const __mmask16 blind = _mm512_cmp_ps_mask(top, low, _CMP_EQ_OQ);
    const __m512 shift = _mm512_mask_blend_ps(blind, top, _mm512_setzero_ps());
    const auto weight = [&](uint32_t p) __attribute__((always_inline)) {
      const __m512 s = _mm512_loadu_ps(scores + p * kQueries);
      return _mm512_maskz_mov_ps(sees(p), exp2_lanes(_mm512_fmsub_ps(s, scale, shift)));
    };
    __m512 sum = _mm512_setzero_ps();
    for (uint32_t p = first; p < last; p += 2) {
      const __m512 even = weight(p), odd = weight(p + 1);
      sum = _mm512_add_ps(sum, _mm512_add_ps(even, odd));
      _mm512_storeu_si512(weights(i) + p * kQueries, pair_words(even, odd));
    }
    return {top, sum};
  }

  /// Lane i: the words' low half from `even`, the high half from `odd`, as bf16.
  SAC_INLINE __m512i pair_words(__m512 even, __m512 odd) {
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
  }

  /// results = V^T weights, 32 dimensions at a time.
  template <uint32_t kTiles>
  void accumulate(const Bf16* values, Seen steps) {
    for (uint32_t d = 0; d < depth_; d += 2 * kQueries) {
      const Bf16* v = values + size_t{d} * kGroup + steps.begin * 4 * kTileWords;
      const Bf16* w[kTiles];
      float* out[kTiles];
      for (uint32_t i = 0; i < kTiles; ++i) {
        w[i] = weights(i) + steps.begin * kLaneStep;
        out[i] = results(i) + d * kQueries;
      }
      const RowTiles rows = {{v, v + 2 * kTileWords}, kWordRow, 4 * kTileWords};
      Tiles::template multiply<kTiles>(rows, w, steps.end - steps.begin, out);
    }
  }

  /// The same for one tile of queries, with the sides exchanged: weights as rows, and V in pairs of
  /// positions, which it nearly is in memory. Each product is of the same two factors, in the same
  /// order, and so has the same bits.
  void accumulate_pairs(uint32_t head, uint32_t base, uint32_t at, Seen seen, Seen steps) {
    if constexpr (Tiles::kValuesInPairs) {
      auto* rows = reinterpret_cast<Bf16*>(scores_);  // [step][16 queries][32 positions]
      for (uint32_t s = steps.begin; s < steps.end; ++s) weights_as_rows(s, rows + s * kPairStep);
      const uint32_t end = steps.end * kPanelStep;
      for (uint32_t p = steps.begin * kPanelStep; p < end; p += 2) {
        const uint32_t later = p + kSubtile;
        if (later < end) {
          if (seen.has(at + later)) prefetch_pair(value(head, base + at + later));
        } else if (next_key_ != nullptr) {
          prefetch_pair(next_key_ + (later - end) * a_.kv.token_stride);
        }
        // A block has both positions of a pair.
        const bool has_even = seen.has(at + p), has_odd = seen.has(at + p + 1);
        const Kv* even = has_even || has_odd ? value(head, base + at + p) : nullptr;
        store_pairs(has_even ? even : nullptr, has_odd ? even + a_.kv.token_stride : nullptr, p);
      }
      for (uint32_t d = 0; d < depth_; d += 2 * kQueries) multiply_pairs(rows, d, steps);
    }
  }

  /// Two rows of a head. A prefetch of rows that are not there does nothing.
  void prefetch_pair(const Kv* row) const {
    const auto* even = reinterpret_cast<const char*>(row);
    const char* odd = reinterpret_cast<const char*>(row + a_.kv.token_stride);
    for (uint32_t i = 0; i < depth_ * sizeof(Kv); i += 64) {
      __builtin_prefetch(even + i);
      __builtin_prefetch(odd + i);
    }
  }

  /// The weights of 32 positions, [pair][16 queries][2], as rows of queries.
  void weights_as_rows(uint32_t step, Bf16* out) const {
    const Bf16* in = weights(0) + step * kLaneStep;
    __m512i words[16];
    for (uint32_t pair = 0; pair < 16; ++pair) words[pair] = _mm512_loadu_si512(in + pair * 32);
    transpose_words(words);
    for (uint32_t q = 0; q < kQueries; ++q) _mm512_storeu_si512(out + q * 32, words[q]);
  }

  /// Positions p and p + 1 of values_ = [block of 16 dimensions][pair of positions][16][2].
  void store_pairs(const Kv* even, const Kv* odd, uint32_t p) const {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const __m512i zero = _mm512_setzero_si512();
    const uint32_t depth = depth_, head_dim = a_.head_dim;  // what is stored might alias them
    Bf16* out = values_ + p * 16;
    for (uint32_t d = 0; d < depth; d += kPanelStep, out += kPanelStep * kGroup) {
      const __mmask32 mask = step_mask(head_dim - d);
      const __m512i first = even == nullptr ? zero : load_masked(even + d, mask);
      const __m512i second = odd == nullptr ? zero : load_masked(odd + d, mask);
      _mm512_storeu_si512(out, _mm512_permutex2var_epi16(first, low, second));
      _mm512_storeu_si512(out + 16 * kGroup, _mm512_permutex2var_epi16(first, high, second));
    }
  }

  /// Two blocks of 16 dimensions from d on.
  void multiply_pairs(const Bf16* rows, uint32_t d, Seen steps) const {
    alignas(64) float sums[2][kTileWords];
    const size_t first = steps.begin * kPairStep;
    Tiles::multiply_pairs(rows + first, values_ + d * kGroup + first, 16 * kGroup,
                          steps.end - steps.begin, sums[0]);
    for (uint32_t b = 0; b < 2; ++b) {
      __m512i words[16];
      for (uint32_t q = 0; q < kQueries; ++q) words[q] = _mm512_load_si512(sums[b] + q * 16);
      transpose_words(words);
      float* out = results(0) + (d + 16 * b) * kQueries;
      for (uint32_t i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * kQueries, words[i]);
    }
  }

  /// Adds a range's results to those of the ranges before it.
  void merge(const QueryTile& t, Merged part, const float* results) const {
    Merged merged = {_mm512_loadu_ps(t.max), _mm512_loadu_ps(t.sum)};
    __m512 before, now;
    merged.add(part.max, part.sum, before, now);
    for (uint32_t d = 0; d < depth_; ++d) {
      const __m512 so_far = _mm512_loadu_ps(t.total + d * kQueries);
      const __m512 of_part = _mm512_loadu_ps(results + d * kQueries);
      _mm512_storeu_ps(t.total + d * kQueries, merge_values(so_far, before, of_part, now));
    }
    _mm512_storeu_ps(t.max, merged.max);
    _mm512_storeu_ps(t.sum, merged.sum);
  }

  /// Writes a range's results as parts for merge_bf16().
  void write_parts(uint32_t head, uint32_t index, uint32_t range, Merged part,
                   const float* results) const {
    const uint32_t padded = ceil_div(a_.head_dim, 16) * 16;
    transpose(results, _mm512_set1_ps(1.0f));
    alignas(64) float max[kQueries], sum[kQueries];
    _mm512_store_ps(max, part.max);
    _mm512_store_ps(sum, part.sum);
    for (uint32_t lane = 0; lane < kQueries && index * kQueries + lane < count_; ++lane) {
      const uint32_t query = head * count_ + index * kQueries + lane;
      float* out = a_.parts + range * a_.part_stride + query * attention_part_floats(a_.head_dim);
      for (uint32_t d = 0; d < padded; d += 16) {
        _mm512_storeu_ps(out + d, _mm512_loadu_ps(scores_ + lane * depth_ + d));
      }
      out[padded] = max[lane];
      out[padded + 1] = sum[lane];
    }
  }

  /// Scales [dimension][query] by a factor per query, into [query][dimension] over the scores.
  void transpose(const float* in, __m512 factor) const {
    for (uint32_t d = 0; d < depth_; d += 16) {
      __m512i words[16];
      for (uint32_t i = 0; i < 16; ++i) {
        const __m512 value = _mm512_loadu_ps(in + (d + i) * kQueries);
        words[i] = _mm512_castps_si512(_mm512_mul_ps(value, factor));
      }
      transpose_words(words);
      for (uint32_t lane = 0; lane < kQueries; ++lane) {
        _mm512_storeu_si512(scores_ + lane * depth_ + d, words[lane]);
      }
    }
  }

  void close(uint32_t head, uint32_t index) const {
    const QueryTile t = tile(head, index);
    transpose(t.total, _mm512_div_ps(_mm512_set1_ps(a_.kv.v_scale), _mm512_loadu_ps(t.sum)));
    for (uint32_t lane = 0; lane < kQueries && index * kQueries + lane < count_; ++lane) {
      const uint32_t query = index * kQueries + lane;
      store_activations(a_.out, a_.out_row + query / a_.group,
                        a_.out_column + (head * a_.group + query % a_.group) * a_.head_dim,
                        scores_ + lane * depth_, a_.head_dim);
    }
  }

  const AttentionArgs& a_;
  const uint32_t depth_;  // head_dim in whole steps
  const uint32_t count_;  // queries
  const uint32_t tiles_;
  const bool in_pairs_;  // V goes into pairs, and is not transposed; K and V are prefetched row by
                         // row, just ahead
  const bool in_place_;  // K is read in place
  float* scores_;        // [2][256 positions][16], of the active tiles
  Bf16* weights_;        // [2][256 positions][16]
  float* results_;       // [2][depth][16], of one range
  Bf16* values_;
  Bf16* keys_;
  const Kv* next_key_ = nullptr;  // where K goes on after V of this range
};

}  // namespace SAC_ISA
}  // namespace saccade
