// Drives a CpuStep the way the scheduler does: seats, block tables, histories, batches.
#pragma once
#include <cstring>
#include <memory>
#include <numeric>

#include "tests/test_model.hpp"

namespace saccade::test {

struct Record {
  uint32_t token;
  float logprob;
};

inline Record unpack(uint64_t word) {
  return {static_cast<uint32_t>(word),
          __builtin_bit_cast(float, static_cast<uint32_t>(word >> 32))};
}

struct HarnessOptions {
  uint32_t num_seats = 4;
  uint32_t max_rows = 256;
  uint32_t max_len = 256;
  uint32_t block_size = 16;
  uint32_t num_threads = 1;
  /// Blocks of the pool; 0: enough for all seats. With fewer, deal() assigns them to seats.
  uint32_t num_blocks = 0;
  const Kernels* kernels = nullptr;
  AdapterLimits adapters = {};
};

/// Greedy parameters of a prompt.
inline SeatParams greedy(uint32_t prompt_len) {
  SeatParams p = {};
  p.top_p = 1.0f;
  p.repetition_penalty = 1.0f;
  p.prompt_len = prompt_len;
  p.max_tokens = 1u << 20;
  return p;
}

class StepHarness {
 public:
  StepHarness(const sac_model_config& config, const HarnessOptions& o)
      : options(o),
        params(o.num_seats),
        history(size_t{o.num_seats} * o.max_len),
        bias(size_t{o.num_seats} * SAC_MAX_LOGIT_BIAS),
        stops(size_t{o.num_seats} * SAC_MAX_STOP_IDS),
        sampled(size_t{o.num_seats} * kRecordWords),
        prompt_records(size_t{o.max_rows} * kRecordWords),
        embeddings(size_t{o.num_seats} * config.hidden_size) {
    const uint32_t per_seq = ceil_div(o.max_len, o.block_size);
    blocks.resize(size_t{o.num_seats} * per_seq);
    if (options.num_blocks == 0) options.num_blocks = static_cast<uint32_t>(blocks.size());
    if (options.num_blocks == blocks.size()) deal(o.num_seats, o.max_len);
    tables = {o.num_seats, o.max_len,    per_seq, 0, params.data(), history.data(), blocks.data(),
              bias.data(), stops.data(), nullptr, {}};
    step = std::make_unique<CpuStep>(
        config, o.num_seats, o.max_rows, o.max_len, o.block_size, options.num_blocks, o.num_threads,
        tables,
        StepOutputs{sampled.data(), prompt_records.data(), embeddings.data(), config.hidden_size},
        o.kernels, o.adapters);
  }

  /// Gives each of the first `seats` blocks for `len` tokens, which the pool must have. Scattered:
  /// block ids of a sequence are neither ordered nor adjacent.
  void deal(uint32_t seats, uint32_t len) {
    const uint32_t per_seq = ceil_div(options.max_len, options.block_size);
    std::vector<uint32_t> ids(options.num_blocks);
    std::iota(ids.begin(), ids.end(), 0u);
    Rng rng(7);
    std::shuffle(ids.begin(), ids.end(), rng);
    const uint32_t each = ceil_div(len, options.block_size);
    for (uint32_t i = 0; i < seats * each; ++i) {
      blocks[size_t{i / each} * per_seq + i % each] = ids.at(i);
    }
  }

  uint32_t* tokens(uint32_t seat) { return history.data() + size_t{seat} * options.max_len; }
  void seat_prompt(uint32_t seat, const std::vector<uint32_t>& prompt, const SeatParams& p) {
    std::copy(prompt.begin(), prompt.end(), tokens(seat));
    params[seat] = p;
  }
  /// Adds rows to the next batch.
  void add(uint32_t seat, uint32_t first_position, uint32_t num_rows, bool sample,
           bool prompt_logprobs = false) {
    seqs.push_back(
        {seat, first_position, num_rows, num_rows_, sample ? 1u : 0u, prompt_logprobs ? 1u : 0u});
    num_rows_ += num_rows;
  }
  /// Runs the batch; `sampled` and `prompt_records` then hold its records.
  void run() {
    step->launch(
        {++step_number_, static_cast<uint32_t>(seqs.size()), num_rows_, 0, 0, 0, seqs.data()});
    step->wait();
    seqs.clear();
    num_rows_ = 0;
  }
  const uint64_t* sampled_record(uint32_t seq) const { return sampled.data() + seq * kRecordWords; }
  const uint64_t* prompt_record(uint32_t row) const {
    return prompt_records.data() + row * kRecordWords;
  }
  const float* embedding(uint32_t seq) const {
    return embeddings.data() + embeddings.size() / options.num_seats * seq;
  }

  HarnessOptions options;
  std::vector<SeatParams> params;
  std::vector<uint32_t> history;
  std::vector<uint32_t> blocks;
  std::vector<LogitBias> bias;
  std::vector<uint32_t> stops;
  std::vector<uint64_t> sampled;
  std::vector<uint64_t> prompt_records;
  std::vector<float> embeddings;  // [num_seats][hidden_size]
  std::vector<StepSeq> seqs;
  SeatTables tables;
  std::unique_ptr<CpuStep> step;

 private:
  uint32_t num_rows_ = 0;
  uint64_t step_number_ = 0;
};

}  // namespace saccade::test
