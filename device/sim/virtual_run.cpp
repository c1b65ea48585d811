#include "sim/virtual_run.hpp"

#include <new>

#include "capi/config_check.hpp"

namespace saccade::sim {
namespace {

double block_bytes(const sac_device_config& device, const sac_sim_config& config) {
  return config.model.kv_token_bytes * device.block_size;
}

}  // namespace

VirtualRun::VirtualRun(const sac_device_config& device, const sac_sim_config& config,
                       const sac_sim_ring& ring, const sac_sim_load& load, const RunOutput& out)
    : link_(config.hardware, block_bytes(device, config)),
      copies_(link_, clock_ns_),
      step_(config, link_, clock_ns_),
      load_(load),
      refuses_(ring.when_full == SAC_SIM_REFUSE),
      first_token_(load.num_requests),
      request_of_(ring.num_slots),
      out_(out) {
  s_.limits = limits_of(device, kVirtualVocab);
  s_.limits.num_slots = ring.num_slots;
  s_.limits.num_frontends = 1;
  Layout measure(nullptr);
  lay_out(s_, measure);
  ring_.lay_out(measure, ring.num_slots, s_.limits.max_model_len);
  if (!memory_.map(measure.bytes())) throw std::bad_alloc();
  Layout hand_out(memory_.data());
  lay_out(s_, hand_out);
  ring_.lay_out(hand_out, ring.num_slots, s_.limits.max_model_len);
  reset(s_, device.eos_ids);
  step_.start(s_.launch.tables, s_.launch.outputs, block_bytes(device, config));
  join_ring(s_, ring_.view, clock_ns_);
  go_ready(s_);
  // A frontend may ring once its epoch is acknowledged: one tick without work.
  ring_.join();
  VirtualEnv first = env();
  tick(s_, step_, copies_, first);
  uint64_t tokens = 0;
  for (uint64_t i = 0; i < load.num_requests; ++i) {
    first_token_[i] = tokens;
    tokens += load.requests[i].output_len;
  }
  for (uint64_t t = 0; t < tokens; ++t) out_.token_ns[t] = SAC_SIM_NEVER;
  for (uint32_t slot = ring.num_slots; slot > 0; --slot) free_slots_.push_back(slot - 1);
}

sac_sim_result VirtualRun::run(uint64_t limit_ns) {
  while (now_ns() < limit_ns && advance()) {
  }
  return result();
}

bool VirtualRun::advance() {
  submit_due();
  ring_.beat();
  VirtualEnv now = env();
  const uint32_t num_seqs = tick(s_, step_, copies_, now);
  // Requests that arrived during the step found the slots of those it ended still taken.
  submit_due();
  collect();
  sample();
  if (num_seqs != 0 || s_.has_finished()) return true;
  return skip_idle_time();
}

/// Rings for each arrived request while slots are free; `refuses_` says what becomes of the others.
void VirtualRun::submit_due() {
  while (next_request_ < load_.num_requests &&
         load_.requests[next_request_].arrival_ns <= now_ns()) {
    if (free_slots_.empty()) {
      if (!refuses_) return;
      ++num_refused_;
      ++next_request_;
      continue;
    }
    const uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    request_of_[slot] = next_request_;
    ring_.submit(slot, next_request_, load_.requests[next_request_]);
    ++next_request_;
    rung_ = true;
  }
}

/// Reads what the step's sequences published, as a token reader would.
void VirtualRun::collect() {
  const StepBatch& batch = s_.launch.batch;
  for (uint32_t i = 0; i < batch.num_seqs; ++i) {
    if (batch.seqs[i].sample == 0) continue;
    const uint32_t slot = s_.seats[batch.seqs[i].seat].slot;
    const uint64_t word = ring_.view.status[slot].word;
    const uint32_t count = sac_status_count(word);
    out_.token_ns[first_token_[request_of_[slot]] + count - 1] = now_ns();
    ring_.cursors[slot] = count;
    if (sac_status_state(word) != SAC_STATE_DECODE_COMPLETED) continue;
    free_slots_.push_back(slot);
    ++num_ended_;
  }
}

/// Nothing could run: moves the clock to what happens next. False: nothing will.
bool VirtualRun::skip_idle_time() {
  uint64_t next = link_.next_arrival_ns();
  const bool more = next_request_ < load_.num_requests && !free_slots_.empty();
  if (more) next = std::min(next, kStartNs + load_.requests[next_request_].arrival_ns);
  if (s_.has_work()) next = std::min(next, clock_ns_ + kIdleNs);
  if (next == UINT64_MAX) return false;
  clock_ns_ = std::max(clock_ns_, next);
  return true;
}

void VirtualRun::sample() {
  if (num_samples_ == out_.sample_capacity || now_ns() < next_sample_ns_) return;
  next_sample_ns_ = now_ns() + out_.sample_ns;
  sac_sim_sample& to = out_.samples[num_samples_++];
  to = {};
  to.at_ns = now_ns();
  to.num_running = s_.seats.num_running;
  uint64_t queued = next_request_;
  while (queued < load_.num_requests && load_.requests[queued].arrival_ns <= now_ns()) ++queued;
  to.num_waiting = s_.waiting.count + static_cast<uint32_t>(queued - next_request_);
  to.blocks_used = s_.kv.device().used();
  to.host_blocks_used = s_.kv.host().used();
  to.step_rows = s_.launch.batch.num_rows;
  to.step_seqs = s_.launch.batch.num_seqs;
}

sac_sim_result VirtualRun::result() const {
  sac_sim_result r = {};
  r.end_ns = now_ns();
  r.ticks = s_.course.tick;
  r.steps = s_.report.stats.steps;
  r.busy_ns = step_.busy_ns();
  r.host_ns = step_.host_ns();
  r.num_samples = num_samples_;
  r.num_unfinished = load_.num_requests - num_ended_ - num_refused_;
  r.num_refused = num_refused_;
  r.preemptions = s_.report.stats.preemptions;
  r.recomputed_tokens = s_.report.stats.recomputed_tokens;
  r.prefill_tokens = s_.report.stats.prefill_tokens;
  r.decode_tokens = s_.report.stats.decode_tokens;
  r.rotations = s_.report.stats.rotations;
  r.blocks_down = s_.report.stats.blocks_down_eager + s_.report.stats.blocks_down_urgent;
  r.blocks_up = s_.report.stats.blocks_up;
  r.prefix_query_tokens = s_.report.stats.prefix_query_tokens;
  r.prefix_hit_tokens = s_.report.stats.prefix_hit_tokens;
  r.blocks_used_max = s_.report.stats.blocks_used_max;
  r.host_blocks_used_max = s_.report.stats.host_blocks_used_max;
  return r;
}

}  // namespace saccade::sim
