//! Everything a plan found, as it stands in the JSON.

use std::time::Duration;

use saccade_device::sim::SimSample;
use serde::Serialize;

use crate::args::{Args, Place, Policy};
use crate::capacity::Capacity;
use crate::outcome::{Outcome, Slo};
use crate::simulate::{Cell, Machine};
use crate::workload::{LengthSource, length_source};

/// Of the JSON; changes with its fields.
const SCHEMA: &str = "saccade-plan/2";

/// A plan's inputs and outcomes.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Results {
    pub schema: &'static str,
    pub simulated: bool,
    pub version: &'static str,
    pub model: String,
    pub params: f64,
    pub device: &'static str,
    pub device_source: &'static str,
    pub kv_blocks: u32,
    pub kv_tokens: u64,
    pub host_blocks: u32,
    pub block_mib: f64,
    pub copies: String,
    pub scheduler: &'static str,
    pub slo: Slo,
    pub workload: LengthSource,
    pub duration_s: f64,
    pub burstiness: f64,
    pub seed: u64,
    /// Of the ring.
    pub slots: u32,
    /// Requests per second that a device can serve within the TBT target.
    pub capacity_rps: f64,
    /// How that was found.
    pub capacity: Capacity,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fleets: Vec<Fleet>,
}

impl Results {
    pub(crate) fn new(args: &Args, machine: &Machine, capacity: Capacity) -> Results {
        Results {
            schema: SCHEMA,
            simulated: true,
            version: env!("CARGO_PKG_VERSION"),
            model: machine.model_name.clone(),
            params: machine.shape.params(),
            device: machine.device.name,
            device_source: machine.device.source,
            kv_blocks: machine.num_blocks,
            kv_tokens: u64::from(machine.num_blocks) * u64::from(args.scheduler.block_size),
            host_blocks: machine.num_host_blocks,
            block_mib: machine.block_bytes / f64::from(1 << 20),
            copies: format!("{:?}", args.machine.copies).to_lowercase(),
            scheduler: match args.host.place {
                Place::Device => "device",
                Place::Host => "host",
            },
            slo: Slo { ttft_s: args.load.slo_ttft, tbt_s: args.load.slo_tbt },
            workload: length_source(&args.load),
            duration_s: args.load.duration,
            burstiness: args.load.burstiness,
            seed: args.load.seed,
            slots: args.scheduler.ring_slots,
            capacity_rps: capacity.rps,
            capacity,
            rows: Vec::new(),
            fleets: Vec::new(),
        }
    }
}

/// One rate with one policy on one device.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub rate_rps: f64,
    pub policy: Policy,
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Virtual seconds per second of CPU time here, statistics included.
    pub speedup: f64,
    #[serde(skip)]
    pub samples: Vec<SimSample>,
}

impl Row {
    pub(crate) fn new(rate_rps: f64, policy: Policy, cell: Cell, took: Duration) -> Row {
        let speedup = cell.outcome.simulated_s / took.as_secs_f64().max(1e-9);
        Row { rate_rps, policy, outcome: cell.outcome, speedup, samples: cell.samples }
    }
}

/// How many devices a load needs.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Fleet {
    pub rate_rps: f64,
    pub policy: Policy,
    /// The least number that meets the target; none up to the bound did.
    pub devices: Option<usize>,
    /// With that number, or with the greatest that was tried.
    pub outcome: Outcome,
    /// With one device less, if that was tried.
    pub one_less: Option<f64>,
}

impl Fleet {
    /// Doubles from `floor` until the target is met, then halves the interval.
    pub(crate) fn find(
        rate_rps: f64,
        policy: Policy,
        target: f64,
        floor: usize,
        bound: usize,
        try_with: impl Fn(usize) -> anyhow::Result<Outcome>,
    ) -> anyhow::Result<Fleet> {
        let met = |o: &Outcome| o.attainment.goodput >= target;
        let (mut below, mut at) = (floor.min(bound) - 1, floor.min(bound));
        let mut best = try_with(at)?;
        let mut one_less = None;
        while !met(&best) && at < bound {
            (below, one_less) = (at, Some(best.attainment.goodput));
            at = (at * 2).min(bound);
            best = try_with(at)?;
        }
        let found = met(&best);
        while found && at - below > 1 {
            let middle = below + (at - below) / 2;
            let outcome = try_with(middle)?;
            if met(&outcome) {
                (at, best) = (middle, outcome);
            } else {
                (below, one_less) = (middle, Some(outcome.attainment.goodput));
            }
        }
        // Known only if the interval closed on a number that was tried.
        let one_less = one_less.filter(|_| found && below > 0);
        Ok(Fleet { rate_rps, policy, devices: found.then_some(at), outcome: best, one_less })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Tally;

    fn outcome(goodput: f64) -> Outcome {
        let slo = Slo { ttft_s: 1.0, tbt_s: 1.0 };
        let mut outcome = Tally::default().outcome(slo, 1.0);
        outcome.attainment.goodput = goodput;
        outcome
    }

    fn find(needed: usize, floor: usize, bound: usize) -> Fleet {
        let try_with = |n: usize| Ok(outcome(if n >= needed { 1.0 } else { 0.5 }));
        Fleet::find(1.0, Policy::Fcfs, 0.95, floor, bound, try_with).expect("no error")
    }

    #[test]
    fn the_least_number_is_found_from_any_start() {
        for needed in 1..20 {
            for floor in 1..=needed {
                let fleet = find(needed, floor, 64);
                assert_eq!(fleet.devices, Some(needed), "needed {needed} from {floor}");
                if floor < needed {
                    assert_eq!(fleet.one_less, Some(0.5));
                }
            }
        }
    }

    #[test]
    fn beyond_the_bound_there_is_none() {
        let fleet = find(100, 3, 64);
        assert_eq!(fleet.devices, None);
        assert_eq!(fleet.outcome.attainment.goodput, 0.5);
    }
}
