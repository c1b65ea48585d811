// Attention over the paged KV of one sequence for the query heads of some kv heads.
//
// KV is walked once, in groups of 16 positions that start at multiples of 16. Each query vector, a
// (row, head) pair, has its own running softmax, updated once per group that it sees; so what a row
// computes depends on its position alone. Query vectors go through a group in tiles that share
// loads.
#pragma once
#include "cpu/activations_impl.hpp"
#include "sample/exp.hpp"

namespace saccade {
inline namespace SAC_ISA {

/// Positions whose scores are folded into the running softmax at once.
inline constexpr uint32_t kAttentionGroup = 16;
/// Most rows of one call: enough to reuse each load of K and V, few enough to spread the work.
inline constexpr uint32_t kAttentionRows = 8;
inline constexpr uint32_t kTileQueries = 4;
inline constexpr uint32_t kVecsPer16 = 16 / kVecLanes;

/// One query vector's running softmax, kept in the scratch of an attention call.
struct Query {
  float* q;        // [padded head_dim], zero beyond head_dim
  float* acc;      // [padded head_dim]
  uint32_t begin;  // it sees positions [begin, end)
  uint32_t end;
  float max;
  float sum;
};

/// Room for all queries of a call, and for one group's K and V as floats. head_dim is padded to 16.
constexpr size_t attention_scratch_floats(uint32_t head_dim, uint32_t group) {
  const size_t padded = ceil_div(head_dim, 16) * 16;
  const size_t queries = size_t{kAttentionRows} * group;
  return queries * (2 * padded + sizeof(Query) / sizeof(float)) + padded * 2 * kAttentionGroup;
}

/// Pointers to one group's K and V rows; positions nobody sees repeat a seen one and are masked.
template <class T>
struct GroupRows {
  const T* k[kAttentionGroup];
  const T* v[kAttentionGroup];

  void next_head(uint32_t head_dim) {
    for (uint32_t t = 0; t < kAttentionGroup; ++t) k[t] += head_dim, v[t] += head_dim;
  }
};

template <class T>
SAC_INLINE const T* kv_row(const KvView& kv, size_t offset, uint32_t position) {
  const uint32_t block = kv.block_table[position / kv.block_size];
  const uint8_t* base = kv.pool + block * kv.block_bytes + offset;
  return reinterpret_cast<const T*>(base) + (position % kv.block_size) * kv.token_stride;
}

/// Rows of the group at `base`, of which positions [begin, end) are seen by somebody.
template <class T>
SAC_INLINE void find_rows(const KvView& kv, uint32_t base, uint32_t begin, uint32_t end,
                          GroupRows<T>& rows) {
  for (uint32_t t = 0; t < kAttentionGroup; ++t) {
    const uint32_t position = max_u32(begin, min_u32(base + t, end - 1));
    rows.k[t] = kv_row<T>(kv, kv.k_offset, position);
    rows.v[t] = kv_row<T>(kv, kv.v_offset, position);
  }
}

/// Asks for what all heads of a call read of a group's rows [begin, end), ahead of its use: token
/// by token, as it stands in memory. The hardware does not foresee such strides.
template <class T>
SAC_INLINE void prefetch_rows(const GroupRows<T>& rows, uint32_t begin, uint32_t end,
                              uint32_t elements) {
  for (uint32_t t = begin; t < end; ++t) {
    for (uint32_t d = 0; d < elements; d += 64 / sizeof(T)) __builtin_prefetch(rows.k[t] + d);
    for (uint32_t d = 0; d < elements; d += 64 / sizeof(T)) __builtin_prefetch(rows.v[t] + d);
  }
}

template <class T>
SAC_INLINE void widen_row(const T* in, uint32_t head_dim, uint32_t padded, float* out) {
  uint32_t d = 0;
  for (; d + kVecLanes <= head_dim; d += kVecLanes) vec_store(out + d, vec_load(in + d));
  for (; d < padded; ++d) out[d] = d < head_dim ? to_float(in[d]) : 0.0f;
}

/// Copies a group's rows into zero-padded, adjacent floats: for head sizes that are no multiple of
/// 16, and where several tiles use them.
template <class T>
void widen_rows(const GroupRows<T>& in, uint32_t head_dim, uint32_t padded, float* scratch,
                GroupRows<float>& out) {
  for (uint32_t t = 0; t < kAttentionGroup; ++t) {
    float* k = scratch + t * padded;
    float* v = scratch + (kAttentionGroup + t) * padded;
    widen_row(in.k[t], head_dim, padded, k);
    widen_row(in.v[t], head_dim, padded, v);
    out.k[t] = k;
    out.v[t] = v;
  }
}

/// Dot products of kQueries query vectors with the 16 keys of a group. Each is 16 lanes of chains
/// over ascending dimensions, then the tree of vec16_sum.
template <class T, uint32_t kQueries>
SAC_INLINE void score_group(const Query* queries, const GroupRows<T>& rows, uint32_t padded,
                            float (*scores)[kAttentionGroup]) {
  constexpr uint32_t kKeys = kScoreVectors / kQueries;
  for (uint32_t t = 0; t < kAttentionGroup; t += kKeys) {
    Vec acc[kScoreVectors][kVecsPer16];
    for (uint32_t i = 0; i < kScoreVectors; ++i) {
      for (uint32_t j = 0; j < kVecsPer16; ++j) acc[i][j] = vec_zero();
    }
    for (uint32_t d = 0; d < padded; d += 16) {
      for (uint32_t j = 0; j < kVecsPer16; ++j) {
        Vec q[kQueries];
        for (uint32_t i = 0; i < kQueries; ++i) q[i] = vec_load(queries[i].q + d + j * kVecLanes);
        for (uint32_t s = 0; s < kKeys; ++s) {
          const Vec key = vec_load(rows.k[t + s] + d + j * kVecLanes);
          for (uint32_t i = 0; i < kQueries; ++i) {
            acc[i * kKeys + s][j] = vec_fma(q[i], key, acc[i * kKeys + s][j]);
          }
        }
      }
    }
    float sums[kScoreVectors];
    vec16_sums(acc, sums);
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
  const float best = top > query.max ? top : query.max;
  const float factor = exp_fixed(query.max - best);
  for (uint32_t t = 0; t < kAttentionGroup; ++t) scores[t] = exp_fixed(scores[t] - best);
  for (uint32_t t = 0; t < kAttentionGroup; ++t) tree[t] = scores[t];
  query.max = best;
  query.sum = query.sum * factor + fold16(tree, [](float a, float b) { return a + b; });
  return factor;
}

/// Dimensions [d, d + 16 * kWide) of accumulate_group.
template <class T, uint32_t kQueries, uint32_t kWide>
SAC_INLINE void accumulate_part(Query* queries, const GroupRows<T>& rows, uint32_t d, Part part,
                                const float* factors, const float (*weights)[kAttentionGroup]) {
  constexpr uint32_t kVecs = kWide * kVecsPer16;
  Vec sum[kQueries][kVecs];
  for (uint32_t i = 0; i < kQueries; ++i) {
    for (uint32_t j = 0; j < kVecs; ++j) {
      sum[i][j] = vec_mul(vec_load(queries[i].acc + d + j * kVecLanes), vec_set(factors[i]));
    }
  }
  for (uint32_t t = part.begin; t < part.end; ++t) {
    for (uint32_t j = 0; j < kVecs; ++j) {
      const Vec value = vec_load(rows.v[t] + d + j * kVecLanes);
      for (uint32_t i = 0; i < kQueries; ++i) {
        sum[i][j] = vec_fma(vec_set(weights[i][t]), value, sum[i][j]);
      }
    }
  }
  for (uint32_t i = 0; i < kQueries; ++i) {
    for (uint32_t j = 0; j < kVecs; ++j) {
      vec_store(queries[i].acc + d + j * kVecLanes, sum[i][j]);
    }
  }
}

/// acc = acc * factor + sum over t of [begin, end) of weight[t] * v[t], t ascending, for queries
/// that see the same part of this group. A sum waits for the one before: few queries take more
/// dimensions at once.
template <class T, uint32_t kQueries>
SAC_INLINE void accumulate_group(Query* queries, const GroupRows<T>& rows, uint32_t padded,
                                 Part part, const float* factors,
                                 const float (*weights)[kAttentionGroup]) {
  constexpr uint32_t kWide = kTileQueries / kQueries;
  uint32_t d = 0;
  for (; d + 16 * kWide <= padded; d += 16 * kWide) {
    accumulate_part<T, kQueries, kWide>(queries, rows, d, part, factors, weights);
  }
  if constexpr (kWide > 1) {
    for (; d < padded; d += 16) {
      accumulate_part<T, kQueries, 1>(queries, rows, d, part, factors, weights);
    }
  }
}

/// Takes kQueries queries through the group at `base`.
template <class T, uint32_t kQueries>
void attend_tile(Query* queries, const GroupRows<T>& rows, uint32_t base, uint32_t padded,
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
  score_group<T, kQueries>(queries, rows, padded, scores);
  for (uint32_t i = 0; i < kQueries; ++i) {
    if (parts[i].begin >= parts[i].end) continue;
    factors[i] = fold_scores(scores[i], parts[i], scale, queries[i]);
    if (!same) {
      accumulate_group<T, 1>(queries + i, rows, padded, parts[i], factors + i, scores + i);
    }
  }
  if (same) accumulate_group<T, kQueries>(queries, rows, padded, parts[0], factors, scores);
}

template <class T>
SAC_INLINE void attend_group(Query* queries, uint32_t count, const GroupRows<T>& rows,
                             uint32_t base, uint32_t padded, float scale) {
  uint32_t i = 0;
  for (; i + 4 <= count; i += 4) attend_tile<T, 4>(queries + i, rows, base, padded, scale);
  for (; i + 2 <= count; i += 2) attend_tile<T, 2>(queries + i, rows, base, padded, scale);
  for (; i < count; ++i) attend_tile<T, 1>(queries + i, rows, base, padded, scale);
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

SAC_INLINE void open_query(const AttentionArgs& a, uint32_t index, uint32_t padded, float* memory,
                           Query& query) {
  const QueryPlace place = query_place(a, index);
  const float* q = a.q + place.row * a.row_stride + place.head * a.head_dim;
  query.q = memory;
  query.acc = memory + padded;
  for (uint32_t d = 0; d < padded; ++d) {
    query.q[d] = d < a.head_dim ? q[d] : 0.0f;
    query.acc[d] = 0.0f;
  }
  query.end = a.first_position + place.row + 1;
  query.begin = a.window != 0 && query.end > a.window ? query.end - a.window : 0;
  query.max = -__builtin_inff();
  query.sum = 0.0f;
}

SAC_INLINE void close_query(const AttentionArgs& a, uint32_t index, const Query& query) {
  const QueryPlace place = query_place(a, index);
  const float inverse = 1.0f / query.sum;
  for (uint32_t d = 0; d < a.head_dim; ++d) query.acc[d] *= inverse;
  store_activations(a.out, a.out_row + place.row, a.out_column + place.head * a.head_dim, query.acc,
                    a.head_dim);
}

/// All heads of the call go through a group before the next one: in memory a token's heads stand
/// side by side.
template <class T>
void attention_typed(const AttentionArgs& a) {
  const uint32_t padded = ceil_div(a.head_dim, 16) * 16;
  const uint32_t of_head = a.num_rows * a.group, count = of_head * a.num_kv_heads;
  Query* queries = reinterpret_cast<Query*>(a.scratch);
  float* vectors = a.scratch + count * (sizeof(Query) / sizeof(float));
  float* widened = vectors + size_t{count} * 2 * padded;
  for (uint32_t i = 0; i < count; ++i) {
    open_query(a, i, padded, vectors + size_t{i} * 2 * padded, queries[i]);
  }
  const uint32_t begin = queries[0].begin;      // the first row sees the earliest position,
  const uint32_t end = queries[count - 1].end;  // the last row the latest
  const bool widen = padded != a.head_dim || of_head > kTileQueries;
  GroupRows<T> next;
  uint32_t base = begin / kAttentionGroup * kAttentionGroup;
  find_rows(a.kv, base, begin, end, next);
  for (; base < end; base += kAttentionGroup) {
    GroupRows<T> rows = next;
    const bool goes_on = base + kAttentionGroup < end;
    if (goes_on) find_rows(a.kv, base + kAttentionGroup, begin, end, next);
    for (uint32_t h = 0; h < a.num_kv_heads; ++h) {
      if (goes_on) {
        prefetch_rows(next, kAttentionGroup * h / a.num_kv_heads,
                      kAttentionGroup * (h + 1) / a.num_kv_heads, a.num_kv_heads * a.head_dim);
      }
      if (widen) {
        GroupRows<float> wide;
        widen_rows(rows, a.head_dim, padded, widened, wide);
        attend_group(queries + h * of_head, of_head, wide, base, padded, a.scale);
      } else {
        attend_group(queries + h * of_head, of_head, rows, base, padded, a.scale);
      }
      rows.next_head(a.head_dim);
    }
  }
  for (uint32_t i = 0; i < count; ++i) close_query(a, i, queries[i]);
}

/// How a kernel set attends to KV of T. Sets with matrix instructions specialise it.
template <class T>
struct Attention {
  static constexpr uint32_t kRows = kAttentionRows;
  static constexpr size_t scratch_floats(uint32_t head_dim, uint32_t group) {
    return attention_scratch_floats(head_dim, group);
  }
  static void run(const AttentionArgs& a) { attention_typed<T>(a); }
};

}  // namespace SAC_ISA
}  // namespace saccade
