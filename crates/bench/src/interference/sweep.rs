//! Which neighbours, with how many threads, where.

use anyhow::ensure;
use saccade_host::{CpuSet, Root};

use super::record::Condition;
use crate::neighbours::{Kind, Placement, QuotaGroup, Spec};

/// More conditions would take too long: a typo.
const MAX_CONDITIONS: usize = 1000;

/// The sweep: every neighbour with every number of threads at every placement.
#[derive(Debug, Clone, clap::Args)]
pub struct SweepFlags {
    /// Neighbour: cpu, memory-bandwidth[:SIZE], cache[:SIZE], tlb[:SIZE], fork, pbzip2, compile or
    /// cmd:COMMAND LINE, where {threads} is replaced by the number of threads; without {threads}
    /// that number of copies runs. Repeat the flag for several
    #[arg(long = "neighbour", value_name = "KIND", required = true)]
    pub neighbours: Vec<Kind>,
    /// Threads, jobs or copies of each neighbour [default: one per core]
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub neighbour_threads: Vec<usize>,
    /// Placement of the neighbours: anywhere, or cores=LIST, quota=CORES, nice=N, session=own,
    /// joined by colons. Repeat the flag for several
    #[arg(long = "placement", value_name = "WHERE", default_value = "anywhere")]
    pub placements: Vec<Placement>,
}

impl SweepFlags {
    /// Isolation first, then the sweep.
    ///
    /// # Errors
    /// No threads, cores that are not there, a quota that is not permitted: before anything runs.
    pub fn conditions(&self) -> anyhow::Result<Vec<Condition>> {
        let usable = CpuSet::of_task(0)?;
        let threads = match self.neighbour_threads.as_slice() {
            [] => vec![usable.len()],
            given => given.to_vec(),
        };
        ensure!(!threads.contains(&0), "--neighbour-threads: must be at least 1");
        for placement in &self.placements {
            check(placement)?;
        }
        let mut conditions = vec![Condition::isolation()];
        for kind in &self.neighbours {
            for &threads in &threads {
                for placement in &self.placements {
                    let (kind, placement) = (kind.clone(), placement.clone());
                    conditions.push(Condition::beside(Spec { kind, threads, placement }));
                }
            }
        }
        let count = conditions.len();
        ensure!(count <= MAX_CONDITIONS, "{count} conditions are more than {MAX_CONDITIONS}");
        for (i, condition) in conditions.iter().enumerate() {
            let twice = conditions[..i].iter().any(|other| other.name == condition.name);
            ensure!(!twice, "the condition {} was asked for twice", condition.name);
        }
        Ok(conditions)
    }
}

fn check(placement: &Placement) -> anyhow::Result<()> {
    if let Some(cores) = &placement.cores {
        let usable = cores.check_usable();
        usable.map_err(|e| anyhow::anyhow!("--placement {placement}: {e}"))?;
    }
    // Made and removed, to hear a refusal now, not an hour later.
    placement.quota_cores.map_or(Ok(()), |cores| {
        QuotaGroup::create(&Root::default(), cores)
            .map(drop)
            .map_err(|e| e.context(format!("--placement {placement}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(neighbours: &[&str], threads: &[usize], placements: &[&str]) -> SweepFlags {
        SweepFlags {
            neighbours: neighbours.iter().map(|n| n.parse().unwrap()).collect(),
            neighbour_threads: threads.to_vec(),
            placements: placements.iter().map(|p| p.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn isolation_comes_first_and_the_rest_is_a_product() {
        let conditions = flags(&["cpu", "fork"], &[1, 2], &["anywhere", "nice=5"]).conditions();
        let names: Vec<String> = conditions.unwrap().into_iter().map(|c| c.name).collect();
        assert_eq!(names.len(), 1 + 2 * 2 * 2);
        assert_eq!(names[..3], ["isolation", "cpu x1", "cpu x1 nice=5"]);
        assert_eq!(names[8], "fork x2 nice=5");
    }

    #[test]
    fn slips_are_refused() {
        for wrong in [
            flags(&["cpu"], &[0], &["anywhere"]),
            flags(&["cpu", "cpu"], &[1], &["anywhere"]),
            flags(&["cpu"], &[1], &["cores=8191"]),
        ] {
            assert!(wrong.conditions().is_err(), "{wrong:?}");
        }
    }
}
