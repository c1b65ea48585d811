#include "cpu/cpu_step.hpp"

namespace saccade {

CpuStep::CpuStep(const sac_model_config& config, uint32_t max_num_seqs,
                 uint32_t max_num_batched_tokens, uint32_t max_model_len, uint32_t block_size,
                 uint32_t num_blocks, uint32_t num_threads, const SeatTables& tables,
                 const StepOutputs& outputs, const Kernels* kernels, const AdapterLimits& adapters)
    : config_(config),
      kernels_(kernels != nullptr ? *kernels : best_kernels()),
      max_rows_(max_num_batched_tokens),
      tables_(tables),
      outputs_(outputs),
      kv_(config, block_size, num_blocks, num_threads),
      space_(config, kernels_, max_num_seqs, max_num_batched_tokens, max_model_len, num_threads,
             tables.grammars.max_words != 0),
      plan_(max_num_seqs, max_num_batched_tokens,
            {kernels_.attention_rows(kv_type_of(config)), config.num_kv_heads, num_threads,
             space_.max_parts()}),
      weights_(config, max_model_len, kernels_, pool_),
      adapters_(config, adapters, kernels_),
      adapter_space_(config, adapters, max_num_batched_tokens, num_threads, space_.normed.tiled),
      adapter_plan_(adapters, max_num_batched_tokens, adapter_space_),
      context_{config_, kernels_, weights_, kv_,
               tables_, plan_,    space_,   {adapters_, adapter_plan_, adapter_space_}},
      pool_(num_threads) {}

void CpuStep::launch(const StepBatch& batch) {
  pool_.wait();
  plan_.build(batch, tables_, outputs_);
  adapter_plan_.build(batch, tables_);
  pool_.start(
      [](void* context, WorkerPool::Worker& worker) {
        run_forward(*static_cast<const ForwardContext*>(context), worker);
      },
      &context_);
}

}  // namespace saccade
