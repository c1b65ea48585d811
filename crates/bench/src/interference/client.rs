//! The measuring client: where and with what priority it runs, and whether a cell may be believed.

use saccade_host::CpuSet;
use saccade_load::{ClientHealth, LoadError, LoadSpec, Observer, Priority, Run, Summary, Target};
use serde::{Deserialize, Serialize};

use crate::output::counted;

/// The client's thread.
#[derive(Debug, Clone, clap::Args)]
pub struct ClientFlags {
    /// Priority of the client's thread: auto (the highest that is permitted), normal, nice:-20..19
    /// or fifo:1..99
    #[arg(long, value_name = "PRIORITY", default_value = "auto", value_parser = parse_priority)]
    pub client_priority: Wanted,
    /// Cores of the client; best are cores that neither server nor neighbour may use
    #[arg(long, value_name = "CORES", value_parser = CpuSet::from_flag)]
    pub client_cores: Option<CpuSet>,
    /// Leave a measurement out of the results when the client's own delays at P99 exceed this share
    /// of the median time to the first token (and 1 ms)
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub client_tolerance: f64,
}

/// A priority, or the search for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// The highest that is permitted.
    Auto,
    /// This one.
    This(Priority),
}

fn parse_priority(text: &str) -> Result<Wanted, String> {
    match text {
        "auto" => Ok(Wanted::Auto),
        other => other.parse().map(Wanted::This),
    }
}

/// What `auto` tries, in order. The lowest real-time priority: the client must not wait for a
/// neighbour, and uses a small part of a core.
const LADDER: [Priority; 3] = [Priority::Fifo(1), Priority::Nice(-15), Priority::Normal];

/// The client as it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Client {
    /// Priority of its thread.
    pub priority: Priority,
    /// Whether a higher one was wanted and not permitted.
    pub priority_refused: bool,
    /// Cores of its thread.
    pub cores: CpuSet,
    /// See [`ClientFlags::client_tolerance`].
    pub tolerance: f64,
}

impl Client {
    /// Settles priority and cores.
    ///
    /// # Errors
    /// A requested priority or set of cores is refused.
    pub fn settle(flags: &ClientFlags) -> anyhow::Result<Client> {
        if let Some(cores) = &flags.client_cores {
            cores.check_usable().map_err(|e| anyhow::anyhow!("--client-cores: {e}"))?;
        }
        let priority = match flags.client_priority {
            Wanted::This(priority) => {
                is_permitted(priority)?;
                priority
            }
            Wanted::Auto => {
                let permitted = LADDER.into_iter().find(|p| is_permitted(*p).is_ok());
                permitted.unwrap_or(Priority::Normal)
            }
        };
        let wanted_more = flags.client_priority == Wanted::Auto;
        let cores = flags.client_cores.clone().map_or_else(|| CpuSet::of_task(0), Ok)?;
        Ok(Client {
            priority,
            priority_refused: wanted_more && priority != LADDER[0],
            cores,
            tolerance: flags.client_tolerance,
        })
    }

    /// The same client on these cores.
    #[must_use]
    pub fn on(&self, cores: CpuSet) -> Client {
        Client { cores, ..self.clone() }
    }

    /// Runs a load on a thread of its own, with the client's cores and priority.
    ///
    /// # Errors
    /// Those of the load, and cores that are refused.
    pub fn run(
        &self,
        target: &Target,
        spec: &LoadSpec,
        observer: &dyn Observer,
    ) -> Result<Run, LoadError> {
        let work = || {
            self.cores
                .bind(0)
                .map_err(|source| LoadError::System { what: "the client's cores", source })?;
            saccade_load::run_on_own_thread(target, spec, observer, self.priority)
        };
        std::thread::scope(|scope| {
            scope.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Why a cell is untrustworthy; empty if it can be trusted.
    #[must_use]
    pub fn distrust(&self, health: &ClientHealth, summary: &Summary) -> Vec<String> {
        const NEVER_BELOW_MS: f64 = 1.0;
        const BUSY_SHARE: f64 = 0.9;
        let bound_ms = (self.tolerance * summary.from_intended.ttft_ms.p50).max(NEVER_BELOW_MS);
        let mut reasons = Vec::new();
        let delays = [("sent late", &health.send_lateness_ms), ("saw late", &health.loop_lag_ms)];
        for (what, delay) in delays {
            if delay.p99 > bound_ms {
                let p99 = delay.p99;
                reasons.push(format!(
                    "the client {what}: P99 {p99:.1} ms, at most {bound_ms:.1} ms allowed"
                ));
            }
        }
        if health.bound_hits > 0 {
            let hits = health.bound_hits;
            let arrivals = counted(hits as usize, "arrival");
            reasons.push(format!("{arrivals} waited because the client's bound was reached"));
        }
        if health.cpu_share > BUSY_SHARE {
            reasons.push(format!("the client used {:.0} % of its core", health.cpu_share * 100.0));
        }
        reasons
    }
}

/// Tried on a thread that ends.
fn is_permitted(priority: Priority) -> Result<(), LoadError> {
    let tried = std::thread::spawn(move || priority.apply()).join();
    tried.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use saccade_load::Distribution;

    use super::*;
    use crate::interference::tests::empty_summary;

    fn client() -> Client {
        let (priority, cores) = (Priority::Normal, CpuSet::new([0]));
        Client { priority, priority_refused: false, cores, tolerance: 0.05 }
    }

    fn health(late_ms: f64, lag_ms: f64) -> ClientHealth {
        let p99 = |p99| Distribution { p99, ..Distribution::default() };
        ClientHealth {
            send_lateness_ms: p99(late_ms),
            loop_lag_ms: p99(lag_ms),
            cpu_share: 0.1,
            run_queue_share: None,
            bound_hits: 0,
            max_in_flight_seen: 1,
            connections: 1,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_late_client_is_named() {
        let mut summary = empty_summary();
        summary.from_intended.ttft_ms.p50 = 100.0;
        let distrust = |late, lag| client().distrust(&health(late, lag), &summary).len();
        assert_eq!(distrust(4.9, 4.9), 0);
        assert_eq!(distrust(5.1, 0.0), 1);
        assert_eq!(distrust(5.1, 5.1), 2);
        // With a very fast server, a millisecond is not held against the client.
        summary.from_intended.ttft_ms.p50 = 1.0;
        assert!(client().distrust(&health(0.9, 0.9), &summary).is_empty());
        let full = ClientHealth { bound_hits: 1, cpu_share: 0.95, ..health(0.0, 0.0) };
        assert_eq!(client().distrust(&full, &summary).len(), 2);
    }
}
