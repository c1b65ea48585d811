// Attention over paged bf16 KV by AMX tiles.
//
// KV is walked once, in groups of 64 positions that start at multiples of 64, and within a group
// head by head: all heads of a token stand together in memory. The query vectors of a kv head,
// (row, head) pairs, go in tiles of 16. Scores come out transposed, [position][query], so that K is
// read where it stands in its block and the softmax runs with one query per lane: each query's
// maximum, sum and weights are a function of its own scores. Weights become bf16 for the second
// product, as in the other engines' bf16 attention; V is interleaved by pairs of positions once per
// group.
#pragma once
#include "cpu/attention_impl.hpp"
#include "cpu/products_amx.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// 2^x for x <= 0 within 2e-07 of its value, 1 at 0; at least 2^-126, so that no denormal slows
/// what follows. A polynomial of degree 5 (least squares at Chebyshev points, reweighted to even
/// out the error; exact at 0) for the fraction in [-0.5, 0.5].
SAC_INLINE __m512 exp2_lanes(__m512 x) {
  x = _mm512_max_ps(x, _mm512_set1_ps(-126.0f));
  const __m512 n = _mm512_roundscale_ps(x, 0);
  const __m512 r = _mm512_sub_ps(x, n);
  __m512 y = _mm512_set1_ps(0.00132647273f);
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.00967151299f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.0555073358f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.240222424f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(0.693147004f));
  y = _mm512_fmadd_ps(y, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(y, n);
}

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

class AmxAttention {
 public:
  static constexpr uint32_t kRows = 128;

  static constexpr bool kByRanges = false;

  static constexpr size_t scratch_floats(uint32_t head_dim, uint32_t group, uint32_t num_kv_heads) {
    const size_t depth = ceil_div(head_dim, kPanelStep) * kPanelStep;
    // Either many rows of one head or one row of many: each head begins a tile.
    const size_t tiles = size_t{max_u32(kRows, num_kv_heads)} * ceil_div(group, kQueries);
    return tiles * tile_floats(depth) + shared_floats(depth);
  }

  static void run(const AttentionArgs& a) {
    AmxAttention(a).walk();
    _tile_release();
  }

 private:
  static constexpr uint32_t kQueries = 16;  // of a tile
  static constexpr uint32_t kGroup = 64;    // positions
  static constexpr uint32_t kSubtile = 16;  // positions of one tile of scores
  static constexpr uint32_t kSubtiles = kGroup / kSubtile;
  static constexpr size_t kWordRow = 64;  // bytes of a row of 16 words
  /// With more tiles of queries than this a group's K is put together first: its rows stand so far
  /// apart that they share few sets of the first-level cache.
  static constexpr uint32_t kInPlaceTiles = 4;

  /// Positions of a group that somebody sees.
  struct Seen {
    uint32_t begin;
    uint32_t end;
    bool has(uint32_t t) const { return t >= begin && t < end; }
  };

  /// What is kept of 16 queries. Lanes beyond the last query see nothing.
  struct QueryTile {
    Bf16* q;     // [depth / 2][16][2]
    float* acc;  // [16][depth]
    float* max;  // [16]
    float* sum;
    uint32_t* begin;  // they see positions [begin, end)
    uint32_t* end;
    float* scores;  // [64 positions][16], of one group
    Bf16* weights;  // [2][16][32 positions]
  };

  static constexpr size_t tile_floats(size_t depth) {
    return depth / 2 * kQueries + kQueries * depth + 4 * kQueries + kGroup * kQueries +
           kGroup * kQueries / 2;
  }
  /// A group's V in pairs, a group's K where it cannot be read in place.
  static constexpr size_t shared_floats(size_t depth) {
    return kGroup / 2 * depth + kGroup * depth / 2;
  }

  explicit AmxAttention(const AttentionArgs& args)
      : a_(args),
        depth_(ceil_div(args.head_dim, kPanelStep) * kPanelStep),
        count_(args.num_rows * args.group),
        tiles_(ceil_div(count_, kQueries)),  // of one kv head
        in_place_(tiles_ <= kInPlaceTiles && depth_ == args.head_dim &&
                  args.kv.block_size >= kSubtile) {
    values_ =
        reinterpret_cast<Bf16*>(args.scratch + args.num_kv_heads * tiles_ * tile_floats(depth_));
    keys_ = values_ + size_t{kGroup} * depth_;
  }

  QueryTile tile(uint32_t head, uint32_t index) const {
    float* at = a_.scratch + (head * tiles_ + index) * tile_floats(depth_);
    QueryTile t;
    t.q = reinterpret_cast<Bf16*>(at);
    t.acc = at + depth_ / 2 * kQueries;
    t.max = t.acc + kQueries * depth_;
    t.sum = t.max + kQueries;
    t.begin = reinterpret_cast<uint32_t*>(t.sum + kQueries);
    t.end = t.begin + kQueries;
    t.scores = reinterpret_cast<float*>(t.end + kQueries);
    t.weights = reinterpret_cast<Bf16*>(t.scores + kGroup * kQueries);
    return t;
  }

  void walk() {
    const uint32_t end = a_.first_position + a_.num_rows;
    const uint32_t first = begin_of(0);
    const auto seen_at = [&](uint32_t base) {
      return Seen{max_u32(first, base) - base, min_u32(kGroup, end - base)};
    };
    uint32_t base = first / kGroup * kGroup;
    prefetch(Rows{&a_.kv, base + seen_at(base).begin, base + seen_at(base).end}, 0, 1);
    configure_tiles(kQueries, kQueries);
    for_each_tile([this](uint32_t head, uint32_t i) { open(head, i); });
    for (; base < end; base += kGroup) {
      const Seen seen = seen_at(base);
      const uint32_t later = min_u32(base + 2 * kGroup, end);
      const Rows next = base + kGroup < end ? Rows{&a_.kv, base + kGroup, later}
                                            : Rows{&a_.ahead, a_.ahead_begin,
                                                   min_u32(a_.ahead_begin + kGroup, a_.ahead_end)};
      for (uint32_t head = 0; head < a_.num_kv_heads; ++head) {
        pair_values(head, base, seen);
        if (!in_place_) copy_keys(head, base, seen);
        // One kind of work for all tiles, then the next: what one leaves in memory is there when
        // the next loads it, which a tile's load does not get from the store before it.
        for_each_seeing(head, base, [&](const QueryTile& t) { score(t, head, base, seen); });
        for (uint32_t i = 0; i < tiles_; ++i) {
          prefetch(next, head * tiles_ + i, a_.num_kv_heads * tiles_);
          if (sees(i, base)) weigh(tile(head, i), base);
        }
        for_each_seeing(head, base, [&](const QueryTile& t) { accumulate(t); });
      }
    }
    for_each_tile([this](uint32_t head, uint32_t i) { close(head, i); });
  }

  template <class F>
  void for_each_tile(F&& f) const {
    for (uint32_t head = 0; head < a_.num_kv_heads; ++head) {
      for (uint32_t i = 0; i < tiles_; ++i) f(head, i);
    }
  }

  /// Whether any query of a tile sees a position of the group.
  bool sees(uint32_t index, uint32_t base) const {
    const uint32_t first = index * kQueries / a_.group;
    const uint32_t last = (min_u32((index + 1) * kQueries, count_) - 1) / a_.group;
    return a_.first_position + last >= base && begin_of(first) < base + kGroup;
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
        words[lane] = query_step(head, index * kQueries + lane, d);
      }
      transpose_words(words);
      for (uint32_t pair = 0; pair < kPanelStep / 2; ++pair) {
        _mm512_storeu_si512(t.q + (d / 2 + pair) * (2 * kQueries), words[pair]);
      }
    }
    for (uint32_t i = 0; i < kQueries * depth_; ++i) t.acc[i] = 0.0f;
  }

  /// 32 dimensions of a query as bf16, zero beyond the head and beyond the last query.
  __m512i query_step(uint32_t head, uint32_t query, uint32_t d) const {
    if (query >= count_) return _mm512_setzero_si512();
    const float* q = a_.q + query / a_.group * a_.row_stride +
                     (head * a_.group + query % a_.group) * a_.head_dim + d;
    const uint32_t count = min_u32(kPanelStep, a_.head_dim - d);
    const uint32_t mask = count == kPanelStep ? ~0u : (1u << count) - 1;
    const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), q);
    const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), q + 16);
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
  }

  /// Positions [begin, end) of a sequence, all heads of the call.
  struct Rows {
    const KvView* kv;
    uint32_t begin;
    uint32_t end;
  };

  /// Asks for one of several parts of what comes next, in the order in which it stands: memory and
  /// arithmetic work at the same time.
  void prefetch(const Rows& rows, uint32_t part, uint32_t parts) const {
    const size_t bytes = size_t{a_.num_kv_heads} * a_.head_dim * sizeof(Bf16);
    const uint32_t count = rows.end - rows.begin;
    const uint32_t last = rows.begin + count * (part + 1) / parts;
    for (uint32_t t = rows.begin + count * part / parts; t < last; ++t) {
      prefetch_lines(kv_row<Bf16>(*rows.kv, rows.kv->k_offset, t), bytes);
      prefetch_lines(kv_row<Bf16>(*rows.kv, rows.kv->v_offset, t), bytes);
    }
  }

  static void prefetch_lines(const Bf16* row, size_t bytes) {
    const char* at = reinterpret_cast<const char*>(row);
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i, 0, 2);
  }

  const Bf16* key(uint32_t head, uint32_t position) const {
    return kv_row<Bf16>(a_.kv, a_.kv.k_offset, position) + head * a_.head_dim;
  }

  /// values_ = [32 pairs of positions][depth][2]; zero where nobody looks: what stands there may be
  /// anything, and a weight of zero would not silence it.
  void pair_values(uint32_t head, uint32_t base, Seen seen) {
    for (uint32_t t = 0; t < kGroup; t += 2) {
      const Bf16* even = seen.has(t) ? value(head, base + t) : nullptr;
      const Bf16* odd = seen.has(t + 1) ? value(head, base + t + 1) : nullptr;
      Bf16* out = values_ + size_t{t} * depth_;
      for (uint32_t d = 0; d < depth_; d += kPanelStep) {
        interleave(load_step(even, d), load_step(odd, d), out + size_t{d} * 2);
      }
    }
  }

  const Bf16* value(uint32_t head, uint32_t position) const {
    return kv_row<Bf16>(a_.kv, a_.kv.v_offset, position) + head * a_.head_dim;
  }

  /// 32 dimensions of a row, zero beyond the head.
  __m512i load_step(const Bf16* row, uint32_t d) const {
    if (row == nullptr) return _mm512_setzero_si512();
    const uint32_t count = min_u32(kPanelStep, a_.head_dim - d);
    const __mmask32 mask = count == kPanelStep ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
    return _mm512_maskz_loadu_epi16(mask, row + d);
  }

  SAC_INLINE void interleave(__m512i even, __m512i odd, Bf16* out) {
    // Unpacking works within quarters: their order is put right before.
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    even = _mm512_permutexvar_epi64(order, even);
    odd = _mm512_permutexvar_epi64(order, odd);
    _mm512_storeu_si512(out, _mm512_unpacklo_epi16(even, odd));
    _mm512_storeu_si512(out + kPanelStep, _mm512_unpackhi_epi16(even, odd));
  }

  void copy_keys(uint32_t head, uint32_t base, Seen seen) {
    for (uint32_t t = 0; t < kGroup; ++t) {
      const Bf16* row = key(head, base + max_u32(seen.begin, min_u32(t, seen.end - 1)));
      for (uint32_t d = 0; d < depth_; d += kPanelStep) {
        _mm512_storeu_si512(keys_ + t * depth_ + d, load_step(row, d));
      }
    }
  }

  /// f(tile) for the tiles of a head with a query that sees a position of the group.
  template <class F>
  void for_each_seeing(uint32_t head, uint32_t base, F&& f) const {
    for (uint32_t i = 0; i < tiles_; ++i) {
      if (sees(i, base)) f(tile(head, i));
    }
  }

  /// scores = K q, [64 positions][16 queries]. Subtiles that nobody sees repeat one that is seen.
  void score(const QueryTile& t, uint32_t head, uint32_t base, Seen seen) {
    const Bf16* k[kSubtiles];
    for (uint32_t s = 0; s < kSubtiles; ++s) {
      const uint32_t first = seen.begin / kSubtile * kSubtile,
                     last = (seen.end - 1) / kSubtile * kSubtile;
      const uint32_t at = max_u32(first, min_u32(s * kSubtile, last));
      k[s] = in_place_ ? key(head, base + at) : keys_ + at * depth_;
    }
    const size_t stride = (in_place_ ? a_.kv.token_stride : depth_) * sizeof(Bf16);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (uint32_t d = 0; d < depth_; d += kPanelStep) {
      _tile_loadd(7, t.q + size_t{d} * kQueries, kWordRow);
      _tile_loadd(4, k[0] + d, stride);
      _tile_dpbf16ps(0, 4, 7);
      _tile_loadd(5, k[1] + d, stride);
      _tile_dpbf16ps(1, 5, 7);
      _tile_loadd(6, k[2] + d, stride);
      _tile_dpbf16ps(2, 6, 7);
      _tile_loadd(4, k[3] + d, stride);
      _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, t.scores, kWordRow);
    _tile_stored(1, t.scores + kSubtile * kQueries, kWordRow);
    _tile_stored(2, t.scores + 2 * kSubtile * kQueries, kWordRow);
    _tile_stored(3, t.scores + 3 * kSubtile * kQueries, kWordRow);
  }

  /// Folds the scores into the running softmax; weights = [2][16 queries][32 positions].
  void weigh(const QueryTile& t, uint32_t base) {
    const __m512i begin = _mm512_loadu_si512(t.begin), end = _mm512_loadu_si512(t.end);
    if (_mm512_reduce_min_epu32(end) >= base + kGroup && _mm512_reduce_max_epu32(begin) <= base) {
      weigh_seen(t, [](uint32_t) { return static_cast<__mmask16>(0xffff); });
    } else {
      weigh_seen(t, [&](uint32_t p) {
        const __m512i at = _mm512_set1_epi32(static_cast<int>(base + p));
        return static_cast<__mmask16>(_mm512_cmple_epu32_mask(begin, at) &
                                      _mm512_cmplt_epu32_mask(at, end));
      });
    }
  }

  /// sees(p): the queries that see position p of the group.
  template <class Sees>
  void weigh_seen(const QueryTile& t, Sees&& sees) {
    const __m512 low = _mm512_set1_ps(-__builtin_inff());
    __m512 top = _mm512_loadu_ps(t.max);
    for (uint32_t p = 0; p < kGroup; ++p) {
      const __m512 s = _mm512_loadu_ps(t.scores + p * kQueries);
      top = _mm512_mask_max_ps(top, sees(p), top, s);
    }
    const __m512 scale = _mm512_set1_ps(a_.scale * 1.44269504f);
    // A query that has seen nothing yet keeps -inf; zero in its place harms nobody.
    const __mmask16 blind = _mm512_cmp_ps_mask(top, low, _CMP_EQ_OQ);
    const __m512 shift =
        _mm512_mask_blend_ps(blind, _mm512_mul_ps(top, scale), _mm512_setzero_ps());
    rescale(t, exp2_lanes(_mm512_sub_ps(_mm512_mul_ps(_mm512_loadu_ps(t.max), scale), shift)));
    const auto weight = [&](uint32_t p) __attribute__((always_inline)) {
      const __m512 s = _mm512_loadu_ps(t.scores + p * kQueries);
      return _mm512_maskz_mov_ps(sees(p), exp2_lanes(_mm512_fmsub_ps(s, scale, shift)));
    };
    __m512 sum = _mm512_setzero_ps();
    for (uint32_t half = 0; half < 2; ++half) {
      __m512i words[kQueries];
      for (uint32_t pair = 0; pair < kGroup / 4; ++pair) {
        const uint32_t p = half * kGroup / 2 + pair * 2;
        const __m512 even = weight(p), odd = weight(p + 1);
        sum = _mm512_add_ps(sum, _mm512_add_ps(even, odd));
        words[pair] = pair_words(even, odd);
      }
      transpose_words(words);
      for (uint32_t i = 0; i < kQueries; ++i) {
        _mm512_storeu_si512(t.weights + (half * kQueries + i) * kPanelStep, words[i]);
      }
    }
    _mm512_storeu_ps(t.sum, _mm512_add_ps(_mm512_loadu_ps(t.sum), sum));
    _mm512_storeu_ps(t.max, top);
  }

  /// Lane i: the words' low half from `even`, the high half from `odd`, as bf16.
  SAC_INLINE __m512i pair_words(__m512 even, __m512 odd) {
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
  }

  /// Applies the factors of queries whose maximum has moved.
  void rescale(const QueryTile& t, __m512 factor) {
    _mm512_storeu_ps(t.sum, _mm512_mul_ps(_mm512_loadu_ps(t.sum), factor));
    __mmask16 moved = _mm512_cmp_ps_mask(factor, _mm512_set1_ps(1.0f), _CMP_NEQ_OQ);
    alignas(64) float factors[kQueries];
    _mm512_store_ps(factors, factor);
    for (; moved != 0; moved = moved & (moved - 1)) {
      const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(moved));
      float* acc = t.acc + lane * depth_;
      const __m512 by = _mm512_set1_ps(factors[lane]);
      for (uint32_t d = 0; d < depth_; d += 16) {
        _mm512_storeu_ps(acc + d, _mm512_mul_ps(_mm512_loadu_ps(acc + d), by));
      }
    }
  }

  /// acc += weights V, 32 dimensions at a time.
  void accumulate(const QueryTile& t) {
    const size_t acc_row = depth_ * sizeof(float);
    const size_t pair_row = depth_ * 2 * sizeof(Bf16);
    const Bf16* later = values_ + size_t{kGroup / 2} * depth_;
    _tile_loadd(6, t.weights, kWordRow);
    _tile_loadd(7, t.weights + kQueries * kPanelStep, kWordRow);
    for (uint32_t d = 0; d < depth_; d += kPanelStep) {
      _tile_loadd(0, t.acc + d, acc_row);
      _tile_loadd(1, t.acc + d + 16, acc_row);
      _tile_loadd(4, values_ + size_t{d} * 2, pair_row);
      _tile_dpbf16ps(0, 6, 4);
      _tile_loadd(5, values_ + size_t{d} * 2 + kPanelStep, pair_row);
      _tile_dpbf16ps(1, 6, 5);
      _tile_loadd(4, later + size_t{d} * 2, pair_row);
      _tile_dpbf16ps(0, 7, 4);
      _tile_loadd(5, later + size_t{d} * 2 + kPanelStep, pair_row);
      _tile_dpbf16ps(1, 7, 5);
      _tile_stored(0, t.acc + d, acc_row);
      _tile_stored(1, t.acc + d + 16, acc_row);
    }
  }

  void close(uint32_t head, uint32_t index) const {
    const QueryTile t = tile(head, index);
    for (uint32_t lane = 0; lane < kQueries && index * kQueries + lane < count_; ++lane) {
      const uint32_t query = index * kQueries + lane;
      float* acc = t.acc + lane * depth_;
      const float inverse = 1.0f / t.sum[lane];
      for (uint32_t d = 0; d < a_.head_dim; ++d) acc[d] *= inverse;
      store_activations(a_.out, a_.out_row + query / a_.group,
                        a_.out_column + (head * a_.group + query % a_.group) * a_.head_dim, acc,
                        a_.head_dim);
    }
  }

  const AttentionArgs& a_;
  const uint32_t depth_;  // head_dim in whole steps
  const uint32_t count_;  // queries
  const uint32_t tiles_;
  const bool in_place_;  // K is read where it stands
  Bf16* values_;
  Bf16* keys_;
};

template <>
struct Attention<Bf16> : AmxAttention {};

}  // namespace SAC_ISA
}  // namespace saccade
