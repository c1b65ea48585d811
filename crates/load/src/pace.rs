//! Which request is due when, whether it counts, and when there are no more.

use std::collections::VecDeque;

use crate::arrival::Times;
use crate::{Arrival, LoadSpec, Warmup};

/// Where intended times come from.
#[derive(Debug)]
enum Source {
    Open {
        times: Times,
        next_s: Option<f64>,
    },
    /// Times at which places became free.
    Closed {
        free_s: VecDeque<f64>,
    },
}

/// The next request to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Due {
    pub index: u64,
    pub intended_s: f64,
    pub warmup: bool,
}

/// Deals out arrivals in order.
#[derive(Debug)]
pub(crate) struct Pace {
    source: Source,
    warmup: Warmup,
    requests: Option<u64>,
    duration_s: Option<f64>,
    index: u64,
    measured: u64,
    last_s: f64,
    /// The end of the warm-up, once it is known.
    window_start_s: Option<f64>,
    ended: bool,
    /// When the observer ended it before its time.
    stopped_s: Option<f64>,
}

impl Pace {
    pub(crate) fn new(spec: &LoadSpec) -> Pace {
        let seed = spec.arrival_seed.unwrap_or(spec.seed);
        let source = match (&spec.arrival, spec.arrival.times(seed)) {
            (_, Some(mut times)) => Source::Open { next_s: times.next(), times },
            (Arrival::Closed { concurrency }, None) => {
                Source::Closed { free_s: vec![0.0; *concurrency].into() }
            }
            (_, None) => Source::Closed { free_s: VecDeque::new() },
        };
        let known = (spec.warmup.requests == 0).then_some(spec.warmup.seconds);
        Pace {
            source,
            warmup: spec.warmup,
            requests: spec.requests,
            duration_s: spec.duration_s,
            index: 0,
            measured: 0,
            last_s: 0.0,
            window_start_s: known,
            ended: false,
            stopped_s: None,
        }
    }

    /// The next arrival, if one is known by now. It stays the next until [`Pace::take`].
    pub(crate) fn peek(&mut self) -> Option<Due> {
        if self.ended {
            return None;
        }
        let intended_s = match &self.source {
            Source::Open { next_s, .. } => match *next_s {
                Some(next_s) => next_s,
                None => {
                    self.ended = true; // a replay is over
                    return None;
                }
            },
            Source::Closed { free_s } => *free_s.front()?,
        };
        let warmup = self.index < self.warmup.requests || intended_s < self.warmup.seconds;
        let over = !warmup && self.requests.is_some_and(|n| self.measured >= n);
        if over || self.end_s().is_some_and(|end_s| intended_s >= end_s) {
            self.ended = true;
            return None;
        }
        Some(Due { index: self.index, intended_s, warmup })
    }

    /// The arrival that was last peeked is on its way.
    pub(crate) fn take(&mut self, due: Due) {
        self.index += 1;
        self.last_s = due.intended_s;
        if !due.warmup {
            self.measured += 1;
            self.window_start_s.get_or_insert(due.intended_s);
        }
        match &mut self.source {
            Source::Open { times, next_s } => *next_s = times.next(),
            Source::Closed { free_s } => drop(free_s.pop_front()),
        }
    }

    /// A request ended: in a closed loop its place is free.
    pub(crate) fn freed(&mut self, now_s: f64) {
        if let Source::Closed { free_s } = &mut self.source {
            free_s.push_back(now_s);
        }
    }

    /// No further arrivals, though there would have been some.
    pub(crate) fn stop(&mut self, now_s: f64) {
        self.ended = true;
        self.stopped_s = Some(now_s);
    }

    /// Ends by the clock what has no next arrival: a closed loop whose places are all taken.
    pub(crate) fn tick(&mut self, now_s: f64) {
        self.ended |= self.end_s().is_some_and(|end_s| now_s >= end_s);
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Ended by [`Pace::stop`].
    pub(crate) fn stopped(&self) -> bool {
        self.stopped_s.is_some()
    }

    /// When arrivals end by the clock.
    pub(crate) fn end_s(&self) -> Option<f64> {
        Some(self.window_start_s? + self.duration_s?)
    }

    /// The measured window; `last_end_s` is when the last answer ended. A run with a duration ends
    /// its window by the clock, not with the last arrival before. A closed loop of a number of
    /// requests ends it when the last one is sent: from then on places stay empty. Where no place
    /// is used twice, nothing is steady, and the window holds all.
    pub(crate) fn window_s(&self, arrival: &Arrival, last_end_s: f64) -> (f64, f64) {
        let start_s = self.window_start_s.unwrap_or(self.last_s);
        let counted = self.requests.is_some_and(|n| self.measured >= n);
        let planned_s =
            match arrival {
                Arrival::Closed { concurrency } if counted => {
                    if self.measured > *concurrency as u64 { self.last_s } else { last_end_s }
                }
                // The last of evenly spaced requests has its interval, too.
                Arrival::Constant { rate_rps } if counted => self.last_s + 1.0 / rate_rps,
                Arrival::Replay { .. } => self.last_s,
                _ if counted => self.last_s,
                _ => self.end_s().unwrap_or(self.last_s),
            };
        let end_s = self.stopped_s.map_or(planned_s, |stopped_s| planned_s.min(stopped_s));
        (start_s, end_s.max(start_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workload;

    fn spec(arrival: Arrival, requests: Option<u64>, duration_s: Option<f64>) -> LoadSpec {
        LoadSpec { requests, duration_s, ..LoadSpec::new(arrival, Workload::fixed(1, 1), 1) }
    }

    fn drain(pace: &mut Pace) -> Vec<Due> {
        let mut all = Vec::new();
        while let Some(due) = pace.peek() {
            pace.take(due);
            all.push(due);
        }
        all
    }

    #[test]
    fn warm_up_comes_on_top() {
        let arrival = Arrival::Constant { rate_rps: 10.0 };
        let mut spec = spec(arrival.clone(), Some(5), None);
        spec.warmup = Warmup { requests: 3, seconds: 0.0 };
        let mut pace = Pace::new(&spec);
        let all = drain(&mut pace);
        assert_eq!(
            all.iter().map(|d| d.warmup).collect::<Vec<_>>()[..4],
            [true, true, true, false]
        );
        assert_eq!(all.len(), 8);
        let (start, end) = pace.window_s(&arrival, 9.0);
        assert!((start - 0.3).abs() < 1e-9 && (end - 0.8).abs() < 1e-9, "{start} {end}");
    }

    #[test]
    fn arrivals_may_have_a_seed_of_their_own() {
        let times = |seed, arrival_seed| {
            let spec = spec(Arrival::Poisson { rate_rps: 10.0 }, Some(50), None);
            let due = drain(&mut Pace::new(&LoadSpec { seed, arrival_seed, ..spec }));
            due.iter().map(|d| d.intended_s).collect::<Vec<_>>()
        };
        assert_eq!(times(1, Some(7)), times(2, Some(7)));
        assert_eq!(times(7, None), times(2, Some(7)));
        assert_ne!(times(1, None), times(2, None));
    }

    #[test]
    fn a_duration_counts_from_the_end_of_the_warm_up() {
        let arrival = Arrival::Constant { rate_rps: 10.0 };
        let mut spec = spec(arrival.clone(), None, Some(1.0));
        spec.warmup = Warmup { requests: 0, seconds: 0.5 };
        let mut pace = Pace::new(&spec);
        let all = drain(&mut pace);
        assert_eq!((all.len(), all.iter().filter(|d| d.warmup).count()), (15, 5));
        assert_eq!(pace.window_s(&arrival, 9.0), (0.5, 1.5));
        assert!(pace.ended());
    }

    #[test]
    fn a_window_ends_by_the_clock_or_where_it_was_stopped() {
        let arrival = Arrival::Constant { rate_rps: 3.0 };
        let mut pace = Pace::new(&spec(arrival.clone(), None, Some(1.1)));
        assert_eq!(drain(&mut pace).len(), 4);
        assert_eq!(pace.window_s(&arrival, 9.0), (0.0, 1.1), "not with the last arrival");
        let mut pace = Pace::new(&spec(arrival.clone(), None, Some(600.0)));
        let first = pace.peek().expect("one");
        pace.take(first);
        pace.stop(0.2);
        assert_eq!((pace.window_s(&arrival, 9.0), pace.peek()), ((0.0, 0.2), None));
    }

    #[test]
    fn a_closed_loop_waits_for_places() {
        let arrival = Arrival::Closed { concurrency: 2 };
        let mut pace = Pace::new(&spec(arrival.clone(), Some(3), None));
        assert_eq!(drain(&mut pace).len(), 2);
        assert!(!pace.ended(), "places may become free");
        pace.freed(0.7);
        let third = drain(&mut pace);
        assert_eq!((third.len(), third[0].intended_s), (1, 0.7));
        pace.freed(0.8);
        assert_eq!(pace.peek(), None);
        assert!(pace.ended());
        assert_eq!(pace.window_s(&arrival, 1.5), (0.0, 0.7), "until all are sent");
    }

    #[test]
    fn all_at_once_has_no_steady_part() {
        let arrival = Arrival::Closed { concurrency: 3 };
        let mut pace = Pace::new(&spec(arrival.clone(), Some(3), None));
        assert_eq!(drain(&mut pace).len(), 3);
        assert_eq!(pace.window_s(&arrival, 1.5), (0.0, 1.5));
    }
}
