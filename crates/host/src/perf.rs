//! Performance counters of threads (perf_event_open(2)), where the machine has and allows them.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

use serde::{Deserialize, Serialize};

/// Most threads that are counted: each costs one descriptor for each event.
pub const MAX_THREADS: usize = 256;

/// What can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Nanoseconds on a core.
    TaskClock,
    /// Switches of any kind.
    ContextSwitches,
    /// Moves to another core.
    CpuMigrations,
    /// Page faults, minor and major.
    PageFaults,
    /// Core cycles.
    Cycles,
    /// Instructions retired.
    Instructions,
    /// Loads that missed the last-level cache.
    LlcMisses,
    /// Loads that asked the last-level cache.
    LlcLoads,
    /// Loads whose page was not in the first-level TLB.
    DtlbMisses,
}

impl Event {
    /// All of them.
    pub const ALL: [Event; 9] = [
        Event::TaskClock,
        Event::ContextSwitches,
        Event::CpuMigrations,
        Event::PageFaults,
        Event::Cycles,
        Event::Instructions,
        Event::LlcMisses,
        Event::LlcLoads,
        Event::DtlbMisses,
    ];

    /// `type` and `config` of perf_event_attr.
    fn code(self) -> (u32, u64) {
        const HARDWARE: u32 = 0;
        const SOFTWARE: u32 = 1;
        const CACHE: u32 = 3;
        // Cache id, operation (0: read) << 8, result (0: access, 1: miss) << 16.
        const LAST_LEVEL: u64 = 2;
        const DATA_TLB: u64 = 3;
        const MISS: u64 = 1 << 16;
        match self {
            Event::Cycles => (HARDWARE, 0),
            Event::Instructions => (HARDWARE, 1),
            Event::TaskClock => (SOFTWARE, 1),
            Event::PageFaults => (SOFTWARE, 2),
            Event::ContextSwitches => (SOFTWARE, 3),
            Event::CpuMigrations => (SOFTWARE, 4),
            Event::LlcMisses => (CACHE, LAST_LEVEL | MISS),
            Event::LlcLoads => (CACHE, LAST_LEVEL),
            Event::DtlbMisses => (CACHE, DATA_TLB | MISS),
        }
    }
}

/// The first version of `perf_event_attr`, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64, "PERF_ATTR_SIZE_VER0");

/// Threads started later are counted with the thread that started them.
const INHERIT: u64 = 1 << 1;
/// Kernel time is not counted: without privilege it may not be.
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// Reads give value, time enabled, time running.
const TOTAL_TIMES: u64 = 3;

/// Counters that run.
#[derive(Debug)]
pub struct Counters {
    events: Vec<(Event, Vec<File>)>,
    absent: Vec<(Event, String)>,
}

/// What was counted of one event.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// The event.
    pub event: Event,
    /// Since the counters were opened, over all threads.
    pub value: f64,
    /// Share of the time in which the hardware counted, 0 .. 1; below 1 the value is scaled up.
    pub counted: f64,
}

/// A reading.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Events that are counted.
    pub counts: Vec<Count>,
    /// Events that are not, and why.
    pub absent: Vec<(Event, String)>,
}

impl Reading {
    /// The value of an event; `None`: not counted here.
    pub fn value(&self, event: Event) -> Option<f64> {
        self.counts.iter().find(|count| count.event == event).map(|count| count.value)
    }
}

impl Counters {
    /// Starts counting `events` of threads `tids` (the first [`MAX_THREADS`]) and of threads that
    /// they start from now on. An event that this machine or user cannot count is absent; that is
    /// not an error.
    pub fn open(tids: &[u32], events: &[Event]) -> Counters {
        let mut counters = Counters { events: Vec::new(), absent: Vec::new() };
        for &event in events {
            let mut files = Vec::new();
            let mut failed = None;
            for &tid in tids.iter().take(MAX_THREADS) {
                match open_one(event, tid) {
                    Ok(file) => files.push(file),
                    // Ended meanwhile.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(error) => failed = Some(error),
                }
            }
            match failed {
                Some(error) => counters.absent.push((event, why(&error))),
                None if files.is_empty() => counters.absent.push((event, "no thread".into())),
                None => counters.events.push((event, files)),
            }
        }
        counters
    }

    /// What was counted since they were opened.
    pub fn read(&self) -> Reading {
        let mut reading = Reading { counts: Vec::new(), absent: self.absent.clone() };
        for (event, files) in &self.events {
            match sum(files) {
                Ok((value, counted)) => {
                    reading.counts.push(Count { event: *event, value, counted });
                }
                Err(error) => reading.absent.push((*event, error.to_string())),
            }
        }
        reading
    }
}

fn sum(files: &[File]) -> io::Result<(f64, f64)> {
    let (mut value, mut enabled_all, mut running_all) = (0.0, 0.0, 0.0);
    for mut file in files {
        let mut bytes = [0; 24];
        file.read_exact(&mut bytes)?;
        let number = |i: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[i * 8..i * 8 + 8]);
            u64::from_ne_bytes(eight) as f64
        };
        let (count, enabled, running) = (number(0), number(1), number(2));
        if running > 0.0 {
            value += count * (enabled / running).max(1.0);
        }
        enabled_all += enabled;
        running_all += running;
    }
    Ok((value, if enabled_all > 0.0 { running_all / enabled_all } else { 1.0 }))
}

fn open_one(event: Event, tid: u32) -> io::Result<File> {
    // With the kernel's part where that is allowed.
    open_with(event, tid, INHERIT | EXCLUDE_HYPERVISOR).or_else(|error| {
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => {
                open_with(event, tid, INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR)
            }
            _ => Err(error),
        }
    })
}

fn open_with(event: Event, tid: u32, flags: u64) -> io::Result<File> {
    /// `PERF_FLAG_FD_CLOEXEC`
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    let (kind, config) = event.code();
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config,
        read_format: TOTAL_TIMES,
        flags,
        ..Attributes::default()
    };
    let tid = libc::pid_t::try_from(tid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let (any_cpu, no_group): (libc::c_int, libc::c_int) = (-1, -1);
    // SAFETY: the attributes live through the call, which reads `size` bytes of them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            tid,
            any_cpu,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    let fd = libc::c_int::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just given this descriptor to us alone.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// The errors of perf_event_open in words.
fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => {
            "this machine has no such counter (virtual machines often have none)".into()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "not allowed: needs CAP_PERFMON, or kernel.perf_event_paranoid lower".into()
        }
        Some(libc::EMFILE) => "too many descriptors: raise `ulimit -n`".into(),
        Some(libc::ENOSYS) => "this kernel or sandbox has no perf_event_open".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each event is either counted or named absent, on any machine.
    #[test]
    fn every_event_is_told_of() {
        // SAFETY: takes nothing and cannot fail.
        let own = unsafe { libc::gettid() } as u32;
        let counters = Counters::open(&[own], &Event::ALL);
        let work: u64 = std::hint::black_box((0..3_000_000u64).fold(0, |a, b| a ^ b));
        let reading = counters.read();
        assert!(work < u64::MAX);
        for event in Event::ALL {
            let counted = reading.value(event).is_some();
            let absent = reading.absent.iter().any(|(e, why)| *e == event && !why.is_empty());
            assert!(counted != absent, "{event:?}");
        }
        if let Some(clock) = reading.value(Event::TaskClock) {
            assert!(clock > 0.0);
        }
    }

    #[test]
    fn a_thread_that_is_no_more_is_absent_not_zero() {
        let reading = Counters::open(&[u32::MAX], &[Event::TaskClock]).read();
        assert_eq!(reading.value(Event::TaskClock), None);
        assert_eq!(reading.absent.len(), 1);
    }
}
