//! What runs at several rates say together: where a server saturates, what load it serves, and how
//! it does below that.
//!
//! The definitions are those of Blink (arXiv 2604.07609): saturation by a two-segment fit and
//! geometric means over the operating range from §6.2, serviceable load from its appendix C.

use serde::{Deserialize, Serialize};

use crate::nan_as_null;

/// The share of the offered load that a serviceable rate achieves (appendix C).
pub const SERVICEABLE_SHARE: f64 = 0.95;

/// Blink offers "13 load levels from 1 to 32 requests/s" (§6.1) and lists no others: these are 13
/// that contain each rate it names (1, 2, 4, 7, 12 and 32), denser where its systems saturate.
pub const BLINK_RATES: [f64; 13] =
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 16.0, 24.0, 32.0];

/// One level of a ladder of rates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Requests per second that arrived.
    #[serde(with = "nan_as_null")]
    pub offered_rps: f64,
    /// Requests per second that were answered.
    #[serde(with = "nan_as_null")]
    pub achieved_rps: f64,
}

/// Where throughput stops growing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    /// Achieved over offered while it grows: the slope of the first segment.
    pub slope: f64,
    /// Mean achieved throughput of the second segment, requests/s.
    pub plateau_rps: f64,
    /// Where the segments meet, an offered rate: the saturation point.
    pub rate_rps: f64,
}

/// Fits linear growth through the origin, then a plateau, to achieved throughput against offered
/// rate: of all divisions of the levels into a first and a second segment, the one with the least
/// sum of squares. `None` below two levels, or when the highest one still achieves
/// [`SERVICEABLE_SHARE`] of what the growth of the others promises: it has not been saturated.
pub fn saturation(levels: &[Level]) -> Option<Saturation> {
    let levels = sorted(levels);
    let highest = levels.last()?;
    let fits = (1..levels.len()).map(|k| fit(&levels, k));
    let (_, best) = fits.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let promised = best.slope * highest.offered_rps;
    (highest.achieved_rps < SERVICEABLE_SHARE * promised).then_some(best)
}

/// The first `k` levels on the growing segment, the others on the plateau; with the squared error.
fn fit(levels: &[Level], k: usize) -> (f64, Saturation) {
    let (growing, flat) = levels.split_at(k);
    let products: f64 = growing.iter().map(|l| l.offered_rps * l.achieved_rps).sum();
    let squares: f64 = growing.iter().map(|l| l.offered_rps.powi(2)).sum();
    let slope = if squares > 0.0 { products / squares } else { 0.0 };
    let plateau_rps = flat.iter().map(|l| l.achieved_rps).sum::<f64>() / flat.len() as f64;
    let error: f64 = growing
        .iter()
        .map(|l| l.achieved_rps - slope * l.offered_rps)
        .chain(flat.iter().map(|l| l.achieved_rps - plateau_rps))
        .map(|e| e * e)
        .sum();
    let rate_rps = if slope > 0.0 { plateau_rps / slope } else { 0.0 };
    (error, Saturation { slope, plateau_rps, rate_rps })
}

/// The highest offered rate of which at least [`SERVICEABLE_SHARE`] is achieved, all lower levels
/// likewise: a server that recovers above a rate that it did not serve does not serve that rate.
/// `None` if the lowest level is not served.
pub fn serviceable_rps(levels: &[Level]) -> Option<f64> {
    sorted(levels)
        .into_iter()
        .take_while(|l| l.achieved_rps >= SERVICEABLE_SHARE * l.offered_rps)
        .last()
        .map(|l| l.offered_rps)
}

/// The levels up to the saturation point, by index into `levels`; all of them where there is none.
/// A level within [`SERVICEABLE_SHARE`] of the point still belongs to it: rates are as random as
/// arrivals are.
pub fn operating_range(levels: &[Level]) -> Vec<usize> {
    let limit = saturation(levels).map_or(f64::INFINITY, |s| s.rate_rps / SERVICEABLE_SHARE);
    (0..levels.len()).filter(|i| levels[*i].offered_rps <= limit).collect()
}

/// The geometric mean of positive values; `None` of none, or when one is not positive.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0usize);
    for value in values {
        if value <= 0.0 || !value.is_finite() {
            return None;
        }
        sum += value.ln();
        count += 1;
    }
    (count > 0).then(|| (sum / count as f64).exp())
}

fn sorted(levels: &[Level]) -> Vec<Level> {
    let mut levels: Vec<Level> = levels
        .iter()
        .copied()
        .filter(|l| l.offered_rps.is_finite() && l.achieved_rps.is_finite())
        .collect();
    levels.sort_by(|a, b| a.offered_rps.total_cmp(&b.offered_rps));
    levels
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ladder(capacity: f64, slope: f64, wobble: f64) -> Vec<Level> {
        let level = |(i, offered_rps): (usize, &f64)| {
            let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
            let achieved_rps = (slope * offered_rps).min(capacity) * (1.0 + sign * wobble);
            Level { offered_rps: *offered_rps, achieved_rps }
        };
        BLINK_RATES.iter().enumerate().map(level).collect()
    }

    #[test]
    fn the_published_knees_come_out() {
        // Plateaus of §6.2 with the operating ranges that it derives from them.
        for (plateau, range) in [(11.96, 12.0), (6.86, 7.0), (2.13, 2.0)] {
            let levels = ladder(plateau, 1.0, 0.0);
            let found = saturation(&levels).expect("saturated");
            assert!((found.plateau_rps - plateau).abs() < 0.01, "{found:?}");
            let last = operating_range(&levels).last().map(|i| levels[*i].offered_rps);
            assert_eq!(last, Some(range), "{found:?}");
        }
    }

    #[test]
    fn a_ladder_that_never_saturates_has_no_knee() {
        let levels = ladder(1e9, 0.99, 0.01);
        assert_eq!(saturation(&levels), None);
        assert_eq!(operating_range(&levels).len(), levels.len());
        assert_eq!(serviceable_rps(&levels), Some(32.0));
        assert_eq!(saturation(&levels[..1]), None);
        assert_eq!((saturation(&[]), serviceable_rps(&[])), (None, None));
    }

    #[test]
    fn a_recovery_above_an_unserved_rate_does_not_count() {
        let level = |offered_rps, achieved_rps| Level { offered_rps, achieved_rps };
        let levels = [level(4.0, 4.0), level(1.0, 1.0), level(2.0, 1.0)];
        assert_eq!(serviceable_rps(&levels), Some(1.0));
        assert_eq!(serviceable_rps(&levels[2..]), None);
    }

    #[test]
    fn geometric_means() {
        assert!((geometric_mean([1.0, 100.0]).expect("positive") - 10.0).abs() < 1e-9);
        assert_eq!(geometric_mean([]), None);
        assert_eq!(geometric_mean([1.0, 0.0]), None);
    }

    proptest! {
        #[test]
        fn a_knee_is_found_where_it_is(
            capacity in 1.5f64..25.0, slope in 0.97f64..1.0, wobble in 0.0f64..0.02,
        ) {
            let levels = ladder(capacity, slope, wobble);
            let found = saturation(&levels).expect("saturated below the highest level");
            // To within one level of the ladder and the wobble.
            let knee = capacity / slope;
            let near = |rate: f64| (found.rate_rps / rate - 1.0).abs();
            prop_assert!(near(knee) < 0.35, "{:?} for {}", found, knee);
        }

        #[test]
        fn order_does_not_matter_and_scale_carries_over(
            capacity in 1.5f64..25.0, scale in 0.01f64..100.0, shift in 0usize..13,
        ) {
            let levels = ladder(capacity, 1.0, 0.01);
            let found = saturation(&levels).expect("saturated");
            let mut turned = levels.clone();
            turned.rotate_left(shift);
            prop_assert_eq!(saturation(&turned), Some(found));
            let scaled: Vec<Level> = levels.iter().map(|l| Level {
                offered_rps: l.offered_rps * scale, achieved_rps: l.achieved_rps * scale,
            }).collect();
            let wide = saturation(&scaled).expect("saturated");
            prop_assert!((wide.rate_rps / (found.rate_rps * scale) - 1.0).abs() < 1e-6);
            let served = serviceable_rps(&levels).map(|r| r * scale);
            let wide = serviceable_rps(&scaled);
            prop_assert!(served.zip(wide).is_none_or(|(a, b)| (a / b - 1.0).abs() < 1e-9));
        }
    }
}
