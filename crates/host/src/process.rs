//! Processes, their families and their words.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::parse;
use crate::task::Stat;
use crate::{HostError, Root};

/// Bytes read of a command line: ARG_MAX as Linux sets it by default, in part.
const MAX_CMDLINE_BYTES: usize = 64 << 10;

/// One process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's; 0 for the first process of a namespace.
    pub ppid: u32,
    /// Name of its first thread.
    pub name: String,
    /// Its words as given; empty for kernel threads and for the dead.
    pub cmdline: Option<Vec<String>>,
    /// Clock ticks after boot at which it started; with `pid` its identity.
    pub start_ticks: u64,
    /// Threads.
    pub threads: Option<u32>,
    /// Nanoseconds in user mode, of threads that have ended too.
    pub user_ns: u64,
    /// Nanoseconds in the kernel, of threads that have ended too.
    pub system_ns: u64,
}

impl Process {
    /// Reads one process.
    ///
    /// # Errors
    /// It has ended, or its `stat` is unreadable.
    pub fn read(root: &Root, pid: u32) -> Result<Process, HostError> {
        let path = format!("proc/{pid}/stat");
        let stat = Stat::parse(&root.read(&path)?)
            .ok_or_else(|| HostError::malformed(root.path(&path), "not a stat line"))?;
        let cmdline = root.read_up_to(format!("proc/{pid}/cmdline"), MAX_CMDLINE_BYTES).ok();
        Ok(Process {
            pid,
            ppid: stat.ppid,
            name: stat.name,
            cmdline: cmdline.map(|(bytes, _)| words(&bytes)),
            start_ticks: stat.start_ticks,
            threads: stat.threads,
            user_ns: stat.user_ticks.saturating_mul(parse::tick_ns()),
            system_ns: stat.system_ticks.saturating_mul(parse::tick_ns()),
        })
    }

    /// Command line as one text, or the name in square brackets where there is none.
    pub fn command(&self) -> String {
        match self.cmdline.as_deref() {
            Some([]) | None => format!("[{}]", self.name),
            Some(words) => words.join(" "),
        }
    }
}

/// Splits at NUL. Programs that rewrite their title (setproctitle) leave blanks and padding.
fn words(bytes: &[u8]) -> Vec<String> {
    let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    if end == 0 {
        return Vec::new();
    }
    bytes[..end].split(|&b| b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect()
}

/// Every process of the machine (or of this pid namespace), except any that end meanwhile.
///
/// # Errors
/// /proc cannot be listed.
pub fn all(root: &Root) -> Result<Vec<Process>, HostError> {
    let pids = root.numbers("proc")?;
    Ok(pids.into_iter().filter_map(|pid| Process::read(root, pid).ok()).collect())
}

/// A process and its descendants: the process first, then by number.
///
/// # Errors
/// The process itself cannot be read.
pub fn tree(root: &Root, pid: u32) -> Result<Vec<Process>, HostError> {
    let first = Process::read(root, pid)?;
    Ok(family(first, all(root)?))
}

/// The descendants of `first` among `all`, after it.
pub fn family(first: Process, all: Vec<Process>) -> Vec<Process> {
    let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
    for process in all.into_iter().filter(|p| p.pid != first.pid) {
        children.entry(process.ppid).or_default().push(process);
    }
    let mut found = vec![first];
    let mut at = 0;
    // Each entry is removed as it is taken: a cycle (a pid reused meanwhile) ends.
    while at < found.len() {
        found.extend(children.remove(&found[at].pid).unwrap_or_default());
        at += 1;
    }
    found[1..].sort_by_key(|p| p.pid);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_with_padding_and_blanks() {
        assert_eq!(words(b"python\0-m\0x y\0"), ["python", "-m", "x y"]);
        assert_eq!(words(b"VLLM::EngineCore\0\0\0\0"), ["VLLM::EngineCore"]);
        assert_eq!(words(b"a\0\0b\0"), ["a", "", "b"]);
        assert!(words(b"").is_empty());
        assert!(words(b"\0\0").is_empty());
    }
}
