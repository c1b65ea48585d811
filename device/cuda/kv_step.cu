#include "cuda/kv_step.hpp"
#include "kv/chain.hpp"
#include "step/null_step.hpp"

namespace saccade {
namespace {

struct KvPool {
  uint64_t* words;  // [blocks][block_size]
  uint32_t block_size;
  uint32_t* wrong;
};

/// What a position has whose predecessor has `before`: KV depends on all tokens so far, and on
/// nothing else, because requests share blocks of the same beginning.
__device__ uint64_t word_after(uint64_t before, uint32_t token) {
  return mix_bits(before ^ token) | 1;
}

/// A block for each sequence: its rows' words are written, then all below them are read. Shared
/// memory: a word for each position.
__global__ void kv_kernel(const NullStep null, const StepBatch* batch, const KvPool pool) {
  extern __shared__ uint64_t right[];
  if (blockIdx.x >= batch->num_seqs) return;
  const StepSeq q = batch->seqs[blockIdx.x];
  const uint32_t* tokens = null.tables.tokens(q.seat);
  const uint32_t* table = null.tables.block_table(q.seat);
  const uint32_t end = q.first_position + q.num_rows;
  if (threadIdx.x == 0) {
    uint64_t word = 0;
    for (uint32_t at = 0; at < end; ++at) right[at] = word = word_after(word, tokens[at]);
  }
  __syncthreads();
  for (uint32_t at = threadIdx.x; at < end; at += blockDim.x) {
    uint64_t* word =
        pool.words + size_t{table[at / pool.block_size]} * pool.block_size + at % pool.block_size;
    if (at >= q.first_position) {
      *word = right[at];
    } else if (*word != right[at]) {
      atomicAdd(pool.wrong, 1u);
    }
  }
  if (threadIdx.x == 0) null.run_seq(*batch, blockIdx.x);
}

}  // namespace

KvStepKernels::KvStepKernels(const StepTables& tables, uint32_t vocab_size, uint32_t block_size,
                             uint32_t num_blocks)
    : tables_(tables),
      vocab_size_(vocab_size),
      block_size_(block_size),
      pool_(size_t{num_blocks} * block_size * sizeof(uint64_t)),
      wrong_(sizeof(uint32_t)) {}

void KvStepKernels::enqueue(cudaStream_t stream, const GraphShape& shape) const {
  constexpr uint32_t kThreads = 64;
  const NullStep null = {tables_.seats, tables_.outputs, vocab_size_};
  const KvPool pool = {pool_.as<uint64_t>(), block_size_, wrong_.as<uint32_t>()};
  kv_kernel<<<shape.seqs, kThreads, tables_.seats.max_model_len * sizeof(uint64_t), stream>>>(
      null, tables_.batch, pool);
  require(cudaGetLastError(), "launch of the KV test's kernel");
}

}  // namespace saccade
