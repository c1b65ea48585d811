//! The record: one JSON object with a versioned schema.

use saccade_host::Footprint;
use saccade_load::{ClientHealth, Summary};
use serde::{Deserialize, Serialize};

use crate::attackers::{Chosen, Seen};
use crate::interference::{Client, Machine, ServerRecord};

/// The schema that is written, and all that are read.
pub const SCHEMAS: [&str; 1] = ["saccade.bench-attackers.v1"];

/// Victims over one time, with or without attackers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Window {
    /// Wall time of the start, seconds since 1970.
    pub started_unix_s: f64,
    /// The victims' figures; none where the server could not be asked at all.
    pub victims: Option<Summary>,
    /// The victims' client.
    pub client: Option<ClientHealth>,
    /// Why the window is untrustworthy and left out of the results; empty if it can be trusted.
    pub distrust: Vec<String>,
    /// Most memory and descriptors of the server's processes, each at its own moment; none if its
    /// processes are not known.
    pub footprint: Option<Footprint>,
    /// What the attackers saw; none without attackers.
    pub attackers: Option<Seen>,
    /// Seconds until the server was quiet again; none: not within the limit, or not tried.
    pub drained_s: Option<f64>,
    /// How the server ended, where it did.
    pub server_ended: Option<String>,
    /// Why it could not be measured: such a window does not count.
    pub error: Option<String>,
}

impl Window {
    pub(super) fn at(started_unix_s: f64) -> Window {
        Window {
            started_unix_s,
            victims: None,
            client: None,
            distrust: Vec::new(),
            footprint: None,
            attackers: None,
            drained_s: None,
            server_ended: None,
            error: None,
        }
    }

    /// The victims' figures, where they can be believed.
    pub fn trusted(&self) -> Option<&Summary> {
        self.victims.as_ref().filter(|_| self.distrust.is_empty() && self.error.is_none())
    }
}

/// The same victims without attackers, and then with them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pair {
    /// Place in the order of measurement, from 0.
    pub index: usize,
    /// Repeat, from 0.
    pub repeat: usize,
    /// Name of the server.
    pub server: String,
    /// Which attack.
    pub attack: Chosen,
    /// Without attackers, directly before.
    pub quiet: Window,
    /// With them.
    pub attacked: Window,
}

/// Victims as they were asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// Victims at one time: each sends its next request when its last is answered.
    pub victim_streams: usize,
    /// Tokens of a victim's prompt.
    pub victim_prompt_tokens: u32,
    /// Tokens of a victim's answer.
    pub victim_output_tokens: u32,
    /// Seconds of each window in which victims send requests.
    pub window_s: f64,
    /// Seconds from the first attacker to the first victim.
    pub lead_s: f64,
    /// Seconds after which a victim counts as timed out.
    pub timeout_s: f64,
    /// Longest wait until the server is quiet, seconds.
    pub drain_s: f64,
    /// How often each pair is measured.
    pub repeats: usize,
    /// Of prompts and of the order.
    pub seed: u64,
    /// Whether victims and attackers have different keys.
    pub separate_keys: bool,
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
    /// How the tool was called, without the bearer tokens.
    pub command: Vec<String>,
    /// Where.
    pub machine: Machine,
    /// The victims' client; attackers have its cores and the ordinary priority.
    pub client: Client,
    /// What was asked for.
    pub setup: Setup,
    /// The servers.
    pub servers: Vec<ServerRecord>,
    /// The attacks with their settings.
    pub attacks: Vec<Chosen>,
    /// In the order in which they were measured.
    pub pairs: Vec<Pair>,
    /// The results by server and attack; written again after each pair.
    pub cells: Vec<super::analysis::Cell>,
}
