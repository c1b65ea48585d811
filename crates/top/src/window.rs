//! What happened between looks: increases of counters and histograms, over the last seconds.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::names;
use crate::probe::Probe;
use crate::prom::{Labels, Scrape, Series};

/// Looks kept, whatever the window and the interval are.
const MAX_LOOKS: usize = 6001;

/// What happened in a span of time.
#[derive(Debug, Clone, Default)]
pub struct Increase {
    /// Seconds.
    pub seconds: f64,
    counters: BTreeMap<&'static str, BTreeMap<Labels, f64>>,
    histograms: BTreeMap<&'static str, Histogram>,
}

impl Increase {
    /// What happened from one look to the next. A series that fell restarted with the server: its
    /// value is the increase.
    pub fn between(before: &Probe, now: &Probe) -> Increase {
        let counters = names::COUNTERS.map(|name| (name, grown(name, &before.scrape, &now.scrape)));
        let histograms = names::HISTOGRAMS.iter().filter_map(|group| {
            let name = *group.iter().find(|name| has_histogram(&now.scrape, name))?;
            Some((group[0], histogram_grown(name, &before.scrape, &now.scrape)))
        });
        Increase {
            seconds: now.at.saturating_duration_since(before.at).as_secs_f64(),
            counters: counters.into(),
            histograms: histograms.collect(),
        }
    }

    fn add(&mut self, other: &Increase) {
        self.seconds += other.seconds;
        for (name, by_labels) in &other.counters {
            let sums = self.counters.entry(name).or_default();
            for (labels, value) in by_labels {
                *sums.entry(labels.clone()).or_insert(0.0) += value;
            }
        }
        for (name, histogram) in &other.histograms {
            self.histograms.entry(name).or_default().add(histogram);
        }
    }

    /// Increase of a counter, over all its series; `None` if there are none.
    pub fn counter(&self, name: &str) -> Option<f64> {
        let by_labels = self.counters.get(name)?;
        (!by_labels.is_empty()).then(|| by_labels.values().sum())
    }

    /// Increase of the series of a counter that carry a label's value.
    pub fn counter_where(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        let carries = |labels: &&Labels| labels.get(label).is_some_and(|v| v == value);
        let mut series = self.counters.get(name)?.iter().filter(|(l, _)| carries(l)).peekable();
        series.peek()?;
        Some(series.map(|(_, value)| value).sum())
    }

    /// Requests that ended with a target: all of them, or only the ones that met or missed it.
    pub fn slo_requests(&self, target: &str, met: Option<&str>) -> f64 {
        let is = |labels: &Labels, key: &str, value: &str| {
            labels.get(key).is_some_and(|found| found == value)
        };
        let series = self.counters.get(names::SLO_REQUESTS).into_iter().flatten();
        series
            .filter(|(labels, _)| is(labels, "target", target))
            .filter(|(labels, _)| met.is_none_or(|met| is(labels, "met", met)))
            .map(|(_, value)| value)
            .sum()
    }

    /// Increase of a counter by the values of a label.
    pub fn counter_by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for (labels, value) in self.counters.get(name).into_iter().flatten() {
            if let Some(key) = labels.get(label) {
                *sums.entry(key.clone()).or_insert(0.0) += value;
            }
        }
        sums
    }

    /// The same, of the series that carry another label's value.
    pub fn counter_by_where(
        &self,
        name: &str,
        label: &str,
        (other, value): (&str, &str),
    ) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for (labels, increase) in self.counters.get(name).into_iter().flatten() {
            let key = labels.get(label).filter(|_| labels.get(other).is_some_and(|v| v == value));
            if let Some(key) = key {
                *sums.entry(key.clone()).or_insert(0.0) += increase;
            }
        }
        sums
    }

    /// Increase of a counter per second.
    pub fn rate(&self, name: &str) -> Option<f64> {
        self.per_second(self.counter(name)?)
    }

    /// An amount per second of this span.
    pub fn per_second(&self, amount: f64) -> Option<f64> {
        (self.seconds > 0.0).then(|| amount / self.seconds)
    }

    /// What a histogram of a group of names observed; `None` if the server has none.
    pub fn histogram(&self, group: &[&'static str]) -> Option<&Histogram> {
        self.histograms.get(group.first()?)
    }
}

fn grown(name: &str, before: &Scrape, now: &Scrape) -> BTreeMap<Labels, f64> {
    let then: BTreeMap<&Labels, f64> =
        before.series(name).iter().map(|s| (&s.labels, s.value)).collect();
    let of = |s: &Series| {
        // A series that was not there began at nothing.
        let then = then.get(&s.labels).copied().filter(|then| *then <= s.value).unwrap_or(0.0);
        (s.labels.clone(), s.value - then)
    };
    now.series(name).iter().filter(|s| s.value.is_finite()).map(of).collect()
}

fn has_histogram(scrape: &Scrape, name: &str) -> bool {
    !scrape.series(&format!("{name}_bucket")).is_empty()
}

fn histogram_grown(name: &str, before: &Scrape, now: &Scrape) -> Histogram {
    let then = histograms(name, before);
    let mut sum = Histogram::default();
    for (labels, histogram) in histograms(name, now) {
        match then.get(&labels) {
            Some(then) => sum.add(&histogram.since(then)),
            None => sum.add(&histogram),
        }
    }
    sum
}

/// The histograms of a name, by their labels without the bucket's bound.
fn histograms(name: &str, scrape: &Scrape) -> BTreeMap<Labels, Histogram> {
    let mut points: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
    for series in scrape.series(&format!("{name}_bucket")) {
        let mut labels = series.labels.clone();
        let bound = labels.remove("le").and_then(|le| le.parse().ok());
        points.entry(labels).or_default().extend(bound.map(|bound| (bound, series.value)));
    }
    let sums = scrape.series(&format!("{name}_sum"));
    let sum_of =
        |labels: &Labels| sums.iter().find(|s| s.labels == *labels).map_or(0.0, |s| s.value);
    let whole = |(labels, points): (Labels, Vec<_>)| {
        let sum = sum_of(&labels);
        (labels, Histogram::from_cumulative(points, sum))
    };
    points.into_iter().map(whole).collect()
}

/// The last seconds of a server.
#[derive(Debug)]
pub struct Window {
    length: Duration,
    last: Option<Probe>,
    increases: VecDeque<(Instant, Increase)>,
}

impl Window {
    /// An empty window of a length.
    pub fn new(length: Duration) -> Window {
        Window { length, last: None, increases: VecDeque::new() }
    }

    /// Takes the next look in. Returns what happened since the one before, if there was one.
    pub fn push(&mut self, probe: Probe) -> Option<Increase> {
        let increase = self.last.as_ref().map(|last| Increase::between(last, &probe));
        if let Some(increase) = &increase {
            self.increases.push_back((probe.at, increase.clone()));
        }
        // The newest always counts, however long ago the one before was.
        while self.increases.len() > MAX_LOOKS
            || (self.increases.len() > 1 && self.is_old(self.increases[0].0, probe.at))
        {
            self.increases.pop_front();
        }
        self.last = Some(probe);
        increase
    }

    fn is_old(&self, at: Instant, now: Instant) -> bool {
        now.saturating_duration_since(at) >= self.length
    }

    /// Everything in the window.
    pub fn total(&self) -> Increase {
        let mut total = Increase::default();
        for (_, increase) in &self.increases {
            total.add(increase);
        }
        total
    }

    /// The newest look.
    pub fn last(&self) -> Option<&Probe> {
        self.last.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(start: Instant, at_s: u64, text: &str) -> Probe {
        let at = start + Duration::from_secs(at_s);
        Probe { at, scrape: Scrape::parse(text), ready: None, version: None }
    }

    #[test]
    fn counters_that_fell_began_anew() {
        let start = Instant::now();
        let mut window = Window::new(Duration::from_secs(60));
        assert!(window.push(probe(start, 0, "vllm:num_preemptions_total 100")).is_none());
        window.push(probe(start, 1, "vllm:num_preemptions_total 103"));
        window.push(probe(start, 2, "vllm:num_preemptions_total 2"));
        window.push(probe(start, 4, "vllm:num_preemptions_total 7"));
        let total = window.total();
        assert_eq!(total.counter(names::PREEMPTIONS), Some(3.0 + 2.0 + 5.0));
        assert_eq!(total.rate(names::PREEMPTIONS), Some(2.5));
        assert_eq!(total.counter(names::STEPS), None);
    }

    #[test]
    fn series_are_told_apart_by_their_labels() {
        let start = Instant::now();
        let text = |a, b| {
            format!("{n}{{plane=\"frontend\"}} {a}\n{n}{{plane=\"device\"}} {b}", n = names::RUN_S)
        };
        let mut window = Window::new(Duration::from_secs(60));
        window.push(probe(start, 0, &text(10.0, 50.0)));
        // The device plane restarted, the frontend did not.
        let step = window.push(probe(start, 1, &text(11.0, 0.5))).unwrap();
        assert_eq!(step.counter_where(names::RUN_S, "plane", "frontend"), Some(1.0));
        assert_eq!(step.counter_where(names::RUN_S, "plane", "device"), Some(0.5));
        assert_eq!(step.counter_where(names::RUN_S, "plane", "fetch"), None);
        assert_eq!(step.counter_by(names::RUN_S, "plane").len(), 2);
    }

    #[test]
    fn old_looks_leave_the_window() {
        let start = Instant::now();
        let mut window = Window::new(Duration::from_secs(10));
        for at_s in 0..100 {
            window.push(probe(start, at_s, &format!("{} {at_s}", names::STEPS)));
        }
        assert_eq!(window.total().seconds, 10.0);
        assert_eq!(window.total().counter(names::STEPS), Some(10.0));
        // A pause longer than the window leaves one span.
        window.push(probe(start, 1000, &format!("{} 1000", names::STEPS)));
        assert_eq!(window.total().seconds, 901.0);
    }

    #[test]
    fn histograms_are_summed_over_models_and_engines() {
        let start = Instant::now();
        let text = |a: f64, b: f64| {
            let n = names::TBT[1];
            format!(
                "{n}_bucket{{engine=\"0\",le=\"0.1\"}} {a}\n{n}_bucket{{engine=\"0\",le=\"+Inf\"}} {a}\n\
                 {n}_bucket{{engine=\"1\",le=\"0.1\"}} 0\n{n}_bucket{{engine=\"1\",le=\"+Inf\"}} {b}\n\
                 {n}_sum{{engine=\"0\"}} {a}\n{n}_sum{{engine=\"1\"}} {b}"
            )
        };
        let mut window = Window::new(Duration::from_secs(60));
        window.push(probe(start, 0, &text(5.0, 7.0)));
        let step = window.push(probe(start, 1, &text(8.0, 8.0))).unwrap();
        let tbt = step.histogram(names::TBT).unwrap();
        assert_eq!((tbt.count(), tbt.sum), (4.0, 4.0));
        assert_eq!(tbt.share_within(0.1), Some(0.75));
    }
}
