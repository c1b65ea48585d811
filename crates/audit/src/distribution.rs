//! The distribution of ratios, weighted by GPU time, in bounded memory.
//!
//! Allocations are small whole numbers, so a cluster has few distinct ratios, whatever the number
//! of jobs: each is kept with its weight, and percentiles are exact. Only where there are more
//! than [`MAX_EXACT`] of them (milli-core requests of many sizes) are they merged into ranges 1 %
//! wide, and percentiles then are within 0.5 %.

use std::collections::HashMap;

use crate::ratio::Ratio;

/// Distinct ratios that one distribution keeps apart.
pub const MAX_EXACT: usize = 2048;
/// Width of a range once ratios are merged.
const GAMMA: f64 = 1.01;
/// Hundredths of a percent.
const WHOLE: u128 = 10_000;

/// Weight by ratio.
#[derive(Debug, Clone)]
pub struct Distribution {
    weights: Weights,
    total: u128,
    jobs: u64,
}

#[derive(Debug, Clone)]
enum Weights {
    Exact(HashMap<Ratio, u128>),
    /// By range: number `n` holds ratios above `GAMMA^(n-1)`, to `GAMMA^n`; zero has its own.
    Merged {
        zero: u128,
        ranges: HashMap<i32, u128>,
    },
}

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution { weights: Weights::Exact(HashMap::new()), total: 0, jobs: 0 }
    }
}

impl Distribution {
    /// Adds a job's ratio with its weight in slice seconds.
    pub fn add(&mut self, ratio: Ratio, weight: u128) {
        self.total += weight;
        self.jobs += 1;
        match &mut self.weights {
            Weights::Exact(exact) => {
                *exact.entry(ratio).or_default() += weight;
                if exact.len() > MAX_EXACT {
                    self.merge();
                }
            }
            Weights::Merged { zero, ranges } => add_merged(zero, ranges, ratio, weight),
        }
    }

    fn merge(&mut self) {
        let Weights::Exact(exact) = &self.weights else { return };
        let (mut zero, mut ranges) = (0, HashMap::new());
        for (ratio, weight) in exact {
            add_merged(&mut zero, &mut ranges, *ratio, *weight);
        }
        self.weights = Weights::Merged { zero, ranges };
    }

    /// Slice seconds of all jobs.
    pub fn total(&self) -> u128 {
        self.total
    }

    /// Jobs that were added.
    pub fn jobs(&self) -> u64 {
        self.jobs
    }

    /// Whether percentiles are exact.
    pub fn is_exact(&self) -> bool {
        matches!(self.weights, Weights::Exact(_))
    }

    /// Ratios in ascending order, each with its weight.
    pub fn sorted(&self) -> Vec<(f64, u128)> {
        match &self.weights {
            Weights::Exact(exact) => {
                let mut all: Vec<(Ratio, u128)> = exact.iter().map(|(r, w)| (*r, *w)).collect();
                all.sort_unstable();
                all.into_iter().map(|(r, w)| (r.value(), w)).collect()
            }
            Weights::Merged { zero, ranges } => {
                let mut all: Vec<(i32, u128)> = ranges.iter().map(|(n, w)| (*n, *w)).collect();
                all.sort_unstable();
                let zero = (*zero > 0).then_some((0.0, *zero));
                zero.into_iter().chain(all.into_iter().map(|(n, w)| (middle(n), w))).collect()
            }
        }
    }

    /// The lowest ratio such that jobs with at most this ratio hold at least the share of the GPU
    /// time: `hundredths` of a percent (P50 is 5,000). None without jobs.
    pub fn percentiles<const N: usize>(&self, hundredths: [u32; N]) -> Option<[f64; N]> {
        let sorted = self.sorted();
        let last = sorted.last()?.0;
        Some(hundredths.map(|p| {
            let mut below = 0;
            let reached = sorted.iter().find(|(_, weight)| {
                below += weight;
                below * WHOLE >= self.total * u128::from(p)
            });
            reached.map_or(last, |(ratio, _)| *ratio)
        }))
    }
}

fn add_merged(zero: &mut u128, ranges: &mut HashMap<i32, u128>, ratio: Ratio, weight: u128) {
    let value = ratio.value();
    if value > 0.0 {
        // From a thousandth of a core on 10^6 GPUs to 10^6 cores on one: some 4,900 ranges at most.
        let range = (value.ln() / GAMMA.ln()).ceil() as i32;
        *ranges.entry(range).or_default() += weight;
    } else {
        *zero += weight;
    }
}

/// The value of a range that is wrong by the same share at both of its ends.
fn middle(range: i32) -> f64 {
    2.0 * GAMMA.powi(range) / (1.0 + GAMMA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_weighted() {
        let mut d = Distribution::default();
        d.add(Ratio::new(1_000, 4), 25);
        d.add(Ratio::new(2_000, 1), 50);
        d.add(Ratio::new(16_000, 1), 25);
        assert_eq!(
            d.percentiles([100, 2_500, 2_501, 7_500, 9_900]),
            Some([0.25, 0.25, 2.0, 2.0, 16.0])
        );
        assert_eq!(Distribution::default().percentiles([5_000]), None);
    }

    #[test]
    fn many_ratios_take_bounded_room_and_stay_within_half_a_percent() {
        let mut d = Distribution::default();
        let all: Vec<u64> = (0..200_000u64).map(|i| 10 + i * 37 % 1_000_003).collect();
        for millicores in &all {
            d.add(Ratio::new(*millicores, 1), 1);
        }
        assert!(!d.is_exact());
        assert!(d.sorted().len() < 5_000);
        let mut sorted = all;
        sorted.sort_unstable();
        for p in [100, 2_500, 5_000, 9_900] {
            let true_value = sorted[sorted.len() * p as usize / 10_000 - 1] as f64 / 1000.0;
            let [ours] = d.percentiles([p]).expect("there are jobs");
            assert!((ours / true_value - 1.0).abs() < 0.0051, "P{p}: {ours} against {true_value}");
        }
    }
}
