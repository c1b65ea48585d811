//! The record: one JSON object with a versioned schema.

use std::collections::BTreeMap;

use saccade_host::Footprint;
use serde::{Deserialize, Serialize};

use crate::attackers::{Chosen, Seen};
use crate::interference::{Machine, ServerRecord};

/// The schema that is written, and all that are read.
pub const SCHEMAS: [&str; 1] = ["saccade.bench-soak.v1"];

/// How one request of a victim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With the answer that is known, token for token.
    Right,
    /// With an error event after a part of the known answer.
    ErrorEvent,
    /// With a status other than 2xx.
    Refused,
    /// No connection could be opened.
    NotConnected,
    /// Its connection broke, and the process that listened was killed meanwhile.
    BrokenByKill,
    /// Its connection broke, or its stream ended without a word, for no such reason.
    Unexplained,
    /// No end within the time-out.
    Hung,
    /// With tokens that the known answer does not have: wrong, lost, doubled, or another's.
    Wrong,
}

impl End {
    /// All, from best to worst.
    pub const ALL: [End; 8] = [
        End::Right,
        End::ErrorEvent,
        End::Refused,
        End::NotConnected,
        End::BrokenByKill,
        End::Unexplained,
        End::Hung,
        End::Wrong,
    ];

    /// Whether no request may end so, whatever is killed.
    #[must_use]
    pub fn is_fault(self) -> bool {
        matches!(self, End::Unexplained | End::Hung | End::Wrong)
    }

    /// For people.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            End::Right => "right",
            End::ErrorEvent => "ended by an error event",
            End::Refused => "refused by a status",
            End::NotConnected => "not connected",
            End::BrokenByKill => "broken by a kill",
            End::Unexplained => "broken without a reason",
            End::Hung => "without an end",
            End::Wrong => "wrong tokens",
        }
    }
}

/// A request that ended as none may.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fault {
    /// Seconds from the start of the soak to the request, and to its end.
    pub from_to_s: (f64, f64),
    /// How it ended.
    pub end: End,
    /// Which question, from 0.
    pub question: usize,
    /// What was different, or what broke.
    pub words: String,
}

/// A signal to a plane.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kill {
    /// Seconds from the start of the soak.
    pub at_s: f64,
    /// Which plane.
    pub plane: String,
    /// Its process.
    pub pid: u32,
    /// `SIGKILL` or `SIGSTOP`.
    pub signal: String,
    /// Whether it held the socket that clients connect to.
    pub listened: bool,
    /// Seconds until a right answer to a request that was sent after the signal; none: not before
    /// the end.
    pub recovered_s: Option<f64>,
}

/// Attackers at work.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bout {
    /// Seconds from the start of the soak, from and to.
    pub from_to_s: (f64, f64),
    /// Which attack.
    pub attack: Chosen,
    /// What they saw.
    pub seen: Option<Seen>,
    /// Why they saw nothing.
    pub error: Option<String>,
}

/// What the planes held at one moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds from the start of the soak.
    pub at_s: f64,
    /// By plane: the second word of its command line, or `server`.
    pub planes: BTreeMap<String, Footprint>,
}

/// What was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// Length, seconds.
    pub duration_s: f64,
    /// Victims at one time.
    pub victim_streams: usize,
    /// Questions whose answers are known.
    pub questions: usize,
    /// How answers are compared: `token ids`, `tokens` or `text`.
    pub compared_by: String,
    /// Seconds after which a victim counts as hung.
    pub timeout_s: f64,
    /// Planes that are killed.
    pub kill: Vec<String>,
    /// Mean seconds between two kills.
    pub kill_every_s: f64,
    /// Signals that are sent.
    pub signals: Vec<String>,
    /// Seconds for which a plane is stopped.
    pub stop_for_s: f64,
    /// Seconds of each attack, and of the rest after it.
    pub attack_rest_s: (f64, f64),
    /// Seconds between two samples.
    pub sample_every_s: f64,
    /// Of everything that is drawn.
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
    /// How the tool was called, without bearer tokens.
    pub command: Vec<String>,
    /// Where.
    pub machine: Machine,
    /// The server.
    pub server: ServerRecord,
    /// What was asked for.
    pub setup: Setup,
    /// The attacks with their settings.
    pub attacks: Vec<Chosen>,
    /// Seconds that it lasted, without the questions before and after.
    pub lasted_s: f64,
    /// Requests of victims by their end.
    pub ends: BTreeMap<End, u64>,
    /// Why requests that may end so were not answered, and how many of each kind.
    pub reasons: BTreeMap<String, u64>,
    /// Tokens of right answers.
    pub right_tokens: u64,
    /// Right answers in each sample's time.
    pub right_by_sample: Vec<u64>,
    /// The first requests that ended as none may.
    pub faults: Vec<Fault>,
    /// The signals.
    pub kills: Vec<Kill>,
    /// The attacks in their order.
    pub bouts: Vec<Bout>,
    /// Before victims and attackers came.
    pub at_rest_before: Sample,
    /// After they had gone and the server was quiet.
    pub at_rest_after: Sample,
    /// Meanwhile.
    pub samples: Vec<Sample>,
    /// Whether every question was answered rightly at the end; else why not.
    pub last_check: Option<String>,
    /// How the server ended, where it did.
    pub server_ended: Option<String>,
}

impl Record {
    /// Requests that ended as none may.
    #[must_use]
    pub fn fault_count(&self) -> u64 {
        self.ends.iter().filter(|(end, _)| end.is_fault()).map(|(_, count)| count).sum()
    }

    /// Whether nothing happened that must not.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.fault_count() == 0 && self.last_check.is_none() && self.server_ended.is_none()
    }
}
