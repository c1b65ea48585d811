//! Percentiles, exactly, from raw values.

use serde::{Deserialize, Serialize};

/// A sample in one line. Percentiles are by nearest rank: the smallest value that at least that
/// share of the sample does not exceed, always a value that was observed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Distribution {
    /// Values.
    pub count: u64,
    /// Of them, lower bounds: requests that were cut while they waited.
    pub censored: u64,
    /// Arithmetic mean; 0 of an empty sample, like everything below.
    pub mean: f64,
    /// Standard deviation of the sample (n − 1).
    pub std: f64,
    /// Least.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Greatest.
    pub max: f64,
}

impl Distribution {
    /// Of these values; those that are not finite are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Distribution {
        let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        Distribution::of_sorted(&sorted)
    }

    /// Of values in ascending order.
    pub fn of_sorted(sorted: &[f64]) -> Distribution {
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Distribution::default();
        };
        let n = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / n;
        let squares: f64 = sorted.iter().map(|v| (v - mean).powi(2)).sum();
        let at = |p: f64| nearest_rank(sorted, p);
        Distribution {
            count: sorted.len() as u64,
            censored: 0,
            mean,
            std: if sorted.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 },
            min,
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max,
        }
    }
}

/// The value of rank ceil(p·n), from 1, of an ascending sample; 0 of an empty one.
pub fn nearest_rank(sorted: &[f64], p: f64) -> f64 {
    // A product such as 0.95 · 20 may lie a rounding error above its integer.
    let rank = (p * sorted.len() as f64 - 1e-9).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).wrapping_sub(1)).copied().unwrap_or(0.0)
}
