//! The record: one JSON object with a versioned schema.

use saccade_load::{ClientHealth, LoadSpec, Summary};
use serde::{Deserialize, Serialize};

use super::client::Client;
use super::host_record::HostRecord;
use super::machine::Machine;
use super::ratio::Comparison;
use super::servers::ServerSpec;
use crate::neighbours::{Layout, Spec, Work};

/// The schema that is written, and all that are read. Version 1 compared rates that include the
/// drain, and untrustworthy cells; it had zeros for unknown figures.
pub const SCHEMAS: [&str; 2] = ["saccade.bench-interference.v2", "saccade.bench-interference.v1"];

/// What runs next to a server: nothing, or a neighbour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// As it prints.
    pub name: String,
    /// None: isolation.
    pub neighbour: Option<Spec>,
}

impl Condition {
    /// Nothing next to the server.
    #[must_use]
    pub fn isolation() -> Condition {
        Condition { name: "isolation".to_owned(), neighbour: None }
    }

    /// This neighbour next to the server.
    #[must_use]
    pub fn beside(neighbour: Spec) -> Condition {
        Condition { name: neighbour.to_string(), neighbour: Some(neighbour) }
    }
}

/// One server, one condition, once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// Place in the order of measurement, from 0.
    pub index: usize,
    /// Repeat, from 0.
    pub repeat: usize,
    /// Name of the server.
    pub server: String,
    /// Name of the condition.
    pub condition: String,
    /// Seed of prompts; arrivals have one for each repeat.
    pub seed: u64,
    /// Wall time of the start, seconds since 1970.
    pub started_unix_s: f64,
    /// The figures; none if the load could not be run.
    pub summary: Option<Summary>,
    /// The client's own lateness.
    pub client: Option<ClientHealth>,
    /// Why the cell is untrusted, and left out of comparisons and figures; empty if it is trusted.
    pub distrust: Vec<String>,
    /// What the host did to the server; none if its processes are not known or not here.
    pub host: Option<HostRecord>,
    /// What the neighbour got done meanwhile.
    pub work: Option<Work>,
    /// How the kernel shares the cores out between the two.
    pub layout: Layout,
    /// Servers that were stopped meanwhile (--pause-others).
    pub paused: Vec<String>,
    /// What the server refused; requests were sent without it.
    pub notes: Vec<String>,
    /// File with every request.
    pub raw: Option<String>,
    /// Why the cell failed: such a cell does not count.
    pub error: Option<String>,
}

/// A server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerRecord {
    /// Its label.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// The model that it was asked for.
    pub model: Option<String>,
    /// How it was started, if here.
    pub start: Option<String>,
    /// Cores that it was started on, if told.
    pub cores: Option<String>,
    /// Seconds from each start to the first answer.
    pub startup_s: Vec<f64>,
}

impl ServerRecord {
    /// What is known before it runs.
    #[must_use]
    pub fn of(spec: &ServerSpec) -> ServerRecord {
        ServerRecord {
            name: spec.target.name.clone(),
            url: spec.target.base_url.clone(),
            model: spec.target.model.clone(),
            start: spec.start.clone(),
            cores: spec.cores.as_ref().map(ToString::to_string),
            startup_s: Vec::new(),
        }
    }
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
    /// What was sent in each cell; prompts differ by cell, arrivals by repeat.
    pub load: LoadSpec,
    /// The client.
    pub client: Client,
    /// Whether servers were resident one after the other.
    pub in_turns: bool,
    /// Seconds between the start of a neighbour and the first request.
    pub settle_s: f64,
    /// The servers.
    pub servers: Vec<ServerRecord>,
    /// The conditions; the first is isolation.
    pub conditions: Vec<Condition>,
    /// In the order in which they were measured.
    pub cells: Vec<Cell>,
    /// Each server and neighbour against isolation; written at the end.
    pub comparisons: Vec<Comparison>,
}

impl Cell {
    /// It was measured, and its client was on time.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.error.is_none() && self.distrust.is_empty()
    }
}

impl Record {
    /// Cells of a server under a condition that were measured.
    pub fn measured<'a>(
        &'a self,
        server: &'a str,
        condition: &'a str,
    ) -> impl Iterator<Item = &'a Cell> {
        self.cells.iter().filter(move |cell| {
            cell.server == server && cell.condition == condition && cell.error.is_none()
        })
    }

    /// Whether it predates retention by what servers kept up with.
    #[must_use]
    pub fn is_version_1(&self) -> bool {
        self.schema != SCHEMAS[0]
    }

    /// Makes the comparisons from the cells that count.
    pub fn compare(&mut self) {
        let mut comparisons = Vec::new();
        let isolation = &self.conditions[0].name;
        for condition in &self.conditions[1..] {
            for server in &self.servers {
                let isolated: Vec<&Cell> = self.measured(&server.name, isolation).collect();
                let beside: Vec<&Cell> = self.measured(&server.name, &condition.name).collect();
                let pairs: Vec<(&Summary, &Summary)> = beside
                    .iter()
                    .filter(|cell| cell.counts())
                    .filter_map(|cell| {
                        let pairs = |alone: &&&Cell| alone.repeat == cell.repeat && alone.counts();
                        let alone = isolated.iter().find(pairs)?;
                        Some((cell.summary.as_ref()?, alone.summary.as_ref()?))
                    })
                    .collect();
                let distrusted =
                    |cells: &[&Cell]| cells.iter().filter(|cell| !cell.counts()).count();
                let untrusted = distrusted(&isolated) + distrusted(&beside);
                comparisons.push(Comparison::of(&server.name, &condition.name, &pairs, untrusted));
            }
        }
        self.comparisons = comparisons;
    }
}
