//! What happened between two snapshots, per second.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::cgroup::Throttling;
use crate::task::Counters;
use crate::{CpuSet, Pressure, Snapshot, Task};

const NS: f64 = 1e9;

/// What happened between two snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// Seconds between them.
    pub seconds: f64,
    /// Threads that are alive at the end.
    pub tasks: Vec<TaskDelta>,
    /// Their sum.
    pub total: Use,
    /// CPU seconds of the processes by the coarser clock, threads that ended included.
    pub process_cpu_s: f64,
    /// Threads that began in between; what they did is in `tasks`.
    pub threads_born: usize,
    /// Threads that ended in between; what they did is in `process_cpu_s` only.
    pub threads_gone: usize,
    /// Cores of the machine.
    pub cpus: BTreeMap<u32, CpuUse>,
    /// By cgroup folder.
    pub throttling: BTreeMap<String, Throttling>,
    /// Share of the time in which some task on the machine waited for a core, 0 .. 1.
    pub cpu_pressure: Option<f64>,
    /// The same for memory.
    pub memory_pressure: Option<f64>,
    /// The same for a core, within the cgroup of the first process.
    pub cgroup_cpu_pressure: Option<f64>,
    /// Context switches of the machine.
    pub machine_context_switches: Option<u64>,
    /// Threads and processes created on the machine.
    pub machine_forks: Option<u64>,
}

/// What one thread, or several, did. `None`: not counted here (for sums: of none of them).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// Seconds on a core.
    pub run_s: Option<f64>,
    /// Seconds runnable, waiting for a core.
    pub wait_s: Option<f64>,
    /// Times put on a core.
    pub timeslices: Option<u64>,
    /// Seconds in user mode.
    pub user_s: Option<f64>,
    /// Seconds in the kernel.
    pub system_s: Option<f64>,
    /// Switches because it waited for something.
    pub voluntary: Option<u64>,
    /// Switches because its core was given away.
    pub involuntary: Option<u64>,
    /// Moves to another core.
    pub migrations: Option<u64>,
}

impl Use {
    /// Of the time in which it wanted a core, the share in which it had none, 0 .. 1. `None` where
    /// it is not counted, or nothing wanted a core.
    pub fn wait_share(&self) -> Option<f64> {
        let (run, wait) = (self.run_s?, self.wait_s?);
        (run + wait > 0.0).then(|| wait / (run + wait))
    }

    /// Milliseconds waited each time before it was put on a core.
    pub fn wait_ms_per_slice(&self) -> Option<f64> {
        let slices = self.timeslices.filter(|&n| n > 0)?;
        Some(self.wait_s? * 1e3 / slices as f64)
    }

    /// Seconds on a core, by the finer clock if there is one.
    pub fn cpu_s(&self) -> Option<f64> {
        self.run_s.or_else(|| Some(self.user_s? + self.system_s?))
    }

    /// Adds what another did.
    pub fn add(&mut self, other: &Use) {
        sum(&mut self.run_s, other.run_s);
        sum(&mut self.wait_s, other.wait_s);
        sum(&mut self.timeslices, other.timeslices);
        sum(&mut self.user_s, other.user_s);
        sum(&mut self.system_s, other.system_s);
        sum(&mut self.voluntary, other.voluntary);
        sum(&mut self.involuntary, other.involuntary);
        sum(&mut self.migrations, other.migrations);
    }

    fn between(now: &Counters, then: &Counters) -> Use {
        let count = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        let seconds = |now, then| count(now, then).map(|ns| ns as f64 / NS);
        Use {
            run_s: seconds(now.run_ns, then.run_ns),
            wait_s: seconds(now.wait_ns, then.wait_ns),
            timeslices: count(now.timeslices, then.timeslices),
            user_s: seconds(now.user_ns, then.user_ns),
            system_s: seconds(now.system_ns, then.system_ns),
            voluntary: count(now.voluntary, then.voluntary),
            involuntary: count(now.involuntary, then.involuntary),
            migrations: count(now.migrations, then.migrations),
        }
    }
}

fn sum<T: std::ops::AddAssign>(to: &mut Option<T>, from: Option<T>) {
    match (to.as_mut(), from) {
        (Some(to), Some(from)) => *to += from,
        (None, from) => *to = from,
        (Some(_), None) => {}
    }
}

/// What one thread did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskDelta {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Its name at the end.
    pub name: String,
    /// Core that it last ran on.
    pub last_cpu: Option<u32>,
    /// Cores that it may run on.
    pub affinity: Option<CpuSet>,
    /// What it did.
    #[serde(flatten)]
    pub used: Use,
}

/// What one core did, as shares of the time, 0 .. 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Running something.
    pub busy: f64,
    /// Taken by the hypervisor while something wanted to run.
    pub steal: f64,
}

impl Snapshot {
    /// What happened since an earlier snapshot. Covers only what both know.
    pub fn since(&self, earlier: &Snapshot) -> Delta {
        let seconds = self.at_ns.saturating_sub(earlier.at_ns) as f64 / NS;
        let identity = |task: &Task| (task.tid, task.start_ticks);
        let mut before: HashMap<_, &Task> =
            earlier.tasks.iter().map(|task| (identity(task), task)).collect();
        let nothing = Counters {
            run_ns: Some(0),
            wait_ns: Some(0),
            timeslices: Some(0),
            user_ns: Some(0),
            system_ns: Some(0),
            voluntary: Some(0),
            involuntary: Some(0),
            migrations: Some(0),
        };
        let mut threads_born = 0;
        let mut total = Use::default();
        let tasks = self.tasks.iter().map(|task| {
            let then = before.remove(&identity(task)).map_or_else(
                || {
                    threads_born += 1;
                    nothing
                },
                |then| then.counters,
            );
            let used = Use::between(&task.counters, &then);
            total.add(&used);
            TaskDelta {
                pid: task.pid,
                tid: task.tid,
                name: task.name.clone(),
                last_cpu: task.last_cpu,
                affinity: task.affinity.clone(),
                used,
            }
        });
        let tasks = tasks.collect();
        let machine = self.machine.as_ref().zip(earlier.machine.as_ref());
        let counted = |of: fn(&crate::machine::MachineTimes) -> Option<u64>| {
            let (now, then) = machine?;
            Some(of(now)?.saturating_sub(of(then)?))
        };
        Delta {
            seconds,
            tasks,
            total,
            process_cpu_s: self.process_cpu_s(earlier),
            threads_born,
            threads_gone: before.len(),
            cpus: self.cpu_use(earlier),
            throttling: self.throttling_since(earlier),
            cpu_pressure: share(self.cpu_pressure, earlier.cpu_pressure, seconds),
            memory_pressure: share(self.memory_pressure, earlier.memory_pressure, seconds),
            cgroup_cpu_pressure: share(
                self.cgroup_cpu_pressure,
                earlier.cgroup_cpu_pressure,
                seconds,
            ),
            machine_context_switches: counted(|m| m.context_switches),
            machine_forks: counted(|m| m.forks),
        }
    }

    fn process_cpu_s(&self, earlier: &Snapshot) -> f64 {
        let cpu = |p: &crate::Process| p.user_ns.saturating_add(p.system_ns);
        let before: HashMap<_, u64> =
            earlier.processes.iter().map(|p| ((p.pid, p.start_ticks), cpu(p))).collect();
        let grown = self.processes.iter().map(|p| {
            cpu(p).saturating_sub(before.get(&(p.pid, p.start_ticks)).copied().unwrap_or(0))
        });
        grown.sum::<u64>() as f64 / NS
    }

    fn cpu_use(&self, earlier: &Snapshot) -> BTreeMap<u32, CpuUse> {
        let Some((now, then)) = self.machine.as_ref().zip(earlier.machine.as_ref()) else {
            return BTreeMap::new();
        };
        let used = |(&cpu, now): (&u32, &crate::machine::CpuTimes)| {
            let then = then.cpus.get(&cpu)?;
            let busy = now.busy_ns.saturating_sub(then.busy_ns) as f64;
            let steal = now.steal_ns.saturating_sub(then.steal_ns) as f64;
            // Of what the core's own clock counted: ticks and our clock do not begin together.
            let all = busy + steal + now.idle_ns.saturating_sub(then.idle_ns) as f64;
            (all > 0.0).then(|| (cpu, CpuUse { busy: busy / all, steal: steal / all }))
        };
        now.cpus.iter().filter_map(used).collect()
    }

    fn throttling_since(&self, earlier: &Snapshot) -> BTreeMap<String, Throttling> {
        let grown = |(dir, now): (&String, &Throttling)| {
            let then = earlier.throttling.get(dir)?;
            let grown = Throttling {
                nr_periods: now.nr_periods.saturating_sub(then.nr_periods),
                nr_throttled: now.nr_throttled.saturating_sub(then.nr_throttled),
                throttled_ns: now.throttled_ns.saturating_sub(then.throttled_ns),
            };
            Some((dir.clone(), grown))
        };
        self.throttling.iter().filter_map(grown).collect()
    }
}

impl Delta {
    /// CPU seconds that `cores` spent on anything but these processes, per second: how many of the
    /// cores others used. Exact when the processes ran on `cores` only.
    pub fn others_cores(&self, cores: &CpuSet) -> Option<f64> {
        if self.seconds <= 0.0 || self.cpus.is_empty() {
            return None;
        }
        let busy: f64 = cores.iter().filter_map(|c| self.cpus.get(&c)).map(|c| c.busy).sum();
        let own = self.total.cpu_s()?.max(self.process_cpu_s) / self.seconds;
        Some((busy - own).max(0.0))
    }

    /// Largest share of time that the hypervisor took from one of `cores`, 0 .. 1.
    pub fn steal(&self, cores: &CpuSet) -> Option<f64> {
        cores.iter().filter_map(|c| self.cpus.get(&c)).map(|c| c.steal).reduce(f64::max)
    }
}

fn share(now: Option<Pressure>, then: Option<Pressure>, seconds: f64) -> Option<f64> {
    let stalled_us = now?.some.total_us.saturating_sub(then?.some.total_us);
    (seconds > 0.0).then(|| (stalled_us as f64 / 1e6 / seconds).min(1.0))
}
