//! Whether a server is quiet: a short request takes about as long as on an idle server.

use std::time::{Duration, Instant};

use saccade_load::{Arrival, LoadError, LoadSpec, RequestRecord, Target, Workload};

use crate::interference::{Client, median};

/// A probe is quick if it takes at most this many times what it takes on a quiet server, …
const QUIET_FACTOR: f64 = 3.0;
/// … plus this.
const QUIET_SLACK_S: f64 = 0.02;
const PROBE_PAUSE: Duration = Duration::from_millis(100);
const PROBE_TOKENS: u32 = 16;
const QUIET_PROBES: u64 = 5;

/// Median seconds of a probe while nothing else asks; none: no answer in time.
///
/// # Errors
/// The load cannot be sent at all.
pub(super) fn measure(
    client: &Client,
    target: &Target,
    seed: u64,
    timeout_s: f64,
) -> Result<Option<f64>, LoadError> {
    probe(client, target, seed, QUIET_PROBES, timeout_s)
}

/// Seconds until a server whose probes take `quiet_s` is quiet again; none: not within the limit.
///
/// # Errors
/// As [`measure`].
pub(super) fn wait(
    client: &Client,
    target: &Target,
    quiet_s: f64,
    seed: u64,
    limit: Duration,
) -> Result<Option<f64>, LoadError> {
    let bound_s = QUIET_FACTOR * quiet_s + QUIET_SLACK_S;
    let from = Instant::now();
    for round in 0.. {
        let Some(left) = limit.checked_sub(from.elapsed()).filter(|left| !left.is_zero()) else {
            break;
        };
        // Far from the seeds of what is measured.
        let seed = (!seed).wrapping_sub(round << 32);
        let seen = probe(client, target, seed, 1, left.as_secs_f64())?;
        if seen.is_some_and(|seconds| seconds <= bound_s) {
            return Ok(Some(from.elapsed().as_secs_f64()));
        }
        std::thread::sleep(PROBE_PAUSE);
    }
    Ok(None)
}

/// Median seconds to the first token of some short requests; none if one gets none in time.
fn probe(
    client: &Client,
    target: &Target,
    seed: u64,
    requests: u64,
    timeout_s: f64,
) -> Result<Option<f64>, LoadError> {
    let arrival = Arrival::Closed { concurrency: 1 };
    let mut spec = LoadSpec::new(arrival, Workload::fixed(PROBE_TOKENS, 1), requests);
    (spec.request_timeout_s, spec.drain_timeout_s, spec.seed) = (timeout_s, timeout_s, seed);
    let run = client.run(target, &spec, &())?;
    let times: Option<Vec<f64>> = run.requests.iter().map(RequestRecord::ttft_s).collect();
    Ok(times.and_then(|times| median(&times)))
}
