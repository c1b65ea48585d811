//! How many cores a server gets, from least to most.

use anyhow::{bail, ensure};
use saccade_host::CpuSet;
use serde::{Deserialize, Serialize};

use crate::output::counted;

/// Cores per GPU of the study's four levels; the lowest is one core more than GPUs.
const PER_GPU: [usize; 3] = [2, 4, 8];

/// Numbers of cores to compare.
#[derive(Debug, Clone, clap::Args)]
#[group(required = false, multiple = false)]
pub struct BudgetFlags {
    /// Numbers of cores to give to the server
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub cores: Vec<usize>,
    /// Number of GPUs of the server: compares G+1, 2G, 4G and 8G cores, where there are enough
    #[arg(long, value_name = "G")]
    pub gpus: Option<usize>,
}

/// Cores for the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// How many cores.
    pub count: usize,
    /// Which cores.
    pub cores: CpuSet,
}

impl BudgetFlags {
    /// From least to most, out of these cores.
    ///
    /// # Errors
    /// Fewer than two different budgets fit.
    pub fn budgets(&self, out_of: &CpuSet) -> anyhow::Result<Vec<Budget>> {
        ensure!(
            self.gpus.is_some() || !self.cores.is_empty(),
            "give --cores or --gpus, or --attacks for attackers of other kinds"
        );
        let mut counts = match self.gpus {
            None => self.cores.clone(),
            Some(gpus) => levels(gpus, out_of.len())?,
        };
        counts.sort_unstable();
        counts.dedup();
        ensure!(counts.len() > 1, "--cores: give at least two numbers of cores to compare");
        let budget = |count| match out_of.first(count) {
            Some(cores) if count > 0 => Ok(Budget { count, cores }),
            _ => bail!("--cores: {count} must lie in 1..={}, cores {out_of}", out_of.len()),
        };
        counts.into_iter().map(budget).collect()
    }
}

fn levels(gpus: usize, available: usize) -> anyhow::Result<Vec<usize>> {
    ensure!((1..=1024).contains(&gpus), "--gpus: {gpus} is outside 1 .. 1024");
    let all = std::iter::once(gpus + 1).chain(PER_GPU.map(|per_gpu| per_gpu * gpus));
    let (fit, beyond): (Vec<usize>, Vec<usize>) = all.partition(|&count| count <= available);
    let distinct = fit.iter().collect::<std::collections::BTreeSet<_>>().len();
    ensure!(
        distinct > 1,
        "--gpus {gpus}: of its levels only {fit:?} fit into {}",
        counted(available, "core")
    );
    if !beyond.is_empty() {
        let there_are = counted(available, "core");
        eprintln!("--gpus {gpus}: levels {beyond:?} are left out: there are {there_are}");
    }
    Ok(fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(cores: &[usize], gpus: Option<usize>, available: &str) -> anyhow::Result<Vec<usize>> {
        let flags = BudgetFlags { cores: cores.to_vec(), gpus };
        let budgets = flags.budgets(&available.parse().unwrap())?;
        assert!(budgets.iter().all(|budget| budget.count == budget.cores.len()));
        Ok(budgets.iter().map(|budget| budget.count).collect())
    }

    #[test]
    fn levels_of_gpus() {
        assert_eq!(counts(&[], Some(4), "0-63").unwrap(), [5, 8, 16, 32]);
        assert_eq!(counts(&[], Some(4), "0-17").unwrap(), [5, 8, 16]);
        // 1 + 1 and 2 x 1 are one level.
        assert_eq!(counts(&[], Some(1), "0-63").unwrap(), [2, 4, 8]);
        assert!(counts(&[], Some(4), "0-6").is_err());
    }

    #[test]
    fn given_numbers() {
        assert_eq!(counts(&[2, 1, 2], None, "4-7").unwrap(), [1, 2]);
        for wrong in [&[1][..], &[1, 5], &[0, 1]] {
            assert!(counts(wrong, None, "4-7").is_err(), "{wrong:?}");
        }
    }
}
