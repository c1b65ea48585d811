//! Flags of prefix KV in a store, of KV events for routers, and of the plane that serves both.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use saccade_chunk::Codec;
use saccade_events::EventsConfig;
use saccade_fetch::{FetchConfig, FetchMode};
use saccade_host::CpuSet;
use saccade_store::StoreUrl;

use super::groups::host_port;

/// Prefix KV in a store.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Prefix store")]
pub(crate) struct FetchArgs {
    /// Share prefix KV with other servers through a store: redis://HOST:PORT/DB, rediss://,
    /// s3://BUCKET/PREFIX?endpoint=..., file:///FOLDER or memory:. A password is better given as an
    /// environment variable [default: none]
    #[arg(long, value_name = "URL", env = "SACCADE_PREFIX_STORE", hide_env_values = true)]
    pub prefix_store: Option<StoreUrl>,
    /// How KV is coded on its way to the store: raw, lossless, bins-deflate, bins-zstd, bins-rans
    /// or cachegen; all but the first two change it a little
    #[arg(long, value_name = "NAME", default_value = "lossless", env = "SACCADE_PREFIX_CODEC")]
    pub prefix_codec: Codec,
    /// Cores of the fetch plane, as 0-3,6 [default: two workers on any]
    #[arg(long, value_name = "CORES", value_parser = CpuSet::from_flag, env = "SACCADE_FETCH_CORES")]
    pub fetch_cores: Option<CpuSet>,
    /// How chunks go through the fetch plane: pipelined; no-pipeline or no-memory-management to
    /// measure what those gain
    #[arg(long, value_name = "MODE", default_value = "pipelined", env = "SACCADE_FETCH_MODE")]
    pub fetch_mode: FetchMode,
    /// Bytes of all buffers of the fetch plane
    #[arg(long, value_name = "BYTES", default_value_t = FetchConfig::DEFAULT_BUFFER_BYTES, env = "SACCADE_FETCH_BUFFER_BYTES")]
    pub fetch_buffer_bytes: u64,
    /// Bytes of the memory in which chunks pass between the device and the fetch plane
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20, env = "SACCADE_FETCH_FRAME_BYTES")]
    pub fetch_frame_bytes: u64,
    /// Milliseconds that a store may cost a request, against computing its prompt
    #[arg(long, value_name = "MS", default_value_t = 100.0, value_parser = late_ms, env = "SACCADE_FETCH_LATE_MS")]
    pub fetch_late_ms: f64,
    /// Whose chunks are loaded first; synchronous runs no step beside a load, to measure what that
    /// costs
    #[arg(long, value_enum, default_value_t = FetchOrder::Shortest, env = "SACCADE_FETCH_ORDER")]
    pub fetch_order: FetchOrder,
    /// Load whatever the store has, also what is expected to be computed sooner: to measure
    #[arg(long, env = "SACCADE_FETCH_ALWAYS")]
    pub fetch_always: bool,
    /// Tell routers which blocks can be found, as vLLM does: a JSON object with
    /// enable_kv_cache_events, publisher (zmq or null), endpoint (without one only this machine can
    /// subscribe: tcp://127.0.0.1:5557), replay_endpoint, buffer_steps, hwm, max_queue_size and
    /// topic [default: off]
    #[arg(long, value_name = "JSON", value_parser = EventsConfig::parse, env = "SACCADE_KV_EVENTS_CONFIG")]
    pub kv_events_config: Option<EventsConfig>,
    /// Address at which a fetch plane on another host joins (`saccade fetch --ring
    /// tcp://HOST:PORT --prefix-store URL`) instead of one of this host; one that other hosts reach
    /// needs --ring-secret-file. The data that follows is not encrypted: keep it on a private
    /// network (docs/ring.md) [default: none]
    #[arg(long, value_name = "HOST:PORT", value_parser = host_port, env = "SACCADE_FETCH_LISTEN")]
    pub fetch_listen: Option<String>,
    /// Where the device plane puts the ring that it shares with the fetch plane
    #[arg(long, value_name = "FILE", env = "SACCADE_FETCH_RING", hide = true)]
    pub fetch_ring: Option<PathBuf>,
}

impl FetchArgs {
    /// How events are published, if they are.
    pub fn events(&self) -> Option<&EventsConfig> {
        self.kv_events_config.as_ref().filter(|events| events.is_on())
    }

    /// Whether chunks go to a store and come from one.
    #[cfg(feature = "device")]
    pub fn has_store(&self) -> bool {
        self.prefix_store.is_some() || self.fetch_listen.is_some()
    }

    /// Whether there is something to do for a fetch plane, here or on another host.
    #[cfg(feature = "device")]
    pub fn has_plane(&self) -> bool {
        self.has_store() || self.events().is_some()
    }
}

/// Whose chunks are loaded first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FetchOrder {
    /// Those of the prompt with the least left, and long ones after some patience
    Shortest,
    /// Those of the oldest request
    FirstCome,
    /// As first-come, and no step runs beside a load
    Synchronous,
}

/// More than 0, at most an hour.
fn late_ms(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ms) if ms > 0.0 && ms <= 3_600_000.0 => Ok(ms),
        _ => Err("must be a number within (0, 3600000]".into()),
    }
}
