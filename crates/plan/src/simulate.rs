//! One cell of a plan: a load, a policy, and a number of devices.

use anyhow::Context;
use saccade_device::sim::{
    ModelShape, NamedDevice, SimConfig, SimHost, SimRing, SimSample, WhenFull, device, model, run,
};
use saccade_device::{
    DeviceConfig, DeviceKind, KvDtype, PolicyConfig, PrefillPolicy, Quantization, SchedulingPolicy,
};
use saccade_model::{ModelFolder, OpenOptions};

use crate::args::{Args, Copies, MachineArgs, Place, Policy};
use crate::outcome::{Arrivals, Outcome, Tally};
use crate::workload::Load;

/// Device memory that is neither weights nor KV: activations, workspaces, the runtime's own.
const RESERVE_BYTES: f64 = 2e9;
/// Longest run, in times the time of arrivals, and never less than a virtual hour.
const LIMIT_FACTOR: f64 = 20.0;
const MIN_LIMIT_S: f64 = 3600.0;
/// Samples of the state while requests arrive.
const SAMPLES: f64 = 480.0;

/// What the flags name.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub device: &'static NamedDevice,
    pub model_name: String,
    pub shape: ModelShape,
    pub config: SimConfig,
    pub num_blocks: u32,
    pub num_host_blocks: u32,
    pub block_bytes: f64,
}

fn shape(name: &str) -> anyhow::Result<ModelShape> {
    if let Some(known) = model(name) {
        return Ok(known.shape);
    }
    let names: Vec<&str> = saccade_device::sim::models().iter().map(|m| m.name).collect();
    let known = names.join(", ");
    let folder = ModelFolder::open(name, &OpenOptions::default())
        .with_context(|| format!("--model {name}: neither a folder nor one of {known}"))?;
    Ok(ModelShape::from(&folder.config()?))
}

fn named_device(name: &str) -> anyhow::Result<&'static NamedDevice> {
    device(name).with_context(|| {
        let names: Vec<&str> = saccade_device::sim::devices().iter().map(|d| d.name).collect();
        format!("--device {name}: not one of {}", names.join(", "))
    })
}

fn kv_bytes(args: &MachineArgs, device: &NamedDevice, weights: f64) -> anyhow::Result<f64> {
    if let Some(bytes) = args.kv_cache_memory_bytes {
        return Ok(bytes as f64);
    }
    let share = args.gpu_memory_utilization;
    anyhow::ensure!(
        share > 0.0 && share <= 1.0,
        "--gpu-memory-utilization is {share}, outside (0, 1]"
    );
    let left = device.hbm_bytes * share - weights - RESERVE_BYTES;
    anyhow::ensure!(
        left > 0.0,
        "the weights take {:.1} GB, and {:.1} GB of a {} can be used: nothing is left for KV",
        weights / 1e9,
        device.hbm_bytes * share / 1e9,
        device.name
    );
    Ok(left)
}

impl Machine {
    pub(crate) fn new(args: &Args) -> anyhow::Result<Machine> {
        let m = &args.machine;
        anyhow::ensure!(
            m.dtype_bytes > 0.0 && m.dtype_bytes <= 4.0,
            "--dtype-bytes is {}, outside (0, 4]",
            m.dtype_bytes
        );
        anyhow::ensure!(
            (0.0..=1e6).contains(&m.kv_offloading_size),
            "--kv-offloading-size is {} GiB, outside 0 .. 1000000",
            m.kv_offloading_size
        );
        let device = named_device(&m.device)?;
        let shape = shape(&m.model)?;
        let hardware = match m.copies {
            Copies::Duplex => device.hardware(),
            Copies::Naive => device.hardware_with_naive_copies(),
        };
        let block_bytes =
            shape.kv_token_bytes(m.kv_element_bytes()) * f64::from(args.scheduler.block_size);
        let kv = kv_bytes(m, device, shape.params() * m.dtype_bytes)?;
        Ok(Machine {
            device,
            model_name: m.model.clone(),
            shape,
            config: SimConfig {
                hardware,
                model: shape.costs(m.dtype_bytes, m.kv_element_bytes()),
                host: host(args),
                seed: args.load.seed,
            },
            num_blocks: (kv / block_bytes) as u32,
            num_host_blocks: (m.kv_offloading_size * f64::from(1 << 30) / block_bytes) as u32,
            block_bytes,
        })
    }

    /// Tokens whose KV the device holds.
    pub(crate) fn kv_tokens(&self, args: &Args) -> u64 {
        u64::from(self.num_blocks) * u64::from(args.scheduler.block_size)
    }
}

fn host(args: &Args) -> SimHost {
    let h = &args.host;
    match h.place {
        Place::Device => SimHost::default(),
        Place::Host => SimHost {
            step_s: h.host_step_us * 1e-6,
            seq_s: h.host_seq_us * 1e-6,
            stall_odds: h.host_stall_odds,
            stall_s: h.host_stall_ms * 1e-3,
            drives: 1,
            _pad0: 0,
        },
    }
}

/// Copies ahead of need that may be under way: what the link moves in this time.
const EAGER_WINDOW_S: f64 = 0.010;

fn policy_config(args: &Args, policy: Policy) -> PolicyConfig {
    let (s, slo) = (&args.scheduler, args.load.slo());
    PolicyConfig {
        policy: match policy {
            Policy::Fcfs => SchedulingPolicy::Fcfs,
            Policy::Wf => SchedulingPolicy::WaitingFirst,
            Policy::Sf => SchedulingPolicy::SwappedFirst,
            Policy::Lvf => SchedulingPolicy::Lvf,
            Policy::Goodput => SchedulingPolicy::Goodput,
        },
        b_xfer_blocks: s.b_xfer_blocks,
        alpha: s.vlt_alpha,
        beta_f: s.vlt_beta_f,
        beta_b: s.vlt_beta_b,
        late_share: s.late_share,
        min_run_s: s.min_run_ms as f32 / 1000.0,
        max_wait_s: s.max_wait_s as f32,
        slo_ttft_s: slo.ttft_s as f32,
        slo_tbt_s: slo.tbt_s as f32,
    }
}

fn eager_window(machine: &Machine) -> u32 {
    let rate = machine.config.hardware.link_bytes_per_s;
    (rate * EAGER_WINDOW_S / machine.block_bytes).ceil() as u32
}

pub(crate) fn device_config(
    args: &Args,
    machine: &Machine,
    policy: Policy,
    max_model_len: u32,
) -> DeviceConfig {
    let s = &args.scheduler;
    DeviceConfig {
        kind: DeviceKind::Null { step_us: 0 },
        serial: true,
        prefill_policy: PrefillPolicy::Chunked,
        max_num_seqs: s.max_num_seqs,
        max_num_batched_tokens: s.max_num_batched_tokens.max(s.max_num_seqs),
        max_model_len,
        block_size: s.block_size,
        num_blocks: machine.num_blocks,
        num_host_blocks: machine.num_host_blocks,
        eager_window: if machine.num_host_blocks == 0 { 0 } else { eager_window(machine) },
        // Any seed will do: keys decide only which tokens are compared.
        prefix_caching: args.shares_prefixes().then_some(args.load.seed),
        fetch: None,
        grammar_words: 0,
        embedding_size: 0,
        adapters: Default::default(),
        policy: policy_config(args, policy),
        num_threads: 1,
        eos_ids: Vec::new(),
        log_decisions: false,
        quantization: Quantization::None,
        fp8_roles: Vec::new(),
        kv_dtype: KvDtype::Auto,
        kv_scales: Vec::new(),
        cuda: Default::default(),
    }
}

/// A finished cell.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub outcome: Outcome,
    /// Of the first device.
    pub samples: Vec<SimSample>,
}

/// Runs `load` on `devices` devices, each with every n-th request.
pub(crate) fn simulate(
    args: &Args,
    machine: &Machine,
    policy: Policy,
    load: &Load<'_>,
    devices: usize,
) -> anyhow::Result<Cell> {
    let slo = args.load.slo();
    let arrivals_s = load.seconds;
    let config = device_config(args, machine, policy, load.requests.longest());
    let ring = SimRing { num_slots: args.scheduler.ring_slots, when_full: WhenFull::Refuse };
    let limit_s = (arrivals_s * LIMIT_FACTOR).max(MIN_LIMIT_S);
    let mut tally = Tally::default();
    let mut samples = Vec::new();
    for first in 0..devices {
        let share = load.requests.share(first, devices);
        let sample_ns = (arrivals_s * 1e9 / SAMPLES) as u64;
        let limit_ns = (limit_s * 1e9) as u64;
        let done = run(&config, &machine.config, &ring, &share.load(), limit_ns, sample_ns)?;
        tally.add(&share.list, &done, machine.num_blocks, slo, arrivals_s);
        if first == 0 {
            samples = done.samples;
        }
    }
    // Those of a trace are taken for Poisson: its own do not tell what others would have been.
    let burstiness = if args.load.trace.is_some() { 1.0 } else { args.load.burstiness };
    let arrivals = Arrivals { seconds: arrivals_s, burstiness };
    Ok(Cell { outcome: tally.outcome(slo, arrivals), samples })
}
