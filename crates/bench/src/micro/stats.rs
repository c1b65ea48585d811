//! Distributions of durations, figures with their spread, and cells that show them.

use saccade_load::{Distribution, nan_as_null, unknown};
use saccade_report::{Cell, grouped};
use serde::{Deserialize, Serialize};

/// From durations in nanoseconds, in microseconds; `None` if there is none.
pub(crate) fn of_ns_in_us(samples: &[u64]) -> Option<Distribution> {
    let in_us = samples.iter().map(|&ns| ns as f64 / 1e3);
    (!samples.is_empty()).then(|| Distribution::of(in_us))
}

/// A figure over repeats: its median and its range. Not-a-number where nothing was measured.
/// Results of version 1 have the median alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub(crate) struct Spread {
    #[serde(with = "nan_as_null")]
    pub p50: f64,
    #[serde(with = "nan_as_null")]
    pub min: f64,
    #[serde(with = "nan_as_null")]
    pub max: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Spread {
        #[serde(with = "nan_as_null")]
        p50: f64,
        #[serde(with = "nan_as_null")]
        min: f64,
        #[serde(with = "nan_as_null")]
        max: f64,
    },
    Median(Option<f64>),
}

impl From<Written> for Spread {
    fn from(written: Written) -> Spread {
        match written {
            Written::Spread { p50, min, max } => Spread { p50, min, max },
            Written::Median(p50) => Spread { p50: p50.unwrap_or_else(unknown), ..Spread::NONE },
        }
    }
}

impl Spread {
    /// Of nothing.
    pub(crate) const NONE: Spread = Spread { p50: f64::NAN, min: f64::NAN, max: f64::NAN };

    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Spread {
        let Distribution { p50, min, max, .. } = Distribution::of(samples);
        Spread { p50, min, max }
    }

    pub(crate) fn map(self, by: impl Fn(f64) -> f64) -> Spread {
        Spread { p50: by(self.p50), min: by(self.min), max: by(self.max) }
    }

    /// The median.
    pub(crate) fn cell(self, decimals: usize) -> Cell {
        Cell::Number(self.p50, decimals)
    }

    /// The range.
    pub(crate) fn range(self, decimals: usize) -> Cell {
        if self.min.is_nan() {
            return Cell::Missing;
        }
        format!("{}–{}", grouped(self.min, decimals), grouped(self.max, decimals)).into()
    }
}

/// The median; not-a-number of nothing.
pub(crate) fn median(samples: &[f64]) -> f64 {
    Distribution::of(samples.iter().copied()).p50
}

/// A number; a gap if there is none.
pub(crate) fn number(value: impl Into<Option<f64>>, decimals: usize) -> Cell {
    value.into().map_or(Cell::Missing, |value| Cell::Number(value, decimals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_read_as_it_was_written_and_from_the_median_alone() {
        let spread = Spread::of([3.0, 1.0, 2.0]);
        assert_eq!(spread, Spread { p50: 2.0, min: 1.0, max: 3.0 });
        let read = |json: &str| serde_json::from_str::<Spread>(json).unwrap();
        assert_eq!(read(&serde_json::to_string(&spread).unwrap()), spread);
        assert_eq!((read("7.5").p50, read("7.5").min.is_nan()), (7.5, true));
        assert!(read("null").p50.is_nan() && Spread::of([]).max.is_nan());
        let none = serde_json::to_string(&Spread::NONE).unwrap();
        assert!(none.contains("null") && read(&none).p50.is_nan(), "{none}");
    }
}
