//! Is the client itself in time?

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::clock::{Epoch, Timer, monotonic_s, thread_cpu_s};
use crate::{ClientHealth, Distribution, LoadError, RequestRecord};

/// Between two readings of the event loop's lag.
const LAG_PERIOD: Duration = Duration::from_millis(10);
/// Readings kept; when they are full, every other one is dropped and half as many are taken.
const MAX_LAGS: usize = 1 << 20;

/// From here on the client is named in a warning.
const WARN_LATENESS_P99_MS: f64 = 1.0;
const WARN_LAG_P99_MS: f64 = 1.0;
const WARN_CPU_SHARE: f64 = 0.8;
const WARN_RUN_QUEUE_SHARE: f64 = 0.02;

/// Watches the client's thread from the start of a run.
#[derive(Debug)]
pub(crate) struct Watch {
    lags_s: Arc<Mutex<Lags>>,
    task: JoinHandle<()>,
    wall_s: f64,
    cpu_s: f64,
    run_queue_s: Option<f64>,
}

#[derive(Debug, Default)]
struct Lags {
    seconds: Vec<f64>,
    /// One reading in 2^this is kept.
    stride_log2: u32,
    readings: u64,
}

impl Lags {
    fn push(&mut self, lag_s: f64) {
        self.readings += 1;
        if self.readings & ((1 << self.stride_log2) - 1) != 0 {
            return;
        }
        if self.seconds.len() == MAX_LAGS {
            let mut keep = false;
            self.seconds.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride_log2 += 1;
        }
        self.seconds.push(lag_s);
    }
}

impl Watch {
    pub(crate) fn start() -> Result<Watch, LoadError> {
        let timer = Timer::new().map_err(|source| LoadError::System { what: "a timer", source })?;
        let lags_s = Arc::new(Mutex::new(Lags::default()));
        let task = tokio::spawn(measure_lag(timer, Arc::clone(&lags_s)));
        Ok(Watch {
            lags_s,
            task,
            wall_s: monotonic_s(),
            cpu_s: thread_cpu_s(),
            run_queue_s: run_queue_s(),
        })
    }

    /// The health of the whole run. `counts`: bound hits, most in flight, connections.
    pub(crate) fn finish(self, records: &[RequestRecord], counts: Counts) -> ClientHealth {
        self.task.abort();
        let wall_s = (monotonic_s() - self.wall_s).max(1e-9);
        let lags = self.lags_s.lock().map(|lags| lags.seconds.clone()).unwrap_or_default();
        let measured = records.iter().filter(|r| !r.warmup);
        let waited = self.run_queue_s.zip(run_queue_s()).map(|(from, to)| (to - from) / wall_s);
        let mut health = ClientHealth {
            send_lateness_ms: Distribution::of(measured.map(|r| (r.sent_s - r.intended_s) * 1e3)),
            loop_lag_ms: Distribution::of(lags.into_iter().map(|s| s * 1e3)),
            cpu_share: (thread_cpu_s() - self.cpu_s) / wall_s,
            run_queue_share: waited,
            bound_hits: counts.bound_hits,
            max_in_flight_seen: counts.max_in_flight_seen,
            connections: counts.connections,
            warnings: Vec::new(),
        };
        health.warnings = warnings(&health);
        health
    }
}

/// What the run loop counted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub bound_hits: u64,
    pub max_in_flight_seen: usize,
    pub connections: u64,
}

async fn measure_lag(timer: Timer, lags: Arc<Mutex<Lags>>) {
    let epoch = Epoch::now();
    let mut due_s = LAG_PERIOD.as_secs_f64();
    loop {
        timer.until(epoch.at(due_s)).await;
        let now_s = epoch.elapsed_s();
        if let Ok(mut lags) = lags.lock() {
            lags.push(now_s - due_s);
        }
        due_s = now_s + LAG_PERIOD.as_secs_f64();
    }
}

/// Seconds that this thread was ready but not running, on Linux.
fn run_queue_s() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

fn warnings(health: &ClientHealth) -> Vec<String> {
    let mut warnings = Vec::new();
    let lateness = health.send_lateness_ms;
    if health.bound_hits > 0 {
        let hits = health.bound_hits;
        warnings.push(format!("{hits} arrivals waited because the in-flight bound was reached"));
    } else if lateness.p99 > WARN_LATENESS_P99_MS {
        warnings.push(format!(
            "the client sent late: P99 {:.1} ms, at most {:.1} ms",
            lateness.p99, lateness.max
        ));
    }
    if health.loop_lag_ms.p99 > WARN_LAG_P99_MS {
        let lag = health.loop_lag_ms;
        warnings.push(format!(
            "the client's event loop lagged: P99 {:.1} ms, at most {:.1} ms",
            lag.p99, lag.max
        ));
    }
    if health.cpu_share > WARN_CPU_SHARE {
        let percent = health.cpu_share * 100.0;
        warnings.push(format!("the client used {percent:.0} % of its core"));
    }
    if let Some(share) = health.run_queue_share.filter(|s| *s > WARN_RUN_QUEUE_SHARE) {
        warnings.push(format!(
            "the client waited for a core {:.1} % of the time: give it one of its own, or raise \
             its priority",
            share * 100.0
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lags_are_bounded_and_cover_the_whole_run() {
        let mut lags = Lags::default();
        let n = 5 * MAX_LAGS / 2;
        (0..n).for_each(|i| lags.push(i as f64));
        assert!(lags.seconds.len() <= MAX_LAGS);
        assert!(lags.seconds.len() > MAX_LAGS / 2);
        assert!(lags.seconds.windows(2).all(|w| w[0] < w[1]));
        assert!(lags.seconds[0] < 8.0 && lags.seconds[lags.seconds.len() - 1] > n as f64 - 8.0);
    }
}
