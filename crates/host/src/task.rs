//! One thread, as the kernel sees it.

use serde::{Deserialize, Serialize};

use crate::parse;
use crate::{CpuSet, HostError, Root};

/// How a thread is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// `SCHED_OTHER`, what everything runs under unless asked otherwise.
    Other,
    /// `SCHED_FIFO`
    Fifo,
    /// `SCHED_RR`
    RoundRobin,
    /// `SCHED_BATCH`
    Batch,
    /// `SCHED_IDLE`
    Idle,
    /// `SCHED_DEADLINE`
    Deadline,
    /// A number that this library does not know.
    Unknown(u32),
}

impl From<u32> for Policy {
    fn from(number: u32) -> Policy {
        match number {
            0 => Policy::Other,
            1 => Policy::Fifo,
            2 => Policy::RoundRobin,
            3 => Policy::Batch,
            5 => Policy::Idle,
            6 => Policy::Deadline,
            other => Policy::Unknown(other),
        }
    }
}

/// What only grows while a thread lives. `None`: this kernel or user cannot tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Nanoseconds on a core (schedstat).
    pub run_ns: Option<u64>,
    /// Nanoseconds runnable, waiting for a core (schedstat).
    pub wait_ns: Option<u64>,
    /// Times it was put on a core (schedstat).
    pub timeslices: Option<u64>,
    /// Nanoseconds in user mode, in steps of a clock tick (stat).
    pub user_ns: Option<u64>,
    /// Nanoseconds in the kernel, in steps of a clock tick (stat).
    pub system_ns: Option<u64>,
    /// Switches because it waited for something (status).
    pub voluntary: Option<u64>,
    /// Switches because something else was given its core (status).
    pub involuntary: Option<u64>,
    /// Moves to another core (sched; absent without `CONFIG_SCHED_DEBUG`).
    pub migrations: Option<u64>,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Process.
    pub pid: u32,
    /// Thread; equal to `pid` for the first.
    pub tid: u32,
    /// Up to 15 bytes that the thread chose itself: any characters.
    pub name: String,
    /// `R` running, `S` sleeping, `D` in uninterruptible sleep, …
    pub state: char,
    /// Clock ticks after boot at which it started; with `tid` its identity.
    pub start_ticks: u64,
    /// Core that it last ran on.
    pub last_cpu: Option<u32>,
    /// Scheduling policy.
    pub policy: Option<Policy>,
    /// -20 .. 19.
    pub nice: Option<i32>,
    /// Cores that it may run on: affinity mask within the cpuset.
    pub affinity: Option<CpuSet>,
    /// What only grows.
    pub counters: Counters,
}

impl Task {
    /// Reads one thread of a process.
    ///
    /// # Errors
    /// Its `stat` cannot be read, e.g. because it has ended. What else is missing is `None`.
    pub fn read(root: &Root, pid: u32, tid: u32) -> Result<Task, HostError> {
        let dir = format!("proc/{pid}/task/{tid}");
        let stat_path = format!("{dir}/stat");
        let stat = Stat::parse(&root.read(&stat_path)?)
            .ok_or_else(|| HostError::malformed(root.path(&stat_path), "not a stat line"))?;
        let status = root.text(format!("{dir}/status")).ok();
        let schedstat =
            root.read(format!("{dir}/schedstat")).ok().and_then(|s| parse_schedstat(&s));
        let sched = root.text(format!("{dir}/sched")).ok();
        let status_number = |key| status.as_deref().and_then(|s| parse::number(s, key));
        Ok(Task {
            pid,
            tid,
            name: stat.name,
            state: stat.state,
            start_ticks: stat.start_ticks,
            last_cpu: stat.last_cpu,
            policy: stat.policy.map(Policy::from),
            nice: stat.nice,
            affinity: status.as_deref().and_then(affinity),
            counters: Counters {
                run_ns: schedstat.map(|s| s[0]),
                wait_ns: schedstat.map(|s| s[1]),
                timeslices: schedstat.map(|s| s[2]),
                user_ns: Some(stat.user_ticks.saturating_mul(parse::tick_ns())),
                system_ns: Some(stat.system_ticks.saturating_mul(parse::tick_ns())),
                voluntary: status_number("voluntary_ctxt_switches"),
                involuntary: status_number("nonvoluntary_ctxt_switches"),
                migrations: sched.as_deref().and_then(|s| parse::number(s, "se.nr_migrations")),
            },
        })
    }

    /// All threads of a process. Threads that end meanwhile are left out.
    ///
    /// # Errors
    /// The process has ended, or none of its threads can be read.
    pub fn read_all(root: &Root, pid: u32) -> Result<Vec<Task>, HostError> {
        let mut tasks = Vec::new();
        let mut failed = None;
        let dir = format!("proc/{pid}/task");
        for tid in root.numbers(&dir)? {
            match Task::read(root, pid, tid) {
                Ok(task) => tasks.push(task),
                Err(error) => failed = Some(error),
            }
        }
        if tasks.is_empty() {
            return Err(failed.unwrap_or(HostError::Gone { path: root.path(&dir) }));
        }
        Ok(tasks)
    }
}

fn affinity(status: &str) -> Option<CpuSet> {
    parse::field(status, "Cpus_allowed_list")?.parse().ok()
}

/// `schedstat`: nanoseconds on a core, nanoseconds runnable without one, timeslices.
pub(crate) fn parse_schedstat(bytes: &[u8]) -> Option<[u64; 3]> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// The fields of `stat` that are used here (proc_pid_stat(5) numbers them from 1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub name: String,
    pub state: char,
    pub ppid: u32,
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub nice: Option<i32>,
    pub threads: Option<u32>,
    pub start_ticks: u64,
    pub last_cpu: Option<u32>,
    pub policy: Option<u32>,
}

impl Stat {
    /// The name may hold anything, brackets, blanks and newlines among it: it ends at the *last*
    /// bracket, since only numbers follow.
    pub fn parse(bytes: &[u8]) -> Option<Stat> {
        let open = bytes.iter().position(|&b| b == b'(')?;
        let close = bytes.iter().rposition(|&b| b == b')')?;
        let name = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
        let rest = std::str::from_utf8(&bytes[close + 1..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Stat {
            name,
            state: field(3)?.chars().next()?,
            ppid: field(4)?.parse().ok()?,
            user_ticks: field(14)?.parse().ok()?,
            system_ticks: field(15)?.parse().ok()?,
            nice: field(19).and_then(|f| f.parse().ok()),
            threads: field(20).and_then(|f| f.parse().ok()),
            start_ticks: field(22)?.parse().ok()?,
            last_cpu: field(39).and_then(|f| f.parse().ok()),
            policy: field(41).and_then(|f| f.parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TAIL: &str = "S 25096 25112 25112 0 -1 4194560 3088 45911 0 6 11 12 24 7 20 -5 3 0 1260555 \
        5124096 984 1 2 3 4 0 0 0 65536 4 1132560123 1 0 0 17 1 0 2 0 0 0 5 6 7 8 9 10 11 0";

    #[test]
    fn names_hold_any_characters() {
        for name in ["bash", "a) S 1 (b", "with blank", "new\nline", "(", ")", "", "ünïcode"] {
            let line = format!("25112 ({name}) {TAIL}");
            let stat = Stat::parse(line.as_bytes()).unwrap();
            assert_eq!(stat.name, name);
            assert_eq!((stat.state, stat.ppid), ('S', 25096));
            assert_eq!((stat.user_ticks, stat.system_ticks), (11, 12));
            assert_eq!((stat.nice, stat.threads), (Some(-5), Some(3)));
            assert_eq!(stat.start_ticks, 1_260_555);
            assert_eq!((stat.last_cpu, stat.policy), (Some(1), Some(2)));
        }
    }

    #[test]
    fn a_short_line_is_no_stat() {
        for wrong in ["", "1", "1 (a", "1 (a)", "1 a) (b", "1 (a) S 0 0"] {
            assert_eq!(Stat::parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn schedstat_has_three_numbers() {
        assert_eq!(parse_schedstat(b"27412071 23147946 83\n"), Some([27_412_071, 23_147_946, 83]));
        assert_eq!(parse_schedstat(b"1 2"), None);
        assert_eq!(parse_schedstat(b"1 2 x"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Stat::parse(&bytes);
            let _ = parse_schedstat(&bytes);
        }
    }
}
