//! Distributions of durations, and cells that show them.

use saccade_load::Distribution;
use saccade_report::Cell;

/// Of durations in nanoseconds, in microseconds; `None` if there is none.
pub(crate) fn of_ns_in_us(samples: &[u64]) -> Option<Distribution> {
    let in_us = samples.iter().map(|&ns| ns as f64 / 1e3);
    (!samples.is_empty()).then(|| Distribution::of(in_us))
}

/// The median; 0 of nothing.
pub(crate) fn median(samples: &[f64]) -> f64 {
    Distribution::of(samples.iter().copied()).p50
}

/// A number with so many decimals; a gap if there is none.
pub(crate) fn number(value: impl Into<Option<f64>>, decimals: usize) -> Cell {
    value.into().map_or(Cell::Missing, |value| Cell::Number(value, decimals))
}
