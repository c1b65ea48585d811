// Attention over the paged KV: [block][layer][k|v][token][kv_head][head_dim], bf16 or e4m3.
//
// A query vector is a (row, head) pair; those of one kv head share K and V. A warp takes 16 of them
// through a context as rows of mma.m16n8k16. The context is walked in tiles of kContextTile
// positions with a running softmax, restarted at each multiple of kContextChunk; the chunks are
// folded together in rising order, each weighed by its greatest score. Rows that are alone in their
// sequence (decodes) have a block per chunk, and FoldChunksKernel folds; tiles of more rows
// (prompts) walk all chunks in one block and fold as they go. Both do the same operations in the
// same order for a vector, and what a vector does not see changes none of its bits: a masked
// position has weight 0, a fully masked tile or chunk scales what was there by 1.
//
// Kernels are built for an element of KV, Half or Fp8Code. Codes of e4m3 become bf16, exactly, on
// their way to the matrix unit: for lone rows in registers, for tiles of rows once for all warps in
// shared memory. Word by word, the four codes of 4 t .. 4 t + 3 give a pair of even and a pair of
// odd places; so each 16 dimensions of queries, K and V are taken in the order 0, 2, .. 14, 1, 3,
// .. 15, by all kernels alike, and results are put back in order where they are stored. The scales
// of K and V are a factor of the scores' scale and of the results.
#pragma once
#include "cuda/model/block_ops.hpp"
#include "cuda/model/operands.hpp"
#include "cuda/model/view.hpp"

namespace saccade::gpu {

struct AttentionArgs {
  StepPlan plan;
  SeatTables seats;
  const Half* q;  // [rows][q_stride]: [kv_heads][group][head_dim]
  uint32_t q_stride;
  Activations out;  // the same columns
  KvMemory kv;
  size_t k_offset;  // elements from the start of a block to this layer's K
  uint32_t num_heads;
  uint32_t num_kv_heads;
  uint32_t head_dim;   // a multiple of 16, <= kDim of the kernel
  uint32_t window;     // positions that a row may look back, itself included; 0 = all
  float scale;         // of scores, times log2(e)
  float* item_sums;    // [items][heads][head_dim]
  float* item_scales;  // [items][heads][2]
  float v_scale;       // of results, where KV is e4m3

  SAC_HD uint32_t group() const { return num_heads / num_kv_heads; }
  /// Vectors of a kv head, by sixteens.
  SAC_HD uint32_t vector_tiles() const { return ceil_div(group(), 16); }
  SAC_HD uint32_t units_of_item() const { return num_kv_heads * vector_tiles(); }
  SAC_HD uint32_t begin_of(uint32_t position) const { return begin_before(position + 1); }
  SAC_HD uint32_t begin_before(uint32_t end) const {
    return window != 0 && end > window ? end - window : 0;
  }
};

/// A running softmax of kDim dimensions. A thread holds two vectors (lane / 4 and 8 further) as the
/// mma leaves them: dimensions 8 i + 2 (lane % 4) and the next, of the first in v[i][0..1], of the
/// second in v[i][2..3].
template <uint32_t kDim>
struct Walk {
  float v[kDim / 8][4];
  float max[2];
  float sum[2];  // in a chunk: the thread's own positions

  SAC_DEVICE void clear() {
    SAC_UNROLL
    for (uint32_t i = 0; i < kDim / 8; ++i) {
      SAC_UNROLL
      for (uint32_t e = 0; e < 4; ++e) v[i][e] = 0;
    }
    max[0] = max[1] = -infinity();
    sum[0] = sum[1] = 0;
  }
};

/// What exponents are measured from: 0 where nothing was seen, so that no difference is NaN.
SAC_DEVICE float reference_of(float max) { return max == -infinity() ? 0.0f : max; }

/// The vectors of a warp as mma rows, and what the thread's two of them see.
template <uint32_t kDim>
struct Queries {
  uint32_t a[kDim / 16][4];
  uint32_t end[2];  // of the positions that they see, which begin at begin_before(end); 0: none
  bool upper;       // any of the warp's upper eight vectors is there
};

/// What a walk goes over: positions [begin, end) of a sequence, for one kv head.
struct Context {
  uint32_t seat;
  uint32_t kv_head;
  uint32_t begin;
  uint32_t end;

  /// Where the first tile begins.
  SAC_HD uint32_t base() const { return begin / kContextTile * kContextTile; }
};

/// Whether a kernel's KV is e4m3.
template <class Kv>
inline constexpr bool kIsFp8 = sizeof(Kv) == sizeof(Fp8Code);

/// A tile in shared memory, K before V.
template <uint32_t kDim, class Kv>
struct ContextTile {
  static constexpr uint32_t kOfPiece = 16 / sizeof(Kv);  // elements of 16 bytes
  static constexpr uint32_t kPieces = kDim / kOfPiece;
  static constexpr uint32_t kElements = kContextTile * kDim;  // of K, and as many of V
  static constexpr uint32_t kBytes = 2 * kElements * sizeof(Kv);
  static constexpr uint32_t kPanelHalves = kContextTile * kStep;

  /// Where a piece of a position is. Of bf16: in panels of kStep dimensions, as wgmma reads them.
  /// Of e4m3: in rows of kDim, whose pieces are exchanged so that those of eight rows are in eight
  /// different groups of banks.
  SAC_HD static uint32_t at(uint32_t row, uint32_t piece) {
    if constexpr (kIsFp8<Kv>) {
      constexpr uint32_t kRowsOfLine = 128 / kDim;
      return row * kDim + (piece ^ (row / kRowsOfLine % kPieces)) * kOfPiece;
    } else {
      constexpr uint32_t kOfPanel = kStep / kPiece;
      return piece / kOfPanel * kPanelHalves + row * kStep +
             swizzle(row, piece % kOfPanel) * kPiece;
    }
  }

  /// Block and place of this lane's position of [base, base + kContextTile), for its whole warp.
  /// Looked up one tile ahead, because a block table is far away.
  struct Place {
    uint32_t block;
    uint32_t token;  // of the block; kHidden where no row sees the position
  };
  static constexpr uint32_t kHidden = 1u << 31;
  template <class Block>
  SAC_DEVICE static Place locate(const Block& b, const AttentionArgs& a, const Context& c,
                                 uint32_t base) {
    const uint32_t position = max_u32(c.begin, min_u32(base + b.lane(), c.end - 1));
    return {a.seats.block_table(c.seat)[position >> b.popcount(a.kv.block_size - 1)],
            (position & (a.kv.block_size - 1)) | (base + b.lane() == position ? 0 : kHidden)};
  }

  /// Starts the copies of the positions that were located, by `kCopiers` threads. Dimensions from
  /// head_dim on, and positions outside [begin, end), are zero: blocks of positions that no row
  /// sees may belong to another sequence by now.
  template <uint32_t kCopiers, class Block>
  SAC_DEVICE static void fetch(const Block& b, const AttentionArgs& a, const Context& c,
                               const Place& of_lane, uint32_t copier, Kv* to) {
    static_assert(kContextTile == kWarpThreads && kCopiers % kPieces == 0);
    const uint32_t seen = b.ballot((of_lane.token & kHidden) == 0);
    const size_t place = of_lane.block * (a.kv.block_bytes / sizeof(Kv)) +
                         (of_lane.token & ~kHidden) * a.kv.token_stride;
    const uint32_t piece = copier % kPieces;
    const bool inside = piece * kOfPiece < a.head_dim;
    const Kv* first = reinterpret_cast<const Kv*>(a.kv.data) + a.k_offset + c.kv_head * a.head_dim +
                      (inside ? piece * kOfPiece : 0);
    SAC_UNROLL
    for (uint32_t i = 0; i < kContextTile * kPieces / kCopiers; ++i) {
      const uint32_t row = copier / kPieces + i * (kCopiers / kPieces);
      const bool real = inside && (seen >> row & 1) != 0;
      const Kv* from = first + b.shuffle(place, row);
      Kv* k = to + at(row, piece);
      b.copy16(k, from, real);
      b.copy16(k + kElements, from + a.kv.plane, real);
    }
  }

  /// Scores of the warp's vectors with the tile's positions: s[j][0..1] of the thread's first
  /// vector with positions 8 j + 2 (lane % 4) and the next, s[j][2..3] of its second.
  template <class Block>
  SAC_DEVICE static void score(const Block& b, const Kv* k, const Queries<kDim>& q,
                               float (&s)[kContextTile / 8][4]) {
    SAC_UNROLL
    for (uint32_t j = 0; j < kContextTile / 8; ++j) score_eight(b, k, q, j, s[j]);
  }
  template <class Block>
  SAC_DEVICE static void score_eight(const Block& b, const Kv* k, const Queries<kDim>& q,
                                     uint32_t j, float (&s)[4]) {
    SAC_UNROLL
    for (uint32_t e = 0; e < 4; ++e) s[e] = 0;
    const uint32_t row = j * 8 + b.lane() % 8;
    SAC_UNROLL
    for (uint32_t d = 0; d < kPieces / 4; ++d) {
      uint32_t x[4];
      b.load_matrices(x, k + at(row, d * 4 + b.lane() / 8));
      if constexpr (kIsFp8<Kv>) {  // of position lane / 4, codes 4 (lane % 4) and the next three
        SAC_UNROLL
        for (uint32_t m = 0; m < 4; ++m) {
          uint32_t pairs[2];
          b.widen_fp8(x[m], pairs);
          b.mma(s, q.a[4 * d + m], pairs[0], pairs[1]);
        }
      } else {
        b.mma(s, q.a[2 * d], x[0], x[1]);
        b.mma(s, q.a[2 * d + 1], x[2], x[3]);
      }
    }
  }

  /// Positions that the thread's h-th vector does not see.
  template <class Block>
  SAC_DEVICE static void hide(const Block& b, uint32_t begin, uint32_t end, uint32_t base,
                              uint32_t h, float (&s)[kContextTile / 8][4]) {
    SAC_UNROLL
    for (uint32_t j = 0; j < kContextTile / 8; ++j) {
      SAC_UNROLL
      for (uint32_t e = 0; e < 2; ++e) {
        const uint32_t position = base + j * 8 + b.lane() % 4 * 2 + e;
        if (position < begin || position >= end) s[j][2 * h + e] = -infinity();
      }
    }
  }

  /// Scores become weights; what was accumulated before is scaled down to the new reference.
  template <class Block, uint32_t kHeld>
  SAC_DEVICE static void weigh(const Block& b, const AttentionArgs& a, const Queries<kDim>& q,
                               uint32_t base, float (&s)[kContextTile / 8][4], Walk<kHeld>& walk) {
    SAC_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      if (h == 1 && !q.upper) break;  // their weights are anything, and are in no one's sum
      SAC_UNROLL
      for (uint32_t j = 0; j < kContextTile / 8; ++j) {
        s[j][2 * h] *= a.scale;
        s[j][2 * h + 1] *= a.scale;
      }
      // Most tiles are fully visible.
      const uint32_t begin = a.begin_before(q.end[h]);
      if (base < begin || base + kContextTile > q.end[h]) hide(b, begin, q.end[h], base, h, s);
      float top = -infinity();
      SAC_UNROLL
      for (uint32_t j = 0; j < kContextTile / 8; ++j) {
        top = max_f(top, max_f(s[j][2 * h], s[j][2 * h + 1]));
      }
      top = max_f(top, b.shuffle_xor(top, 1));
      top = max_f(top, b.shuffle_xor(top, 2));
      const float max = max_f(walk.max[h], top);
      const float reference = reference_of(max);
      const float factor = b.exp2(walk.max[h] - reference);
      float sum = 0;
      SAC_UNROLL
      for (uint32_t j = 0; j < kContextTile / 8; ++j) {
        SAC_UNROLL
        for (uint32_t e = 0; e < 2; ++e) {
          float& weight = s[j][2 * h + e];
          weight = b.exp2(weight - reference);
          sum += weight;
        }
      }
      walk.max[h] = max;
      walk.sum[h] = walk.sum[h] * factor + sum;
      if (factor == 1.0f) continue;  // the common case, which changes nothing
      SAC_UNROLL
      for (uint32_t i = 0; i < kHeld / 8; ++i) {
        walk.v[i][2 * h] *= factor;
        walk.v[i][2 * h + 1] *= factor;
      }
    }
  }

  /// The weights of the p-th 16 positions as an operand.
  template <class Block>
  SAC_DEVICE static void pack_weights(const Block& b, const float (&s)[kContextTile / 8][4],
                                      uint32_t p, uint32_t (&w)[4]) {
    w[0] = b.pack(s[2 * p][0], s[2 * p][1]);
    w[1] = b.pack(s[2 * p][2], s[2 * p][3]);
    w[2] = b.pack(s[2 * p + 1][0], s[2 * p + 1][1]);
    w[3] = b.pack(s[2 * p + 1][2], s[2 * p + 1][3]);
  }

  /// Adds the weighted V of the tile: kHeld dimensions from `first` on.
  template <class Block, uint32_t kHeld>
  SAC_DEVICE static void gather(const Block& b, const Kv* v, const float (&s)[kContextTile / 8][4],
                                uint32_t first, Walk<kHeld>& walk) {
    if constexpr (kIsFp8<Kv>) {
      gather_codes(b, v, s, first, walk);
    } else {
      gather_halves(b, v, s, first, walk);
    }
  }
  template <class Block, uint32_t kHeld>
  SAC_DEVICE static void gather_halves(const Block& b, const Kv* v,
                                       const float (&s)[kContextTile / 8][4], uint32_t first,
                                       Walk<kHeld>& walk) {
    SAC_UNROLL
    for (uint32_t p = 0; p < kContextTile / 16; ++p) {
      uint32_t w[4];
      pack_weights(b, s, p, w);
      const uint32_t row = p * 16 + b.lane() % 16;
      SAC_UNROLL
      for (uint32_t d = 0; d < kHeld / 16; ++d) {
        uint32_t x[4];
        const uint32_t piece = first / kPiece + d * 2 + b.lane() / 16;
        b.load_transposed(x, v + at(row, piece));
        b.mma(walk.v[2 * d], w, x[0], x[1]);
        b.mma(walk.v[2 * d + 1], w, x[2], x[3]);
      }
    }
  }
  /// A transposed matrix of pairs of codes gives the lane, of positions 2 (lane % 4) and the next,
  /// dimensions 2 (lane / 4) and the next.
  template <class Block, uint32_t kHeld>
  SAC_DEVICE static void gather_codes(const Block& b, const Kv* v,
                                      const float (&s)[kContextTile / 8][4], uint32_t first,
                                      Walk<kHeld>& walk) {
    static_assert(kContextTile == kWarpThreads);
    uint32_t w[kContextTile / 16][4];
    SAC_UNROLL
    for (uint32_t p = 0; p < kContextTile / 16; ++p) pack_weights(b, s, p, w[p]);
    SAC_UNROLL
    for (uint32_t d = 0; d < kHeld / 16; ++d) {
      uint32_t x[4];
      b.load_transposed(x, v + at(b.lane(), first / kOfPiece + d));
      SAC_UNROLL
      for (uint32_t p = 0; p < kContextTile / 16; ++p) {
        uint32_t low[2], high[2];
        b.widen_fp8(x[2 * p], low);
        b.widen_fp8(x[2 * p + 1], high);
        b.mma(walk.v[2 * d], w[p], low[0], high[0]);
        b.mma(walk.v[2 * d + 1], w[p], low[1], high[1]);
      }
    }
  }

  /// A tile of e4m3 as one of bf16, by kThreads threads: of each piece the codes at even places
  /// become a piece, and those at odd places the next. Lanes take rows, which are in different
  /// groups of banks on both sides.
  template <uint32_t kThreads, class Block>
  SAC_DEVICE static void widen(const Block& b, const Kv* from, Half* to) {
    using Wide = ContextTile<kDim, Half>;
    static_assert(kIsFp8<Kv> && kThreads % (2 * kContextTile) == 0);
    constexpr uint32_t kTogether = kThreads / (2 * kContextTile);  // pieces of a row
    const uint32_t row = b.thread() % kContextTile;
    const uint32_t which = b.thread() / kContextTile % 2;  // K or V
    from += which * kElements;
    to += which * kElements;
    SAC_UNROLL
    for (uint32_t i = 0; i < kPieces / kTogether; ++i) {
      const uint32_t piece = b.thread() / (2 * kContextTile) + i * kTogether;
      const Word4 codes = *reinterpret_cast<const Word4*>(from + at(row, piece));
      Word4 even, odd;
      SAC_UNROLL
      for (uint32_t k = 0; k < 4; ++k) {
        uint32_t pairs[2];
        b.widen_fp8(codes.v[k], pairs);
        even.v[k] = pairs[0];
        odd.v[k] = pairs[1];
      }
      *reinterpret_cast<Word4*>(to + Wide::at(row, 2 * piece)) = even;
      *reinterpret_cast<Word4*>(to + Wide::at(row, 2 * piece + 1)) = odd;
    }
  }

  /// Takes the warp's vectors through one tile.
  template <class Block>
  SAC_DEVICE static void fold(const Block& b, const AttentionArgs& a, const Kv* tile,
                              const Queries<kDim>& q, uint32_t base, Walk<kDim>& walk) {
    float s[kContextTile / 8][4];
    score(b, tile, q, s);
    weigh(b, a, q, base, s, walk);
    gather(b, tile + kElements, s, 0, walk);
  }

  /// The same for the vectors of a warpgroup, of which each warp has 16: four warps read K and V
  /// once. The chains of sums are those of mma.
  template <class Block>
  SAC_DEVICE static void fold_by_warpgroup(const Block& b, const AttentionArgs& a, const Half* tile,
                                           const Queries<kDim>& q, uint32_t base,
                                           Walk<kDim>& walk) {
    static_assert(!kIsFp8<Kv>);
    constexpr uint32_t kStepsOfPanel = kStep / 16;
    constexpr uint64_t kPanelBytes = kPanelHalves * sizeof(Half);
    const uint32_t k = b.shared_address(tile), v = b.shared_address(tile + kElements);
    float s[kContextTile / 8][4] = {};
    b.warpgroup_fence();
    SAC_UNROLL
    for (uint32_t d = 0; d < kDim / 16; ++d) {
      const uint32_t on = d / kStepsOfPanel * kPanelBytes + d % kStepsOfPanel * 16 * sizeof(Half);
      b.template warpgroup_mma<false>(s, q.a[d], matrix_descriptor(k + on), d > 0);
    }
    b.warpgroup_commit();
    b.template warpgroup_wait<0>();
    weigh(b, a, q, base, s, walk);
    uint32_t w[kContextTile / 16][4];
    SAC_UNROLL
    for (uint32_t p = 0; p < kContextTile / 16; ++p) pack_weights(b, s, p, w[p]);
    b.warpgroup_fence();
    SAC_UNROLL
    for (uint32_t p = 0; p < kContextTile / 16; ++p) {
      const uint32_t rows = v + p * 16 * kStep * sizeof(Half);
      b.template warpgroup_mma<true>(walk.v, w[p], transposed_descriptor(rows, kPanelBytes), true);
    }
    b.warpgroup_commit();
    b.template warpgroup_wait<0>();
  }
};

/// Gathers the sums of a chunk's quads: afterwards all four lanes of a vector hold its sum.
template <uint32_t kDim, class Block>
SAC_DEVICE void close_chunk(const Block& b, Walk<kDim>& walk) {
  SAC_UNROLL
  for (uint32_t h = 0; h < 2; ++h) {
    walk.sum[h] += b.shuffle_xor(walk.sum[h], 1);
    walk.sum[h] += b.shuffle_xor(walk.sum[h], 2);
  }
}

/// What folds a chunk into those before it.
struct ChunkFactors {
  float max;
  float before;
  float chunk;
};
template <class Block>
SAC_DEVICE ChunkFactors fold_factors(const Block& b, float max_before, float max_chunk) {
  const float max = max_f(max_before, max_chunk);
  const float reference = reference_of(max);
  return {max, b.exp2(max_before - reference), b.exp2(max_chunk - reference)};
}
SAC_DEVICE float fold_value(const ChunkFactors& f, float before, float chunk) {
  return before * f.before + chunk * f.chunk;
}

/// The factor that ends a vector, by its sum of weights.
template <class Kv>
SAC_DEVICE float end_factor(const AttentionArgs& a, float sum) {
  if constexpr (kIsFp8<Kv>) return a.v_scale / sum;
  return 1.0f / sum;
}

/// The d-th sixteen dimensions of one of the thread's vectors, as its parts of an operand.
template <class Kv, class Block>
SAC_DEVICE void load_sixteen(const Block& b, const Half* vector, bool there, uint32_t head_dim,
                             uint32_t d, uint32_t h, uint32_t (&operand)[4]) {
  if constexpr (kIsFp8<Kv>) {
    const uint32_t dim = d * 16 + b.lane() % 4 * 4;
    const bool real = there && dim < head_dim;
    const Word2 four = real ? *reinterpret_cast<const Word2*>(vector + dim) : Word2{};
    operand[h] = (four.v[0] & 0xffffu) | four.v[1] << 16;
    operand[2 + h] = four.v[0] >> 16 | (four.v[1] & 0xffff0000u);
  } else {
    SAC_UNROLL
    for (uint32_t e = 0; e < 2; ++e) {
      const uint32_t dim = d * 16 + e * 8 + b.lane() % 4 * 2;
      const bool real = there && dim < head_dim;
      operand[e * 2 + h] = real ? *reinterpret_cast<const uint32_t*>(vector + dim) : 0;
    }
  }
}

/// Loads the warp's 16 vectors, of which the first is `first` of the tile's rows times group.
template <uint32_t kDim, class Kv, class Block>
SAC_DEVICE void load_queries(const Block& b, const AttentionArgs& a, const RowTile& tile,
                             uint32_t kv_head, uint32_t first, Queries<kDim>& q) {
  const uint32_t group = a.group();
  q.upper = first + 8 < tile.num_rows * group;
  SAC_UNROLL
  for (uint32_t h = 0; h < 2; ++h) {
    const uint32_t vector = first + b.lane() / 4 + h * 8;
    const uint32_t row = vector / group;
    const bool there = row < tile.num_rows;
    const uint32_t position = tile.first_position + row;
    q.end[h] = there ? position + 1 : 0;
    const Half* at = a.q + size_t{tile.first_row + (there ? row : 0)} * a.q_stride +
                     size_t{kv_head * group + vector % group} * a.head_dim;
    SAC_UNROLL
    for (uint32_t d = 0; d < kDim / 16; ++d) {
      load_sixteen<Kv>(b, at, there, a.head_dim, d, h, q.a[d]);
    }
  }
}

/// A block per chunk of the context of a lone row, kv head by kv head. Its warps share a tile: each
/// scores eight positions, learns the other scores through shared memory, weighs them all as one
/// warp would, and gathers its part of the dimensions. Blocks walk over units, so that the grid
/// does not depend on the contexts' lengths.
template <uint32_t kDim, class Kv>
struct ChunkAttentionKernel {
  using Args = AttentionArgs;
  using Tile = ContextTile<kDim, Kv>;
  static constexpr uint32_t kWarps = kContextTile / 8;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kStages = kIsFp8<Kv> ? 4 : 3;
  static constexpr uint32_t kStageElements = 2 * Tile::kElements;
  static constexpr uint32_t kHeld = kDim / kWarps;  // dimensions of a warp
  static_assert(kHeld % 16 == 0);
  /// Of a vector's scores: rows are so far apart that a warp's pairs are in different banks.
  static constexpr uint32_t kScoreStride = kContextTile + 8;
  static constexpr uint32_t kSharedBytes =
      kStages * Tile::kBytes + 16 * kScoreStride * sizeof(float);
  /// If begun early, the few blocks of a small step would crowd the multiprocessors freed first.
  static constexpr bool kBeginsAlone = true;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t vector_tiles = a.vector_tiles();
    const uint32_t per_item = a.num_kv_heads * vector_tiles;
    const uint32_t units = a.plan.counts->num_items * per_item;
    for (uint32_t u = b.x(); u < units; u += b.grid_x()) {
      attend(b, a, u / per_item, u % per_item / vector_tiles, u % vector_tiles * 16);
    }
  }

 private:
  template <class Block>
  SAC_DEVICE static void attend(const Block& b, const Args& a, uint32_t index, uint32_t kv_head,
                                uint32_t first_vector) {
    const ChunkItem item = a.plan.items[index];
    Kv* stages = reinterpret_cast<Kv*>(b.shared());
    auto* scores = reinterpret_cast<float*>(b.shared() + kStages * Tile::kBytes);
    Queries<kDim> q;
    const RowTile tile = {item.seat, item.row, 1, item.position};
    load_queries<kDim, Kv>(b, a, tile, kv_head, first_vector, q);
    // Empty where the layer's window begins after the chunk.
    const Context context = {item.seat, kv_head,
                             max_u32(item.chunk * kContextChunk, a.begin_of(item.position)),
                             min_u32((item.chunk + 1) * kContextChunk, item.position + 1)};
    Walk<kHeld> walk;
    walk.clear();
    auto place = Tile::locate(b, a, context, context.base());
    const auto fetch = [&](uint32_t base, uint32_t stage) {
      if (base < context.end) {
        Tile::template fetch<kThreads>(b, a, context, place, b.thread(),
                                       stages + stage * kStageElements);
        place = Tile::locate(b, a, context, base + kContextTile);
      }
      b.commit();
    };
    SAC_UNROLL
    for (uint32_t s = 0; s + 1 < kStages; ++s) fetch(context.base() + s * kContextTile, s);
    uint32_t stage = 0;
    for (uint32_t base = context.base(); base < context.end; base += kContextTile) {
      b.template wait<kStages - 2>();
      b.sync();  // this tile has arrived for all threads, the last one's stage and scores are free
      fetch(base + (kStages - 1) * kContextTile, (stage + kStages - 1) % kStages);
      const Kv* k = stages + stage * kStageElements;
      float s[kContextTile / 8][4];
      share_scores(b, k, q, scores, s);
      Tile::weigh(b, a, q, base, s, walk);
      Tile::gather(b, k + Tile::kElements, s, b.warp() * kHeld, walk);
      stage = (stage + 1) % kStages;
    }
    b.sync();  // before the next unit's copies
    close_chunk(b, walk);
    store(b, a, index, kv_head, first_vector, walk);
  }

  /// All scores of the tile for the thread's two vectors, where each warp computes eight positions.
  template <class Block>
  SAC_DEVICE static void share_scores(const Block& b, const Kv* k, const Queries<kDim>& q,
                                      float* scores, float (&s)[kContextTile / 8][4]) {
    float mine[4];
    Tile::score_eight(b, k, q, b.warp(), mine);
    float* row = scores + b.lane() / 4 * kScoreStride + b.lane() % 4 * 2;
    SAC_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      *reinterpret_cast<Float2*>(row + h * 8 * kScoreStride +
                                 b.warp() * 8) = {{mine[2 * h], mine[2 * h + 1]}};
    }
    b.sync();
    SAC_UNROLL
    for (uint32_t j = 0; j < kContextTile / 8; ++j) {
      SAC_UNROLL
      for (uint32_t h = 0; h < 2; ++h) {
        const auto pair = *reinterpret_cast<const Float2*>(row + h * 8 * kScoreStride + j * 8);
        s[j][2 * h] = pair.v[0];
        s[j][2 * h + 1] = pair.v[1];
      }
    }
  }

  template <class Block>
  SAC_DEVICE static void store(const Block& b, const Args& a, uint32_t index, uint32_t kv_head,
                               uint32_t first_vector, const Walk<kHeld>& walk) {
    SAC_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      const uint32_t vector = first_vector + b.lane() / 4 + h * 8;
      if (vector >= a.group()) continue;
      const size_t at = size_t{index} * a.num_heads + kv_head * a.group() + vector;
      if (b.warp() == 0 && b.lane() % 4 == 0) {
        a.item_scales[2 * at] = walk.max[h];
        a.item_scales[2 * at + 1] = walk.sum[h];
      }
      store_sums(b, a, a.item_sums + at * a.head_dim, h, walk);
    }
  }

  /// The warp's dimensions of the thread's h-th vector.
  template <class Block>
  SAC_DEVICE static void store_sums(const Block& b, const Args& a, float* sums, uint32_t h,
                                    const Walk<kHeld>& walk) {
    if constexpr (kIsFp8<Kv>) {
      SAC_UNROLL
      for (uint32_t d = 0; d < kHeld / 16; ++d) {
        const uint32_t dim = b.warp() * kHeld + d * 16 + b.lane() % 4 * 4;
        const auto& even = walk.v[2 * d];
        const auto& odd = walk.v[2 * d + 1];
        if (dim >= a.head_dim) continue;
        *reinterpret_cast<Float4*>(sums + dim) = {
            {even[2 * h], odd[2 * h], even[2 * h + 1], odd[2 * h + 1]}};
      }
    } else {
      SAC_UNROLL
      for (uint32_t i = 0; i < kHeld / 8; ++i) {
        const uint32_t dim = b.warp() * kHeld + i * 8 + b.lane() % 4 * 2;
        if (dim >= a.head_dim) continue;
        *reinterpret_cast<Float2*>(sums + dim) = {{walk.v[i][2 * h], walk.v[i][2 * h + 1]}};
      }
    }
  }
};

/// Folds the chunks of lone rows, in rising order. Grid: split rows, ceil(heads / kWarps); a warp
/// per head.
template <uint32_t kDim, class Kv>
struct FoldChunksKernel {
  using Args = AttentionArgs;
  static constexpr uint32_t kWarps = 4;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kBlocksPerSm = 4;
  static constexpr uint32_t kSharedBytes = 0;

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    const uint32_t head = b.y() * kWarps + b.warp();
    const uint32_t num_rows = a.plan.counts->num_split_rows;
    const SplitRow split = a.plan.split_rows[b.x()];  // of some step; not waited for one by one
    if (b.x() >= num_rows || head >= a.num_heads) return;
    constexpr uint32_t kAhead = 4;  // chunks whose loads are in flight
    Left total = {{}, -infinity(), 0};
    for (uint32_t first = 0; first < split.num_items; first += kAhead) {
      Left chunks[kAhead];
      SAC_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        // Beyond the last one: that one again, which is not folded.
        const uint32_t item = min_u32(first + i, split.num_items - 1);
        chunks[i] = left_by(b, a, split.first_item + item, head);
      }
      SAC_UNROLL
      for (uint32_t i = 0; i < kAhead; ++i) {
        if (first + i >= split.num_items) break;
        const ChunkFactors f = fold_factors(b, total.max, chunks[i].max);
        total.max = f.max;
        total.sum = fold_value(f, total.sum, chunks[i].sum);
        SAC_UNROLL
        for (uint32_t e = 0; e < kPerLane; ++e) {
          total.v[e] = fold_value(f, total.v[e], chunks[i].v[e]);
        }
      }
    }
    const float factor = end_factor<Kv>(a, total.sum);
    SAC_UNROLL
    for (uint32_t e = 0; e < kPerLane; ++e) {
      const uint32_t dim = b.lane() + e * kWarpThreads;
      if (dim < a.head_dim) {
        *a.out.at(split.row, head * a.head_dim + dim) = narrow(total.v[e] * factor);
      }
    }
  }

 private:
  /// What chunks left of a vector: the lane's dimensions, the greatest score, the sum of weights.
  static constexpr uint32_t kPerLane = kDim / kWarpThreads;
  struct Left {
    float v[kPerLane];
    float max;
    float sum;
  };
  template <class Block>
  SAC_DEVICE static Left left_by(const Block& b, const Args& a, uint32_t item, uint32_t head) {
    const size_t at = size_t{item} * a.num_heads + head;
    Left left = {{}, a.item_scales[2 * at], a.item_scales[2 * at + 1]};
    SAC_UNROLL
    for (uint32_t e = 0; e < kPerLane; ++e) {
      const uint32_t dim = b.lane() + e * kWarpThreads;
      left.v[e] = dim < a.head_dim ? a.item_sums[at * a.head_dim + dim] : 0.0f;
    }
    return left;
  }
};

/// A block per tile of rows and kv head: kTileVectors vectors share each tile of K and V. Grid: kv
/// heads, row tiles, ceil(group / kTileVectors); the last rows, whose contexts are the longest, go
/// first, so that no long block is left alone at the end. kByWarpgroup: the block's four warps
/// multiply together, by wgmma. Tiles of e4m3 are widened before they are used.
template <uint32_t kDim, bool kByWarpgroup, class Kv>
struct TileAttentionKernel {
  using Args = AttentionArgs;
  using Tile = ContextTile<kDim, Half>;
  using Copied = ContextTile<kDim, Kv>;
  static constexpr uint32_t kWarps = kTileVectors / 16;
  static constexpr uint32_t kThreads = kWarps * kWarpThreads;
  static constexpr uint32_t kBlocksPerSm = 3;
  static constexpr uint32_t kStages = 2;
  static constexpr uint32_t kStageElements = 2 * Copied::kElements;
  static constexpr uint32_t kWideBytes = kIsFp8<Kv> ? Tile::kBytes : 0;
  static constexpr uint32_t kTileBytes = kWideBytes + kStages * Copied::kBytes;
  static constexpr uint32_t kSharedBytes = kTileBytes + (kDim / 2 + 4) * kThreads * sizeof(float);

  template <class Block>
  SAC_DEVICE static void run(const Block& b, const Args& a) {
    if constexpr (!kByWarpgroup || Block::kHasWarpgroupMma) attend(b, a);
  }

 private:
  template <class Block>
  SAC_DEVICE static void attend(const Block& b, const Args& a) {
    if (b.y() >= a.plan.counts->num_tiles) return;
    const RowTile tile = tile_of(b, a);
    const uint32_t kv_head = b.x();
    const uint32_t first_vector = b.z() * kTileVectors + b.warp() * 16;
    Kv* stages = reinterpret_cast<Kv*>(b.shared() + kWideBytes);
    Queries<kDim> q;
    load_queries<kDim, Kv>(b, a, tile, kv_head, first_vector, q);
    // The first row sees the earliest position, the last the latest.
    const Context context = {tile.seat, kv_head, a.begin_of(tile.first_position),
                             tile.first_position + tile.num_rows};
    Walk<kDim> walk;
    walk.clear();
    Total total = {reinterpret_cast<float*>(b.shared() + kTileBytes) + b.thread()};
    total.clear();
    auto place = Copied::locate(b, a, context, context.base());
    const auto fetch = [&](uint32_t base, uint32_t stage) {
      if (base < context.end) {
        Copied::template fetch<kThreads>(b, a, context, place, b.thread(),
                                         stages + stage * kStageElements);
        place = Copied::locate(b, a, context, base + kContextTile);
      }
      b.commit();
    };
    SAC_UNROLL
    for (uint32_t s = 0; s + 1 < kStages; ++s) fetch(context.base() + s * kContextTile, s);
    for (uint32_t base = context.base(); base < context.end; base += kContextTile) {
      b.template wait<kStages - 2>();
      // wgmma reads what the thread's copies wrote.
      if constexpr (kByWarpgroup && !kIsFp8<Kv>) b.shared_fence();
      b.sync();
      const uint32_t stage = (base - context.base()) / kContextTile % kStages;
      fetch(base + (kStages - 1) * kContextTile, (stage + kStages - 1) % kStages);
      const Half* here = as_halves(b, stages + stage * kStageElements);
      if constexpr (kByWarpgroup) {
        Tile::fold_by_warpgroup(b, a, here, q, base, walk);
      } else {
        Tile::fold(b, a, here, q, base, walk);
      }
      if ((base + kContextTile) % kContextChunk == 0 || base + kContextTile >= context.end) {
        fold_chunk(b, walk, total);
      }
    }
    store(b, a, tile_of(b, a), kv_head, first_vector, total);  // found again: saves registers
  }

  /// A tile of bf16, ready to be used by all threads: the one that was copied, or what it becomes.
  template <class Block>
  SAC_DEVICE static const Half* as_halves(const Block& b, const Kv* copied) {
    if constexpr (!kIsFp8<Kv>) {
      return copied;
    } else {
      Half* wide = reinterpret_cast<Half*>(b.shared());
      Copied::template widen<kThreads>(b, copied, wide);
      if constexpr (kByWarpgroup) b.shared_fence();  // wgmma reads what the thread wrote
      b.sync();
      return wide;
    }
  }

  template <class Block>
  SAC_DEVICE static RowTile tile_of(const Block& b, const Args& a) {
    return a.plan.tiles[a.plan.counts->num_tiles - 1 - b.y()];
  }

  /// The chunks so far, of the thread's two vectors. They are needed once per chunk, and so are in
  /// shared memory, kThreads apart: registers for one more block are worth more.
  struct Total {
    float* v;

    SAC_DEVICE float& at(uint32_t i, uint32_t e) const { return v[(i * 4 + e) * kThreads]; }
    SAC_DEVICE float& max(uint32_t h) const { return at(kDim / 8, h); }
    SAC_DEVICE float& sum(uint32_t h) const { return at(kDim / 8, 2 + h); }
    SAC_DEVICE void clear() {
      SAC_UNROLL
      for (uint32_t i = 0; i < kDim / 2 + 4; ++i) v[i * kThreads] = 0;
      max(0) = max(1) = -infinity();
    }
  };

  template <class Block>
  SAC_DEVICE static void fold_chunk(const Block& b, Walk<kDim>& walk, Total& total) {
    close_chunk(b, walk);
    SAC_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      const ChunkFactors f = fold_factors(b, total.max(h), walk.max[h]);
      total.max(h) = f.max;
      total.sum(h) = fold_value(f, total.sum(h), walk.sum[h]);
      SAC_UNROLL
      for (uint32_t i = 0; i < kDim / 8; ++i) {
        SAC_UNROLL
        for (uint32_t e = 2 * h; e < 2 * h + 2; ++e) {
          total.at(i, e) = fold_value(f, total.at(i, e), walk.v[i][e]);
        }
      }
    }
    walk.clear();
  }

  template <class Block>
  SAC_DEVICE static void store(const Block& b, const Args& a, const RowTile& tile, uint32_t kv_head,
                               uint32_t first_vector, const Total& total) {
    const uint32_t group = a.group();
    SAC_UNROLL
    for (uint32_t h = 0; h < 2; ++h) {
      const uint32_t vector = first_vector + b.lane() / 4 + h * 8;
      const uint32_t row = vector / group;
      if (row >= tile.num_rows) continue;
      const float factor = end_factor<Kv>(a, total.sum(h));
      const uint32_t first_column = (kv_head * group + vector % group) * a.head_dim;
      store_vector(b, a, tile.first_row + row, first_column, factor, h, total);
    }
  }

  /// The thread's dimensions of its h-th vector.
  template <class Block>
  SAC_DEVICE static void store_vector(const Block& b, const Args& a, uint32_t row,
                                      uint32_t first_column, float factor, uint32_t h,
                                      const Total& total) {
    if constexpr (kIsFp8<Kv>) {
      const auto pair = [&](uint32_t d, uint32_t e) {
        return b.pack(total.at(2 * d, e) * factor, total.at(2 * d + 1, e) * factor);
      };
      SAC_UNROLL
      for (uint32_t d = 0; d < kDim / 16; ++d) {
        const uint32_t dim = d * 16 + b.lane() % 4 * 4;
        if (dim >= a.head_dim) continue;
        *reinterpret_cast<Word2*>(a.out.at(row, first_column + dim)) = {
            {pair(d, 2 * h), pair(d, 2 * h + 1)}};
      }
    } else {
      SAC_UNROLL
      for (uint32_t i = 0; i < kDim / 8; ++i) {
        const uint32_t dim = i * 8 + b.lane() % 4 * 2;
        if (dim >= a.head_dim) continue;
        *reinterpret_cast<uint32_t*>(a.out.at(row, first_column + dim)) =
            b.pack(total.at(i, 2 * h) * factor, total.at(i, 2 * h + 1) * factor);
      }
    }
  }
};

}  // namespace saccade::gpu
