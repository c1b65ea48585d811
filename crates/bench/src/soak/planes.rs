//! The planes of the server: its processes by the second word of their command lines, what they
//! hold, and signals to them.

use std::collections::BTreeMap;

use saccade_host::{Footprint, Process, Root, process, sockets};

use super::record::Sample;

/// The name of processes whose command line names no plane: a supervisor, and its shell.
const SERVER: &str = "server";

/// A process and what it is.
#[derive(Debug, Clone)]
pub(super) struct Plane {
    pub name: String,
    pub process: Process,
}

/// The processes of a server.
pub(super) fn all(root: &Root, first: u32) -> Vec<Plane> {
    let tree = process::tree(root, first).unwrap_or_default();
    let plane = |process: Process| Plane { name: name(&process, first), process };
    tree.into_iter().map(plane).collect()
}

fn name(process: &Process, first: u32) -> String {
    let word = process.cmdline.as_ref().and_then(|words| words.get(1));
    match word {
        Some(word) if process.pid != first && is_plain(word) => word.clone(),
        _ => SERVER.to_owned(),
    }
}

/// A name of a plane, rather than a flag, a path or a script.
fn is_plain(word: &str) -> bool {
    const LONGEST: usize = 24;
    let plain = |c: char| c.is_ascii_lowercase() || c == '-' || c == '_';
    !word.starts_with('-') && !word.is_empty() && word.len() <= LONGEST && word.chars().all(plain)
}

/// What they hold now.
pub(super) fn sample(root: &Root, first: u32, at_s: f64) -> Sample {
    let mut planes: BTreeMap<String, Footprint> = BTreeMap::new();
    for plane in all(root, first) {
        if let Ok(footprint) = Footprint::read(root, plane.process.pid) {
            let sum = planes.entry(plane.name).or_default();
            *sum = sum.and(footprint);
        }
    }
    Sample { at_s, planes }
}

/// Whether a process holds a socket that listens on this port.
pub(super) fn listens(root: &Root, pid: u32, port: u16) -> bool {
    sockets::listeners(root, port).is_ok_and(|pids| pids.contains(&pid))
}

/// Sends a signal, if the process is still the one that was seen.
pub(super) fn signal(root: &Root, plane: &Plane, signal: libc::c_int) -> bool {
    let pid = plane.process.pid;
    let is_same =
        Process::read(root, pid).is_ok_and(|now| now.start_ticks == plane.process.start_ticks);
    // SAFETY: no pointers; the process is one of the server that was started here.
    is_same && unsafe { libc::kill(pid as libc::pid_t, signal) } == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_named_by_their_second_word() {
        let of = |pid, words: &[&str]| {
            let mut process = Process::read(&Root::default(), std::process::id()).unwrap();
            process.pid = pid;
            process.cmdline = Some(words.iter().map(|&word| word.to_owned()).collect());
            name(&process, 7)
        };
        assert_eq!(of(7, &["saccade", "serve"]), "server");
        assert_eq!(of(8, &["saccade", "device", "--x"]), "device");
        assert_eq!(of(8, &["sh", "-c", "x"]), "server");
        assert_eq!(of(8, &["python3", "/x/y.py"]), "server");
        assert_eq!(of(8, &["vllm"]), "server");
    }
}
