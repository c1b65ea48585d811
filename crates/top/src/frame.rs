//! What is shown, as plain data: the view draws it, `--json` prints it. `null` is what the server
//! does not tell, or what nothing happened for.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::histogram::Quantile;

/// One view of a server.
#[derive(Debug, Clone, Serialize)]
pub struct Frame {
    /// Version of this object; raised when a field changes its meaning or goes.
    pub schema: u32,
    /// What is watched.
    pub url: String,
    /// Whose metrics these are.
    pub kind: Kind,
    /// Models that are served.
    pub models: Vec<String>,
    /// The server's version.
    pub version: Option<String>,
    /// Whether it takes requests.
    pub ready: Option<bool>,
    /// Seconds that rates, percentiles and shares are taken over.
    pub window_s: f64,
    /// Processes that serve.
    pub planes: Vec<Plane>,
    /// Requests now, and how many end.
    pub requests: Requests,
    /// Ring slots by state.
    pub slots: BTreeMap<String, f64>,
    /// KV memory.
    pub kv: Kv,
    /// The fetch plane and its store; only where there is one.
    pub fetch: Option<Fetch>,
    /// Tokens per second.
    pub tokens: Tokens,
    /// Time to the first token, between tokens, and of whole requests.
    pub latency: Latencies,
    /// Share of what met its target.
    pub attainment: Attainment,
    /// What the host costs.
    pub host: Host,
    /// Series of KV tiers and of lag behind targets, by name and labels.
    pub others: BTreeMap<String, f64>,
    /// What this server does not tell.
    pub missing: Vec<&'static str>,
}

/// Whose metrics these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Ours.
    Saccade,
    /// vLLM's names only.
    Vllm,
    /// Neither: nothing can be shown.
    Unknown,
}

/// One plane.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plane {
    /// `frontend` or `device`.
    pub name: String,
    /// Its process, if it is one on the server's machine.
    pub pid: Option<u32>,
    /// Whether it serves.
    pub up: Option<bool>,
    /// Lives of it, this one included.
    pub lives: Option<u64>,
    /// Cores that its threads kept busy.
    pub cores_used: Option<f64>,
    /// Of the time in which its threads wanted a core, the share in which they had none, 0 .. 1.
    pub run_queue_share: Option<f64>,
    /// What its machine says of the process; only where that is this machine.
    pub local: Option<LocalFacts>,
}

/// What /proc says of a process.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LocalFacts {
    /// Cores that its threads may use, as `0-3,6`.
    pub cores: Option<String>,
    /// Threads.
    pub threads: usize,
    /// Nice value of its first thread.
    pub nice: Option<i32>,
    /// Share of the time since the last look in which its cgroup was throttled, 0 .. 1 and more.
    pub throttled_share: Option<f64>,
}

/// Requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Requests {
    /// That hold a seat.
    pub running: Option<f64>,
    /// That wait for a seat.
    pub waiting: Option<f64>,
    /// Running requests that are held.
    pub paused: Option<f64>,
    /// Whose reader is slow.
    pub stalled: Option<f64>,
    /// That are being answered over HTTP.
    pub in_flight: Option<f64>,
    /// Prompts that wait for a tokenizer thread.
    pub tokenizer_queue: Option<f64>,
    /// That ended well, per second.
    pub finished_per_s: Option<f64>,
    /// Preemptions in the window.
    pub preemptions: Option<f64>,
    /// Preemptions since the server's start.
    pub preemptions_total: Option<f64>,
}

/// KV memory.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Kv {
    /// Share in use, 0 .. 1.
    pub used_share: Option<f64>,
    /// Blocks.
    pub blocks: Option<u64>,
    /// Tokens of a block.
    pub block_size: Option<u64>,
    /// Bytes written per second, by source.
    pub bytes_per_s: BTreeMap<String, f64>,
    /// Of the prompt tokens looked up in a prefix cache, the share found, 0 .. 1.
    pub prefix_hit_share: Option<f64>,
}

/// The fetch plane and its store.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Fetch {
    /// Whether its heart beats.
    pub alive: Option<bool>,
    /// Whether the store is used.
    pub breaker: Option<Breaker>,
    /// Chunks that can be on their way at one time.
    pub frames: f64,
    /// Chunks on their way.
    pub frames_used: Option<f64>,
    /// Computed chunks that wait to be stored.
    pub stores_waiting: Option<f64>,
    /// Prompt tokens whose KV came from the store, per second.
    pub tokens_per_s: Option<f64>,
    /// Of the prompt tokens that the store was asked for, the share that came, 0 .. 1.
    pub hit_share: Option<f64>,
    /// Bytes that came, as the store keeps them, per second.
    pub loaded_bytes_per_s: Option<f64>,
    /// Bytes stored, per second.
    pub stored_bytes_per_s: Option<f64>,
    /// Loads in the window that ended, by result; results that did not occur are left out.
    pub loads: BTreeMap<String, f64>,
    /// Stores, likewise.
    pub stores: BTreeMap<String, f64>,
}

/// Whether a store is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Breaker {
    /// It is.
    Closed,
    /// It has failed, and rests.
    Open,
    /// It has rested, and is tried.
    Probing,
}

/// Tokens per second.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Tokens {
    /// Produced.
    pub generated_per_s: Option<f64>,
    /// Of prompts, computed.
    pub prompt_per_s: Option<f64>,
}

/// Percentiles of the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// Time to the first token.
    pub ttft: Option<Latency>,
    /// Time between two tokens.
    pub tbt: Option<Latency>,
    /// Whole requests.
    pub e2e: Option<Latency>,
}

/// One latency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Median.
    pub p50: Quantile,
    /// 90th percentile.
    pub p90: Quantile,
    /// 99th percentile.
    pub p99: Quantile,
    /// Samples in the window.
    pub count: f64,
}

/// Shares, 0 .. 1, of what met its target in the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Attainment {
    /// Target of the time to the first token that was given here, seconds.
    pub ttft_target_s: Option<f64>,
    /// First tokens within it; without a target of ours, requests within the server's.
    pub ttft: Option<f64>,
    /// Target of the time between tokens that was given here, seconds.
    pub tbt_target_s: Option<f64>,
    /// Gaps between tokens within it; without a target of ours, requests within the server's
    /// target of their mean time per token.
    pub tbt: Option<f64>,
}

/// What the host costs. Seconds per token are of the tokens produced in the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Host {
    /// The device stood idle for the host.
    pub device_wait_s_per_token: Option<f64>,
    /// Template and tokenizer.
    pub tokenize_s_per_token: Option<f64>,
    /// Tokens to text.
    pub detokenize_s_per_token: Option<f64>,
    /// Threads runnable without a core, by plane.
    pub run_queue_wait_s_per_token: BTreeMap<String, f64>,
    /// Share of the time in a step, 0 .. 1.
    pub step_share: Option<f64>,
    /// Share of the time without a step, for the host.
    pub host_wait_share: Option<f64>,
    /// Share of the time without a step, for slow readers.
    pub reader_wait_share: Option<f64>,
    /// Steps per second.
    pub steps_per_s: Option<f64>,
}
