//! What this machine says of the planes' processes, when they are on it.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use saccade_host::{Cgroups, CpuSet, Process, Root, Task};

use crate::frame::LocalFacts;

/// What the processes of a server are called.
const NAME: &str = "saccade";

/// Reads the processes again and again.
#[derive(Debug, Default)]
pub struct Locals {
    root: Root,
    throttled: HashMap<(u32, String), (Instant, u64)>,
}

impl Locals {
    /// Facts by process, without processes that are not ours or cannot be read.
    pub fn read(&mut self, pids: impl IntoIterator<Item = u32>) -> BTreeMap<u32, LocalFacts> {
        let mut facts = BTreeMap::new();
        for pid in pids {
            // The number may be that of a process within a container, and another's here.
            let ours = Process::read(&self.root, pid).is_ok_and(|p| p.name.starts_with(NAME));
            if let (true, Ok(tasks)) = (ours, Task::read_all(&self.root, pid)) {
                facts.insert(pid, self.facts(pid, &tasks));
            }
        }
        self.throttled.retain(|(pid, _), _| facts.contains_key(pid));
        facts
    }

    fn facts(&mut self, pid: u32, tasks: &[Task]) -> LocalFacts {
        let allowed = tasks.iter().filter_map(|task| task.affinity.clone());
        let cores = allowed.reduce(|all, some| all.or(&some)).filter(|all| !all.is_empty());
        LocalFacts {
            cores: cores.map(|cores: CpuSet| cores.to_string()),
            threads: tasks.len(),
            nice: tasks.iter().find(|task| task.tid == pid).and_then(|task| task.nice),
            throttled_share: self.throttled_share(pid),
        }
    }

    /// Share of the time since the last reading in which a quota held the process off its cores.
    fn throttled_share(&mut self, pid: u32) -> Option<f64> {
        let levels = Cgroups::of(&self.root, pid).ok()?.cpu_levels(&self.root).ok()?;
        let now = Instant::now();
        let mut most = None;
        for level in levels {
            let Some(throttling) = level.throttling else { continue };
            let total_ns = throttling.throttled_ns;
            let Some((at, before_ns)) = self.throttled.insert((pid, level.dir), (now, total_ns))
            else {
                continue;
            };
            let seconds = (now - at).as_secs_f64();
            let share = total_ns.saturating_sub(before_ns) as f64 * 1e-9 / seconds.max(1e-3);
            most = Some(share.max(most.unwrap_or(0.0)));
        }
        most
    }
}
