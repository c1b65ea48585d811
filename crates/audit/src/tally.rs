//! Sums over all jobs, in bounded memory.

use std::collections::{BTreeMap, HashMap};

use crate::distribution::Distribution;
use crate::job::{Job, Reject, Row, Skip};
use crate::ratio::Ratio;
use crate::rule::{ABUNDANT, AT_RISK, RULES};

/// Most GPU types that are told apart.
const MAX_MODELS: usize = 256;
/// Most partitions or namespaces that are told apart.
const MAX_PLACES: usize = 512;
/// The name of the rest.
pub const OTHERS: &str = "(others)";

/// Jobs of one type or place.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Ratios of all jobs.
    pub distribution: Distribution,
    /// Slice seconds of jobs that each of [`RULES`] catches.
    pub below: [u128; RULES.len()],
}

impl Group {
    fn add(&mut self, ratio: Ratio, weight: u128, caught: [bool; RULES.len()]) {
        self.distribution.add(ratio, weight);
        for (sum, caught) in self.below.iter_mut().zip(caught) {
            *sum += if caught { weight } else { 0 };
        }
    }
}

/// Everything counted so far.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// All jobs.
    pub overall: Group,
    /// By GPU type.
    pub models: HashMap<String, Group>,
    /// By partition or namespace.
    pub places: HashMap<String, Group>,
    /// Rows read.
    pub rows: u64,
    /// Rows left out, as they should be.
    pub skipped: BTreeMap<Skip, u64>,
    /// Rows that could not be read.
    pub rejected: BTreeMap<Reject, u64>,
    /// Thousandths of core seconds that jobs lack to have [`AT_RISK`] and [`ABUNDANT`] cores per
    /// GPU.
    pub missing: [u128; 2],
    /// Jobs on parts of GPUs.
    pub partitioned: u64,
    /// Jobs without any core of their own.
    pub coreless: u64,
}

impl Tally {
    /// Counts one row.
    pub fn add(&mut self, row: Row) {
        self.rows += 1;
        match row {
            Row::Skip(skip) => *self.skipped.entry(skip).or_default() += 1,
            Row::Reject(reject) => *self.rejected.entry(reject).or_default() += 1,
            Row::Job(job) => self.add_job(&job),
        }
    }

    fn add_job(&mut self, job: &Job) {
        let ratio = Ratio::new(job.millicores, job.count());
        let caught = RULES.map(|rule| rule.catches(job));
        let seconds = u128::from(job.seconds);
        let weight = |d: &crate::job::Devices| u128::from(d.count * d.slices) * seconds;
        let total: u128 = job.devices.iter().map(weight).sum();
        self.overall.add(ratio, total, caught);
        group(&mut self.places, &job.place, MAX_PLACES).add(ratio, total, caught);
        // A job on GPUs of several types counts for each with its share of them.
        for devices in &job.devices {
            let group = group(&mut self.models, &devices.model, MAX_MODELS);
            group.add(ratio, weight(devices), caught);
        }
        for (sum, cores) in self.missing.iter_mut().zip([AT_RISK, ABUNDANT]) {
            let lacking = (job.count() * cores * 1000).saturating_sub(job.millicores);
            *sum += u128::from(lacking) * seconds;
        }
        let is_part = |d: &crate::job::Devices| d.slices != crate::job::SLICES;
        self.partitioned += u64::from(job.devices.iter().any(is_part));
        self.coreless += u64::from(job.millicores == 0);
    }
}

fn group<'a>(groups: &'a mut HashMap<String, Group>, name: &str, most: usize) -> &'a mut Group {
    let known = groups.contains_key(name) || groups.len() < most;
    let name = if known { name } else { OTHERS };
    groups.entry(name.to_owned()).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Devices;

    #[test]
    fn endless_names_take_bounded_room() {
        let mut tally = Tally::default();
        for i in 0..5_000 {
            let devices = vec![Devices::new(&format!("gpu{i}"), 1)];
            let place = format!("user-{i}");
            tally.add(Row::Job(Job { millicores: 1000, devices, seconds: 1, place }));
        }
        assert_eq!((tally.models.len(), tally.places.len()), (MAX_MODELS + 1, MAX_PLACES + 1));
        assert_eq!(tally.models[OTHERS].distribution.jobs(), 5_000 - MAX_MODELS as u64);
        assert_eq!(tally.overall.distribution.jobs(), 5_000);
    }

    #[test]
    fn a_job_on_two_types_counts_for_each_with_its_share() {
        let mut tally = Tally::default();
        let devices = vec![Devices::new("a100", 1), Devices::new("h100", 3)];
        let place = "gpu".to_owned();
        tally.add(Row::Job(Job { millicores: 4_000, devices, seconds: 10, place }));
        assert_eq!(tally.models["h100"].distribution.total(), 3 * 7 * 10);
        assert_eq!(tally.overall.distribution.total(), 4 * 7 * 10);
        // 4 GPUs want 16 cores at 4 each; 12 are missing for 10 s.
        assert_eq!(tally.missing[0], 12_000 * 10);
    }
}
