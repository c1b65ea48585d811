// Attention over the paged KV of one sequence for the query heads of one kv head.
//
// Work goes in tiles of up to four query vectors, (row, head) pairs, that share the loads of K and
// V. Each query vector has its own running softmax, updated once per group of 16 positions; groups
// start at multiples of 16, so what a row computes depends on its position alone.
#pragma once
#include "cpu/kernels.hpp"
#include "sample/exp.hpp"

namespace saccade {
inline namespace SAC_ISA {

inline constexpr uint32_t kTileQueries = 4;
inline constexpr uint32_t kVecsPer16 = 16 / kVecLanes;

/// The positions [begin, end) that a row sees.
struct Visible {
  uint32_t begin;
  uint32_t end;
};

SAC_INLINE Visible visible_positions(uint32_t position, uint32_t window) {
  const uint32_t end = position + 1;
  return {window != 0 && end > window ? end - window : 0, end};
}

/// One tile of query vectors and their running softmax.
struct QueryTile {
  const float* q[kTileQueries];  // [padded head_dim], zero beyond head_dim
  float* acc[kTileQueries];      // [padded head_dim]
  Visible visible[kTileQueries];
  float max[kTileQueries];
  float sum[kTileQueries];
};

/// Pointers to one group's K and V rows; positions nobody sees repeat a seen one and are masked.
template <class T>
struct GroupRows {
  const T* k[kAttentionGroup];
  const T* v[kAttentionGroup];
};

template <class T>
SAC_INLINE const T* kv_row(const KvView& kv, size_t offset, uint32_t position) {
  const uint32_t block = kv.block_table[position / kv.block_size];
  const uint8_t* base = kv.pool + block * kv.block_bytes + offset;
  return reinterpret_cast<const T*>(base) + (position % kv.block_size) * kv.token_stride;
}

template <class T>
SAC_INLINE void find_rows(const KvView& kv, uint32_t base, Visible seen, GroupRows<T>& rows) {
  for (uint32_t t = 0; t < kAttentionGroup; ++t) {
    uint32_t position = base + t < seen.end ? base + t : seen.end - 1;
    position = position < seen.begin ? seen.begin : position;
    rows.k[t] = kv_row<T>(kv, kv.k_offset, position);
    rows.v[t] = kv_row<T>(kv, kv.v_offset, position);
  }
}

/// Copies a group's rows into zero-padded floats, for head sizes that are no multiple of 16.
template <class T>
void widen_rows(const GroupRows<T>& in, uint32_t head_dim, uint32_t padded, float* scratch,
                GroupRows<float>& out) {
  for (uint32_t t = 0; t < kAttentionGroup; ++t) {
    float* k = scratch + t * padded;
    float* v = scratch + (kAttentionGroup + t) * padded;
    for (uint32_t d = 0; d < padded; ++d) {
      k[d] = d < head_dim ? to_float(in.k[t][d]) : 0.0f;
      v[d] = d < head_dim ? to_float(in.v[t][d]) : 0.0f;
    }
    out.k[t] = k;
    out.v[t] = v;
  }
}

/// Dot products of kQueries query vectors with the 16 keys of a group. Each is 16 lanes of chains
/// over ascending dimensions, then the tree of vec16_sum.
template <class T, uint32_t kQueries>
SAC_INLINE void score_group(const float* const* q, const GroupRows<T>& rows, uint32_t padded,
                            float (*scores)[kAttentionGroup]) {
  for (uint32_t t = 0; t < kAttentionGroup; ++t) {
    Vec acc[kQueries][kVecsPer16];
    for (uint32_t i = 0; i < kQueries; ++i) {
      for (uint32_t j = 0; j < kVecsPer16; ++j) acc[i][j] = vec_zero();
    }
    for (uint32_t d = 0; d < padded; d += 16) {
      for (uint32_t j = 0; j < kVecsPer16; ++j) {
        const Vec key = vec_load(rows.k[t] + d + j * kVecLanes);
        for (uint32_t i = 0; i < kQueries; ++i) {
          acc[i][j] = vec_fma(vec_load(q[i] + d + j * kVecLanes), key, acc[i][j]);
        }
      }
    }
    for (uint32_t i = 0; i < kQueries; ++i) scores[i][t] = vec16_sum(acc[i]);
  }
}

/// Folds 16 scores into a running softmax. `scores` become weights, 0 where invisible; returns the
/// factor for what was accumulated before.
SAC_INLINE float fold_scores(float (&scores)[kAttentionGroup], uint32_t base, Visible seen,
                             float scale, float& max, float& sum) {
  float best = max;
  for (uint32_t t = 0; t < kAttentionGroup; ++t) {
    const bool visible = base + t >= seen.begin && base + t < seen.end;
    const float s = visible ? scores[t] * scale : -__builtin_inff();
    scores[t] = s;
    best = s > best ? s : best;
  }
  const float factor = exp_fixed(max - best);
  for (uint32_t t = 0; t < kAttentionGroup; ++t) scores[t] = exp_fixed(scores[t] - best);
  float total[kAttentionGroup];
  for (uint32_t t = 0; t < kAttentionGroup; ++t) total[t] = scores[t];
  for (uint32_t width = kAttentionGroup / 2; width > 0; width /= 2) {
    for (uint32_t t = 0; t < width; ++t) total[t] += total[t + width];
  }
  max = best;
  sum = sum * factor + total[0];
  return factor;
}

/// acc = acc * factor + sum over visible t of weight[t] * v[t], t ascending, for query vectors that
/// see the same positions [begin, end) of this group.
template <class T, uint32_t kQueries>
SAC_INLINE void accumulate_group(float* const* acc, const GroupRows<T>& rows, uint32_t padded,
                                 uint32_t begin, uint32_t end, const float* factors,
                                 const float (*weights)[kAttentionGroup]) {
  for (uint32_t d = 0; d < padded; d += 16) {
    Vec sum[kQueries][kVecsPer16];
    for (uint32_t i = 0; i < kQueries; ++i) {
      for (uint32_t j = 0; j < kVecsPer16; ++j) {
        sum[i][j] = vec_mul(vec_load(acc[i] + d + j * kVecLanes), vec_set(factors[i]));
      }
    }
    for (uint32_t t = begin; t < end; ++t) {
      for (uint32_t j = 0; j < kVecsPer16; ++j) {
        const Vec value = vec_load(rows.v[t] + d + j * kVecLanes);
        for (uint32_t i = 0; i < kQueries; ++i) {
          sum[i][j] = vec_fma(vec_set(weights[i][t]), value, sum[i][j]);
        }
      }
    }
    for (uint32_t i = 0; i < kQueries; ++i) {
      for (uint32_t j = 0; j < kVecsPer16; ++j) vec_store(acc[i] + d + j * kVecLanes, sum[i][j]);
    }
  }
}

/// Positions of the group at `base` that lie in `seen`, relative to base.
SAC_INLINE Visible within_group(Visible seen, uint32_t base) {
  const uint32_t begin = seen.begin > base ? seen.begin - base : 0;
  const uint32_t end = seen.end > base ? min_u32(seen.end - base, kAttentionGroup) : 0;
  return {min_u32(begin, kAttentionGroup), end};
}

template <class T, uint32_t kQueries>
SAC_INLINE void attend_group(QueryTile& tile, const GroupRows<T>& rows, uint32_t base,
                             uint32_t padded, float scale) {
  float scores[kQueries][kAttentionGroup];
  float factors[kQueries];
  Visible parts[kQueries];
  score_group<T, kQueries>(tile.q, rows, padded, scores);
  bool same = true;
  for (uint32_t i = 0; i < kQueries; ++i) {
    parts[i] = within_group(tile.visible[i], base);
    same = same && parts[i].begin == parts[0].begin && parts[i].end == parts[0].end;
    if (parts[i].begin >= parts[i].end) continue;
    factors[i] = fold_scores(scores[i], base, tile.visible[i], scale, tile.max[i], tile.sum[i]);
  }
  if (same) {
    if (parts[0].begin >= parts[0].end) return;
    accumulate_group<T, kQueries>(tile.acc, rows, padded, parts[0].begin, parts[0].end, factors,
                                  scores);
    return;
  }
  for (uint32_t i = 0; i < kQueries; ++i) {
    if (parts[i].begin >= parts[i].end) continue;
    accumulate_group<T, 1>(tile.acc + i, rows, padded, parts[i].begin, parts[i].end, factors + i,
                           scores + i);
  }
}

/// Walks the KV once for all query vectors of a tile.
template <class T, uint32_t kQueries>
void attend_tile(const AttentionArgs& a, QueryTile& tile, float* widened) {
  Visible seen = tile.visible[0];
  for (uint32_t i = 1; i < kQueries; ++i) {
    seen.begin = min_u32(seen.begin, tile.visible[i].begin);
    seen.end = max_u32(seen.end, tile.visible[i].end);
  }
  const uint32_t padded = ceil_div(a.head_dim, 16) * 16;
  uint32_t base = seen.begin / kAttentionGroup * kAttentionGroup;
  for (; base < seen.end; base += kAttentionGroup) {
    GroupRows<T> rows;
    find_rows(a.kv, base, seen, rows);
    if (padded == a.head_dim) {
      attend_group<T, kQueries>(tile, rows, base, padded, a.scale);
    } else {
      GroupRows<float> wide;
      widen_rows(rows, a.head_dim, padded, widened, wide);
      attend_group<float, kQueries>(tile, wide, base, padded, a.scale);
    }
  }
}

/// Sets up `count` query vectors from pair `first` on; pair p is row p / group, head p % group.
SAC_INLINE void open_tile(const AttentionArgs& a, uint32_t first, uint32_t count, uint32_t padded,
                          QueryTile& tile) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t row = (first + i) / a.group;
    const float* q = a.q + row * a.row_stride + (first + i) % a.group * a.head_dim;
    float* copy = a.scratch + i * padded;
    float* acc = a.scratch + (kTileQueries + i) * padded;
    for (uint32_t d = 0; d < padded; ++d) {
      copy[d] = d < a.head_dim ? q[d] : 0.0f;
      acc[d] = 0.0f;
    }
    tile.q[i] = copy;
    tile.acc[i] = acc;
    tile.visible[i] = visible_positions(a.first_position + row, a.window);
    tile.max[i] = -__builtin_inff();
    tile.sum[i] = 0.0f;
  }
}

SAC_INLINE void close_tile(const AttentionArgs& a, uint32_t first, uint32_t count,
                           const QueryTile& tile) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t row = (first + i) / a.group;
    float* out = a.out + row * a.out_stride + (first + i) % a.group * a.head_dim;
    const float inverse = 1.0f / tile.sum[i];
    for (uint32_t d = 0; d < a.head_dim; ++d) out[d] = tile.acc[i][d] * inverse;
  }
}

template <class T>
void attention_typed(const AttentionArgs& a) {
  const uint32_t padded = ceil_div(a.head_dim, 16) * 16;
  float* widened = a.scratch + 2 * kTileQueries * padded;
  const uint32_t pairs = a.num_rows * a.group;
  for (uint32_t first = 0; first < pairs; first += kTileQueries) {
    const uint32_t count = min_u32(kTileQueries, pairs - first);
    QueryTile tile;
    open_tile(a, first, count, padded, tile);
    switch (count) {
      case 1:
        attend_tile<T, 1>(a, tile, widened);
        break;
      case 2:
        attend_tile<T, 2>(a, tile, widened);
        break;
      case 3:
        attend_tile<T, 3>(a, tile, widened);
        break;
      default:
        attend_tile<T, 4>(a, tile, widened);
        break;
    }
    close_tile(a, first, count, tile);
  }
}

inline void attention(const AttentionArgs& a) {
  switch (a.kv.dtype) {
    case SAC_DTYPE_BF16:
      return attention_typed<Bf16>(a);
    case SAC_DTYPE_F16:
      return attention_typed<F16>(a);
    default:
      return attention_typed<float>(a);
  }
}

}  // namespace SAC_ISA
}  // namespace saccade
