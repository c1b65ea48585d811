#include "tests/step_device.hpp"

#include <thread>

namespace saccade::test {
namespace {

/// On the test's clock a row takes longer than the copy of a block: fetching always pays.
struct TimedStep {
  CpuStep& step;
  uint64_t& now_ns;
  uint32_t rows = 0;
  void launch(const StepBatch& batch) {
    rows = batch.num_rows;
    step.launch(batch);
  }
  void wait() {
    step.wait();
    now_ns += rows * 100'000'000ull;
  }
  uint64_t done_ns() const { return 0; }
};

}  // namespace

StepDevice::StepDevice(TestRing& ring, const DeviceShape& device_shape, const Engine& engine)
    : shape(device_shape), copies_(kv_, shape.copies, shape.copy_seed) {
  const sac_model_config& model = engine.model->config;
  s.limits = limits_of(shape, ring.shape);
  s.limits.rope_switch_len = model.rope_switch_len;
  memory_ = furnish(s, shape.eos_ids);
  set_adapter_keys(s, shape);
  step_ = std::make_unique<CpuStep>(model, shape.num_seats, shape.max_num_batched_tokens,
                                    shape.max_model_len, shape.block_size, shape.num_blocks,
                                    engine.num_threads, s.launch.tables, s.launch.outputs,
                                    engine.kernels, limits_of(engine.model->adapters));
  const std::string wrong = load(*engine.model, *step_);
  if (!wrong.empty()) throw std::runtime_error(wrong);
  const size_t block_bytes = CpuStep::kv_block_bytes(model, shape.block_size);
  host_ = aligned_bytes(block_bytes * shape.num_host_blocks);
  kv_.pools = {step_->kv_memory(), host_.get(), block_bytes};
  if (engine.copy_threads) threads_ = std::make_unique<CopyEngine>(kv_.pools, s.kv.store.copies);
  join_ring(s, ring.view, now_ns);
  go_ready(s);
}

template <bool kOverlapped, class Copier>
uint32_t StepDevice::tick_in(Copier& copier) {
  TestEnv<kOverlapped> env{now_ns};
  TimedStep step{*step_, now_ns};
  return saccade::tick(s, step, copier, env);
}

template <class Copier>
uint32_t StepDevice::tick_with(Copier& copier) {
  return shape.overlapped ? tick_in<true>(copier) : tick_in<false>(copier);
}

uint32_t StepDevice::tick() {
  uint32_t num_seqs = 0;
  if (threads_ != nullptr) {
    num_seqs = tick_with(*threads_);
    if (num_seqs == 0) std::this_thread::yield();  // the copies' turn
  } else {
    copies_.advance();
    num_seqs = tick_with(copies_);
  }
  if (const char* wrong = check_invariants(s)) throw std::runtime_error(wrong);
  return num_seqs;
}

}  // namespace saccade::test
