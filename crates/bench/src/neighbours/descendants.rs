//! Descendants of this process.

use saccade_host::{Root, process};

/// Rounds of killing before giving up on a tree that forks faster than it dies.
const MAX_ROUNDS: usize = 64;

/// Kills every descendant, also outside the process group: as a subreaper this process inherits
/// their orphans.
pub(super) fn kill_all() {
    for _ in 0..MAX_ROUNDS {
        reap();
        let alive = alive();
        if alive.is_empty() {
            return;
        }
        for pid in alive {
            // SAFETY: plain integers; the process is a descendant that was just read of.
            unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
        }
    }
}

/// Reaps children that have ended.
pub(super) fn reap() {
    let mut status = 0;
    // SAFETY: reaps any ended child; a place for the status.
    while unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) } > 0 {}
}

/// Programs that start others and do not pass signals on to them.
const SHELLS: [&str; 6] = ["sh", "dash", "bash", "ash", "zsh", "busybox"];

/// The children of this process and, below shells, theirs: the ones that end the others.
pub(super) fn without_shells() -> Vec<u32> {
    let root = Root::default();
    let own = std::process::id();
    let is_shell = |pid: u32| {
        let program = root.link(format!("proc/{pid}/exe")).unwrap_or_default();
        program.file_name().and_then(|name| name.to_str()).is_some_and(|n| SHELLS.contains(&n))
    };
    let tree = process::tree(&root, own).unwrap_or_default();
    let (mut parents, mut found) = (vec![own], Vec::new());
    while let Some(parent) = parents.pop() {
        for child in tree.iter().filter(|process| process.ppid == parent) {
            found.push(child.pid);
            if is_shell(child.pid) {
                parents.push(child.pid);
            }
        }
    }
    found
}

/// Processes below this one; zombies too.
pub(super) fn alive() -> Vec<u32> {
    let own = std::process::id();
    let tree = process::tree(&Root::default(), own).unwrap_or_default();
    tree.into_iter().map(|process| process.pid).filter(|&pid| pid != own).collect()
}
