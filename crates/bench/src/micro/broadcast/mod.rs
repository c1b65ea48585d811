//! `saccade bench micro broadcast`: how long after a step may be decided the last of N ranks has
//! its batch, when one scheduler decides and broadcasts, and when every rank decides for itself.

#[cfg(feature = "device")]
pub(crate) mod board;
#[cfg(feature = "device")]
mod drive;
#[cfg(any(feature = "device", test))]
mod message;
#[cfg(any(feature = "device", test))]
mod protocol;
#[cfg(feature = "device")]
pub(crate) mod ranks;
#[cfg(feature = "device")]
mod regions;
mod report;
#[cfg(any(feature = "device", test))]
mod ring;

use std::time::Duration;

use anyhow::Context;
use saccade_host::CpuSet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::numbers::{self, within};
#[cfg(feature = "device")]
use crate::neighbours::{Kind, Neighbour, Placement, Spec};
#[cfg(feature = "device")]
use crate::output::counted;
pub(crate) use report::Report;
#[cfg(feature = "device")]
use report::Row;

/// Why there is nothing to measure.
pub(crate) const NO_DEVICE: &str = "broadcast: this build has no device plane, whose tick it \
     measures; build with the feature `device`";

/// Flags of `saccade bench micro broadcast`.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Numbers of ranks, as a list of numbers and ranges
    #[arg(long, default_value = "1-8", value_name = "LIST")]
    ranks: String,
    /// Numbers of CPU hogs beside them, as a list [default: 0, and one per core]
    #[arg(long, value_name = "LIST")]
    hogs: Option<String>,
    /// Measured steps for each design, number of ranks and number of hogs
    #[arg(long, default_value_t = 600, value_parser = within::<u32>(10..=20_000))]
    steps: u32,
    /// Rounds over which the steps are spread; each has all designs, so that drift affects all
    #[arg(long, default_value_t = 2, value_parser = within::<u32>(1..=100))]
    rounds: u32,
    /// Pause for the device's step in microseconds; nothing is computed in it
    #[arg(long, default_value_t = 500, value_parser = within::<u64>(0..=1_000_000))]
    step_us: u64,
    /// Sequences that run through all steps
    #[arg(long, default_value_t = 32, value_parser = within::<u32>(1..=1024))]
    batch: u32,
    /// New requests in each step, of one token
    #[arg(long, default_value_t = 1, value_parser = within::<u32>(0..=64))]
    arrivals: u32,
    /// Tokens of each prompt
    #[arg(long, default_value_t = 64, value_parser = within::<u32>(1..=1024))]
    prompt_len: u32,
    /// Bytes of a broadcast message, which holds one step's batch
    #[arg(long, default_value_t = 4096, value_parser = within::<u32>(64..=16_777_216))]
    message_bytes: u32,
    /// Chunks of the broadcast ring
    #[arg(long, default_value_t = 10, value_parser = within::<u32>(1..=1024))]
    chunks: u32,
    /// Milliseconds that a polling process yields before it sleeps 100 ms between looks
    #[arg(long, default_value_t = 10_000, value_parser = within::<u64>(0..=600_000))]
    busy_loop_ms: u64,
    /// Cores that all processes share, hogs too [default: the cores of this process]
    #[arg(long, value_name = "LIST", value_parser = CpuSet::from_flag)]
    cores: Option<CpuSet>,
    /// Longest wait of a process for another, in seconds
    #[arg(long, default_value_t = 30, value_parser = within::<u64>(1..=600))]
    limit_s: u64,
    /// Put every sample into the JSON
    #[arg(long)]
    samples: bool,
}

/// What runs, and how its processes wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Design {
    /// One scheduler broadcasts; processes poll and yield, as engines do.
    BroadcastPolling,
    /// The same, but processes that wait sleep in the kernel.
    BroadcastSleeping,
    /// Every rank ticks; processes poll and yield.
    ReplicatedPolling,
    /// Every rank ticks; processes that wait sleep in the kernel, as the device plane does.
    ReplicatedSleeping,
}

impl Design {
    pub(crate) const ALL: [Design; 4] = [
        Design::BroadcastPolling,
        Design::ReplicatedSleeping,
        Design::BroadcastSleeping,
        Design::ReplicatedPolling,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Design::BroadcastPolling => "broadcast, polling",
            Design::BroadcastSleeping => "broadcast, sleeping",
            Design::ReplicatedPolling => "replicated, polling",
            Design::ReplicatedSleeping => "replicated, sleeping",
        }
    }

    /// One process decides for all.
    pub(crate) fn broadcasts(self) -> bool {
        matches!(self, Design::BroadcastPolling | Design::BroadcastSleeping)
    }

    #[cfg(feature = "device")]
    fn wait(self, setup: &Setup) -> super::os::wait::Wait {
        use super::os::wait::Wait;
        match self {
            Design::BroadcastPolling | Design::ReplicatedPolling => {
                Wait::Yield { busy: setup.busy_loop, sleep: Duration::from_millis(100) }
            }
            Design::BroadcastSleeping | Design::ReplicatedSleeping => Wait::DEVICE_PLANE,
        }
    }
}

/// The flags, read and checked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub ranks: Vec<usize>,
    pub hogs: Vec<usize>,
    /// Of each round.
    pub steps: usize,
    pub rounds: usize,
    pub step_us: u64,
    pub batch: u32,
    pub arrivals: u32,
    pub prompt_len: u32,
    pub message_bytes: usize,
    pub chunks: usize,
    #[serde(serialize_with = "one_by_one", deserialize_with = "from_numbers")]
    pub cores: CpuSet,
    #[serde(skip)]
    pub busy_loop: Duration,
    #[serde(skip)]
    pub limit: Duration,
    #[serde(skip)]
    pub samples: bool,
}

impl Setup {
    fn of(args: &Args) -> anyhow::Result<Setup> {
        let cores = args.cores.clone().map_or_else(|| CpuSet::of_task(0), Ok);
        let cores = cores.context("read the cores of this process")?;
        cores.check_usable().map_err(|e| anyhow::anyhow!("--cores: {e}"))?;
        let hogs = match &args.hogs {
            Some(list) => numbers::list("--hogs", list, 0..=256)?,
            None => vec![0, cores.len()],
        };
        let message_bytes = args.message_bytes as usize;
        Ok(Setup {
            ranks: numbers::list("--ranks", &args.ranks, 1..=64)?,
            hogs,
            steps: args.steps.div_ceil(args.rounds) as usize,
            rounds: args.rounds as usize,
            step_us: args.step_us,
            batch: args.batch,
            arrivals: args.arrivals,
            prompt_len: args.prompt_len,
            message_bytes,
            chunks: args.chunks as usize,
            cores,
            busy_loop: Duration::from_millis(args.busy_loop_ms),
            limit: Duration::from_secs(args.limit_s),
            samples: args.samples,
        })
    }

    /// Sequences of every step.
    #[cfg(feature = "device")]
    fn num_seqs(&self) -> u32 {
        self.batch + self.arrivals
    }

    #[cfg(feature = "device")]
    fn max_model_len(&self, num_steps: usize) -> u32 {
        self.prompt_len + num_steps as u32 + 16
    }

    /// Longest message: what was asked for, or what the sequences need at least.
    #[cfg(feature = "device")]
    fn chunk_bytes(&self) -> usize {
        self.message_bytes.max(message::StepMessage::least_bytes(self.num_seqs() as usize))
    }
}

/// Cores as an array of numbers.
fn one_by_one<S: Serializer>(cores: &CpuSet, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(cores.iter())
}

fn from_numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<CpuSet, D::Error> {
    Ok(CpuSet::new(Vec::<u32>::deserialize(deserializer)?))
}

/// Runs it and returns what was measured.
///
/// # Errors
/// Of the flags, or of a process. Always in a build without the device plane, whose tick is what is
/// measured.
#[cfg(feature = "device")]
pub(crate) fn measure(args: &Args) -> anyhow::Result<Report> {
    let setup = Setup::of(args)?;
    let mut rows = Vec::new();
    for &num_ranks in &setup.ranks {
        for &num_hogs in &setup.hogs {
            rows.extend(measure_at(&setup, num_ranks, num_hogs)?);
        }
    }
    Ok(Report::new(setup, rows))
}

/// See the other one.
#[cfg(not(feature = "device"))]
pub(crate) fn measure(args: &Args) -> anyhow::Result<Report> {
    Setup::of(args)?;
    anyhow::bail!(NO_DEVICE)
}

/// Counting threads on the cores of the run; none for no threads.
#[cfg(feature = "device")]
fn start_hogs(threads: usize, cores: &CpuSet) -> anyhow::Result<Option<Neighbour>> {
    let placement = Placement { cores: Some(cores.clone()), ..Placement::default() };
    let spec = Spec { kind: Kind::Cpu, threads, placement };
    (threads > 0).then(|| Neighbour::start(&spec)).transpose()
}

/// All designs, interleaved by rounds.
#[cfg(feature = "device")]
fn measure_at(setup: &Setup, num_ranks: usize, num_hogs: usize) -> anyhow::Result<Vec<Row>> {
    let configuration = format!("{}, {}", counted(num_ranks, "rank"), counted(num_hogs, "hog"));
    eprintln!("broadcast: {configuration}");
    let _hogs = start_hogs(num_hogs, &setup.cores)?;
    let mut times = Design::ALL.map(|_| drive::Times::default());
    for _ in 0..setup.rounds {
        for (design, times) in Design::ALL.into_iter().zip(&mut times) {
            let context = || format!("{}, {configuration}", design.name());
            times.append(drive::run(setup, design, num_ranks).with_context(context)?);
        }
    }
    let rows = Design::ALL.into_iter().zip(times);
    Ok(rows.filter_map(|(design, t)| Row::of(setup, num_ranks, num_hogs, design, &t)).collect())
}
