//! A cgroup of its own with a quota of CPU time for a neighbour, in either version.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use saccade_host::cgroup::{Place, Version};
use saccade_host::{Cgroups, Root};

const PERIOD_US: u64 = 100_000;
/// Processes leave a cgroup a moment after they are reaped.
const REMOVE_TRIES: usize = 50;

/// A cgroup below this process's own, removed when dropped.
#[derive(Debug)]
pub struct QuotaGroup {
    folder: PathBuf,
}

impl QuotaGroup {
    /// Makes one with a quota of `cores` cores' worth of time.
    ///
    /// # Errors
    /// No CPU controller is available: which file refused, and what would help.
    pub fn create(root: &Root, cores: f64) -> anyhow::Result<QuotaGroup> {
        // Several in one process (tests, servers side by side) must not collide.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // SYNC: relaxed, no partner: only the numbers must differ.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("saccade-neighbour-{}-{number}", std::process::id());
        let parent = parent(root)?;
        let folder = root.path(&parent.dir).join(name);
        fs::create_dir(&folder).with_context(|| {
            let folder = folder.display();
            format!("make cgroup {folder} for the quota (needs root or a delegated cgroup)")
        })?;
        let group = QuotaGroup { folder };
        let quota_us = (cores * PERIOD_US as f64).round() as u64;
        match parent.version {
            Version::V1 => {
                group.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
                group.write("cpu.cfs_quota_us", &quota_us.to_string())?;
            }
            Version::V2 => group.write("cpu.max", &format!("{quota_us} {PERIOD_US}"))?,
        }
        Ok(group)
    }

    /// Moves a process (and the children it makes later) into it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take(&self, pid: u32) -> anyhow::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn write(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, value).with_context(|| format!("write {value:?} to {}", path.display()))
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        for _ in 0..REMOVE_TRIES {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("saccade: could not remove cgroup {}", self.folder.display());
    }
}

/// The cgroup of this process in the hierarchy that has the CPU controller.
fn parent(root: &Root) -> anyhow::Result<Place> {
    let own = Cgroups::of(root, std::process::id()).context("ask for the own cgroup")?;
    let place =
        own.cpu.context("a quota needs a mounted cgroup hierarchy; no usable one is there")?;
    if place.version == Version::V2 {
        give_cpu_to_children(&root.path(&place.dir))?;
    }
    Ok(place)
}

fn give_cpu_to_children(folder: &Path) -> anyhow::Result<()> {
    let has_cpu = |file: &str| {
        let text = fs::read_to_string(folder.join(file)).unwrap_or_default();
        text.split_whitespace().any(|controller| controller == "cpu")
    };
    if has_cpu("cgroup.subtree_control") {
        return Ok(());
    }
    if !has_cpu("cgroup.controllers") {
        bail!("a quota needs the cpu controller; cgroup {} does not have it", folder.display());
    }
    let file = folder.join("cgroup.subtree_control");
    fs::write(&file, "+cpu").with_context(|| {
        format!(
            "write +cpu to {}: a cgroup that holds processes cannot give controllers to children \
             (start the tool in a delegated scope: systemd-run --user --scope -p Delegate=yes)",
            file.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(version: u32) -> (PathBuf, Root) {
        let number = std::process::id();
        let folder = std::env::temp_dir().join(format!("saccade-cgroup-{number}-v{version}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join(format!("proc/{number}"))).unwrap();
        fs::create_dir_all(folder.join("proc/self")).unwrap();
        fs::create_dir_all(folder.join("sys/fs/cgroup/slice")).unwrap();
        (folder.clone(), Root::at(folder))
    }

    #[test]
    fn version_2_writes_cpu_max() {
        let (folder, root) = tree(2);
        fs::write(folder.join(format!("proc/{}/cgroup", std::process::id())), "0::/slice\n")
            .unwrap();
        fs::write(
            folder.join("proc/self/mountinfo"),
            "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        )
        .unwrap();
        let slice = folder.join("sys/fs/cgroup/slice");
        fs::write(slice.join("cgroup.controllers"), "memory\n").unwrap();
        let refused = QuotaGroup::create(&root, 1.5).unwrap_err();
        assert!(format!("{refused:#}").contains("cpu controller"), "{refused:#}");
        fs::write(slice.join("cgroup.controllers"), "cpu memory\n").unwrap();
        let group = QuotaGroup::create(&root, 1.5).unwrap();
        group.take(7).unwrap();
        let made = group.folder().to_owned();
        assert_eq!(fs::read_to_string(slice.join("cgroup.subtree_control")).unwrap(), "+cpu");
        assert_eq!(fs::read_to_string(made.join("cpu.max")).unwrap(), "150000 100000");
        assert_eq!(fs::read_to_string(made.join("cgroup.procs")).unwrap(), "7");
        // A scripted folder keeps its files, which a kernel's would not.
        fs::remove_dir_all(&made).unwrap();
        fs::create_dir(&made).unwrap();
        drop(group);
        assert!(!made.exists());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn version_1_writes_quota_and_period() {
        let (folder, root) = tree(1);
        fs::write(
            folder.join(format!("proc/{}/cgroup", std::process::id())),
            "3:cpu,cpuacct:/slice\n0::/\n",
        )
        .unwrap();
        let mounts = "32 31 0:29 / /sys/fs/cgroup rw - cgroup cgroup rw,cpu,cpuacct\n";
        fs::write(folder.join("proc/self/mountinfo"), mounts).unwrap();
        let group = QuotaGroup::create(&root, 0.25).unwrap();
        let made = group.folder().to_owned();
        assert!(made.starts_with(folder.join("sys/fs/cgroup/slice")));
        assert_eq!(fs::read_to_string(made.join("cpu.cfs_quota_us")).unwrap(), "25000");
        assert_eq!(fs::read_to_string(made.join("cpu.cfs_period_us")).unwrap(), "100000");
        fs::remove_dir_all(&made).unwrap();
        fs::create_dir(&made).unwrap();
        drop(group);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn no_hierarchy_is_said() {
        let (folder, root) = tree(0);
        fs::write(folder.join(format!("proc/{}/cgroup", std::process::id())), "").unwrap();
        fs::write(folder.join("proc/self/mountinfo"), "22 27 0:21 / /proc rw - proc proc rw\n")
            .unwrap();
        assert!(QuotaGroup::create(&root, 1.0).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
