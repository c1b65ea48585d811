//! Percentiles, exactly, from raw values.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A sample in one line. Percentiles are by nearest rank: the smallest value that at least that
/// share of the sample does not exceed, always a value that was observed. An empty sample has no
/// percentiles: they are not-a-number here and `null` in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Distribution {
    /// Values.
    pub count: u64,
    /// Of them, lower bounds: requests that were cut while they waited.
    pub censored: u64,
    /// Arithmetic mean.
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

/// A distribution as it is read: `null` (or, in results before version 2, zeros) of an empty one.
#[derive(Deserialize)]
struct Written {
    count: u64,
    censored: u64,
    mean: Option<f64>,
    std: Option<f64>,
    min: Option<f64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    max: Option<f64>,
}

impl From<Written> for Distribution {
    fn from(w: Written) -> Distribution {
        let of = |value: Option<f64>| value.filter(|_| w.count > 0).unwrap_or(f64::NAN);
        Distribution {
            count: w.count,
            censored: w.censored,
            mean: of(w.mean),
            std: of(w.std),
            min: of(w.min),
            p50: of(w.p50),
            p90: of(w.p90),
            p95: of(w.p95),
            p99: of(w.p99),
            p999: of(w.p999),
            max: of(w.max),
        }
    }
}

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution::EMPTY
    }
}

impl Distribution {
    /// Of no values.
    pub const EMPTY: Distribution = Distribution {
        count: 0,
        censored: 0,
        mean: f64::NAN,
        std: f64::NAN,
        min: f64::NAN,
        p50: f64::NAN,
        p90: f64::NAN,
        p95: f64::NAN,
        p99: f64::NAN,
        p999: f64::NAN,
        max: f64::NAN,
    };

    /// Of these values; non-finite ones are left out.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Distribution {
        let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        Distribution::of_sorted(&sorted)
    }

    /// Of values in ascending order.
    pub fn of_sorted(sorted: &[f64]) -> Distribution {
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
            return Distribution::EMPTY;
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

/// The value of rank ceil(p·n), from 1, of an ascending sample; not-a-number of an empty one.
pub fn nearest_rank(sorted: &[f64], p: f64) -> f64 {
    // A product such as 0.95 · 20 may lie a rounding error above its integer.
    let rank = (p * sorted.len() as f64 - 1e-9).ceil().max(1.0) as usize;
    sorted.get(rank.min(sorted.len()).wrapping_sub(1)).copied().unwrap_or(f64::NAN)
}

/// For `#[serde(with = "saccade_load::nan_as_null")]`: a number that may be unknown. Not-a-number
/// is `null` in JSON; `null` and an absent field (with `default = "saccade_load::unknown"`) are
/// not-a-number.
pub mod nan_as_null {
    use super::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes `null` where the value is not a number.
    ///
    /// # Errors
    /// Of the serializer.
    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Some(*value).filter(|v| !v.is_nan()).serialize(serializer)
    }

    /// Reads what [`serialize`] wrote.
    ///
    /// # Errors
    /// Of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
    }
}

/// The value of a figure that a result does not have.
pub fn unknown() -> f64 {
    f64::NAN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_json(sample: &Distribution) -> Distribution {
        serde_json::from_str(&serde_json::to_string(sample).expect("JSON")).expect("the same")
    }

    #[test]
    fn an_empty_sample_has_no_percentiles() {
        let json = serde_json::to_value(Distribution::of([])).expect("JSON");
        assert_eq!((&json["count"], &json["p99"]), (&0.into(), &serde_json::Value::Null));
        assert!(through_json(&Distribution::EMPTY).p50.is_nan());
        // Results of version 1 have zeros there.
        let old = serde_json::json!({"count": 0, "censored": 0, "mean": 0.0, "std": 0.0,
            "min": 0.0, "p50": 0.0, "p90": 0.0, "p95": 0.0, "p99": 0.0, "p999": 0.0, "max": 0.0});
        let old: Distribution = serde_json::from_value(old).expect("a distribution");
        assert!(old.p50.is_nan() && old.max.is_nan());
    }

    #[test]
    fn a_sample_comes_back_as_it_was() {
        let sample = Distribution::of([1.0, 0.1 + 0.2, 7e-9]);
        assert_eq!((sample.p50, sample.count), (0.1 + 0.2, 3));
        assert_eq!(through_json(&sample).count, 3);
    }
}
