//! How many devices a load needs.
//!
//! A number is enough if the devices together can serve the rate, the queue does not grow, and the
//! target is met. Without the first two a short run flatters: for a while an overload fits into
//! empty memory and a queue within the TTFT target.

use serde::{Deserialize, Serialize};

use crate::args::Policy;
use crate::outcome::Outcome;

/// Most devices that are tried.
pub(crate) const MAX_DEVICES: usize = 512;

/// How many devices a load needs, with the proof that one fewer is not enough.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Fleet {
    pub rate_rps: f64,
    pub policy: Policy,
    /// Share of the requests that must meet both targets.
    pub target: f64,
    /// The least number that is enough; none if [`MAX_DEVICES`] are not.
    pub devices: Option<usize>,
    /// With that number, or with the greatest that was tried.
    pub outcome: Outcome,
    /// Requests per second that these devices can serve.
    pub capacity_rps: f64,
    /// With one device fewer; none if one device is enough, or none is.
    pub one_less: Option<OneLess>,
}

/// A number of devices that is not enough.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct OneLess {
    pub devices: usize,
    /// Share of the requests that met both targets.
    pub goodput: f64,
    /// Requests per second that these devices can serve.
    pub capacity_rps: f64,
    pub fails_by: Shortfall,
}

/// Why a number of devices is not enough: the first that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Shortfall {
    /// Together they serve fewer requests per second than arrive.
    Capacity,
    /// The queue grows as long as requests arrive.
    Queue,
    /// Too few requests meet their targets.
    Goodput,
}

/// What is searched for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Search {
    /// Requests per second that arrive.
    pub rate_rps: f64,
    /// Requests per second that one device serves.
    pub capacity_rps: f64,
    /// Share of the requests that must meet both targets.
    pub target: f64,
    /// Most devices to try.
    pub bound: usize,
}

impl Search {
    fn capacity_of(&self, devices: usize) -> f64 {
        devices as f64 * self.capacity_rps
    }

    fn carries(&self, devices: usize) -> bool {
        // A rate of 8x is that of eight devices, whatever its last digit says.
        self.capacity_of(devices) >= self.rate_rps * (1.0 - 1e-9)
    }

    /// The least number that can serve the rate, at most one beyond the bound.
    fn floor(&self) -> usize {
        (1..=self.bound).find(|n| self.carries(*n)).unwrap_or(self.bound + 1)
    }

    fn shortfall(&self, devices: usize, outcome: &Outcome) -> Option<Shortfall> {
        if !self.carries(devices) {
            Some(Shortfall::Capacity)
        } else if outcome.queue.grows {
            Some(Shortfall::Queue)
        } else if outcome.attainment.goodput < self.target {
            Some(Shortfall::Goodput)
        } else {
            None
        }
    }

    fn one_less(&self, devices: usize, outcome: &Outcome) -> Option<OneLess> {
        Some(OneLess {
            devices,
            goodput: outcome.attainment.goodput,
            capacity_rps: self.capacity_of(devices),
            fails_by: self.shortfall(devices, outcome)?,
        })
    }

    /// Doubles from the least number that can serve the rate until one is enough, then halves the
    /// interval. The number below the answer is always tried.
    ///
    /// # Errors
    /// Those of `try_with`.
    pub(crate) fn run(
        &self,
        policy: Policy,
        try_with: impl Fn(usize) -> anyhow::Result<Outcome>,
    ) -> anyhow::Result<Fleet> {
        let enough = |n: usize, outcome: &Outcome| self.shortfall(n, outcome).is_none();
        let mut at = self.floor().min(self.bound);
        let mut outcome = try_with(at)?;
        // The greatest number that was tried and is not enough.
        let mut below: Option<(usize, Outcome)> = None;
        while !enough(at, &outcome) && at < self.bound {
            let next = (at * 2).min(self.bound);
            below = Some((at, std::mem::replace(&mut outcome, try_with(next)?)));
            at = next;
        }
        let found = enough(at, &outcome);
        while let Some((failed, _)) = below.as_ref().filter(|(n, _)| found && at - n > 1) {
            let middle = failed + (at - failed) / 2;
            let tried = try_with(middle)?;
            if enough(middle, &tried) {
                (at, outcome) = (middle, tried);
            } else {
                below = Some((middle, tried));
            }
        }
        if found && below.is_none() && at > 1 {
            below = Some((at - 1, try_with(at - 1)?));
        }
        let one_less = below.filter(|_| found).and_then(|(n, tried)| self.one_less(n, &tried));
        Ok(Fleet {
            rate_rps: self.rate_rps,
            policy,
            target: self.target,
            devices: found.then_some(at),
            capacity_rps: self.capacity_of(at),
            outcome,
            one_less,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Arrivals, Queue, Slo, Tally};

    fn outcome(goodput: f64, grows: bool) -> Outcome {
        let slo = Slo { ttft_s: 1.0, tbt_s: 1.0 };
        let arrivals = Arrivals { seconds: 1.0, burstiness: 1.0 };
        let mut outcome = Tally::default().outcome(slo, arrivals);
        outcome.attainment.goodput = goodput;
        outcome.queue = Queue { grows, ..Queue::default() };
        outcome
    }

    /// A rate that `carrying` devices can serve, where `needed` meet the target.
    fn find(carrying: usize, needed: usize, bound: usize) -> Fleet {
        let search = Search { rate_rps: carrying as f64, capacity_rps: 1.0, target: 0.95, bound };
        let try_with = |n: usize| Ok(outcome(if n >= needed { 1.0 } else { 0.5 }, false));
        search.run(Policy::Fcfs, try_with).expect("no error")
    }

    #[test]
    fn the_least_number_is_found_and_one_less_shown_to_fail() {
        for needed in 1..20 {
            for carrying in 1..=needed {
                let fleet = find(carrying, needed, 64);
                assert_eq!(fleet.devices, Some(needed), "needed {needed}, carrying {carrying}");
                let one_less = fleet.one_less.map(|o| (o.devices, o.goodput));
                assert_eq!(one_less, (needed > 1).then_some((needed - 1, 0.5)), "{needed}");
            }
        }
    }

    #[test]
    fn devices_that_cannot_serve_the_rate_are_never_enough() {
        // By goodput alone a single device would do.
        let fleet = find(11, 1, 64);
        assert_eq!((fleet.devices, fleet.capacity_rps), (Some(11), 11.0));
        let one_less = fleet.one_less.expect("tried");
        assert_eq!((one_less.devices, one_less.fails_by), (10, Shortfall::Capacity));
        assert_eq!(one_less.goodput, 1.0);
    }

    #[test]
    fn a_growing_queue_is_not_enough() {
        let search = Search { rate_rps: 3.0, capacity_rps: 1.0, target: 0.95, bound: 64 };
        let fleet = search.run(Policy::Fcfs, |n| Ok(outcome(1.0, n < 5))).expect("no error");
        assert_eq!(fleet.devices, Some(5));
        assert_eq!(fleet.one_less.expect("tried").fails_by, Shortfall::Queue);
    }

    #[test]
    fn beyond_the_bound_there_is_none() {
        for (carrying, needed) in [(3, 100), (100, 1)] {
            let fleet = find(carrying, needed, 64);
            assert_eq!((fleet.devices, fleet.one_less), (None, None));
            assert_eq!(fleet.capacity_rps, 64.0);
        }
    }
}
