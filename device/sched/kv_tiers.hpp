// KV blocks of both tiers and which seat holds which of them. Fixed memory.
#pragma once
#include "kv/block_pool.hpp"
#include "platform/layout.hpp"
#include "sched/limits.hpp"

namespace saccade {

struct KvTiers {
  uint32_t block_size;          // tokens
  uint32_t max_blocks_per_seq;  // entries of a seat's table
  uint32_t num_host_blocks;
  uint32_t eager_window;   // background copies down in flight
  uint64_t step_done;      // number of the last committed launch
  uint32_t* block_tables;  // [num_seats][max_blocks_per_seq]: blocks of device memory
  uint32_t* host_tables;   // the same of host memory
  BlockPool pool;          // device memory
  BlockPool host_pool;     // host memory
  Copies copies;           // between them

  SAC_HD uint32_t blocks_for(uint32_t tokens) const { return ceil_div(tokens, block_size); }
  SAC_HD uint32_t* block_table(uint32_t seat) const {
    return block_tables + static_cast<size_t>(seat) * max_blocks_per_seq;
  }
  SAC_HD uint32_t* host_table(uint32_t seat) const {
    return host_tables + static_cast<size_t>(seat) * max_blocks_per_seq;
  }
};

inline void lay_out(BlockPool& pool, uint32_t blocks, Layout& at) {
  pool.free_ring = at.take<uint32_t>(blocks);
  pool.states = at.take<BlockState>(blocks);
}

inline void lay_out(KvTiers& kv, const Limits& l, Layout& at) {
  const size_t entries = size_t{l.num_seats} * l.max_blocks_per_seq();
  kv.block_tables = at.take<uint32_t>(entries);
  lay_out(kv.pool, l.num_blocks, at);
  if (l.num_host_blocks == 0) return;
  kv.host_tables = at.take<uint32_t>(entries);
  lay_out(kv.host_pool, l.num_host_blocks, at);
  kv.copies.down.ring = at.take<BlockCopy>(l.num_host_blocks);
  kv.copies.up.ring = at.take<BlockCopy>(l.num_host_blocks);
}

SAC_HD inline void reset(KvTiers& kv, const Limits& l) {
  kv.block_size = l.block_size;
  kv.max_blocks_per_seq = l.max_blocks_per_seq();
  kv.num_host_blocks = l.num_host_blocks;
  kv.eager_window = l.eager_window;
  kv.step_done = 0;
  kv.pool.reset(l.num_blocks);
  kv.host_pool.reset(l.num_host_blocks);
  kv.copies.down.reset(l.num_host_blocks);
  kv.copies.up.reset(l.num_host_blocks);
}

}  // namespace saccade
