//! The cgroup of a process: CPU quota, cpuset, throttling, pressure; versions 1 and 2.
//!
//! A quota anywhere above a process binds it, so every level up to the mount is read.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::mounts::{CgroupMount, cgroup_mounts};
use crate::parse;
use crate::{CpuSet, HostError, Pressure, Resource, Root};

/// Levels of a hierarchy that are walked; Kubernetes in systemd needs about seven.
const MAX_LEVELS: usize = 64;
/// Inode of the first cgroup namespace (`PROC_CGROUP_INIT_INO` of the kernel).
const INITIAL_CGROUP_NAMESPACE: &str = "cgroup:[4026531835]";

/// Version of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// One hierarchy for each controller.
    V1,
    /// One hierarchy.
    V2,
}

/// The place of a process in one hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Version of the hierarchy.
    pub version: Version,
    /// Where it is mounted.
    pub mount: String,
    /// Folder of the process's cgroup, at or below `mount`.
    pub dir: String,
}

impl Place {
    /// Folders from the process's cgroup up to the mount.
    pub fn levels(&self) -> impl Iterator<Item = &str> {
        let within = |dir: &&Path| dir.as_os_str().len() >= self.mount.len();
        let above = Path::new(&self.dir).ancestors().take_while(within).take(MAX_LEVELS);
        above.filter_map(Path::to_str)
    }
}

/// The places of a process in the hierarchies that matter to its cores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroups {
    /// Paths as /proc/PID/cgroup has them, one for each hierarchy: they name containers.
    pub paths: Vec<String>,
    /// Where quotas are set.
    pub cpu: Option<Place>,
    /// Where the allowed cores are set.
    pub cpuset: Option<Place>,
    /// Version 2's place, also alongside version 1: pressure is kept there only.
    pub unified: Option<Place>,
    /// Whether this process sees only a part of the hierarchy (it is itself in a container), so
    /// that limits which it cannot read may exist above. `None`: unknown.
    pub ancestors_hidden: Option<bool>,
}

impl Cgroups {
    /// Looks up a process.
    ///
    /// # Errors
    /// The process has ended, or nothing tells where hierarchies are mounted. A hierarchy whose
    /// part with this process is not mounted here is `None`.
    pub fn of(root: &Root, pid: u32) -> Result<Cgroups, HostError> {
        let lines = parse_membership(&root.text(format!("proc/{pid}/cgroup"))?);
        let mounts = cgroup_mounts(root)?;
        let v1 = |controller: &str| {
            let line = lines.iter().find(|l| l.controllers.iter().any(|c| c == controller))?;
            let here = |m: &&CgroupMount| {
                m.controllers.as_ref().is_some_and(|cs| cs.iter().any(|c| c == controller))
            };
            place(Version::V1, &line.path, mounts.iter().filter(here))
        };
        let v2 = lines.iter().find(|l| l.controllers.is_empty() && l.id == "0");
        let unified = v2.and_then(|line| {
            place(Version::V2, &line.path, mounts.iter().filter(|m| m.controllers.is_none()))
        });
        let hidden = root.link("proc/self/ns/cgroup").ok();
        Ok(Cgroups {
            cpu: v1("cpu").or_else(|| unified.clone()),
            cpuset: v1("cpuset").or_else(|| unified.clone()),
            unified,
            paths: lines.into_iter().map(|l| l.path).collect(),
            ancestors_hidden: hidden.map(|link| link != Path::new(INITIAL_CGROUP_NAMESPACE)),
        })
    }

    /// Quota and throttling of each level, the process's own first. Empty: no such controller.
    ///
    /// # Errors
    /// A file that is there cannot be read: a limit may exist.
    pub fn cpu_levels(&self, root: &Root) -> Result<Vec<CpuLevel>, HostError> {
        let Some(place) = &self.cpu else { return Ok(Vec::new()) };
        place.levels().map(|dir| CpuLevel::read(root, place.version, dir)).collect()
    }

    /// The cores of the cpuset. `None`: no cpuset controller.
    ///
    /// # Errors
    /// A file that is there cannot be read.
    pub fn cpuset(&self, root: &Root) -> Result<Option<CpuSet>, HostError> {
        let Some(place) = &self.cpuset else { return Ok(None) };
        // A mounted cpuset controller of version 1 that is older than `effective_cpus` has `cpus`.
        let names: &[&str] = match place.version {
            Version::V1 => &["cpuset.effective_cpus", "cpuset.cpus"],
            Version::V2 => &["cpuset.cpus.effective"],
        };
        for dir in place.levels() {
            for name in names {
                let path = format!("{dir}/{name}");
                let Some(text) = optional(root.text(&path))? else { continue };
                let set: CpuSet =
                    text.parse().map_err(|e: String| HostError::malformed(root.path(&path), e))?;
                if !set.is_empty() {
                    return Ok(Some(set));
                }
            }
        }
        Ok(None)
    }

    /// Pressure within the process's cgroup. `None`: no version 2, or a kernel without PSI.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn pressure(&self, root: &Root, of: Resource) -> Result<Option<Pressure>, HostError> {
        let Some(place) = &self.unified else { return Ok(None) };
        optional(Pressure::read(root, &format!("{}/{}.pressure", place.dir, of.name())))
    }
}

/// CPU time in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Microseconds of CPU time, of all cores together.
    pub quota_us: u64,
    /// In each period of this many microseconds.
    pub period_us: u64,
}

impl Quota {
    /// The same as a number of cores.
    pub fn cores(self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }
}

/// How often a quota was used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttling {
    /// Periods in which something ran.
    pub nr_periods: u64,
    /// Periods in which the quota was used up, and everything stopped until the next.
    pub nr_throttled: u64,
    /// Nanoseconds stopped, summed over cores.
    pub throttled_ns: u64,
}

/// One level of the hierarchy of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuLevel {
    /// Its folder.
    pub dir: String,
    /// The file with its quota.
    pub quota_file: String,
    /// `None`: unlimited.
    pub quota: Option<Quota>,
    /// `None`: not counted at this level.
    pub throttling: Option<Throttling>,
    /// Share under contention: `cpu.weight` (100 by default) or `cpu.shares` (1024).
    pub weight: Option<u64>,
}

impl CpuLevel {
    fn read(root: &Root, version: Version, dir: &str) -> Result<CpuLevel, HostError> {
        let (file, weight) = match version {
            Version::V1 => ("cpu.cfs_quota_us", "cpu.shares"),
            Version::V2 => ("cpu.max", "cpu.weight"),
        };
        let quota_file = format!("{dir}/{file}");
        let malformed = |what: &str| HostError::malformed(root.path(&quota_file), what);
        let quota = match (version, optional(root.text(&quota_file))?) {
            (_, None) => None,
            (Version::V2, Some(text)) => parse_cpu_max(&text)
                .ok_or_else(|| malformed("not `max` or a quota, and a period"))?,
            (Version::V1, Some(text)) => {
                let period = root.text(format!("{dir}/cpu.cfs_period_us"))?;
                parse_cfs(&text, &period).ok_or_else(|| malformed("not a quota with a period"))?
            }
        };
        let stat = optional(root.text(format!("{dir}/cpu.stat")))?;
        Ok(CpuLevel {
            dir: dir.to_owned(),
            quota,
            throttling: stat.as_deref().and_then(|s| parse_throttling(s, version)),
            weight: root.number(format!("{dir}/{weight}")).ok(),
            quota_file,
        })
    }
}

/// The level that leaves the fewest cores.
pub fn tightest(levels: &[CpuLevel]) -> Option<(&CpuLevel, Quota)> {
    let limited = levels.iter().filter_map(|level| Some((level, level.quota?)));
    limited.min_by(|(_, a), (_, b)| a.cores().total_cmp(&b.cores()))
}

/// A file that need not exist.
fn optional<T>(read: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error),
    }
}

struct Membership {
    id: String,
    controllers: Vec<String>,
    path: String,
}

/// Lines `id:controllers:path`; version 2 has id 0 and no controllers.
fn parse_membership(text: &str) -> Vec<Membership> {
    let parse = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Membership {
            id: id.to_owned(),
            controllers: controllers
                .split(',')
                .filter(|c| !c.is_empty())
                .map(str::to_owned)
                .collect(),
            path: path.to_owned(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// The folder of `path` below the mount in `mounts` that shows the most specific part with it.
fn place<'a>(
    version: Version,
    path: &str,
    mounts: impl Iterator<Item = &'a CgroupMount>,
) -> Option<Place> {
    // `/../x`: outside of our cgroup namespace, hence in no mount of ours.
    if Path::new(path).components().any(|c| c == std::path::Component::ParentDir) {
        return None;
    }
    let below = |mount: &'a CgroupMount| {
        let rest = Path::new(path).strip_prefix(&mount.root).ok()?;
        Some((mount, rest.to_str()?.to_owned()))
    };
    let (mount, rest) = mounts.filter_map(below).max_by_key(|(mount, _)| mount.root.len())?;
    let dir = match rest.as_str() {
        "" => mount.point.clone(),
        rest => format!("{}/{rest}", mount.point.trim_end_matches('/')),
    };
    Some(Place { version, mount: mount.point.clone(), dir })
}

/// `max 100000` or `400000 100000`. Outer `None`: neither.
fn parse_cpu_max(text: &str) -> Option<Option<Quota>> {
    let mut words = text.split_ascii_whitespace();
    let (quota, period) = (words.next()?, words.next()?);
    if quota == "max" {
        return Some(None);
    }
    quota_of(quota.parse().ok()?, period.parse().ok()?).map(Some)
}

/// `-1` is unlimited. Outer `None`: not numbers.
fn parse_cfs(quota: &str, period: &str) -> Option<Option<Quota>> {
    match quota.trim().parse::<i64>().ok()? {
        quota if quota < 0 => Some(None),
        quota => quota_of(quota.unsigned_abs(), period.trim().parse().ok()?).map(Some),
    }
}

fn quota_of(quota_us: u64, period_us: u64) -> Option<Quota> {
    (quota_us > 0 && period_us > 0).then_some(Quota { quota_us, period_us })
}

fn parse_throttling(text: &str, version: Version) -> Option<Throttling> {
    let throttled_ns = match version {
        Version::V1 => parse::number(text, "throttled_time")?,
        Version::V2 => parse::number::<u64>(text, "throttled_usec")?.saturating_mul(1000),
    };
    Some(Throttling {
        nr_periods: parse::number(text, "nr_periods")?,
        nr_throttled: parse::number(text, "nr_throttled")?,
        throttled_ns,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotas() {
        assert_eq!(parse_cpu_max("max 100000\n"), Some(None));
        assert_eq!(parse_cpu_max("250000 100000").flatten().unwrap().cores(), 2.5);
        assert_eq!(parse_cpu_max("max"), None);
        assert_eq!(parse_cpu_max("1 0"), None);
        assert_eq!(parse_cfs("-1\n", "100000\n"), Some(None));
        assert_eq!(parse_cfs("50000\n", "100000\n").flatten().unwrap().cores(), 0.5);
        assert_eq!(parse_cfs("x", "100000"), None);
    }

    #[test]
    fn levels_end_at_the_mount() {
        let place = Place {
            version: Version::V2,
            mount: "/sys/fs/cgroup".into(),
            dir: "/sys/fs/cgroup/a.slice/b".into(),
        };
        assert_eq!(
            place.levels().collect::<Vec<_>>(),
            ["/sys/fs/cgroup/a.slice/b", "/sys/fs/cgroup/a.slice", "/sys/fs/cgroup"]
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*", other in ".*") {
            let _ = parse_cpu_max(&text);
            let _ = parse_cfs(&text, &other);
            let _ = parse_throttling(&text, Version::V1);
            let _ = parse_throttling(&text, Version::V2);
            let mount = CgroupMount { root: other, point: "/m".into(), controllers: None };
            for line in parse_membership(&text) {
                let _ = place(Version::V2, &line.path, [&mount].into_iter());
            }
            let _ = place(Version::V2, &text, [&mount].into_iter());
        }
    }
}
