//! Everything that a plan found. Its JSON holds all of it: the page is drawn from that alone.

use std::time::Duration;

use anyhow::Context;
use saccade_device::sim::SimSample;
use serde::{Deserialize, Serialize};

use crate::args::{Args, Place, Policy};
use crate::capacity::Capacity;
use crate::fleet::Fleet;
use crate::outcome::{Outcome, Slo, waiting};
use crate::simulate::{Cell, Machine};
use crate::workload::{LengthSource, Source};

/// Of the JSON; changes with its fields.
const SCHEMA: &str = "saccade-plan/4";

/// A plan's inputs and outcomes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Results {
    pub schema: String,
    pub simulated: bool,
    pub version: String,
    pub model: String,
    pub params: f64,
    pub device: String,
    pub device_source: String,
    pub kv_blocks: u32,
    pub kv_tokens: u64,
    pub host_blocks: u32,
    pub block_mib: f64,
    pub copies: String,
    pub scheduler: String,
    pub slo: Slo,
    pub workload: LengthSource,
    /// As asked for; none: all of a trace.
    pub duration_s: Option<f64>,
    /// None: of a trace.
    pub burstiness: Option<f64>,
    pub seed: u64,
    /// Of the ring.
    pub slots: u32,
    /// Prompts that begin alike share KV.
    pub prefix_caching: bool,
    /// Requests per second that a device can serve within the TBT target.
    pub capacity_rps: f64,
    /// How that was found.
    pub capacity: Capacity,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fleets: Vec<Fleet>,
}

impl Results {
    pub(crate) fn new(
        args: &Args,
        machine: &Machine,
        source: &Source<'_>,
        capacity: Capacity,
    ) -> Results {
        Results {
            schema: SCHEMA.into(),
            simulated: true,
            version: env!("CARGO_PKG_VERSION").into(),
            model: machine.model_name.clone(),
            params: machine.shape.params(),
            device: machine.device.name.into(),
            device_source: machine.device.source.into(),
            kv_blocks: machine.num_blocks,
            kv_tokens: machine.kv_tokens(args),
            host_blocks: machine.num_host_blocks,
            block_mib: machine.block_bytes / f64::from(1 << 20),
            copies: format!("{:?}", args.machine.copies).to_lowercase(),
            scheduler: match args.host.place {
                Place::Device => "device".into(),
                Place::Host => "host".into(),
            },
            slo: args.load.slo(),
            workload: source.lengths(),
            duration_s: args.load.duration,
            burstiness: source.trace.is_none().then_some(args.load.burstiness),
            seed: args.load.seed,
            slots: args.scheduler.ring_slots,
            prefix_caching: args.shares_prefixes(),
            capacity_rps: capacity.rps,
            capacity,
            rows: Vec::new(),
            fleets: Vec::new(),
        }
    }

    /// Adds rows. Only those at the highest rate keep their series: only they are drawn over time.
    pub(crate) fn add_rows(&mut self, rows: Vec<Row>) {
        self.rows = rows;
        let highest = self.highest_rate_rps();
        for row in self.rows.iter_mut().filter(|row| row.rate_rps < highest) {
            row.over_time = None;
        }
    }

    pub(crate) fn highest_rate_rps(&self) -> f64 {
        self.rows.iter().map(|row| row.rate_rps).fold(0.0, f64::max)
    }

    /// As `--json` writes them.
    ///
    /// # Errors
    /// None in practice: all fields have a JSON form.
    pub(crate) fn to_json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// From what `--json` wrote.
    ///
    /// # Errors
    /// It is not JSON, not of this schema, or a field is missing.
    pub(crate) fn from_json(json: &str) -> anyhow::Result<Results> {
        #[derive(Deserialize)]
        struct Head {
            schema: String,
        }
        let head: Head = serde_json::from_str(json).context("not a result of saccade plan")?;
        anyhow::ensure!(
            head.schema == SCHEMA,
            "schema is {:?}, and this version reads {SCHEMA:?}",
            head.schema
        );
        serde_json::from_str(json).with_context(|| format!("not a result of schema {SCHEMA:?}"))
    }
}

/// One rate with one policy on one device.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub rate_rps: f64,
    pub policy: Policy,
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Virtual seconds per second of CPU time here, statistics included.
    pub speedup: f64,
    /// Memory and queue; at the highest rate only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_time: Option<OverTime>,
}

impl Row {
    pub(crate) fn new(rate_rps: f64, policy: Policy, cell: Cell, took: Duration) -> Row {
        let speedup = cell.outcome.simulated_s / took.as_secs_f64().max(1e-9);
        let over_time = Some(OverTime::of(&cell.samples));
        Row { rate_rps, policy, outcome: cell.outcome, speedup, over_time }
    }
}

/// Samples of a run, at the times `at_s`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OverTime {
    pub at_s: Vec<f64>,
    pub blocks_used: Vec<u32>,
    pub waiting: Vec<u32>,
}

impl OverTime {
    fn of(samples: &[SimSample]) -> OverTime {
        OverTime {
            at_s: samples.iter().map(|s| s.at_ns as f64 * 1e-9).collect(),
            blocks_used: samples.iter().map(|s| s.blocks_used).collect(),
            waiting: samples.iter().map(waiting).collect(),
        }
    }

    /// Times with one of the series.
    pub(crate) fn points<'a>(&'a self, values: &'a [u32]) -> impl Iterator<Item = (f64, f64)> + 'a {
        self.at_s.iter().copied().zip(values.iter().map(|v| f64::from(*v)))
    }
}
