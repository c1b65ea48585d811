//! How many cores are too few, and what running with them costs.

use crate::job::Job;

/// A bound on cores, relative to GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Fewer than one core per GPU process and one for the rest of the engine.
    BelowProcesses,
    /// Fewer than this many cores per GPU.
    BelowPerGpu(u64),
}

/// From the strictest on; a job below one is below those after it, except that one GPU needs two
/// cores by the first rule and by the second.
pub const RULES: [Rule; 4] =
    [Rule::BelowProcesses, Rule::BelowPerGpu(2), Rule::BelowPerGpu(4), Rule::BelowPerGpu(8)];

/// Cores per GPU below which "measurable slowdown" is at risk: the paper says 4 to 8 (§II-B).
pub const AT_RISK: u64 = 4;
/// Cores per GPU of the largest configurations that were measured.
pub const ABUNDANT: u64 = 8;

/// What was measured with this few cores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    /// In a few words: the factor of the time to first token, where published.
    pub short: &'static str,
    /// In a sentence.
    pub text: &'static str,
    /// Factor of the time to first token, lowest and highest; none where none was published.
    pub ttft: Option<(f64, f64)>,
    /// Where it was measured, and on what.
    pub source: &'static str,
}

impl Rule {
    /// A name for machines.
    pub fn key(self) -> String {
        match self {
            Rule::BelowProcesses => "below_gpus_plus_1".to_owned(),
            Rule::BelowPerGpu(n) => format!("below_{n}_per_gpu"),
        }
    }

    /// A name for people.
    pub fn title(self) -> String {
        match self {
            Rule::BelowProcesses => "fewer than #GPUs + 1 cores".to_owned(),
            Rule::BelowPerGpu(n) => format!("fewer than {n} cores per GPU"),
        }
    }

    /// Whether a job has fewer cores than the rule asks for.
    pub fn catches(self, job: &Job) -> bool {
        let cores = match self {
            Rule::BelowProcesses => job.count() + 1,
            Rule::BelowPerGpu(n) => job.count() * n,
        };
        job.millicores < cores * 1000
    }

    /// What was measured where a job has fewer cores than this and not fewer than the rule before
    /// asks for.
    pub fn expected(self) -> Expected {
        match self {
            Rule::BelowProcesses => Expected {
                text: "below the least that works: with #GPUs cores the engine ran \
                       'prohibitively slowly', with one more requests timed out",
                short: "prohibitively slow",
                ttft: None,
                source: "Chung et al. 2026 (arXiv 2603.22774), §IV-B",
            },
            Rule::BelowPerGpu(2) => Expected {
                text: "with #GPUs + 1 cores time to first token was 1.36 to 5.40 times as long as \
                       with enough, or requests timed out",
                short: "1.36 to 5.40, or timed out",
                ttft: Some((1.36, 5.40)),
                source: "Chung et al. 2026 (arXiv 2603.22774), §IV-B, figures 7 to 9",
            },
            Rule::BelowPerGpu(4) => Expected {
                text: "measurable slow-down; between 1 and the factors of fewer cores",
                short: "1 to 5.40",
                ttft: Some((1.0, 5.40)),
                source: "Chung et al. 2026 (arXiv 2603.22774), §II-B and §IV-B, figures 7 and 8",
            },
            Rule::BelowPerGpu(_) => Expected {
                text: "slow-down possible under heavy load",
                short: "not published",
                ttft: None,
                source: "Chung et al. 2026 (arXiv 2603.22774), §II-B",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Devices;

    #[test]
    fn the_bounds_are_not_below_themselves() {
        let caught = |millicores: u64, gpus: u64| {
            let devices = vec![Devices::new("h100", gpus)];
            let job = Job { millicores, devices, seconds: 1, place: String::new() };
            RULES.map(|rule| rule.catches(&job))
        };
        assert_eq!(caught(5_000, 4), [false, true, true, true]);
        assert_eq!(caught(4_999, 4), [true, true, true, true]);
        assert_eq!(caught(8_000, 4), [false, false, true, true]);
        assert_eq!(caught(32_000, 4), [false; 4]);
        assert_eq!(caught(2_000, 1), [false, false, true, true]);
        assert_eq!(caught(1_999, 1), [true, true, true, true]);
    }
}
