//! What the page draws of a run's requests, thinned to what can be seen. It is a part of the
//! results, so that a page can be drawn from them again.

use saccade_load::{Outcome, RequestRecord};
use serde::{Deserialize, Serialize};

/// Points of one curve: more cannot be seen.
const MAX_POINTS: usize = 200;

/// Of one run; times to a thousandth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Plot {
    /// TTFT in ms at evenly spaced ranks, ascending; none for requests without an answer, which
    /// come last.
    ttft_ms: Vec<Option<f64>>,
    /// TPOT in ms at evenly spaced ranks, ascending.
    pub tpot_ms: Vec<f64>,
    /// Intended time in seconds and TTFT in ms of answered requests.
    pub timeline: Vec<(f64, f64)>,
    /// Intended times of requests without an answer, seconds.
    pub failed_s: Vec<f64>,
}

impl Plot {
    /// Of a run's requests, warm-up left out.
    pub fn of(requests: &[RequestRecord]) -> Plot {
        let is_answered = |r: &&RequestRecord| r.outcome == Outcome::Ok;
        let measured = || requests.iter().filter(|r| !r.warmup);
        let answered = || measured().filter(is_answered);
        let failed = || measured().filter(|r| !is_answered(r));
        let ms = |seconds: f64| rounded(seconds * 1e3);
        let timeline: Vec<(f64, f64)> =
            answered().filter_map(|r| Some((rounded(r.intended_s), ms(r.ttft_s()?)))).collect();
        // A request without an answer waits forever: the curve ends below 1.
        let waits = answered().filter_map(|r| r.ttft_s().map(ms));
        let ever = waits.chain(failed().map(|_| f64::INFINITY));
        Plot {
            ttft_ms: quantiles(ever)
                .into_iter()
                .map(|v| Some(v).filter(|v| v.is_finite()))
                .collect(),
            tpot_ms: quantiles(answered().filter_map(|r| r.tpot_s().map(ms))),
            timeline: highest_per_slice(&timeline),
            failed_s: failed().take(MAX_POINTS).map(|r| rounded(r.intended_s)).collect(),
        }
    }

    /// TTFT in ms; infinite without an answer.
    pub fn ttft_ms(&self) -> impl Iterator<Item = f64> + '_ {
        self.ttft_ms.iter().map(|ms| ms.unwrap_or(f64::INFINITY))
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// At most [`MAX_POINTS`] values, evenly spaced in the sorted sample, both ends included.
fn quantiles(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    if sorted.len() <= MAX_POINTS {
        return sorted;
    }
    let last = sorted.len() - 1;
    (0..MAX_POINTS).map(|i| sorted[i * last / (MAX_POINTS - 1)]).collect()
}

/// Of neighbours in time the worst one: thinning must not hide a stall.
fn highest_per_slice(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(MAX_POINTS).max(1);
    points
        .chunks(size)
        .filter_map(|slice| slice.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_both_ends_and_the_worst() {
        let all = quantiles((0..5000).rev().map(f64::from));
        assert_eq!((all.len(), all[0], all[MAX_POINTS - 1]), (MAX_POINTS, 0.0, 4999.0));
        let stall = |i: i32| if i == 777 { 9e9 } else { 1.0 };
        let points: Vec<(f64, f64)> = (0..5000).map(|i| (f64::from(i), stall(i))).collect();
        let thinned = highest_per_slice(&points);
        assert!(thinned.len() <= MAX_POINTS && thinned.contains(&(777.0, 9e9)));
    }
}
