//! The record: one JSON object with a versioned schema.

use saccade_host::CpuSet;
use saccade_load::{ClientHealth, Outcome, RequestRecord, Run};
use serde::{Deserialize, Serialize};

use super::budgets::Budget;
use crate::interference::{Client, HostRecord, Machine, ServerRecord};

/// The schema that is written, and all that are read. Version 1 counted untrustworthy series,
/// and had zeros for unknown figures.
pub const SCHEMAS: [&str; 2] = ["saccade.bench-attack.v2", "saccade.bench-attack.v1"];

/// The attackers' load: open loop, evenly spaced.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Attack {
    /// Requests per second.
    pub rate_rps: f64,
    /// Tokens requested for each prompt; the server's own count is in the series.
    pub prompt_tokens: u32,
}

/// One victim of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Victim {
    /// Place in the series, from 1.
    pub position: usize,
    /// Seconds to the first token; none if none came.
    pub ttft_s: Option<f64>,
    /// Seconds to the end, of the answer or of the waiting.
    pub e2e_s: f64,
    /// Prompt tokens by the server's count.
    pub prompt_tokens: Option<u32>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Victim {
    /// From a request of the load client.
    #[must_use]
    pub fn of(position: usize, request: &RequestRecord) -> Victim {
        Victim {
            position,
            ttft_s: request.ttft_s(),
            e2e_s: request.e2e_s(),
            prompt_tokens: request.prompt_tokens,
            outcome: request.outcome.clone(),
        }
    }

    /// No first token within the limit.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.ttft_s.is_none() && matches!(self.outcome, Outcome::Timeout | Outcome::Cut)
    }
}

/// What became of the attackers' requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttackSeen {
    /// Sent until the victims were through.
    pub sent: usize,
    /// Answered by then.
    pub answered: usize,
    /// Refused or broken by then.
    pub failed: usize,
    /// Prompt tokens by the server's count, median of those answered.
    pub prompt_tokens: Option<f64>,
    /// Their client.
    pub client: ClientHealth,
}

impl AttackSeen {
    /// From the attackers' run.
    #[must_use]
    pub fn of(run: Run) -> AttackSeen {
        let count =
            |is: fn(&Outcome) -> bool| run.requests.iter().filter(|r| is(&r.outcome)).count();
        let tokens: Vec<f64> =
            run.requests.iter().filter_map(|r| r.prompt_tokens).map(f64::from).collect();
        AttackSeen {
            sent: run.requests.len(),
            answered: count(|outcome| *outcome == Outcome::Ok),
            failed: count(|outcome| match outcome {
                Outcome::HttpStatus(_) | Outcome::Broken(_) | Outcome::ErrorEvent(_) => true,
                Outcome::Ok | Outcome::Timeout | Outcome::Cut => false,
            }),
            prompt_tokens: crate::interference::median(&tokens),
            client: run.client,
        }
    }
}

/// One series of victims.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Series {
    /// Place in the order of measurement, from 0.
    pub index: usize,
    /// Repeat, from 0.
    pub repeat: usize,
    /// Name of the server.
    pub server: String,
    /// Cores of the server.
    pub cores: usize,
    /// Cores of the client.
    pub client_cores: CpuSet,
    /// None: the baseline without attackers.
    pub attack: Option<Attack>,
    /// Wall time of the start, seconds since 1970.
    pub started_unix_s: f64,
    /// In order; the series ends with the first that times out.
    pub victims: Vec<Victim>,
    /// The attackers.
    pub attackers: Option<AttackSeen>,
    /// The victims' client.
    pub client: Option<ClientHealth>,
    /// Why the series is untrustworthy and left out of the results; empty if it can be trusted.
    pub distrust: Vec<String>,
    /// What the host did to the server; none if its processes are not known.
    pub host: Option<HostRecord>,
    /// Seconds until the server was quiet again; none: not within the limit.
    pub drained_s: Option<f64>,
    /// Why it failed: such a series does not count.
    pub error: Option<String>,
}

impl Series {
    /// Whether a victim got no first token in time.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.victims.iter().any(Victim::timed_out)
    }
}

/// Victims and attackers as they were asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// Victims of a series.
    pub victims: usize,
    /// Tokens of a victim's prompt.
    pub victim_prompt_tokens: u32,
    /// Tokens of a victim's answer.
    pub victim_output_tokens: u32,
    /// Tokens of an attacker's answer.
    pub attack_output_tokens: u32,
    /// Seconds from the first attacker to the first victim.
    pub lead_s: f64,
    /// Seconds after which a victim counts as timed out.
    pub timeout_s: f64,
    /// How often each series is measured.
    pub repeats: usize,
    /// Of prompts and of the order.
    pub seed: u64,
}

/// Everything.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The first of [`SCHEMAS`].
    pub schema: String,
    /// Version of the tool.
    pub version: String,
    /// Wall time of the start, seconds since 1970.
    pub started_unix_s: f64,
    /// How the tool was called, without the bearer token.
    pub command: Vec<String>,
    /// Where.
    pub machine: Machine,
    /// The client; on the cores that each series names.
    pub client: Client,
    /// What was asked for.
    pub setup: Setup,
    /// The servers; without `start`, a server was bound again for each budget, not restarted.
    pub servers: Vec<ServerRecord>,
    /// From least to most cores.
    pub budgets: Vec<Budget>,
    /// The attacks.
    pub attacks: Vec<Attack>,
    /// In the order in which they were measured.
    pub series: Vec<Series>,
    /// Victims' times by server, attack and cores; written at the end.
    pub cells: Vec<super::analysis::CellResult>,
    /// Best of the other budgets against the least one; written at the end.
    pub speedups: Vec<super::analysis::SpeedupResult>,
}

impl Record {
    /// Whether it was written when untrustworthy series still counted.
    #[must_use]
    pub fn is_version_1(&self) -> bool {
        self.schema != SCHEMAS[0]
    }
}
