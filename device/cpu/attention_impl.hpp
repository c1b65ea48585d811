// Attention over the paged KV of one sequence for the query heads of some kv heads.
//
// KV is walked in groups of 16 positions that start at multiples of 16, all heads of the call in a
// group before the next: a token's heads are adjacent in memory. Each query vector, a (row, head)
// pair, has its own running softmax, updated once per group that it sees and restarted at every
// multiple of kAttentionRange; the ranges' results are merged in ascending order, here or by
// merge_attention(). So what a row computes depends on its position alone, and different workers
// can compute ranges of one row. Query vectors go through a group in tiles that share loads.
#pragma once
#include "cpu/activations_impl.hpp"
#include "sample/exp.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Names a type; attentions themselves are made for a call.
template <class T>
struct Named {
  using Type = T;
};

/// Positions whose scores are folded into the running softmax at once.
inline constexpr uint32_t kAttentionGroup = 16;
static_assert(kAttentionRange % kAttentionGroup == 0);
/// Most rows of one call: enough to reuse each load of K and V, few enough to spread the work.
inline constexpr uint32_t kAttentionRows = 8;
inline constexpr uint32_t kTileQueries = 4;
inline constexpr uint32_t kVecsPer16 = 16 / kVecLanes;

/// One query vector's softmax over a range, and the merged result of the ranges before it. Vectors
/// are in the order of load16().
struct Query {
  float* q;        // [padded head_dim], zero beyond head_dim
  float* acc;      // [padded head_dim]
  float* total;    // [padded head_dim]
  uint32_t begin;  // it sees positions [begin, end)
  uint32_t end;
  float max;  // -infinity: nothing seen in this range
  float sum;
  float total_max;
  float total_sum;
};

/// Room for all queries of a call, and for one group's K and V as floats. head_dim is padded to 16.
constexpr size_t attention_scratch_floats(uint32_t head_dim, uint32_t group,
                                          uint32_t num_kv_heads) {
  const size_t padded = ceil_div(head_dim, 16) * 16;
  const size_t queries = size_t{max_u32(kAttentionRows, num_kv_heads)} * group;
  return queries * (3 * padded + sizeof(Query) / sizeof(float)) + padded * 2 * kAttentionGroup;
}

/// Pointers to one group's K and V rows, of the first head of the call; positions that no query
/// sees repeat a seen one and are masked.
template <class T>
struct GroupRows {
  const T* k[kAttentionGroup];
  const T* v[kAttentionGroup];
};

/// 16 elements of a row of KV as floats, in the cheapest order; a query's vectors use the same.
template <class T>
SAC_INLINE void load16(const T* p, Vec (&out)[kVecsPer16]) {
  if constexpr (kHalvesApart<T>) {
    out[0] = vec_load_even(p);
    out[1] = vec_load_odd(p);
  } else {
    for (uint32_t j = 0; j < kVecsPer16; ++j) out[j] = vec_load(p + j * kVecLanes);
  }
}

/// Where load16() puts element d of a row.
template <class T>
constexpr uint32_t place16(uint32_t d) {
  if constexpr (kHalvesApart<T>) return d / 16 * 16 + d % 2 * 8 + d % 16 / 2;
  return d;
}

template <class T>
SAC_INLINE const T* kv_row(const KvView& kv, size_t offset, uint32_t position) {
  const uint32_t block = kv.block_table[position / kv.block_size];
  const uint8_t* base = kv.pool + block * kv.block_bytes + offset;
  return reinterpret_cast<const T*>(base) + (position % kv.block_size) * kv.token_stride;
}

/// Rows of the group at `base`; some query sees positions [begin, end).
template <class T>
SAC_INLINE void find_rows(const KvView& kv, uint32_t base, uint32_t begin, uint32_t end,
                          GroupRows<T>& rows) {
  for (uint32_t t = 0; t < kAttentionGroup; ++t) {
    const uint32_t position = max_u32(begin, min_u32(base + t, end - 1));
    rows.k[t] = kv_row<T>(kv, kv.k_offset, position);
    rows.v[t] = kv_row<T>(kv, kv.v_offset, position);
  }
}

/// Prefetches a part of what is read next: one line for each line read. Prefetches in bursts wait
/// for each other, and the hardware's own prefetching of rows that are read head by head is not
/// enough.
template <class T>
SAC_INLINE void prefetch_line(const T* ahead, uint32_t d) {
  if (d % (64 / sizeof(T)) == 0) __builtin_prefetch(ahead + d);
}

/// A row as floats in the order of load16(), zero beyond head_dim.
template <class T>
SAC_INLINE void widen_row(const T* in, const T* ahead, uint32_t head_dim, uint32_t padded,
                          float* out) {
  uint32_t d = 0;
  for (; d + 16 <= head_dim; d += 16) {
    prefetch_line(ahead, d);
    Vec v[kVecsPer16];
    load16(in + d, v);
    for (uint32_t j = 0; j < kVecsPer16; ++j) vec_store(out + d + j * kVecLanes, v[j]);
  }
  for (; d < padded; ++d) out[place16<T>(d)] = d < head_dim ? to_float(in[d]) : 0.0f;
}

/// Copies a head of a group's rows into zero-padded, adjacent floats: for head sizes that are not a
/// multiple of 16, and where several tiles use them.
template <class T>
void widen_rows(const GroupRows<T>& in, const GroupRows<T>& ahead, uint32_t head_dim,
                uint32_t padded, float* scratch, GroupRows<float>& out) {
  for (uint32_t t = 0; t < kAttentionGroup; ++t) {
    float* k = scratch + t * padded;
    float* v = scratch + (kAttentionGroup + t) * padded;
    widen_row(in.k[t], ahead.k[t], head_dim, padded, k);
    widen_row(in.v[t], ahead.v[t], head_dim, padded, v);
    out.k[t] = k;
    out.v[t] = v;
  }
}

/// How a tile reads a head of a group: rows of Row in the order of load16<Kv>. Where it reads them
/// from memory, it also prefetches the rows of `ahead`.
template <class Kv, class Row, bool kAhead>
struct HeadRows {
  const GroupRows<Row>& rows;
  const GroupRows<Row>& ahead;
};

/// Dot products of kQueries query vectors with the 16 keys of a group. Each is 16 lanes of chains
/// over ascending dimensions, then the tree of vec16_sum.
template <uint32_t kQueries, class Kv, class Row, bool kAhead>
SAC_INLINE void score_group(const Query* queries, HeadRows<Kv, Row, kAhead> head, uint32_t padded,
                            float (*scores)[kAttentionGroup]) {
  constexpr uint32_t kKeys = kScoreVectors / kQueries;
  for (uint32_t t = 0; t < kAttentionGroup; t += kKeys) {
    Vec acc[kScoreVectors][kVecsPer16];
    for (uint32_t i = 0; i < kScoreVectors; ++i) {
      for (uint32_t j = 0; j < kVecsPer16; ++j) acc[i][j] = vec_zero();
    }
    for (uint32_t d = 0; d < padded; d += 16) {
      for (uint32_t s = 0; s < kKeys; ++s) {
        Vec key[kVecsPer16];
        load16(head.rows.k[t + s] + d, key);
        if constexpr (kAhead) prefetch_line(head.ahead.k[t + s], d);
        for (uint32_t i = 0; i < kQueries; ++i) {
          for (uint32_t j = 0; j < kVecsPer16; ++j) {
            acc[i * kKeys + s][j] =
                vec_fma(vec_load(queries[i].q + d + j * kVecLanes), key[j], acc[i * kKeys + s][j]);
          }
        }
      }
    }
    float sums[kScoreVectors];
    vec16_sums<kHalvesApart<Kv>>(acc, sums);
    for (uint32_t i = 0; i < kQueries; ++i) {
      for (uint32_t s = 0; s < kKeys; ++s) scores[i][t + s] = sums[i * kKeys + s];
    }
  }
}

/// The part of the group at `base` that a query sees, relative to base; empty if begin >= end.
struct Part {
  uint32_t begin;
  uint32_t end;
};

SAC_INLINE Part seen_part(const Query& query, uint32_t base) {
  const uint32_t begin = query.begin > base ? query.begin - base : 0;
  const uint32_t end = query.end > base ? query.end - base : 0;
  return {min_u32(begin, kAttentionGroup), min_u32(end, kAttentionGroup)};
}

/// Folds 16 values into v[0] by the tree of vec16_sum.
template <class Op>
SAC_INLINE float fold16(float (&v)[16], Op op) {
  for (uint32_t t = 0; t < 8; ++t) v[t] = op(v[t], v[t + 8]);
  for (uint32_t t = 0; t < 4; ++t) v[t] = op(v[t], v[t + 4]);
  for (uint32_t t = 0; t < 2; ++t) v[t] = op(v[t], v[t + 2]);
  return op(v[0], v[1]);
}

/// Folds 16 scores into a running softmax. `scores` become weights, 0 where invisible; returns the
/// factor for what was accumulated before.
SAC_INLINE float fold_scores(float (&scores)[kAttentionGroup], Part part, float scale,
                             Query& query) {
  float tree[kAttentionGroup];
  for (uint32_t t = 0; t < kAttentionGroup; ++t) scores[t] *= scale;
  for (uint32_t t = 0; t < part.begin; ++t) scores[t] = -__builtin_inff();
  for (uint32_t t = part.end; t < kAttentionGroup; ++t) scores[t] = -__builtin_inff();
  for (uint32_t t = 0; t < kAttentionGroup; ++t) tree[t] = scores[t];
  const float top = fold16(tree, [](float a, float b) { return a > b ? a : b; });
  float factor = 1.0f;
  if (top > query.max) {  // rare, once a context is long
    factor = exp_fixed(query.max - top);
    query.max = top;
  }
  for (uint32_t t = 0; t < kAttentionGroup; ++t) scores[t] = exp_fixed(scores[t] - query.max);
  for (uint32_t t = 0; t < kAttentionGroup; ++t) tree[t] = scores[t];
  query.sum = query.sum * factor + fold16(tree, [](float a, float b) { return a + b; });
  return factor;
}

/// Dimensions [d, d + 16 * kWide) of accumulate_group.
template <uint32_t kQueries, uint32_t kWide, class Kv, class Row, bool kAhead>
SAC_INLINE void accumulate_part(Query* queries, HeadRows<Kv, Row, kAhead> head, uint32_t d,
                                Part part, const float* factors,
                                const float (*weights)[kAttentionGroup]) {
  Vec sum[kQueries][kWide][kVecsPer16];
  const auto at = [&](uint32_t i, uint32_t w, uint32_t j) __attribute__((always_inline)) {
    return queries[i].acc + d + w * 16 + j * kVecLanes;
  };
  for (uint32_t i = 0; i < kQueries; ++i) {
    for (uint32_t w = 0; w < kWide; ++w) {
      for (uint32_t j = 0; j < kVecsPer16; ++j) {
        sum[i][w][j] = vec_mul(vec_load(at(i, w, j)), vec_set(factors[i]));
      }
    }
  }
  for (uint32_t t = part.begin; t < part.end; ++t) {
    for (uint32_t w = 0; w < kWide; ++w) {
      Vec value[kVecsPer16];
      load16(head.rows.v[t] + d + w * 16, value);
      if constexpr (kAhead) prefetch_line(head.ahead.v[t] + d, w * 16);
      for (uint32_t i = 0; i < kQueries; ++i) {
        for (uint32_t j = 0; j < kVecsPer16; ++j) {
          sum[i][w][j] = vec_fma(vec_set(weights[i][t]), value[j], sum[i][w][j]);
        }
      }
    }
  }
  for (uint32_t i = 0; i < kQueries; ++i) {
    for (uint32_t w = 0; w < kWide; ++w) {
      for (uint32_t j = 0; j < kVecsPer16; ++j) vec_store(at(i, w, j), sum[i][w][j]);
    }
  }
}

/// acc = acc * factor + sum over t of [begin, end) of weight[t] * v[t], t ascending, for queries
/// that see the same part of this group. Each addition waits for the one before, so few queries
/// take more dimensions at once.
template <uint32_t kQueries, class Kv, class Row, bool kAhead>
SAC_INLINE void accumulate_group(Query* queries, HeadRows<Kv, Row, kAhead> head, uint32_t padded,
                                 Part part, const float* factors,
                                 const float (*weights)[kAttentionGroup]) {
  constexpr uint32_t kWide = kTileQueries / kQueries;
  uint32_t d = 0;
  for (; d + 16 * kWide <= padded; d += 16 * kWide) {
    accumulate_part<kQueries, kWide>(queries, head, d, part, factors, weights);
  }
  if constexpr (kWide > 1) {
    for (; d < padded; d += 16) {
      accumulate_part<kQueries, 1>(queries, head, d, part, factors, weights);
    }
  }
}

/// Takes kQueries queries through the group at `base`.
template <uint32_t kQueries, class Kv, class Row, bool kAhead>
void attend_tile(Query* queries, HeadRows<Kv, Row, kAhead> head, uint32_t base, uint32_t padded,
                 float scale) {
  Part parts[kQueries];
  bool same = true, any = false;
  for (uint32_t i = 0; i < kQueries; ++i) {
    parts[i] = seen_part(queries[i], base);
    same = same && parts[i].begin == parts[0].begin && parts[i].end == parts[0].end;
    any = any || parts[i].begin < parts[i].end;
  }
  if (!any) return;
  float scores[kQueries][kAttentionGroup];
  float factors[kQueries];
  score_group<kQueries>(queries, head, padded, scores);
  for (uint32_t i = 0; i < kQueries; ++i) {
    if (parts[i].begin >= parts[i].end) continue;
    factors[i] = fold_scores(scores[i], parts[i], scale, queries[i]);
    if (!same) {
      accumulate_group<1>(queries + i, head, padded, parts[i], factors + i, scores + i);
    }
  }
  if (same) accumulate_group<kQueries>(queries, head, padded, parts[0], factors, scores);
}

/// Takes the queries of a head through the group at `base`.
template <class Kv, class Row, bool kAhead>
SAC_INLINE void attend_head(Query* queries, uint32_t count, HeadRows<Kv, Row, kAhead> head,
                            uint32_t base, uint32_t padded, float scale) {
  uint32_t i = 0;
  for (; i + 4 <= count; i += 4) attend_tile<4>(queries + i, head, base, padded, scale);
  for (; i + 2 <= count; i += 2) attend_tile<2>(queries + i, head, base, padded, scale);
  for (; i < count; ++i) attend_tile<1>(queries + i, head, base, padded, scale);
}

/// Which query is the `index`-th of a call: [num_kv_heads][num_rows][group].
struct QueryPlace {
  uint32_t row;
  uint32_t head;  // among all query heads of the call
};

SAC_INLINE QueryPlace query_place(const AttentionArgs& a, uint32_t index) {
  const uint32_t of_head = index % (a.num_rows * a.group);
  const uint32_t kv_head = index / (a.num_rows * a.group);
  return {of_head / a.group, kv_head * a.group + of_head % a.group};
}

/// `memory`: [3][padded], the query's vectors.
template <class T>
void open_query(const AttentionArgs& a, uint32_t index, uint32_t padded, float* memory,
                Query& query) {
  const QueryPlace place = query_place(a, index);
  const float* q = a.q + place.row * a.row_stride + place.head * a.head_dim;
  query.q = memory;
  query.acc = memory + padded;
  query.total = memory + 2 * padded;
  for (uint32_t d = 0; d < padded; ++d) {
    query.q[place16<T>(d)] = d < a.head_dim ? q[d] : 0.0f;
    query.total[d] = 0.0f;
  }
  query.end = a.first_position + place.row + 1;
  query.begin = a.window != 0 && query.end > a.window ? query.end - a.window : 0;
  query.total_max = -__builtin_inff();
  query.total_sum = 0.0f;
}

/// Writes a query's result; `total` holds it in the order of load16<T>. `values`: [padded].
template <class T>
void write_attention(const float* total, float sum, float v_scale, const Activations& out,
                     uint32_t row, uint32_t column, uint32_t head_dim, float* values) {
  const float inverse = v_scale / sum;
  for (uint32_t d = 0; d < head_dim; ++d) values[d] = total[place16<T>(d)] * inverse;
  store_activations(out, row, column, values, head_dim);
}

/// Adds a range's softmax to that of the ranges before it.
SAC_INLINE void merge_range(const float* acc, float max, float sum, uint32_t padded, float* total,
                            float& total_max, float& total_sum) {
  if (max == -__builtin_inff()) return;
  const float best = max > total_max ? max : total_max;
  const float before = exp_fixed(total_max - best), now = exp_fixed(max - best);
  for (uint32_t d = 0; d < padded; d += kVecLanes) {
    const Vec part = vec_mul(vec_load(acc + d), vec_set(now));
    vec_store(total + d, vec_fma(vec_load(total + d), vec_set(before), part));
  }
  total_sum = total_sum * before + sum * now;
  total_max = best;
}

/// One call of attention.
template <class T>
class PagedAttention {
 public:
  explicit PagedAttention(const AttentionArgs& args)
      : a_(args),
        padded_(ceil_div(args.head_dim, 16) * 16),
        of_head_(args.num_rows * args.group),
        count_(of_head_ * args.num_kv_heads),
        widen_(padded_ != args.head_dim || of_head_ > kTileQueries),
        scale_(args.scale * args.kv.k_scale),
        widened_(args.scratch + size_t{count_} * 3 * padded_),
        queries_(reinterpret_cast<Query*>(widened_ + size_t{padded_} * 2 * kAttentionGroup)) {}

  void run() {
    for (uint32_t i = 0; i < count_; ++i) {
      open_query<T>(a_, i, padded_, a_.scratch + size_t{i} * 3 * padded_, queries_[i]);
    }
    // The first row sees the earliest position, the last row the latest.
    begin_ = max_u32(queries_[0].begin, a_.first_range * kAttentionRange);
    end_ = queries_[count_ - 1].end;
    if (a_.end_range < ceil_div(end_, kAttentionRange)) end_ = a_.end_range * kAttentionRange;
    if (begin_ < end_) walk();
    if (a_.parts != nullptr) return;
    for (uint32_t i = 0; i < count_; ++i) {
      const QueryPlace place = query_place(a_, i);
      const Query& query = queries_[i];
      write_attention<T>(query.total, query.total_sum, a_.kv.v_scale, a_.out,
                         a_.out_row + place.row, a_.out_column + place.head * a_.head_dim,
                         a_.head_dim, query.acc);
    }
  }

 private:
  void walk() {
    uint32_t base = begin_ / kAttentionGroup * kAttentionGroup;
    begin_range(base / kAttentionRange);
    GroupRows<T> next;
    find_rows(a_.kv, base, begin_, end_, next);
    while (base < end_) {
      const GroupRows<T> rows = next;
      const uint32_t later = base + kAttentionGroup;
      if (later < end_) {
        find_rows(a_.kv, later, begin_, end_, next);
      } else if (a_.ahead_begin < a_.ahead_end) {
        const uint32_t first = a_.ahead_begin / kAttentionGroup * kAttentionGroup;
        find_rows(a_.ahead, first, a_.ahead_begin, a_.ahead_end, next);
      }
      for (uint32_t h = 0; h < a_.num_kv_heads; ++h) attend(h, rows, next, base);
      if (later >= end_ || later % kAttentionRange == 0) end_range(base / kAttentionRange);
      if (later < end_ && later % kAttentionRange == 0) begin_range(later / kAttentionRange);
      base = later;
    }
  }

  void attend(uint32_t head, const GroupRows<T>& of_group, const GroupRows<T>& next,
              uint32_t base) {
    GroupRows<T> rows, ahead;
    // `next` has all heads of the next group, in memory order; each head prefetches its share of
    // them.
    uint32_t row = head * kAttentionGroup / a_.num_kv_heads;
    uint32_t of_row = head * kAttentionGroup % a_.num_kv_heads;
    for (uint32_t t = 0; t < kAttentionGroup; ++t) {
      rows.k[t] = of_group.k[t] + head * a_.head_dim;
      rows.v[t] = of_group.v[t] + head * a_.head_dim;
      ahead.k[t] = next.k[row] + of_row * a_.head_dim;
      ahead.v[t] = next.v[row] + of_row * a_.head_dim;
      if (++of_row == a_.num_kv_heads) row += 1, of_row = 0;
    }
    Query* queries = queries_ + head * of_head_;
    if (widen_) {
      GroupRows<float> wide;
      widen_rows(rows, ahead, a_.head_dim, padded_, widened_, wide);
      attend_head(queries, of_head_, HeadRows<T, float, false>{wide, wide}, base, padded_, scale_);
    } else {
      attend_head(queries, of_head_, HeadRows<T, T, true>{rows, ahead}, base, padded_, scale_);
    }
  }

  float* part(uint32_t range, uint32_t query) const {
    return a_.parts + range * a_.part_stride + query * attention_part_floats(a_.head_dim);
  }

  void begin_range(uint32_t range) {
    for (uint32_t i = 0; i < count_; ++i) {
      Query& query = queries_[i];
      if (a_.parts != nullptr) query.acc = part(range, i);
      for (uint32_t d = 0; d < padded_; d += kVecLanes) vec_store(query.acc + d, vec_zero());
      query.max = -__builtin_inff();
      query.sum = 0.0f;
    }
  }

  void end_range(uint32_t range) {
    for (uint32_t i = 0; i < count_; ++i) {
      Query& query = queries_[i];
      if (a_.parts != nullptr) {
        part(range, i)[padded_] = query.max;
        part(range, i)[padded_ + 1] = query.sum;
      } else {
        merge_range(query.acc, query.max, query.sum, padded_, query.total, query.total_max,
                    query.total_sum);
      }
    }
  }

  const AttentionArgs& a_;
  const uint32_t padded_;   // head_dim
  const uint32_t of_head_;  // queries of one kv head
  const uint32_t count_;    // queries
  const bool widen_;
  const float scale_;  // of scores with what is stored
  float* widened_;
  Query* queries_;
  uint32_t begin_ = 0;  // positions of the walk
  uint32_t end_ = 0;
};

/// merge_attention() for parts computed from KV of T.
template <class T>
void merge_typed(const MergeArgs& a) {
  const uint32_t padded = ceil_div(a.head_dim, 16) * 16;
  for (uint32_t h = 0; h < a.num_heads; ++h) {
    float* total = a.scratch;
    for (uint32_t d = 0; d < padded; ++d) total[d] = 0.0f;
    float max = -__builtin_inff(), sum = 0.0f;
    for (uint32_t r = a.first_range; r < a.end_range; ++r) {
      const float* part = a.parts + r * a.part_stride + h * attention_part_floats(a.head_dim);
      merge_range(part, part[padded], part[padded + 1], padded, total, max, sum);
    }
    write_attention<T>(total, sum, a.v_scale, a.out, a.out_row, h * a.head_dim, a.head_dim,
                       total + padded);
  }
}

/// How a kernel set attends to KV of T. Sets with matrix instructions specialise it.
template <class T>
struct Attention {
  static constexpr uint32_t kRows = kAttentionRows;
  static constexpr size_t scratch_floats(uint32_t head_dim, uint32_t group, uint32_t num_kv_heads) {
    return attention_scratch_floats(head_dim, group, num_kv_heads);
  }
  static void run(const AttentionArgs& a) { PagedAttention<T>(a).run(); }
  static void merge(const MergeArgs& a) { merge_typed<T>(a); }
};

}  // namespace SAC_ISA
}  // namespace saccade
