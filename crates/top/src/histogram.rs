//! Histograms of a window: what fell into each bucket, percentiles and shares of it.

use serde::Serialize;

/// What fell into each bucket; not cumulative.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// Upper bounds and counts, by bound; the last bound is infinite.
    buckets: Vec<(f64, f64)>,
    /// Sum of all observed.
    pub sum: f64,
}

/// A percentile, as well as buckets can tell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantile {
    /// Seconds.
    pub seconds: f64,
    /// What `seconds` is.
    pub kind: QuantileKind,
    /// Lower bound of its bucket, seconds.
    pub low_seconds: f64,
    /// Upper bound of its bucket, seconds; `None` beyond the last bound.
    pub high_seconds: Option<f64>,
}

/// A bucket whose upper bound is this many times the lower one is shown instead of an estimate
/// within it.
const COARSE: f64 = 2.0;

impl Quantile {
    /// Whether an estimate may be far from the true value: the bounds of its bucket.
    pub fn coarse_bounds(&self) -> Option<(f64, f64)> {
        let high = self.high_seconds.filter(|high| *high >= COARSE * self.low_seconds)?;
        (self.kind == QuantileKind::Estimate).then_some((self.low_seconds, high))
    }
}

/// What the number of a [`Quantile`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuantileKind {
    /// Interpolated between the bounds of its bucket, as Prometheus' `histogram_quantile` does.
    Estimate,
    /// In the first bucket: its upper bound.
    AtMost,
    /// Beyond the last bound: that bound.
    AtLeast,
}

impl Histogram {
    /// From `(upper bound, cumulative count)` in any order. What is not a number is left out, and
    /// a count below the one before is raised to it: the buckets are read one by one.
    pub fn from_cumulative(mut points: Vec<(f64, f64)>, sum: f64) -> Histogram {
        points.retain(|(bound, count)| !bound.is_nan() && count.is_finite());
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut below = 0.0;
        let mut buckets: Vec<(f64, f64)> = Vec::with_capacity(points.len());
        for (bound, cumulative) in points {
            buckets.push((bound, (cumulative - below).max(0.0)));
            below = cumulative.max(below);
        }
        Histogram { buckets, sum }
    }

    /// How much was observed.
    pub fn count(&self) -> f64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// Adds what another counted, bound by bound.
    pub fn add(&mut self, other: &Histogram) {
        self.sum += other.sum;
        for &(bound, count) in &other.buckets {
            match self.buckets.binary_search_by(|(b, _)| b.total_cmp(&bound)) {
                Ok(at) => self.buckets[at].1 += count,
                Err(at) => self.buckets.insert(at, (bound, count)),
            }
        }
    }

    /// What came since `before`, which may be of an earlier life of the server: then everything.
    pub fn since(&self, before: &Histogram) -> Histogram {
        let then = |bound: f64| {
            let at = before.buckets.binary_search_by(|(b, _)| b.total_cmp(&bound));
            at.map_or(0.0, |at| before.buckets[at].1)
        };
        if self.buckets.iter().any(|&(bound, count)| count < then(bound)) {
            return self.clone();
        }
        let grown = |&(bound, count): &(f64, f64)| (bound, count - then(bound));
        Histogram {
            buckets: self.buckets.iter().map(grown).collect(),
            sum: (self.sum - before.sum).max(0.0),
        }
    }

    /// The value below which the share `q` lies, 0 .. 1. `None` if nothing was observed.
    pub fn quantile(&self, q: f64) -> Option<Quantile> {
        let count = self.count();
        if count <= 0.0 {
            return None;
        }
        let target = count * q;
        let (mut below, mut low) = (0.0, 0.0);
        for (at, &(bound, here)) in self.buckets.iter().enumerate() {
            if here > 0.0 && below + here >= target {
                let share = ((target - below) / here).clamp(0.0, 1.0);
                let (seconds, kind) = match (at, bound.is_finite()) {
                    (_, false) => (low, QuantileKind::AtLeast),
                    (0, _) => (bound, QuantileKind::AtMost),
                    _ => (low + (bound - low) * share, QuantileKind::Estimate),
                };
                let high_seconds = bound.is_finite().then_some(bound);
                return Some(Quantile { seconds, kind, low_seconds: low, high_seconds });
            }
            below += here;
            low = bound;
        }
        None
    }

    /// Share of the observed that is at most `limit`, 0 .. 1; within a bucket by proportion. What
    /// lies beyond the last bound counts as more. `None` if nothing was observed.
    pub fn share_within(&self, limit: f64) -> Option<f64> {
        let count = self.count();
        if count <= 0.0 {
            return None;
        }
        let (mut within, mut low) = (0.0, 0.0);
        for &(bound, here) in &self.buckets {
            if bound <= limit {
                within += here;
            } else if bound.is_finite() && limit > low {
                within += here * (limit - low) / (bound - low);
            }
            low = bound;
        }
        Some((within / count).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const INF: f64 = f64::INFINITY;

    fn made() -> Histogram {
        Histogram::from_cumulative(vec![(0.2, 30.0), (INF, 100.0), (0.1, 10.0), (0.4, 90.0)], 20.0)
    }

    #[test]
    fn percentiles_lie_within_their_buckets() {
        let h = made();
        assert_eq!(h.count(), 100.0);
        let p = |q| h.quantile(q).unwrap();
        assert_eq!((p(0.05).seconds, p(0.05).kind), (0.1, QuantileKind::AtMost));
        assert!((p(0.2).seconds - 0.15).abs() < 1e-12);
        assert_eq!(p(0.2).kind, QuantileKind::Estimate);
        assert!((p(0.6).seconds - 0.3).abs() < 1e-12);
        assert_eq!((p(0.99).seconds, p(0.99).kind), (0.4, QuantileKind::AtLeast));
        assert_eq!((p(0.6).low_seconds, p(0.6).high_seconds), (0.2, Some(0.4)));
        assert_eq!(p(0.6).coarse_bounds(), Some((0.2, 0.4)));
        assert_eq!([p(0.05), p(0.99)].map(|q| q.coarse_bounds()), [None; 2]);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn shares_are_in_proportion_within_a_bucket() {
        let h = made();
        for (limit, share) in [(0.05, 0.05), (0.1, 0.1), (0.3, 0.6), (0.4, 0.9), (9.0, 0.9)] {
            assert!((h.share_within(limit).unwrap() - share).abs() < 1e-12, "{limit}");
        }
        assert_eq!(Histogram::default().share_within(1.0), None);
    }

    #[test]
    fn a_server_that_started_again_counts_from_nothing() {
        let before = made();
        let grown = Histogram::from_cumulative(
            vec![(0.1, 10.0), (0.2, 35.0), (0.4, 96.0), (INF, 107.0)],
            21.0,
        );
        let since = grown.since(&before);
        assert_eq!(since.count(), 7.0);
        assert_eq!(since.sum, 1.0);
        let anew = Histogram::from_cumulative(vec![(0.1, 0.0), (0.2, 2.0), (INF, 2.0)], 0.3);
        assert_eq!(anew.since(&before), anew);
    }

    proptest! {
        #[test]
        fn percentiles_grow_and_stay_within_bounds(
            points in prop::collection::vec((0.0..100.0f64, 0.0..50.0f64), 1..12),
            q in prop::collection::vec(0.0..=1.0f64, 2),
        ) {
            let mut cumulative = 0.0;
            let mut points = points;
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            for point in &mut points {
                cumulative += point.1;
                point.1 = cumulative;
            }
            points.push((INF, cumulative));
            let last = points[points.len() - 2].0;
            let h = Histogram::from_cumulative(points, 0.0);
            let (low, high) = (q[0].min(q[1]), q[0].max(q[1]));
            if let (Some(a), Some(b)) = (h.quantile(low), h.quantile(high)) {
                prop_assert!(a.seconds <= b.seconds + 1e-9, "{a:?} {b:?}");
                prop_assert!(b.seconds <= last);
            }
        }

        #[test]
        fn no_numbers_panic(points in prop::collection::vec((any::<f64>(), any::<f64>()), 0..8)) {
            let h = Histogram::from_cumulative(points.clone(), f64::NAN);
            h.quantile(0.5);
            h.share_within(0.1);
            let mut sum = Histogram::from_cumulative(points, 1.0).since(&h);
            sum.add(&h);
        }
    }
}
