//! Axes: what they show, which values they span, where their ticks are.

use crate::numbers;

/// Where ticks may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steps {
    Any,
    Whole,
    PowersOfTwo,
}

/// One axis of a chart.
#[derive(Debug, Clone)]
pub struct Axis {
    title: String,
    unit: String,
    pub(crate) log: bool,
    steps: Steps,
    pub(crate) from: Option<f64>,
    pub(crate) to: Option<f64>,
}

impl Axis {
    /// A linear axis; `unit` follows the title in brackets and may be empty.
    #[must_use]
    pub fn linear(title: impl Into<String>, unit: impl Into<String>) -> Axis {
        Axis {
            title: title.into(),
            unit: unit.into(),
            log: false,
            steps: Steps::Any,
            from: None,
            to: None,
        }
    }

    /// A logarithmic axis. Values that are not positive cannot be shown on it; the chart says how
    /// many it left out.
    #[must_use]
    pub fn log(title: impl Into<String>, unit: impl Into<String>) -> Axis {
        Axis { log: true, ..Axis::linear(title, unit) }
    }

    /// A logarithmic axis with ticks at powers of two: cores, batch sizes, ladders of rates.
    #[must_use]
    pub fn log2(title: impl Into<String>, unit: impl Into<String>) -> Axis {
        Axis { steps: Steps::PowersOfTwo, ..Axis::log(title, unit) }
    }

    /// A linear axis of whole numbers: counts, ordinals.
    #[must_use]
    pub fn whole(title: impl Into<String>, unit: impl Into<String>) -> Axis {
        Axis { steps: Steps::Whole, ..Axis::linear(title, unit) }
    }

    /// The lowest value shown, instead of what the data need.
    #[must_use]
    pub fn from(mut self, value: f64) -> Axis {
        self.from = Some(value);
        self
    }

    /// The highest value shown, instead of what the data need.
    #[must_use]
    pub fn to(mut self, value: f64) -> Axis {
        self.to = Some(value);
        self
    }

    pub(crate) fn label(&self) -> String {
        if self.unit.is_empty() {
            self.title.clone()
        } else {
            format!("{} ({})", self.title, self.unit)
        }
    }

    /// A value with the unit, for hover boxes.
    pub(crate) fn value(&self, value: f64) -> String {
        let number = numbers::short(value);
        if self.unit.is_empty() { number } else { format!("{number} {}", self.unit) }
    }

    pub(crate) fn scale(&self, (lo, hi): (f64, f64), px: (f64, f64)) -> Scale {
        Scale { lo, hi, log: self.log, steps: self.steps, px }
    }

    pub(crate) fn name(&self) -> &str {
        &self.title
    }

    /// Whether this axis can show `value` at all.
    pub(crate) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }
}

/// Which end of a range is rounded outward to a tick.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// None: the data touch both ends (time, rates).
    Tight,
    /// From zero where the data allow, to above the highest (latencies).
    FromZero,
}

/// The values an axis spans.
pub(crate) fn domain(axis: &Axis, values: impl Iterator<Item = f64>, room: Room) -> (f64, f64) {
    let (mut lo, mut hi) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.filter(|v| axis.shows(*v)) {
        lo = lo.min(value);
        hi = hi.max(value);
    }
    if lo > hi {
        (lo, hi) = if axis.log { (1.0, 10.0) } else { (0.0, 1.0) };
    }
    let (lo, hi) = if axis.log { log_domain(lo, hi, room) } else { linear_domain(lo, hi, room) };
    let lo = axis.from.filter(|v| axis.shows(*v)).unwrap_or(lo);
    let hi = axis.to.filter(|v| axis.shows(*v)).unwrap_or(hi);
    match (lo < hi, axis.log) {
        (true, _) => (lo, hi),
        (false, true) => (lo / 2.0, lo * 2.0),
        (false, false) => (lo - 0.5, lo + 0.5),
    }
}

fn linear_domain(lo: f64, hi: f64, room: Room) -> (f64, f64) {
    if room == Room::Tight {
        return (lo, hi);
    }
    let lo = if lo > 0.0 { 0.0 } else { lo };
    let hi = if hi < 0.0 { 0.0 } else { hi };
    if lo == hi {
        return (0.0, 1.0);
    }
    let step = nice_step((hi - lo) / 5.0);
    let outward = |v: f64, up: bool| {
        let steps = v / step;
        // A value that is a tick already stays one.
        let rounded = if up { (steps - 1e-9).ceil() } else { (steps + 1e-9).floor() };
        rounded * step
    };
    (outward(lo, false), outward(hi, true))
}

fn log_domain(lo: f64, hi: f64, room: Room) -> (f64, f64) {
    if room == Room::Tight {
        return (lo, hi);
    }
    (nice_below(lo), 1.0 / nice_below(1.0 / hi))
}

/// The largest 1, 2 or 5 times a power of ten that is not above `value`.
fn nice_below(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0, 0.5]
        .map(|m| m * decade)
        .into_iter()
        .find(|n| *n <= value * (1.0 + 1e-9))
        .unwrap_or(value)
}

/// The smallest 1, 2, 2.5 or 5 times a power of ten that is not below `raw`.
fn nice_step(raw: f64) -> f64 {
    let decade = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|m| m * decade)
        .into_iter()
        .find(|s| *s >= raw * (1.0 - 1e-9))
        .unwrap_or(raw)
}

/// Maps values to pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub lo: f64,
    pub hi: f64,
    pub log: bool,
    pub steps: Steps,
    /// Pixel of `lo`, pixel of `hi`; the latter is the smaller one on vertical axes.
    pub px: (f64, f64),
}

impl Scale {
    pub fn map(&self, value: f64) -> f64 {
        let share = if self.log {
            (value / self.lo).ln() / (self.hi / self.lo).ln()
        } else {
            (value - self.lo) / (self.hi - self.lo)
        };
        self.px.0 + share * (self.px.1 - self.px.0)
    }

    /// As [`Scale::map`], held inside the axis.
    pub fn clamped(&self, value: f64) -> f64 {
        let (a, b) = (self.px.0.min(self.px.1), self.px.0.max(self.px.1));
        self.map(value).clamp(a, b)
    }

    pub fn contains(&self, value: f64) -> bool {
        let slack = 1e-9 * (self.hi - self.lo).abs();
        value >= self.lo - slack && value <= self.hi + slack
    }
}

/// A tick; those without a label are minor.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub value: f64,
    pub label: Option<String>,
}

/// Ticks for at most `most` labels, such that `fits` holds for the labelled ones.
pub(crate) fn ticks(
    scale: &Scale,
    most: usize,
    fits: impl Fn(&[(f64, String)]) -> bool,
) -> Vec<Tick> {
    let candidates = if scale.log { log_candidates(scale) } else { linear_candidates(scale, most) };
    let labels = |values: &[f64], step: Option<f64>| -> Vec<(f64, String)> {
        values.iter().map(|v| (*v, numbers::tick(*v, step.unwrap_or(*v)))).collect()
    };
    let chosen = candidates
        .iter()
        .map(|(values, step)| labels(values, *step))
        .find(|named| named.len() <= most.max(2) && named.len() >= 2 && fits(named));
    let chosen = chosen.unwrap_or_else(|| {
        // A very narrow chart: one label is still better than none.
        let coarsest = candidates.last().map(|(values, step)| labels(values, *step));
        coarsest.unwrap_or_default().into_iter().take(1).collect()
    });
    let mut all: Vec<Tick> =
        chosen.into_iter().map(|(value, label)| Tick { value, label: Some(label) }).collect();
    if scale.log && scale.steps == Steps::Any {
        for value in multiples(scale, &[1., 2., 3., 4., 5., 6., 7., 8., 9.]) {
            if !all.iter().any(|t| (t.value / value - 1.0).abs() < 1e-9) {
                all.push(Tick { value, label: None });
            }
        }
    }
    all
}

/// Sets of tick values with their step, finest first. No step: each value has its own.
type Candidates = Vec<(Vec<f64>, Option<f64>)>;

fn linear_candidates(scale: &Scale, most: usize) -> Candidates {
    let span = scale.hi - scale.lo;
    (1..=most.max(2))
        .rev()
        .map(|n| nice_step(span / n as f64))
        .map(|step| if scale.steps == Steps::Whole { step.max(1.0).round() } else { step })
        .map(|step| (stepped(scale, step), Some(step)))
        .collect()
}

fn stepped(scale: &Scale, step: f64) -> Vec<f64> {
    let first = (scale.lo / step - 1e-9).ceil() as i64;
    let last = (scale.hi / step + 1e-9).floor() as i64;
    (first..=last).take(64).map(|i| i as f64 * step).collect()
}

fn log_candidates(scale: &Scale) -> Candidates {
    let decades = (scale.hi / scale.lo).log10();
    let mut all: Candidates = Vec::new();
    if scale.steps == Steps::PowersOfTwo {
        all.extend([1, 2, 4].map(|stride| (powers_of_two(scale, stride), None)));
    }
    if decades < 1.0 {
        all.extend(linear_candidates(scale, 8).into_iter().filter(|(v, _)| v.len() >= 3));
    }
    if decades > 0.5 {
        all.push((multiples(scale, &[1.0, 2.0, 5.0]), None));
        all.push((multiples(scale, &[1.0, 3.0]), None));
    }
    let tens = multiples(scale, &[1.0]);
    for stride in 1..=8 {
        // Aligned with powers whose exponent divides evenly, so that 1 stays a tick.
        let keep = |v: &f64| (v.log10().round() as i64).rem_euclid(stride) == 0;
        all.push((tens.iter().copied().filter(keep).collect(), None));
    }
    all.extend(linear_candidates(scale, 4));
    all
}

fn powers_of_two(scale: &Scale, stride: usize) -> Vec<f64> {
    let first = (scale.lo.log2() - 1e-9).ceil() as i32;
    let last = (scale.hi.log2() + 1e-9).floor() as i32;
    (first..=last).step_by(stride).map(|e| 2f64.powi(e)).collect()
}

fn multiples(scale: &Scale, factors: &[f64]) -> Vec<f64> {
    let first = scale.lo.log10().floor() as i32;
    let last = scale.hi.log10().ceil() as i32;
    (first..=last)
        .flat_map(|e| factors.iter().map(move |f| f * 10f64.powi(e)))
        .filter(|v| {
            scale.contains(*v) && *v >= scale.lo * (1.0 - 1e-9) && *v <= scale.hi * (1.0 + 1e-9)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale, most: usize) -> Vec<String> {
        ticks(scale, most, |_| true).into_iter().filter_map(|t| t.label).collect()
    }

    #[test]
    fn linear_ticks_are_round() {
        let scale = Scale { lo: 0.0, hi: 100.0, log: false, steps: Steps::Any, px: (0.0, 400.0) };
        assert_eq!(labels(&scale, 6), ["0", "20", "40", "60", "80", "100"]);
        let scale = Scale { lo: 0.0, hi: 1.0, log: false, steps: Steps::Any, px: (0.0, 400.0) };
        assert_eq!(labels(&scale, 5), ["0.00", "0.25", "0.50", "0.75", "1.00"]);
    }

    #[test]
    fn log_ticks_thin_out() {
        let scale = Scale { lo: 1.0, hi: 100.0, log: true, steps: Steps::Any, px: (0.0, 400.0) };
        assert_eq!(labels(&scale, 8), ["1", "2", "5", "10", "20", "50", "100"]);
        assert_eq!(labels(&scale, 3), ["1", "10", "100"]);
        let scale = Scale { lo: 1.0, hi: 32.0, log: true, steps: Steps::Any, px: (0.0, 400.0) };
        assert_eq!(labels(&scale, 8), ["1", "2", "5", "10", "20"]);
        let scale = Scale { lo: 30.0, hi: 45.0, log: true, steps: Steps::Any, px: (0.0, 400.0) };
        assert!(labels(&scale, 8).len() >= 3);
    }

    #[test]
    fn ticks_of_whole_numbers_and_powers_of_two() {
        let scale = Axis::whole("victim", "").scale((1.0, 5.0), (0.0, 900.0));
        assert_eq!(labels(&scale, 20), ["1", "2", "3", "4", "5"]);
        let scale = Axis::log2("rate", "").scale((1.0, 32.0), (0.0, 400.0));
        assert_eq!(labels(&scale, 8), ["1", "2", "4", "8", "16", "32"]);
    }

    #[test]
    fn a_scale_maps_its_ends() {
        let scale = Scale { lo: 1.0, hi: 1000.0, log: true, steps: Steps::Any, px: (10.0, 310.0) };
        assert_eq!(scale.map(1.0), 10.0);
        assert!((scale.map(10.0) - 110.0).abs() < 1e-9);
        assert_eq!(scale.clamped(5000.0), 310.0);
    }

    #[test]
    fn domains_survive_any_data() {
        let odd = [vec![], vec![5.0], vec![0.0], vec![f64::NAN, f64::INFINITY], vec![-3.0, -3.0]];
        for axis in [Axis::linear("a", ""), Axis::log("a", "")] {
            for values in &odd {
                for room in [Room::Tight, Room::FromZero] {
                    let (lo, hi) = domain(&axis, values.iter().copied(), room);
                    assert!(lo < hi && lo.is_finite() && hi.is_finite(), "{values:?} {lo} {hi}");
                    let scale = axis.scale((lo, hi), (0.0, 100.0));
                    assert!(!ticks(&scale, 6, |_| true).is_empty(), "{values:?}");
                }
            }
        }
    }
}
