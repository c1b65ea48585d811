//! The simulator: a workload through the shipped scheduler in virtual time, on a device that is a
//! cost model (`device/sim/saccade_sim.h`).

mod devices;
mod models;

use std::ffi::c_int;

pub use devices::{NamedDevice, device, devices};
pub use models::{ModelShape, NamedModel, model, models};

use crate::api::LINKED;
use crate::{DeviceConfig, DeviceError, c_device_config, error, sys};

/// An accelerator: `sac_sim_hardware`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SimHardware {
    /// Device memory, bytes per second.
    pub hbm_bytes_per_s: f64,
    /// Share of it that kernels reach, in (0, 1].
    pub hbm_efficiency: f64,
    /// Dense, of the model's dtype.
    pub flops_per_s: f64,
    /// Share of it that products with many rows reach.
    pub flops_efficiency: f64,
    /// Share of it that attention over prompts reaches.
    pub attention_efficiency: f64,
    /// Seconds of each step that scale with nothing.
    pub step_overhead_s: f64,
    /// Seconds of each layer of a step that scale with nothing.
    pub layer_overhead_s: f64,
    /// Device to host memory, each direction alone.
    pub link_bytes_per_s: f64,
    /// Both directions together, at one time.
    pub link_both_bytes_per_s: f64,
    /// 0: nothing goes up while anything goes down.
    pub link_duplex: u32,
    /// Zero.
    pub _pad0: u32,
}

/// What a step of a model reads and computes: `sac_sim_model`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SimModel {
    /// Read by every step: all but experts, embedding and head.
    pub dense_weight_bytes: f64,
    /// Of all experts of all layers.
    pub expert_weight_bytes: f64,
    /// Of the output projection.
    pub head_weight_bytes: f64,
    /// Per row, without attention over the context and head.
    pub row_flops: f64,
    /// Per sampled row.
    pub head_flops: f64,
    /// Per row and position that it looks at.
    pub attention_pair_flops: f64,
    /// KV of a token in all layers.
    pub kv_token_bytes: f64,
    /// Decoder layers.
    pub num_layers: u32,
    /// Experts of a layer; 0 = dense.
    pub num_experts: u32,
    /// Experts that a token goes through.
    pub experts_per_token: u32,
    /// Zero.
    pub _pad0: u32,
}

/// A host on the path of each step; all zero: the scheduler lives on the device. `sac_sim_host`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SimHost {
    /// Seconds per step.
    pub step_s: f64,
    /// Seconds per sequence of a step.
    pub seq_s: f64,
    /// Share of the steps for which the host's thread loses its core.
    pub stall_odds: f64,
    /// Mean seconds that it is gone, exponentially distributed.
    pub stall_s: f64,
    /// 1: the tick runs on a host.
    pub drives: u32,
    /// Zero.
    pub _pad0: u32,
}

/// `sac_sim_config`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SimConfig {
    /// The accelerator.
    pub hardware: SimHardware,
    /// The model.
    pub model: SimModel,
    /// The host.
    pub host: SimHost,
    /// Of the host's stalls.
    pub seed: u64,
}

/// What happens to a request that finds every slot of the ring taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum WhenFull {
    /// It waits in front of the ring.
    Queue = 0,
    /// It is refused and gone, as with a 429.
    Refuse = 1,
}

/// The ring of a run, and its frontend: `sac_sim_ring`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimRing {
    /// Slots; a multiple of 32, at most [`SimRing::MAX_SLOTS`].
    pub num_slots: u32,
    /// What happens when they are taken.
    pub when_full: WhenFull,
}

impl SimRing {
    /// Slots of the largest ring: `SAC_MAX_SLOTS`.
    pub const MAX_SLOTS: u32 = 4096;
    /// The largest ring, and requests that do not fit it wait in front.
    pub const ENDLESS: SimRing = SimRing { num_slots: Self::MAX_SLOTS, when_full: WhenFull::Queue };
}

/// One request of a workload: `sac_sim_request`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SimRequest {
    /// Since the start of the run; ascending.
    pub arrival_ns: u64,
    /// Tokens.
    pub prompt_len: u32,
    /// Tokens that it yields; it ends there.
    pub output_len: u32,
    /// Target of its time to first token, seconds; 0 = the device's default.
    pub slo_ttft_s: f32,
    /// Target of its mean time between tokens, seconds; 0 = the device's default.
    pub slo_tbt_s: f32,
    /// Lower is earlier.
    pub priority: i32,
    /// One for each [`SimLoad::block_tokens`] of its prompt and one for the rest; 0: none.
    pub num_block_ids: u32,
    /// Where they begin in [`SimLoad::block_ids`].
    pub first_block_id: u64,
}

/// A workload. Blocks of one id have the same tokens, blocks of different ids have none in common.
/// Prompts without ids and all answers consist of tokens that no other request has.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SimLoad<'a> {
    /// In order of arrival.
    pub requests: &'a [SimRequest],
    /// Of all prompts, each below [`SimLoad::MAX_BLOCK_IDS`].
    pub block_ids: &'a [u32],
    /// Tokens of a block; the last one of a prompt may have fewer.
    pub block_tokens: u32,
}

impl SimLoad<'_> {
    /// Ids are below this: `SAC_SIM_BLOCK_IDS`.
    pub const MAX_BLOCK_IDS: u32 = 1 << 30;
}

/// `sac_sim_load`.
#[repr(C)]
struct SacSimLoad {
    requests: *const SimRequest,
    num_requests: u64,
    block_ids: *const u32,
    num_block_ids: u64,
    block_tokens: u32,
    _pad0: u32,
}

/// The state at one moment: `sac_sim_sample`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SimSample {
    /// Since the start of the run.
    pub at_ns: u64,
    /// Seated requests.
    pub num_running: u32,
    /// Requests without a seat.
    pub num_waiting: u32,
    /// KV blocks of device memory in use.
    pub blocks_used: u32,
    /// KV blocks of host memory in use.
    pub host_blocks_used: u32,
    /// Rows of the last step.
    pub step_rows: u32,
    /// Sequences of the last step.
    pub step_seqs: u32,
}

/// The outcome of a run: `sac_sim_result`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SimResult {
    /// Virtual time at the end.
    pub end_ns: u64,
    /// Ticks of the scheduler.
    pub ticks: u64,
    /// Steps of the model.
    pub steps: u64,
    /// Time in steps.
    pub busy_ns: u64,
    /// Time of the host on the path of steps.
    pub host_ns: u64,
    /// Entries of the samples.
    pub num_samples: u64,
    /// Requests that had not ended at the limit.
    pub num_unfinished: u64,
    /// Requests that found no free slot.
    pub num_refused: u64,
    /// Requests that lost their blocks, to be recomputed.
    pub preemptions: u64,
    /// Tokens recomputed.
    pub recomputed_tokens: u64,
    /// Prompt tokens computed.
    pub prefill_tokens: u64,
    /// Decode rows computed.
    pub decode_tokens: u64,
    /// Requests sent down to host memory.
    pub rotations: u64,
    /// KV blocks copied to host memory.
    pub blocks_down: u64,
    /// KV blocks copied back.
    pub blocks_up: u64,
    /// Tokens of prompts that were looked up when their requests were admitted.
    pub prefix_query_tokens: u64,
    /// Of these, tokens that were not computed: their KV was there.
    pub prefix_hit_tokens: u64,
    /// Most KV blocks of device memory in use at one time.
    pub blocks_used_max: u32,
    /// Most KV blocks of host memory in use at one time.
    pub host_blocks_used_max: u32,
}

/// Time of a token that never came.
pub const NEVER_NS: u64 = u64::MAX;
/// Longest series of samples.
const MAX_SAMPLES: u64 = 100_000;

/// A finished run.
#[derive(Debug, Clone)]
pub struct SimRun {
    /// Times of all tokens, request by request, `output_len` each; [`NEVER_NS`] where none came.
    pub token_ns: Vec<u64>,
    /// The state over time.
    pub samples: Vec<SimSample>,
    /// Sums.
    pub result: SimResult,
}

unsafe extern "C" {
    fn sac_sim_abi() -> u64;
    fn sac_sim_run(
        device: *const sys::SacDeviceConfig,
        config: *const SimConfig,
        ring: *const SimRing,
        load: *const SacSimLoad,
        limit_ns: u64,
        token_ns: *mut u64,
        samples: *mut SimSample,
        sample_capacity: u64,
        sample_ns: u64,
        result: *mut SimResult,
    ) -> c_int;
    fn sac_sim_step_s(
        config: *const SimConfig,
        rows: f64,
        samples: f64,
        context_tokens: f64,
        pairs: f64,
    ) -> f64;
}

fn abi_matches() -> bool {
    let sizes = [
        size_of::<SimConfig>(),
        size_of::<SimRing>(),
        size_of::<SimRequest>(),
        size_of::<SacSimLoad>(),
        size_of::<SimSample>(),
        size_of::<SimResult>(),
    ];
    let ours = sizes.iter().fold(0, |mixed: u64, s| mixed.wrapping_mul(4093) + *s as u64);
    // SAFETY: takes nothing, returns a number.
    LINKED.abi_matches() && ours == unsafe { sac_sim_abi() }
}

/// Runs `load` over `ring` on a device of `device`'s bounds and policies (its kind is ignored)
/// until all have ended or `limit_ns` of virtual time have passed; the state is sampled every
/// `sample_ns`.
///
/// # Errors
/// If a field of a configuration or of a request is out of bounds, or memory runs out.
pub fn run(
    device: &DeviceConfig,
    config: &SimConfig,
    ring: &SimRing,
    load: &SimLoad<'_>,
    limit_ns: u64,
    sample_ns: u64,
) -> std::result::Result<SimRun, DeviceError> {
    let what = "simulate";
    if !abi_matches() {
        return Err(error(what, "struct sizes differ from the C++ side's".into()));
    }
    let tokens: u64 = load.requests.iter().map(|r| u64::from(r.output_len)).sum();
    let capacity = limit_ns.checked_div(sample_ns).map_or(0, |n| MAX_SAMPLES.min(n + 1));
    let mut run = SimRun {
        token_ns: vec![NEVER_NS; tokens as usize],
        samples: vec![SimSample::default(); capacity as usize],
        result: SimResult::default(),
    };
    let c_config = c_device_config(device);
    let c_load = SacSimLoad {
        requests: load.requests.as_ptr(),
        num_requests: load.requests.len() as u64,
        block_ids: load.block_ids.as_ptr(),
        num_block_ids: load.block_ids.len() as u64,
        block_tokens: load.block_tokens,
        _pad0: 0,
    };
    // SAFETY: c_load has the lengths of both slices; token_ns holds the sum of all output_len,
    // samples holds `capacity`; the callee writes no more and keeps no pointer.
    let code = unsafe {
        sac_sim_run(
            &c_config,
            config,
            ring,
            &c_load,
            limit_ns,
            run.token_ns.as_mut_ptr(),
            run.samples.as_mut_ptr(),
            capacity,
            sample_ns,
            &mut run.result,
        )
    };
    LINKED.check(what, code)?;
    run.samples.truncate(run.result.num_samples as usize);
    Ok(run)
}

/// Seconds of one step: rows, sampled rows, positions read by each sequence (summed), pairs of a
/// row and a position (summed).
pub fn step_seconds(
    config: &SimConfig,
    rows: f64,
    samples: f64,
    context_tokens: f64,
    pairs: f64,
) -> f64 {
    // SAFETY: reads the configuration only.
    unsafe { sac_sim_step_s(config, rows, samples, context_tokens, pairs) }
}
