//! Performance counters of a server, where the machine has and allows them.

use saccade_host::Root;
use serde::Serialize;

#[cfg(target_os = "linux")]
use saccade_host::perf::{Counters, Event};

/// Threads that are counted: each costs a descriptor for each event.
#[cfg(target_os = "linux")]
const MAX_THREADS: usize = 64;

/// What was counted. `None`: not here.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Counted {
    /// Instructions for each cycle.
    pub instructions_per_cycle: Option<f64>,
    /// Of the loads that asked the last-level cache, the share that missed.
    pub llc_miss_share: Option<f64>,
    /// Loads that missed the data TLB for each thousand instructions.
    pub dtlb_misses_per_kilo_instruction: Option<f64>,
    /// Why not.
    pub absent: Option<String>,
}

/// Counters that run.
#[cfg(target_os = "linux")]
pub struct Counting(Counters);

#[cfg(target_os = "linux")]
impl Counting {
    const EVENTS: [Event; 5] =
        [Event::Cycles, Event::Instructions, Event::LlcLoads, Event::LlcMisses, Event::DtlbMisses];

    /// Begins to count the threads of `pids`, the first of each process first.
    pub fn start(root: &Root, pids: &[u32]) -> Counting {
        let later = pids.iter().flat_map(|&pid| {
            let tids = root.numbers(format!("proc/{pid}/task")).unwrap_or_default();
            tids.into_iter().filter(move |&tid| tid != pid)
        });
        let tids: Vec<u32> = pids.iter().copied().chain(later).take(MAX_THREADS).collect();
        Counting(Counters::open(&tids, &Counting::EVENTS))
    }

    /// What was counted.
    pub fn finish(self) -> Counted {
        let read = self.0.read();
        let ratio = |a: Event, b: Event| {
            let (a, b) = (read.value(a)?, read.value(b)?);
            (b > 0.0).then(|| a / b)
        };
        Counted {
            instructions_per_cycle: ratio(Event::Instructions, Event::Cycles),
            llc_miss_share: ratio(Event::LlcMisses, Event::LlcLoads),
            dtlb_misses_per_kilo_instruction: ratio(Event::DtlbMisses, Event::Instructions)
                .map(|share| share * 1000.0),
            absent: read.absent.first().map(|(_, why)| why.clone()),
        }
    }
}

/// No counters on this system.
#[cfg(not(target_os = "linux"))]
pub struct Counting;

#[cfg(not(target_os = "linux"))]
impl Counting {
    /// Counts nothing.
    pub fn start(_: &Root, _: &[u32]) -> Counting {
        Counting
    }

    /// Nothing was counted.
    pub fn finish(self) -> Counted {
        Counted { absent: Some("this system has no perf_event_open".into()), ..Counted::default() }
    }
}
