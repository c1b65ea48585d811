//! Retention and inflation: a condition relative to isolation, paired by repeat. Retention is of
//! the rates that a server kept up with: longer latencies alone do not count as lost throughput.

use saccade_load::Summary;
use serde::{Deserialize, Serialize};

/// A quotient over the repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median over the repeats.
    pub median: f64,
    /// Least of them.
    pub min: f64,
    /// Greatest of them.
    pub max: f64,
    /// One for each repeat in which both could be measured.
    pub values: Vec<f64>,
    /// Whether some requests next to the neighbour were cut while they waited: the true value is
    /// at least this one.
    pub at_least: bool,
}

impl Ratio {
    /// Of pairs (beside, isolated); pairs without a quotient are left out. None: no pair has one.
    #[must_use]
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64)>, at_least: bool) -> Option<Ratio> {
        let quotient = |(beside, isolated): (f64, f64)| {
            (isolated > 0.0 && beside >= 0.0 && beside.is_finite()).then(|| beside / isolated)
        };
        let values: Vec<f64> =
            pairs.into_iter().filter_map(quotient).filter(|q| q.is_finite()).collect();
        let median = median(&values)?;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Ratio { median, min, max, values, at_least })
    }
}

/// The middle value, or the mean of the two middle ones.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[n / 2]),
        n => Some(f64::midpoint(sorted[n / 2 - 1], sorted[n / 2])),
    }
}

/// One server under one condition against the same server in isolation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The server's name.
    pub server: String,
    /// The condition, as it prints.
    pub condition: String,
    /// Output tokens per second that the server kept up with
    /// ([`Summary::achieved_tokens_per_s`]), beside ÷ isolated.
    pub retention_tokens: Option<Ratio>,
    /// Answers per second that it kept up with ([`Summary::achieved_rps`]), beside ÷ isolated.
    pub retention_requests: Option<Ratio>,
    /// Time to the first token, median, beside ÷ isolated.
    pub inflation_ttft_p50: Option<Ratio>,
    /// Time to the first token, P99.
    pub inflation_ttft_p99: Option<Ratio>,
    /// Time per output token, median.
    pub inflation_tpot_p50: Option<Ratio>,
    /// Time per output token, P99.
    pub inflation_tpot_p99: Option<Ratio>,
    /// Cells (of both kinds) left out because the client itself was late.
    pub untrusted_cells: usize,
}

impl Comparison {
    /// Of pairs (beside, isolated), one for each repeat.
    #[must_use]
    pub fn of(
        server: &str,
        condition: &str,
        pairs: &[(&Summary, &Summary)],
        untrusted_cells: usize,
    ) -> Comparison {
        let rate = |of: fn(&Summary) -> f64| {
            Ratio::of(pairs.iter().map(|(beside, isolated)| (of(beside), of(isolated))), false)
        };
        let first_cut = |s: &Summary| s.from_intended.ttft_ms.censored > 0;
        let cut = |s: &Summary| s.from_intended.e2e_ms.censored > 0;
        Comparison {
            server: server.to_owned(),
            condition: condition.to_owned(),
            retention_tokens: rate(|s| s.achieved_tokens_per_s),
            retention_requests: rate(|s| s.achieved_rps),
            inflation_ttft_p50: latency(pairs, |s| s.from_intended.ttft_ms.p50, first_cut),
            inflation_ttft_p99: latency(pairs, |s| s.from_intended.ttft_ms.p99, first_cut),
            inflation_tpot_p50: latency(pairs, |s| s.tpot_ms.p50, cut),
            inflation_tpot_p99: latency(pairs, |s| s.tpot_ms.p99, cut),
            untrusted_cells,
        }
    }
}

fn latency(
    pairs: &[(&Summary, &Summary)],
    of: fn(&Summary) -> f64,
    is_cut: fn(&Summary) -> bool,
) -> Option<Ratio> {
    let at_least = pairs.iter().any(|(beside, _)| is_cut(beside));
    // Not-a-number of an empty sample: a pair without a quotient.
    Ratio::of(pairs.iter().map(|(beside, isolated)| (of(beside), of(isolated))), at_least)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        assert_eq!(Ratio::of([(1.0, 0.0), (f64::INFINITY, 1.0), (f64::NAN, 1.0)], false), None);
        let dead = Ratio::of([(0.0, 50.0)], false).unwrap();
        assert_eq!((dead.median, dead.values.len()), (0.0, 1));
    }

    /// The lower of the two throughputs, twice the TTFT, and TPOT samples that stayed empty.
    #[test]
    fn compares_what_was_measured() {
        let isolated = summary(100.0, 10.0, 5.0);
        let mut beside = summary(25.0, 20.0, f64::NAN);
        beside.from_intended.e2e_ms.censored = 1;
        let c = Comparison::of("s", "cpu x2", &[(&beside, &isolated)], 0);
        assert_eq!(c.retention_tokens.unwrap().median, 0.25);
        let ttft = c.inflation_ttft_p50.unwrap();
        assert_eq!((ttft.median, ttft.at_least), (2.0, false));
        assert_eq!(c.inflation_tpot_p50, None);
        beside.tpot_ms.p50 = 15.0;
        let c = Comparison::of("s", "cpu x2", &[(&beside, &isolated)], 0);
        let tpot = c.inflation_tpot_p50.unwrap();
        assert_eq!((tpot.median, tpot.at_least), (3.0, true));
    }

    fn summary(tokens_per_s: f64, ttft_ms: f64, tpot_ms: f64) -> Summary {
        let mut summary = crate::interference::tests::empty_summary();
        summary.achieved_tokens_per_s = tokens_per_s;
        summary.from_intended.ttft_ms.p50 = ttft_ms;
        summary.tpot_ms.p50 = tpot_ms;
        summary
    }

    proptest! {
        #[test]
        fn of_equal_things_it_is_one(values in prop::collection::vec(1e-3f64..1e6, 1..9)) {
            let ratio = Ratio::of(values.iter().map(|&v| (v, v)), false).unwrap();
            prop_assert_eq!((ratio.median, ratio.min, ratio.max), (1.0, 1.0, 1.0));
        }

        /// Scaling the neighboured side scales the result; order of repeats does not matter.
        #[test]
        fn scales_and_ignores_order(
            pairs in prop::collection::vec((1e-3f64..1e3, 1e-3f64..1e3), 1..9), by in 0.1f64..10.0,
        ) {
            let plain = Ratio::of(pairs.iter().copied(), false).unwrap();
            let scaled = Ratio::of(pairs.iter().map(|&(b, i)| (b * by, i)), false).unwrap();
            prop_assert!((scaled.median / plain.median / by - 1.0).abs() < 1e-9);
            prop_assert!(plain.min <= plain.median && plain.median <= plain.max);
            let reversed = Ratio::of(pairs.iter().rev().copied(), false).unwrap();
            prop_assert_eq!(reversed.median, plain.median);
        }
    }
}
