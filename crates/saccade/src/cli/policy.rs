//! Flags of the scheduling policy: which requests are on the device when KV memory is short.

use clap::{Args, ValueEnum};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyName {
    /// First come, first served
    Fcfs,
    /// Waiting requests first
    Wf,
    /// Rotated-out (swapped) requests first
    Sf,
    /// Largest virtual lag time first
    Lvf,
    /// Requests that can still meet their targets first; knows classes (`priority`)
    Goodput,
}

/// Bounds of numbers that clap reads as text.
fn within(text: &str, min: f32, max: f32) -> Result<f32, String> {
    let value: f32 = text.parse().map_err(|e| format!("{e}"))?;
    if (min..=max).contains(&value) { Ok(value) } else { Err(format!("outside {min} .. {max}")) }
}
fn slope(text: &str) -> Result<f32, String> {
    within(text, 0.0, 100.0)
}
fn share(text: &str) -> Result<f32, String> {
    within(text, -100.0, 100.0)
}

/// The scheduling policy; docs/policies.md says what each setting does.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Scheduling policy")]
pub(crate) struct PolicyArgs {
    /// Which requests come onto the device, and which leave it, when KV memory is short
    #[arg(long, value_enum, default_value_t = PolicyName::Goodput, env = "SACCADE_SCHEDULING_POLICY")]
    pub scheduling_policy: PolicyName,
    /// wf, lvf, goodput: KV blocks that requests on the device may give up per tick
    #[arg(long, value_name = "BLOCKS", default_value_t = 2400, env = "SACCADE_B_XFER_BLOCKS")]
    pub b_xfer_blocks: u32,
    /// lvf: how fast the lag of rotated-out requests grows, against that of waiting ones; 0 to 100
    #[arg(long, value_name = "SLOPE", default_value_t = 3.0, value_parser = slope, env = "SACCADE_VLT_ALPHA")]
    pub vlt_alpha: f32,
    /// lvf: share of its TTFT target that a request waits without lagging; -100 to 100
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = share, allow_hyphen_values = true, env = "SACCADE_VLT_BETA_F")]
    pub vlt_beta_f: f32,
    /// lvf: share of its TBT target that a request is rotated out without lagging; -100 to 100
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share, allow_hyphen_values = true, env = "SACCADE_VLT_BETA_B")]
    pub vlt_beta_b: f32,
    /// wf, lvf, goodput: milliseconds that a request runs before the policy may rotate it out
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u32).range(0..=3_600_000), env = "SACCADE_MIN_RUN_MS")]
    pub min_run_ms: u32,
    /// wf, sf, lvf: seconds of waiting after which a request comes in before all others
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400), env = "SACCADE_MAX_WAIT_S")]
    pub max_wait_s: u32,
    /// goodput: one in N of the KV blocks that come in goes to requests that are late already
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..), env = "SACCADE_LATE_SHARE")]
    pub late_share: u32,
}

impl PolicyArgs {
    /// Whether requests may name a class.
    pub fn has_classes(&self) -> bool {
        self.scheduling_policy == PolicyName::Goodput
    }
}
