//! How the kernel shares the cores out between a server and its neighbour: sessions, groups, nice
//! values. With `sched_autogroup_enabled` a hog in a different session than the server shares one
//! group weight with its own session and hardly hurts, so results mean little without this.

use saccade_host::{Cgroups, CpuSet, Root, machine};
use serde::{Deserialize, Serialize};

/// Where one process is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// Process.
    pub pid: u32,
    /// Its session.
    pub session: Option<i32>,
    /// Its autogroup, where the kernel has them.
    pub autogroup: Option<String>,
    /// Its cgroup in the hierarchy of the CPU controller.
    pub cpu_cgroup: Option<String>,
    /// Cores that its first thread may use.
    pub cores: Option<CpuSet>,
    /// Nice value of its first thread.
    pub nice: Option<i32>,
}

impl Place {
    /// Reads it; what cannot be read is missing.
    #[must_use]
    pub fn of(root: &Root, pid: u32) -> Place {
        let task = saccade_host::Task::read(root, pid, pid).ok();
        Place {
            pid,
            session: session(pid),
            autogroup: machine::autogroup(root, pid).ok().map(|(name, _)| name),
            cpu_cgroup: Cgroups::of(root, pid).ok().and_then(|c| c.cpu).map(|place| place.dir),
            cores: task.as_ref().and_then(|task| task.affinity.clone()),
            nice: task.and_then(|task| task.nice),
        }
    }
}

fn session(pid: u32) -> Option<i32> {
    // SAFETY: a plain integer.
    let session = unsafe { libc::getsid(pid as libc::pid_t) };
    (session >= 0).then_some(session)
}

/// A server and its neighbour, side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layout {
    /// Whether the kernel groups by session; none where it knows no such thing.
    pub autogroup_enabled: Option<bool>,
    /// The server's first process.
    pub server: Option<Place>,
    /// The neighbour's first process.
    pub neighbour: Option<Place>,
}

impl Layout {
    /// Reads both.
    #[must_use]
    pub fn of(root: &Root, server: Option<u32>, neighbour: Option<u32>) -> Layout {
        Layout {
            autogroup_enabled: machine::autogroup_enabled(root),
            server: server.map(|pid| Place::of(root, pid)),
            neighbour: neighbour.map(|pid| Place::of(root, pid)),
        }
    }

    /// In words, if the neighbour is held off by more than its placement says.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let (server, neighbour) = (self.server.as_ref()?, self.neighbour.as_ref()?);
        if self.autogroup_enabled != Some(true) || server.autogroup == neighbour.autogroup {
            return None;
        }
        Some(format!(
            "sched_autogroup_enabled is 1, and the server (session {}) and its neighbour (session \
             {}) are in different sessions: the kernel gives each session one share, however many \
             threads it has, and the neighbour takes less than its threads could. Start the \
             server with --start or from the same terminal, or set \
             kernel.sched_autogroup_enabled=0",
            server.session.unwrap_or_default(),
            neighbour.session.unwrap_or_default(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(autogroup: &str) -> Option<Place> {
        let autogroup = Some(autogroup.to_owned());
        let (session, cpu_cgroup, cores, nice) = (Some(1), None, None, None);
        Some(Place { pid: 1, session, autogroup, cpu_cgroup, cores, nice })
    }

    #[test]
    fn warns_only_of_another_group() {
        let layout = |enabled, server, neighbour| {
            Layout { autogroup_enabled: enabled, server, neighbour }.warning()
        };
        assert!(layout(Some(true), place("/autogroup-1"), place("/autogroup-2")).is_some());
        assert_eq!(layout(Some(true), place("/autogroup-1"), place("/autogroup-1")), None);
        assert_eq!(layout(Some(false), place("/autogroup-1"), place("/autogroup-2")), None);
        assert_eq!(layout(Some(true), place("/autogroup-1"), None), None);
    }

    #[test]
    fn reads_this_process() {
        let place = Place::of(&Root::default(), std::process::id());
        assert_eq!(place.session, session(0));
        assert!(place.cores.is_some_and(|cores| !cores.is_empty()));
    }
}
