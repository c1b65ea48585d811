//! Flags of `saccade plan`.

use std::path::PathBuf;

/// Flags of `saccade plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
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

/// The model and what it runs on.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Machine")]
pub(crate) struct MachineArgs {
    /// Model: a name of --list, or a Hugging Face folder with config.json
    #[arg(long, value_name = "NAME|FOLDER", default_value = "Qwen2.5-32B")]
    pub model: String,
    /// Device: a name of --list
    #[arg(long, value_name = "NAME", default_value = "GH200")]
    pub device: String,
    /// Share of the device's memory for weights and KV
    #[arg(long, value_name = "SHARE", default_value_t = 0.9)]
    pub gpu_memory_utilization: f64,
    /// Bytes for KV blocks, also as 4G (GiB) or 4g (10^9) [default: what weights and activations
    /// leave of that share]
    #[arg(long, value_name = "BYTES", value_parser = saccade_model::byte_size)]
    pub kv_cache_memory_bytes: Option<u64>,
    /// GiB of host memory for KV blocks that are rotated out; 0 = none
    #[arg(long, value_name = "GIB", default_value_t = 0.0)]
    pub kv_offloading_size: f64,
    /// How blocks are copied between device and host memory
    #[arg(long, value_enum, default_value = "duplex")]
    pub copies: Copies,
    /// Elements of weights and KV, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 2.0)]
    pub dtype_bytes: f64,
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
    /// Requests per second, or multiples of the device's capacity as 1.15x; each is run by itself
    #[arg(long, value_name = "RPS", value_delimiter = ',', default_value = "5,10,13,15,18,20", value_parser = Rate::parse)]
    pub rate: Vec<Rate>,
    /// Seconds for which requests arrive; those in flight are then served to their end
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    pub duration: f64,
    /// Shape of the gamma distribution of gaps: 1 is Poisson, below is burstier
    #[arg(long, value_name = "SHAPE", default_value_t = 1.0)]
    pub burstiness: f64,
    /// Lengths of prompts and outputs
    #[arg(long, value_enum, default_value = "sharegpt")]
    pub workload: Workload,
    /// Mean prompt tokens, instead of the workload's
    #[arg(long, value_name = "TOKENS")]
    pub input_len: Option<f64>,
    /// Mean output tokens, instead of the workload's
    #[arg(long, value_name = "TOKENS")]
    pub output_len: Option<f64>,
    /// ShareGPT file to take lengths from
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Target of the time to first token: 5s, 200ms
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = seconds)]
    pub slo_ttft: f64,
    /// Target of the time between tokens: 100ms
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = seconds)]
    pub slo_tbt: f64,
    /// Of arrivals, lengths and the host's stalls
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
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
    /// Log-normal, 300 tokens in and 400 out in the mean
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
    /// Who gets memory first; several are run one by one
    #[arg(long, value_enum, value_delimiter = ',', default_value = "goodput")]
    pub policy: Vec<Policy>,
    /// Blocks that may change hands per step (not fcfs)
    #[arg(long, value_name = "BLOCKS", default_value_t = 2400)]
    pub b_xfer_blocks: u32,
    /// Slope of the lag of rotated-out requests (lvf), 0 to 100
    #[arg(long, value_name = "SLOPE", default_value_t = 3.0)]
    pub alpha: f32,
    /// Share of the TTFT target that a waiting request does not lag (lvf), -100 to 100
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, allow_hyphen_values = true)]
    pub beta_f: f32,
    /// Share of the TBT target that a rotated-out request does not lag (lvf), -100 to 100
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, allow_hyphen_values = true)]
    pub beta_b: f32,
    /// Requests computed together
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub max_num_seqs: u32,
    /// Tokens of one step
    #[arg(long, value_name = "TOKENS", default_value_t = 2048)]
    pub max_num_batched_tokens: u32,
    /// Tokens of a KV block
    #[arg(long, value_name = "TOKENS", default_value_t = 16)]
    pub block_size: u32,
    /// Slots of the ring: requests that are running or waiting; who finds none free is refused, as
    /// with a 429
    #[arg(long, value_name = "N", default_value_t = saccade_device::sim::SimRing::MAX_SLOTS)]
    pub ring_slots: u32,
}

/// A policy of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
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
    /// Whoever can still meet its targets first
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

/// Who drives the device.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Host")]
pub(crate) struct HostArgs {
    /// Where the scheduler lives
    #[arg(long = "scheduler", value_enum, default_value = "device")]
    pub place: Place,
    /// With --scheduler host: time on the path of each step
    #[arg(long, value_name = "US", default_value_t = 2500.0)]
    pub host_step_us: f64,
    /// With --scheduler host: time per sequence of a step
    #[arg(long, value_name = "US", default_value_t = 5.0)]
    pub host_seq_us: f64,
    /// With --scheduler host: share of the steps for which a neighbour has the thread's core
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub host_stall_odds: f64,
    /// With --scheduler host: mean time for which it has it
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

/// What is written where.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// How many devices, each with an even share of the requests, meet the target?
    #[arg(long)]
    pub find_devices: bool,
    /// Goodput attainment that --find-devices asks for
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    pub target: f64,
    /// File for everything as JSON; - is the standard output
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// File for a page with tables and plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// List devices and models that have names, and their figures
    #[arg(long)]
    pub list: bool,
}

/// A time in seconds: `5s`, `100ms`, `2.5`.
fn seconds(text: &str) -> Result<f64, String> {
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (_, Some(number)) => (number, 1.0),
        _ => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(value) if value * unit > 0.0 && value * unit <= 86_400.0 => Ok(value * unit),
        _ => Err(format!("{text:?} is not a time above 0 and up to a day, as 5s or 100ms")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Rate, seconds};

    #[test]
    fn rates_may_be_multiples_of_the_capacity() {
        assert_eq!(Rate::parse("18").map(|r| r.rps(10.0)), Ok(18.0));
        assert_eq!(Rate::parse("1.5x").map(|r| r.rps(10.0)), Ok(15.0));
        for bad in ["", "x", "0", "-1", "nan", "inf", "2e6"] {
            assert!(Rate::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(seconds("5s"), Ok(5.0));
        assert_eq!(seconds("100ms"), Ok(0.1));
        assert_eq!(seconds("2.5"), Ok(2.5));
        for bad in ["", "0", "-1s", "1h", "nan", "inf"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
