//! Flags of `saccade plan`. Settings that `saccade serve` has too have its names.

use std::path::PathBuf;

use clap::builder::ArgPredicate;

use crate::outcome::Slo;

/// Flags of `saccade plan`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    #[command(flatten)]
    pub(crate) load: LoadArgs,
    #[command(flatten)]
    pub(crate) scheduler: SchedulerArgs,
    #[command(flatten)]
    pub(crate) host: HostArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl Args {
    /// Whether prompts that begin alike share KV. Without a trace there are none, and a scheduler
    /// that looks for them would only let preempted requests find what they had computed: unless
    /// asked for, that is left out.
    pub(crate) fn shares_prefixes(&self) -> bool {
        let s = &self.scheduler;
        !s.no_enable_prefix_caching && s.enable_prefix_caching.unwrap_or(self.load.trace.is_some())
    }
}

/// What else the command does.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Draw the page of a result that --json wrote, without running it again
    Page(PageArgs),
}

/// Flags of `saccade plan page`.
#[derive(Debug, clap::Args)]
pub(crate) struct PageArgs {
    /// Result of `saccade plan --json`
    #[arg(value_name = "RESULT.json")]
    pub result: PathBuf,
    /// File for the page [default: the standard output]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// The model and what it runs on.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Machine")]
pub(crate) struct MachineArgs {
    /// Model: a name from --list, or a Hugging Face folder with config.json
    #[arg(long, value_name = "NAME|FOLDER", default_value = "Qwen2.5-32B")]
    pub model: String,
    /// Device: a name from --list
    #[arg(long, value_name = "NAME", default_value = "GH200")]
    pub device: String,
    /// Share of the device's memory that weights, workspace and KV blocks may take
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    pub gpu_memory_utilization: f64,
    /// Bytes for KV blocks, also as 4G (GiB) or 4g (10^9) [default: what weights and workspace
    /// leave of that share]
    #[arg(long, value_name = "BYTES", value_parser = saccade_model::byte_size)]
    pub kv_cache_memory_bytes: Option<u64>,
    /// GiB of host memory for KV blocks of requests that gave up their device memory; 0: they are
    /// computed again
    #[arg(long, value_name = "GIB", default_value_t = 0.0)]
    pub kv_offloading_size: f64,
    /// How KV blocks are copied between device and host memory
    #[arg(long, value_enum, default_value = "duplex")]
    pub copies: Copies,
    /// Bytes of an element of weights, and of KV unless --kv-cache-dtype says else: 2 for bfloat16,
    /// 1 for FP8
    #[arg(long, value_name = "BYTES", default_value_t = 2.0)]
    pub dtype_bytes: f64,
    /// Elements of KV: auto (as many bytes as --dtype-bytes), or fp8, the same as fp8_e4m3
    #[arg(long, value_enum, default_value = "auto")]
    pub kv_cache_dtype: KvCacheDtype,
}

/// Names are those of `saccade serve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KvCacheDtype {
    /// As weights
    Auto,
    /// One byte
    Fp8,
    /// The same
    #[value(name = "fp8_e4m3")]
    Fp8E4m3,
}

impl MachineArgs {
    /// Bytes of an element of KV.
    pub fn kv_element_bytes(&self) -> f64 {
        match self.kv_cache_dtype {
            KvCacheDtype::Auto => self.dtype_bytes,
            KvCacheDtype::Fp8 | KvCacheDtype::Fp8E4m3 => 1.0,
        }
    }
}

/// A copy engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Copies {
    /// Whole blocks, both directions at once
    Duplex,
    /// Segment by segment, one direction after the other, as engines do today
    Naive,
}

/// What arrives.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct LoadArgs {
    /// Recorded arrivals, lengths and shared prefixes: Mooncake's JSON lines or Azure's CSV, plain
    /// or gzipped
    #[arg(long, value_name = "FILE", conflicts_with_all = ["burstiness", "workload", "input_len", "output_len", "dataset_path"])]
    pub trace: Option<PathBuf>,
    /// Requests per second, or multiples of one device's capacity as 1.15x; each rate is a run of
    /// its own. With --trace: the mean rate that the trace is brought to [default there: its own]
    #[arg(long, value_name = "RPS", value_delimiter = ',', default_value = "5,10,13,15,18,20", default_value_if("trace", ArgPredicate::IsPresent, None::<&str>), value_parser = Rate::parse)]
    pub request_rate: Vec<Rate>,
    /// Seconds during which requests arrive; those in flight are then served to their end. With
    /// --trace: replay that much of it [default there: all]
    #[arg(long, value_name = "SECONDS", default_value = "120", default_value_if("trace", ArgPredicate::IsPresent, None::<&str>))]
    pub duration: Option<f64>,
    /// Shape of the gamma-distributed gaps between arrivals: 1 is Poisson, below 1 is burstier
    #[arg(long, value_name = "SHAPE", default_value_t = 1.0)]
    pub burstiness: f64,
    /// Lengths of prompts and outputs
    #[arg(long, value_enum, default_value = "sharegpt")]
    pub workload: Workload,
    /// Mean prompt tokens, in place of the workload's
    #[arg(long, value_name = "TOKENS")]
    pub input_len: Option<f64>,
    /// Mean output tokens, in place of the workload's
    #[arg(long, value_name = "TOKENS")]
    pub output_len: Option<f64>,
    /// ShareGPT file to take lengths from, in place of the workload's
    #[arg(long, value_name = "FILE")]
    pub dataset_path: Option<PathBuf>,
    /// TTFT target of every request, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = slo_ms())]
    pub slo_ttft_ms: u32,
    /// Target of every request's mean time per token, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = slo_ms())]
    pub slo_tpot_ms: u32,
    /// Seed of arrivals, lengths and the host's stalls
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl LoadArgs {
    /// The targets.
    pub(crate) fn slo(&self) -> Slo {
        Slo { ttft_s: f64::from(self.slo_ttft_ms) / 1e3, tbt_s: f64::from(self.slo_tpot_ms) / 1e3 }
    }
}

/// As `saccade serve` bounds them.
fn slo_ms() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=3_600_000)
}

/// An offered load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Rate {
    /// Requests per second.
    Rps(f64),
    /// Of the capacity.
    Multiple(f64),
}

impl Rate {
    fn parse(text: &str) -> Result<Rate, String> {
        let (number, kind) = match text.strip_suffix('x') {
            Some(number) => (number, Rate::Multiple as fn(f64) -> Rate),
            None => (text, Rate::Rps as fn(f64) -> Rate),
        };
        match number.parse::<f64>() {
            Ok(value) if value > 0.0 && value <= 1e6 => Ok(kind(value)),
            _ => Err(format!("{text:?} is not a rate in (0, 1000000], as 18 or 1.15x")),
        }
    }

    /// Requests per second of a device with this capacity.
    pub(crate) fn rps(self, capacity_rps: f64) -> f64 {
        match self {
            Rate::Rps(rate) => rate,
            Rate::Multiple(share) => share * capacity_rps,
        }
    }
}

/// Lengths by the name of the data set that they imitate; docs/plan.md has the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Workload {
    /// Log-normal, 300 tokens in and 400 out on average
    Sharegpt,
    /// Log-normal, 161 and 338: first turns, as in vLLM's paper
    SharegptFirst,
    /// Log-normal, 70 and 215: LMSYS-Chat-1M
    Lmsys,
}

/// Bounds and policies of the scheduler.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Scheduler")]
pub(crate) struct SchedulerArgs {
    /// Which requests get KV memory when it is short; each policy is a run of its own
    #[arg(long, value_enum, value_delimiter = ',', default_value = "goodput")]
    pub scheduling_policy: Vec<Policy>,
    /// wf, lvf, goodput: KV blocks that requests on the device may give up per tick
    #[arg(long, value_name = "BLOCKS", default_value_t = 2400)]
    pub b_xfer_blocks: u32,
    /// lvf: how fast the lag of rotated-out requests grows, against that of waiting ones; 0 to 100
    #[arg(long, value_name = "SLOPE", default_value_t = 3.0, value_parser = slope)]
    pub vlt_alpha: f32,
    /// lvf: share of its TTFT target that a request waits without lagging; -100 to 100
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share, allow_hyphen_values = true)]
    pub vlt_beta_f: f32,
    /// lvf: share of its TBT target that a request is rotated out without lagging; -100 to 100
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, allow_hyphen_values = true)]
    pub vlt_beta_b: f32,
    /// wf, lvf, goodput: milliseconds that a request runs before the policy may rotate it out
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u32).range(0..=3_600_000))]
    pub min_run_ms: u32,
    /// wf, sf, lvf: seconds of waiting after which a request comes in before all others
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub max_wait_s: u32,
    /// goodput: one in N of the KV blocks that come in goes to requests that are late already
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..))]
    pub late_share: u32,
    /// Most requests computed together
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub max_num_seqs: u32,
    /// Most tokens of one step: decodes, and chunks of prompts
    #[arg(long, value_name = "TOKENS", default_value_t = 2048)]
    pub max_num_batched_tokens: u32,
    /// Tokens in a KV block
    #[arg(long, value_name = "TOKENS", default_value_t = 16)]
    pub block_size: u32,
    /// Slots of the ring: requests that run or wait; a request that finds none free is refused, as
    /// with a 429
    #[arg(long, value_name = "N", default_value_t = saccade_device::sim::SimRing::MAX_SLOTS)]
    pub ring_slots: u32,
    /// Keep the KV of prompts and answers, and use it for prompts that begin alike [default: with
    /// --trace; prompts of other loads share nothing]
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        overrides_with = "no_enable_prefix_caching"
    )]
    pub enable_prefix_caching: Option<bool>,
    /// Compute every prompt in full
    #[arg(long, overrides_with = "enable_prefix_caching")]
    pub no_enable_prefix_caching: bool,
}

/// Bounds of numbers that clap reads as text.
fn within(text: &str, min: f32, max: f32) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        _ => Err(format!("{text:?} is not a number within {min} .. {max}")),
    }
}

fn slope(text: &str) -> Result<f32, String> {
    within(text, 0.0, 100.0)
}

fn share(text: &str) -> Result<f32, String> {
    within(text, -100.0, 100.0)
}

/// A policy of the scheduler.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Policy {
    /// First come, first served
    Fcfs,
    /// Waiting requests first
    Wf,
    /// Swapped (rotated-out) requests first
    Sf,
    /// Largest virtual lag time first
    Lvf,
    /// Requests that can still meet their targets first
    Goodput,
}

impl Policy {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Policy::Fcfs => "fcfs",
            Policy::Wf => "wf",
            Policy::Sf => "sf",
            Policy::Lvf => "lvf",
            Policy::Goodput => "goodput",
        }
    }
}

/// What drives the device.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Host")]
pub(crate) struct HostArgs {
    /// Where the scheduler lives
    #[arg(long = "scheduler", value_enum, default_value = "device")]
    pub place: Place,
    /// With --scheduler host: CPU time of the host on the path of each step, microseconds
    #[arg(long, value_name = "US", default_value_t = 2500.0)]
    pub host_step_us: f64,
    /// With --scheduler host: the same for each sequence of a step
    #[arg(long, value_name = "US", default_value_t = 5.0)]
    pub host_seq_us: f64,
    /// With --scheduler host: share of the steps in which a neighbour holds the scheduler's core
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub host_stall_odds: f64,
    /// With --scheduler host: mean time for which the neighbour holds it, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    pub host_stall_ms: f64,
}

/// Where a scheduler lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Place {
    /// On the device: nothing of the host is on a step's path
    Device,
    /// On the host, with a round trip per step
    Host,
}

/// What is asked, and where the answer goes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Find the fewest devices, each with an even share of the requests, that carry the rate
    /// without a growing queue and reach --target
    #[arg(long)]
    pub find_devices: bool,
    /// Share of the requests that must meet both targets, for --find-devices
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    pub target: f64,
    /// Write the result as JSON; - is the standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with tables and plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// List the devices and models that have names, with their figures
    #[arg(long)]
    pub list: bool,
}

#[cfg(test)]
mod tests {
    use super::Rate;

    #[test]
    fn rates_may_be_multiples_of_the_capacity() {
        assert_eq!(Rate::parse("18").map(|r| r.rps(10.0)), Ok(18.0));
        assert_eq!(Rate::parse("1.5x").map(|r| r.rps(10.0)), Ok(15.0));
        for bad in ["", "x", "0", "-1", "nan", "inf", "2e6"] {
            assert!(Rate::parse(bad).is_err(), "{bad}");
        }
    }
}
