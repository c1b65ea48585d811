//! The run-queue wait of this process itself, for a server that exports it as a metric.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::task::parse_schedstat;
use crate::{HostError, Root};

/// What the threads of a process did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnWait {
    /// Nanoseconds on cores.
    pub run_ns: u64,
    /// Nanoseconds runnable, waiting for a core.
    pub wait_ns: u64,
    /// Times that a thread was put on a core.
    pub timeslices: u64,
    /// Threads.
    pub threads: u64,
}

/// Sum over the threads that live now. It falls when a thread ends: see [`WaitMeter`] for a
/// counter that does not. Costs one file of one line for each thread.
///
/// # Errors
/// The kernel keeps no schedstat, or /proc is not mounted.
pub fn self_wait() -> Result<OwnWait, HostError> {
    let mut meter = WaitMeter::default();
    meter.read()
}

/// A sum that only grows: it keeps what ended threads had done as of the last reading.
#[derive(Debug, Default)]
pub struct WaitMeter {
    root: Root,
    threads: HashMap<u32, [u64; 3]>,
    ended: [u64; 3],
}

impl WaitMeter {
    /// Reads a tree other than the machine's.
    pub fn at(root: Root) -> WaitMeter {
        WaitMeter { root, ..WaitMeter::default() }
    }

    /// What all threads did since the process began.
    ///
    /// # Errors
    /// The kernel keeps no schedstat, or /proc is not mounted.
    pub fn read(&mut self) -> Result<OwnWait, HostError> {
        let dir = "proc/self/task";
        let mut living = HashMap::new();
        let mut failed = None;
        for tid in self.root.numbers(dir)? {
            let path = format!("{dir}/{tid}/schedstat");
            match self.root.read(&path) {
                Ok(bytes) => drop(parse_schedstat(&bytes).map(|three| living.insert(tid, three))),
                Err(error) => failed = Some(error),
            }
        }
        if living.is_empty() {
            let none = HostError::malformed(self.root.path(dir), "no schedstat of any thread");
            return Err(failed.unwrap_or(none));
        }
        self.retire(&living);
        self.threads = living;
        let sums = self.threads.values().fold(self.ended, add);
        let threads = self.threads.len() as u64;
        Ok(OwnWait { run_ns: sums[0], wait_ns: sums[1], timeslices: sums[2], threads })
    }

    /// Keeps what ended threads did; a counter that runs backwards means a reused thread number.
    fn retire(&mut self, living: &HashMap<u32, [u64; 3]>) {
        for (tid, last) in &self.threads {
            if living.get(tid).is_none_or(|now| now[0] < last[0]) {
                self.ended = add(self.ended, last);
            }
        }
    }
}

fn add(a: [u64; 3], b: &[u64; 3]) -> [u64; 3] {
    std::array::from_fn(|i| a[i].saturating_add(b[i]))
}
