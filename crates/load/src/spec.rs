//! What a run is.

use serde::{Deserialize, Serialize};

use crate::{Arrival, LoadError, RequestRecord, Workload};

/// The requests before the measurement. They are sent and recorded like the others, marked
/// [`RequestRecord::warmup`], and excluded from every statistic. Both conditions must have passed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Warmup {
    /// The first requests, this many.
    pub requests: u64,
    /// Requests intended before this many seconds have passed.
    pub seconds: f64,
}

/// One run: when requests come, what they ask, when it ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadSpec {
    /// When requests are sent.
    pub arrival: Arrival,
    /// What they ask.
    pub workload: Workload,
    /// Measured requests; warm-up requests come on top.
    pub requests: Option<u64>,
    /// Measured seconds; warm-up seconds come on top. With `requests`, what comes first ends it.
    pub duration_s: Option<f64>,
    /// What is excluded.
    pub warmup: Warmup,
    /// A request that has not ended this long after it was sent is cut and counts as a time-out.
    pub request_timeout_s: f64,
    /// What is still in flight this long after the last arrival is cut.
    pub drain_timeout_s: f64,
    /// Most requests at one time. An arrival that finds it reached waits; that wait is part of the
    /// lateness and counted in [`ClientHealth::bound_hits`](crate::ClientHealth::bound_hits).
    pub max_in_flight: usize,
    /// Seed of arrival times, lengths and prompts: equal seeds give equal requests.
    pub seed: u64,
    /// Seed of arrival times alone, if it is not `seed`: the same arrivals with other prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrival_seed: Option<u64>,
}

impl LoadSpec {
    /// Seconds until a request counts as timed out, where nothing else is asked for.
    pub const DEFAULT_TIMEOUT_S: f64 = 600.0;
    /// Requests in flight at one time, where nothing else is asked for.
    pub const DEFAULT_MAX_IN_FLIGHT: usize = 4096;

    /// `requests` requests of `workload`, no warm-up, the default bounds, seed 0.
    pub fn new(arrival: Arrival, workload: Workload, requests: u64) -> LoadSpec {
        LoadSpec {
            arrival,
            workload,
            requests: Some(requests),
            duration_s: None,
            warmup: Warmup::default(),
            request_timeout_s: LoadSpec::DEFAULT_TIMEOUT_S,
            drain_timeout_s: LoadSpec::DEFAULT_TIMEOUT_S,
            max_in_flight: LoadSpec::DEFAULT_MAX_IN_FLIGHT,
            seed: 0,
            arrival_seed: None,
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// [`LoadError::Spec`] naming the field and its bound.
    pub fn validate(&self) -> Result<(), LoadError> {
        self.arrival.validate()?;
        self.workload.validate()?;
        let endless = !matches!(self.arrival, Arrival::Replay { .. });
        if self.requests.is_none() && self.duration_s.is_none() && endless {
            return Err(LoadError::spec("requests", "give a number of requests or a duration"));
        }
        if self.requests == Some(0) {
            return Err(LoadError::spec("requests", "must be at least 1"));
        }
        if let Some(s) = self.duration_s {
            positive("duration", s)?;
        }
        if !(self.warmup.seconds >= 0.0 && self.warmup.seconds <= MAX_SECONDS) {
            return Err(LoadError::spec("warmup", format!("must lie in 0..={MAX_SECONDS} s")));
        }
        positive("request timeout", self.request_timeout_s)?;
        positive("drain timeout", self.drain_timeout_s)?;
        if self.max_in_flight == 0 || self.max_in_flight > MAX_IN_FLIGHT {
            return Err(LoadError::spec(
                "max in flight",
                format!("must lie in 1..={MAX_IN_FLIGHT}"),
            ));
        }
        match self.arrival {
            Arrival::Closed { concurrency } if concurrency > self.max_in_flight => Err(
                LoadError::spec("concurrency", format!("must not exceed {}", self.max_in_flight)),
            ),
            _ => Ok(()),
        }
    }
}

/// Longest run, warm-up or time-out: a week.
pub(crate) const MAX_SECONDS: f64 = 7.0 * 86400.0;
/// More connections than one address pair has ports.
const MAX_IN_FLIGHT: usize = 65_536;

fn positive(field: &'static str, seconds: f64) -> Result<(), LoadError> {
    if seconds > 0.0 && seconds <= MAX_SECONDS {
        return Ok(());
    }
    Err(LoadError::spec(field, format!("must lie in (0, {MAX_SECONDS}] s, is {seconds}")))
}

/// Watches a run. Called on the client's thread: whatever it does is the client's lateness.
pub trait Observer: Sync {
    /// A request was sent; `in_flight` counts it too.
    fn sent(&self, _in_flight: usize) {}
    /// A request ended, well or badly.
    fn finished(&self, _record: &RequestRecord) {}
    /// Asked before each arrival and at least every 50 ms: `true` ends the arrivals.
    fn should_stop(&self) -> bool {
        false
    }
}

impl Observer for () {}
