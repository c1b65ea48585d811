//! Everything that grows, read at one moment; two of them make a [`crate::Delta`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cgroup::{Cgroups, Throttling};
use crate::machine::MachineTimes;
use crate::{HostError, Pressure, Process, Resource, Root, Task};

/// Counters of some processes and of the machine, at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Nanoseconds of a monotonic clock.
    pub at_ns: u64,
    /// The processes that could be read.
    pub processes: Vec<Process>,
    /// Their threads.
    pub tasks: Vec<Task>,
    /// All cores of the machine.
    pub machine: Option<MachineTimes>,
    /// Throttling by cgroup folder, of every level above the processes that counts it.
    pub throttling: BTreeMap<String, Throttling>,
    /// Pressure on cores, of the whole machine.
    pub cpu_pressure: Option<Pressure>,
    /// Pressure on memory, of the whole machine.
    pub memory_pressure: Option<Pressure>,
    /// Pressure on cores within the cgroup of the first process.
    pub cgroup_cpu_pressure: Option<Pressure>,
    /// What could not be read, and why.
    pub problems: Vec<String>,
}

impl Snapshot {
    /// Reads the machine's own tree, now. Processes that have ended are left out.
    ///
    /// # Errors
    /// None of `pids` can be read.
    pub fn take(root: &Root, pids: &[u32]) -> Result<Snapshot, HostError> {
        Snapshot::take_at(root, pids, monotonic_ns())
    }

    /// As [`Snapshot::take`], with the moment given: for scripted trees.
    ///
    /// # Errors
    /// None of `pids` can be read.
    pub fn take_at(root: &Root, pids: &[u32], at_ns: u64) -> Result<Snapshot, HostError> {
        let mut notes = Notes::default();
        let mut processes = Vec::new();
        let mut tasks = Vec::new();
        for &pid in pids {
            let read = Process::read(root, pid).and_then(|p| Ok((p, Task::read_all(root, pid)?)));
            if let Some((process, threads)) = notes.keep(read) {
                processes.push(process);
                tasks.extend(threads);
            }
        }
        if let (true, Some(error)) = (processes.is_empty(), &notes.first) {
            return Err(error.clone());
        }
        let mut throttling = BTreeMap::new();
        let mut cgroup_cpu_pressure = None;
        for (index, process) in processes.iter().enumerate() {
            let Some(groups) = notes.keep(Cgroups::of(root, process.pid)) else { continue };
            for level in notes.keep(groups.cpu_levels(root)).unwrap_or_default() {
                throttling.extend(level.throttling.map(|t| (level.dir, t)));
            }
            if index == 0 {
                cgroup_cpu_pressure = notes.keep(groups.pressure(root, Resource::Cpu)).flatten();
            }
        }
        Ok(Snapshot {
            at_ns,
            processes,
            tasks,
            machine: notes.keep(MachineTimes::read(root)),
            throttling,
            cpu_pressure: notes.keep(Pressure::system(root, Resource::Cpu)),
            memory_pressure: notes.keep(Pressure::system(root, Resource::Memory)),
            cgroup_cpu_pressure,
            problems: notes.texts,
        })
    }
}

/// Collects what failed.
#[derive(Default)]
struct Notes {
    first: Option<HostError>,
    texts: Vec<String>,
}

impl Notes {
    fn keep<T>(&mut self, read: Result<T, HostError>) -> Option<T> {
        let error = match read {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let text = error.to_string();
        if !self.texts.contains(&text) {
            self.texts.push(text);
        }
        self.first.get_or_insert(error);
        None
    }
}

/// Nanoseconds of the monotonic clock, comparable between processes of one boot.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec. It cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
