//! How many cores a process may use.

use serde::{Deserialize, Serialize};

use crate::cgroup::{self, Cgroups, CpuLevel, Quota};
use crate::machine::online_cpus;
use crate::{CpuSet, HostError, Root, Task};

/// What bounds the cores of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cores {
    /// Union of its threads' affinity masks.
    pub affinity: Option<CpuSet>,
    /// Of its cgroup.
    pub cpuset: Option<CpuSet>,
    /// Switched on.
    pub online: Option<CpuSet>,
    /// Tightest quota of its cgroup and those above, and the file that sets it.
    pub quota: Option<(Quota, String)>,
    /// Cores in all of the sets that are known; `None` if none is known.
    pub set: Option<CpuSet>,
    /// The smaller of the set's size and the quota, in cores. `None`: neither is known.
    pub usable: Option<f64>,
}

impl Cores {
    /// Reads the bounds of a process whose threads have been read.
    ///
    /// # Errors
    /// A limit exists that cannot be read: the number would be a guess.
    pub fn of(root: &Root, pid: u32, tasks: &[Task]) -> Result<Cores, HostError> {
        let groups = Cgroups::of(root, pid)?;
        let levels = groups.cpu_levels(root)?;
        let online = online_cpus(root).ok();
        Ok(Cores::within(tasks, groups.cpuset(root)?, online, &levels))
    }

    /// The bounds from parts that have been read.
    pub fn within(
        tasks: &[Task],
        cpuset: Option<CpuSet>,
        online: Option<CpuSet>,
        levels: &[CpuLevel],
    ) -> Cores {
        let masks = tasks.iter().filter_map(|task| task.affinity.as_ref());
        let affinity = masks.fold(None, |union: Option<CpuSet>, mask| {
            Some(union.map_or_else(|| mask.clone(), |u| u.or(mask)))
        });
        let known = [&affinity, &cpuset, &online];
        let set = known
            .into_iter()
            .flatten()
            .cloned()
            .reduce(|a, b| a.and(&b))
            .filter(|set| !set.is_empty());
        let quota = cgroup::tightest(levels).map(|(l, quota)| (quota, l.quota_file.clone()));
        let by_set = set.as_ref().map(|set| set.len() as f64);
        let by_quota = quota.as_ref().map(|(quota, _)| quota.cores());
        let usable = match (by_set, by_quota) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Cores { affinity, cpuset, online, quota, set, usable }
    }
}
