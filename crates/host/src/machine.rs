//! The machine's cores: which there are, and how busy each is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::parse;
use crate::{CpuSet, HostError, Root};

/// Time of one core since boot, in nanoseconds, in steps of a clock tick.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// Running something: user, nice, system, interrupts (guests are within user).
    pub busy_ns: u64,
    /// Idle, or idle with I/O outstanding.
    pub idle_ns: u64,
    /// Wanted to run, but the hypervisor ran something else.
    pub steal_ns: u64,
}

/// /proc/stat.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineTimes {
    /// By core.
    pub cpus: BTreeMap<u32, CpuTimes>,
    /// Context switches since boot.
    pub context_switches: Option<u64>,
    /// Processes and threads created since boot.
    pub forks: Option<u64>,
}

impl MachineTimes {
    /// Reads /proc/stat.
    ///
    /// # Errors
    /// Unreadable, or without a line for any core.
    pub fn read(root: &Root) -> Result<MachineTimes, HostError> {
        let times = MachineTimes::parse(&root.text("proc/stat")?);
        if times.cpus.is_empty() {
            return Err(HostError::malformed(root.path("proc/stat"), "no line of any core"));
        }
        Ok(times)
    }

    fn parse(text: &str) -> MachineTimes {
        MachineTimes {
            cpus: text.lines().filter_map(cpu_line).collect(),
            context_switches: parse::number(text, "ctxt"),
            forks: parse::number(text, "processes"),
        }
    }
}

/// `cpu3 user nice system idle iowait irq softirq steal guest guest_nice`
fn cpu_line(line: &str) -> Option<(u32, CpuTimes)> {
    // The first line, of all cores together, has a blank where others have their number.
    let (cpu, words) = line.strip_prefix("cpu")?.split_once(' ')?;
    let cpu = cpu.parse().ok()?;
    let mut ns = [0u64; 8];
    for (slot, word) in ns.iter_mut().zip(words.split_ascii_whitespace()) {
        *slot = word.parse::<u64>().ok()?.saturating_mul(parse::tick_ns());
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = ns;
    let sum = |parts: &[u64]| parts.iter().fold(0u64, |a, &b| a.saturating_add(b));
    let times = CpuTimes {
        busy_ns: sum(&[user, nice, system, irq, softirq]),
        idle_ns: sum(&[idle, iowait]),
        steal_ns: steal,
    };
    Some((cpu, times))
}

/// Cores that are switched on.
///
/// # Errors
/// /sys is unreadable.
pub fn online_cpus(root: &Root) -> Result<CpuSet, HostError> {
    let path = "sys/devices/system/cpu/online";
    root.text(path)?.parse().map_err(|e: String| HostError::malformed(root.path(path), e))
}

/// Hardware threads that share the physical core of `cpu`, itself among them.
///
/// # Errors
/// /sys is unreadable.
pub fn siblings(root: &Root, cpu: u32) -> Result<CpuSet, HostError> {
    let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    root.text(&path)?.parse().map_err(|e: String| HostError::malformed(root.path(&path), e))
}

/// Whether tasks are first shared out between terminals and only then between tasks
/// (`kernel.sched_autogroup_enabled`). `None`: the kernel has no such thing.
pub fn autogroup_enabled(root: &Root) -> Option<bool> {
    Some(root.number::<u32>("proc/sys/kernel/sched_autogroup_enabled").ok()? != 0)
}

/// Nice value of the autogroup of a process and its name, e.g. `/autogroup-72`.
///
/// # Errors
/// No such process, or no autogroups.
pub fn autogroup(root: &Root, pid: u32) -> Result<(String, i32), HostError> {
    let path = format!("proc/{pid}/autogroup");
    let text = root.text(&path)?;
    let parse = || {
        let (name, nice) = text.trim().split_once(" nice ")?;
        Some((name.to_owned(), nice.parse().ok()?))
    };
    parse().ok_or_else(|| HostError::malformed(root.path(&path), "not an autogroup"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cores_only() {
        let text =
            "cpu  9 9 9 9\ncpu0 10 1 5 100 4 2 3 7 6 0\ncpu11 1 0 0 2\nctxt 42\nprocesses 8\n";
        let read = MachineTimes::parse(text);
        let tick = parse::tick_ns();
        assert_eq!(read.cpus.keys().copied().collect::<Vec<_>>(), [0, 11]);
        let first = read.cpus[&0];
        assert_eq!(first.busy_ns, 21 * tick);
        assert_eq!((first.idle_ns, first.steal_ns), (104 * tick, 7 * tick));
        assert_eq!((read.context_switches, read.forks), (Some(42), Some(8)));
    }
}
