//! What the host did to a server while it was measured.

use saccade_host::perf::{Counters, Event, Reading};
use saccade_host::{Delta, HostError, Root, Snapshot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counters of a server's processes and of the machine over one cell, warm-up and drain included.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HostRecord {
    /// Seconds between the two readings.
    pub seconds: f64,
    /// Processes at the end.
    pub processes: usize,
    /// Threads at the end.
    pub threads: usize,
    /// CPU seconds of the processes per second: cores in use.
    pub cores_used: f64,
    /// Of the time in which a thread wanted a core, the share in which it had none.
    pub run_queue_share: Option<f64>,
    /// Thread seconds spent waiting for a core.
    pub run_queue_s: Option<f64>,
    /// Milliseconds waited each time before a thread was put on a core.
    pub run_queue_ms_per_slice: Option<f64>,
    /// Context switches because a thread waited for something.
    pub voluntary_switches: Option<u64>,
    /// Context switches because something else was given the core.
    pub involuntary_switches: Option<u64>,
    /// Moves to another core.
    pub migrations: Option<u64>,
    /// Share of the time in which a thread on the machine waited for a core (PSI).
    pub cpu_pressure: Option<f64>,
    /// The same within the server's cgroup.
    pub cgroup_cpu_pressure: Option<f64>,
    /// The same for memory, on the machine.
    pub memory_pressure: Option<f64>,
    /// Throttling of the cgroups above the server, where they were throttled.
    pub throttling: BTreeMap<String, saccade_host::Throttling>,
    /// Cores of the machine in use, by all processes.
    pub machine_cores_busy: f64,
    /// Largest share of time that the hypervisor took from one core.
    pub steal: Option<f64>,
    /// Performance counters: the ones the machine has, and why the others are missing.
    pub perf: Reading,
    /// What could not be read, and why.
    pub problems: Vec<String>,
}

impl HostRecord {
    /// Instructions per cycle, where the machine counts both.
    #[must_use]
    pub fn instructions_per_cycle(&self) -> Option<f64> {
        self.quotient(Event::Instructions, Event::Cycles)
    }

    /// Share of loads from the last-level cache that missed it, where the machine counts both.
    #[must_use]
    pub fn llc_miss_share(&self) -> Option<f64> {
        self.quotient(Event::LlcMisses, Event::LlcLoads)
    }

    fn quotient(&self, of: Event, by: Event) -> Option<f64> {
        let (of, by) = (self.perf.value(of)?, self.perf.value(by)?);
        (by > 0.0).then(|| of / by)
    }
}

/// Reads at the start and at the end.
#[derive(Debug)]
pub struct HostWatch {
    before: Snapshot,
    counters: Counters,
}

impl HostWatch {
    /// Starts watching these processes.
    ///
    /// # Errors
    /// None of them can be read.
    pub fn start(root: &Root, pids: &[u32]) -> Result<HostWatch, HostError> {
        let before = Snapshot::take(root, pids)?;
        let tids: Vec<u32> = before.tasks.iter().map(|task| task.tid).collect();
        Ok(HostWatch { before, counters: Counters::open(&tids, &Event::ALL) })
    }

    /// What happened since then, to the processes that exist now.
    ///
    /// # Errors
    /// None of them can be read.
    pub fn finish(self, root: &Root, pids: &[u32]) -> Result<HostRecord, HostError> {
        let perf = self.counters.read();
        let after = Snapshot::take(root, pids)?;
        let delta = after.since(&self.before);
        Ok(record(&after, delta, perf))
    }
}

fn record(after: &Snapshot, delta: Delta, perf: Reading) -> HostRecord {
    let used_s = delta.total.cpu_s().unwrap_or(0.0).max(delta.process_cpu_s);
    let steal = delta.cpus.values().map(|core| core.steal).reduce(f64::max);
    HostRecord {
        seconds: delta.seconds,
        processes: after.processes.len(),
        threads: after.tasks.len(),
        cores_used: if delta.seconds > 0.0 { used_s / delta.seconds } else { 0.0 },
        run_queue_share: delta.total.wait_share(),
        run_queue_s: delta.total.wait_s,
        run_queue_ms_per_slice: delta.total.wait_ms_per_slice(),
        voluntary_switches: delta.total.voluntary,
        involuntary_switches: delta.total.involuntary,
        migrations: delta.total.migrations,
        cpu_pressure: delta.cpu_pressure,
        cgroup_cpu_pressure: delta.cgroup_cpu_pressure,
        memory_pressure: delta.memory_pressure,
        machine_cores_busy: delta.cpus.values().map(|core| core.busy).sum(),
        throttling: delta.throttling.into_iter().filter(|(_, t)| t.nr_throttled > 0).collect(),
        steal,
        perf,
        problems: after.problems.clone(),
    }
}
