//! What a plane is told at its start.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use saccade_chunk::Codec;
use saccade_host::CpuSet;
use saccade_ring::{RegionError, TransportError};

use crate::door::Door;

/// Workers where no cores were named.
const DEFAULT_CORES: usize = 2;

/// How chunks go through the stages. All but the first are there to measure what it gains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FetchMode {
    /// Stages overlap, and buffers are made once.
    #[default]
    Pipelined,
    /// One chunk at a time, and one stage after the other.
    NoPipeline,
    /// Stages overlap; buffers are made for each plane, which is copied once more.
    NoMemoryManagement,
}

impl FetchMode {
    /// All of them.
    pub const ALL: [FetchMode; 3] =
        [FetchMode::Pipelined, FetchMode::NoPipeline, FetchMode::NoMemoryManagement];

    /// As in `--fetch-mode`.
    pub const fn name(self) -> &'static str {
        match self {
            FetchMode::Pipelined => "pipelined",
            FetchMode::NoPipeline => "no-pipeline",
            FetchMode::NoMemoryManagement => "no-memory-management",
        }
    }
}

impl FromStr for FetchMode {
    type Err = String;

    fn from_str(name: &str) -> Result<FetchMode, String> {
        FetchMode::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| {
            let names: Vec<_> = FetchMode::ALL.iter().map(|mode| mode.name()).collect();
            format!("{name:?} is no mode; there are {}", names.join(", "))
        })
    }
}

/// Threads of each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    /// That move values from and to the store.
    pub network: usize,
    /// That check values and undo coders.
    pub coders: usize,
    /// That undo transforms and write frames. 0: one coder does that too.
    pub placers: usize,
    /// That read frames and code them, at low priority.
    pub encoders: usize,
}

/// A fetch plane.
#[derive(Debug, Clone)]
pub struct FetchConfig {
    /// Where the device puts its regions.
    pub door: Door,
    /// With which chunks are stored. Those that are loaded say theirs.
    pub codec: Codec,
    /// How chunks go through the stages.
    pub mode: FetchMode,
    /// Each thread runs on one of these. None: two workers run where the kernel puts them.
    pub cores: Option<CpuSet>,
    /// Threads of each stage. None: what was measured at the start decides.
    pub threads: Option<Threads>,
    /// Of all buffers.
    pub buffer_bytes: u64,
    /// No command gets more time than this, whatever budget it has.
    pub max_budget: Duration,
    /// STORE commands that are on their way; more are dropped.
    pub max_stores: usize,
    /// Whether chunks are to be stored.
    pub stores: bool,
    /// Of the store that [`run`](crate::run) opens.
    pub store_limits: saccade_store::Limits,
}

impl FetchConfig {
    /// Buffers where no size is named.
    pub const DEFAULT_BUFFER_BYTES: u64 = 512 << 20;
    /// Time of a command where none is named.
    pub const DEFAULT_MAX_BUDGET: Duration = Duration::from_secs(30);
    /// STORE commands on their way where no number is named.
    pub const DEFAULT_MAX_STORES: usize = 64;

    /// A plane for the regions at a path.
    pub fn new(path: impl Into<PathBuf>, codec: Codec) -> FetchConfig {
        FetchConfig::at(Door::File(path.into()), codec)
    }

    /// A plane for the regions that are found there.
    pub fn at(door: Door, codec: Codec) -> FetchConfig {
        FetchConfig {
            door,
            codec,
            mode: FetchMode::default(),
            cores: None,
            threads: None,
            buffer_bytes: FetchConfig::DEFAULT_BUFFER_BYTES,
            max_budget: FetchConfig::DEFAULT_MAX_BUDGET,
            max_stores: FetchConfig::DEFAULT_MAX_STORES,
            stores: true,
            store_limits: saccade_store::Limits::default(),
        }
    }

    /// Cores to divide among the stages; at least 1.
    pub(crate) fn num_cores(&self) -> usize {
        self.cores.as_ref().map_or(DEFAULT_CORES, CpuSet::len).max(1)
    }
}

/// Why a plane ended.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The buffers would hold less than two chunks on their way.
    #[error("--fetch-buffer-bytes is {given}, must be at least {least} for chunks of this model")]
    Buffers {
        /// Bytes that were allowed.
        given: u64,
        /// Bytes of the smallest set of buffers.
        least: u64,
    },
    /// The store's URL cannot be used.
    #[error(transparent)]
    Store(#[from] saccade_store::OpenError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// A worker has ended, which only a fault in this program explains.
    #[error("a worker of the fetch plane has failed")]
    Worker,
    /// The region is not what it was.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// As of `Region`.
    #[error(transparent)]
    Transport(#[from] TransportError),
}
