//! Core time of the planes: time on a core and time in a run queue, as the kernel counts it. Covers
//! this process, and the device plane's if that runs on the same machine.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use prometheus::{CounterVec, GaugeVec};
use saccade_host::{Process, Root, Task};
use saccade_ring::DeviceInfo;

use super::{Builder, raise_to};

const FRONTEND: &str = "frontend";
const DEVICE: &str = "device";
const NS: f64 = 1e-9;

/// Series by plane; they move when [`PlaneMetrics::refresh`] is called.
pub struct PlaneMetrics {
    run_s: CounterVec,
    wait_s: CounterVec,
    info: GaugeVec,
    root: Root,
    meters: Mutex<Meters>,
}

#[derive(Default)]
struct Meters {
    frontend: Meter,
    device: Meter,
}

impl PlaneMetrics {
    pub(super) fn new(b: &Builder) -> prometheus::Result<Self> {
        let run = b.opts("saccade:run_seconds_total", "Time of a plane's threads on cores.");
        let wait = b.opts(
            "saccade:run_queue_wait_seconds_total",
            "Time of a plane's threads runnable, without a core.",
        );
        let info = b.opts("saccade:plane_info", "Process of a plane on this machine.");
        Ok(Self {
            run_s: b.add(CounterVec::new(run, &["plane"]))?,
            wait_s: b.add(CounterVec::new(wait, &["plane"]))?,
            info: b.add(GaugeVec::new(info, &["plane", "pid"]))?,
            root: Root::default(),
            meters: Mutex::default(),
        })
    }

    /// Reads the threads of the planes and sets every series. Blocks on files of /proc, four for
    /// each thread. A plane that cannot be read, or runs on another machine, has no series.
    pub fn refresh(&self, device: &DeviceInfo) {
        let own = std::process::id();
        let local = device.alive && is_process(&self.root, device.pid, device.process_start_ticks);
        // Sums are consistent after any panic: at worst one reading is missing.
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        self.info.reset();
        self.show(FRONTEND, own, meters.frontend.read(&self.root, own));
        let read = if local { meters.device.read(&self.root, device.pid) } else { None };
        self.show(DEVICE, device.pid, read);
    }

    fn show(&self, plane: &str, pid: u32, read: Option<Times>) {
        let Some(times) = read else {
            // An error means that there was no such series.
            let _ = self.run_s.remove_label_values(&[plane]);
            let _ = self.wait_s.remove_label_values(&[plane]);
            return;
        };
        self.info.with_label_values(&[plane, &pid.to_string()]).set(1.0);
        raise_to(&self.run_s.with_label_values(&[plane]), times.run_ns as f64 * NS);
        raise_to(&self.wait_s.with_label_values(&[plane]), times.wait_ns as f64 * NS);
    }
}

/// Whether the pid that the device plane reports is the same process on this machine.
fn is_process(root: &Root, pid: u32, start_ticks: u64) -> bool {
    pid != 0 && Process::read(root, pid).is_ok_and(|p| p.start_ticks == start_ticks)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Times {
    run_ns: u64,
    wait_ns: u64,
}

/// Sums over the threads of one process. They only grow while it lives: the share of a thread that
/// has ended since is kept.
#[derive(Default)]
struct Meter {
    pid: u32,
    threads: HashMap<(u32, u64), Times>,
    total: Times,
}

impl Meter {
    /// `None`: the process is gone, or the kernel keeps no such count.
    fn read(&mut self, root: &Root, pid: u32) -> Option<Times> {
        let tasks = Task::read_all(root, pid).ok()?;
        if self.pid != pid {
            *self = Self { pid, ..Self::default() };
        }
        let mut living = HashMap::with_capacity(tasks.len());
        for task in tasks {
            let identity = (task.tid, task.start_ticks);
            let now = Times { run_ns: task.counters.run_ns?, wait_ns: task.counters.wait_ns? };
            let before = self.threads.get(&identity).copied().unwrap_or_default();
            self.total.run_ns += now.run_ns.saturating_sub(before.run_ns);
            self.total.wait_ns += now.wait_ns.saturating_sub(before.wait_ns);
            living.insert(identity, now);
        }
        self.threads = living;
        Some(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "S 1 1 1 0 -1 4194560 0 0 0 0 11 12 0 0 20 0 1 0 START 0 0 1 2 3 4 0 0 0 0 \
        0 0 0 0 0 17 1 0 0 0 0 0";

    fn thread(dir: &std::path::Path, tid: u32, start: u64, run_ns: u64, wait_ns: u64) {
        let task = dir.join(format!("proc/7/task/{tid}"));
        std::fs::create_dir_all(&task).unwrap();
        let stat = STAT.replace("START", &start.to_string());
        std::fs::write(task.join("stat"), format!("{tid} (http) {stat}")).unwrap();
        std::fs::write(task.join("schedstat"), format!("{run_ns} {wait_ns} 9\n")).unwrap();
    }

    #[test]
    fn sums_outlive_the_threads() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let mut meter = Meter::default();
        assert_eq!(meter.read(&root, 7), None);
        thread(dir.path(), 7, 100, 50, 5);
        thread(dir.path(), 8, 100, 30, 3);
        assert_eq!(meter.read(&root, 7), Some(Times { run_ns: 80, wait_ns: 8 }));
        // One ends; its id is given to another, which has done less.
        thread(dir.path(), 8, 900, 10, 1);
        thread(dir.path(), 7, 100, 60, 5);
        assert_eq!(meter.read(&root, 7), Some(Times { run_ns: 100, wait_ns: 9 }));
        std::fs::remove_dir_all(dir.path().join("proc/7/task/8")).unwrap();
        assert_eq!(meter.read(&root, 7), Some(Times { run_ns: 100, wait_ns: 9 }));
    }
}
