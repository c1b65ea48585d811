//! Containers, by the names that their cgroups and their runtimes' files give them. No daemon is
//! asked.

use std::collections::BTreeSet;

use saccade_host::{Cgroups, HostError, Root, process};

/// Digits of a container's id that a cgroup name must share with what was asked for.
const MIN_ID_DIGITS: usize = 6;
/// Bytes read of a runtime's description of a container.
const MAX_CONFIG_BYTES: usize = 1 << 20;

/// What runs a container, as its cgroup's path shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manager {
    /// A pod of Kubernetes.
    Kubernetes,
    /// Docker, with the container's id.
    Docker(String),
    /// Podman, with the container's id.
    Podman(String),
    /// A unit of systemd.
    Systemd(String),
    /// A job of Slurm, with its number.
    Slurm(String),
    /// Nothing that is known.
    Plain,
}

impl Manager {
    /// From the cgroup paths of a process. The outermost manager holds: it sets the limits.
    pub fn of(groups: &Cgroups) -> Manager {
        let parts = || groups.paths.iter().flat_map(|path| path.split('/'));
        if parts().any(|part| part.starts_with("kubepods")) {
            return Manager::Kubernetes;
        }
        if let Some(job) = parts().find_map(|part| part.strip_prefix("job_")) {
            return Manager::Slurm(job.to_owned());
        }
        for path in &groups.paths {
            for (index, part) in path.split('/').enumerate() {
                let id = container_id(part);
                let parent = path.split('/').nth(index.wrapping_sub(1)).unwrap_or_default();
                match id {
                    Some(id) if part.starts_with("libpod") => return Manager::Podman(id.into()),
                    Some(id) if part.starts_with("docker") || parent == "docker" => {
                        return Manager::Docker(id.into());
                    }
                    _ => {}
                }
            }
        }
        // The innermost unit: limits of its slice are found by the file that sets them.
        let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
        let unit = groups.paths.iter().find_map(|path| path.rsplit('/').find(is_unit));
        unit.map_or(Manager::Plain, |unit| Manager::Systemd(unit.to_owned()))
    }
}

/// The id within one part of a cgroup path: `ab12…`, `docker-ab12….scope`,
/// `cri-containerd-ab12….scope`, `libpod-ab12…`.
pub fn container_id(part: &str) -> Option<&str> {
    let part = part.strip_suffix(".scope").unwrap_or(part);
    let id = part.rsplit_once('-').map_or(part, |(_, id)| id);
    let is_id = id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then_some(id)
}

/// Processes in a container, by name, by id, or by the beginning of its id; by number.
///
/// # Errors
/// /proc cannot be listed.
pub fn members(root: &Root, wanted: &str) -> Result<Vec<u32>, HostError> {
    let mut ids = ids_of_name(root, wanted);
    if wanted.len() >= MIN_ID_DIGITS && wanted.bytes().all(|b| b.is_ascii_hexdigit()) {
        ids.insert(wanted.to_lowercase());
    }
    let matches = |part: &str| {
        // lxc, systemd-nspawn and Slurm put names into the path itself.
        let named = part.strip_suffix(".scope").or(part.strip_suffix(".service")).unwrap_or(part);
        let named = named.strip_prefix("machine-").unwrap_or(named);
        let named = named.strip_prefix("lxc.payload.").unwrap_or(named);
        named == wanted
            || container_id(part).is_some_and(|id| ids.iter().any(|i| id.starts_with(i.as_str())))
    };
    let pids = root.numbers("proc")?;
    let inside = |pid: &u32| {
        let text = root.text(format!("proc/{pid}/cgroup")).unwrap_or_default();
        text.lines()
            .any(|line| line.splitn(3, ':').nth(2).is_some_and(|path| path.split('/').any(matches)))
    };
    Ok(pids.into_iter().filter(inside).collect())
}

/// The `pids` whose parent is not among them.
pub fn heads(root: &Root, pids: &[u32]) -> Vec<u32> {
    let has_parent_inside = |pid: u32| {
        process::Process::read(root, pid).is_ok_and(|process| pids.contains(&process.ppid))
    };
    pids.iter().copied().filter(|&pid| !has_parent_inside(pid)).collect()
}

/// Ids of containers with a name, from the files of Docker and Podman where they are readable.
fn ids_of_name(root: &Root, name: &str) -> BTreeSet<String> {
    let mut ids = BTreeSet::new();
    let docker = "var/lib/docker/containers";
    for id in root.names(docker).unwrap_or_default() {
        let config = json(root, &format!("{docker}/{id}/config.v2.json"));
        let given = config.as_ref().and_then(|c| c.get("Name")?.as_str());
        if given.is_some_and(|given| given.trim_start_matches('/') == name) {
            ids.insert(id);
        }
    }
    let podman = json(root, "var/lib/containers/storage/overlay-containers/containers.json");
    for container in podman.as_ref().and_then(|p| p.as_array()).into_iter().flatten() {
        let named = container.get("names").and_then(|n| n.as_array());
        if named.is_some_and(|names| names.iter().any(|n| n == name)) {
            ids.extend(container.get("id").and_then(|id| id.as_str()).map(str::to_owned));
        }
    }
    ids
}

fn json(root: &Root, path: &str) -> Option<serde_json::Value> {
    let (bytes, complete) = root.read_up_to(path, MAX_CONFIG_BYTES).ok()?;
    complete.then(|| serde_json::from_slice(&bytes).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_within_parts_of_paths() {
        let id = "ab".repeat(32);
        for part in [
            id.clone(),
            format!("docker-{id}.scope"),
            format!("cri-containerd-{id}.scope"),
            format!("libpod-{id}"),
        ] {
            assert_eq!(container_id(&part), Some(id.as_str()), "{part}");
        }
        assert_eq!(container_id("user.slice"), None);
        assert_eq!(container_id("libpod-conmon"), None);
    }

    #[test]
    fn managers_by_path() {
        let id = "ab".repeat(32);
        let of = |path: String| {
            let paths = vec!["/".to_owned(), path];
            let none = None;
            Manager::of(&Cgroups {
                paths,
                cpu: none.clone(),
                cpuset: none.clone(),
                unified: none,
                ancestors_hidden: None,
            })
        };
        assert_eq!(of(format!("/docker/{id}")), Manager::Docker(id.clone()));
        assert_eq!(of(format!("/system.slice/docker-{id}.scope")), Manager::Docker(id.clone()));
        assert_eq!(of(format!("/machine.slice/libpod-{id}.scope")), Manager::Podman(id.clone()));
        let pod = format!("/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope");
        assert_eq!(of(pod), Manager::Kubernetes);
        assert_eq!(of("/slurm/uid_1/job_77/step_0".into()), Manager::Slurm("77".into()));
        assert_eq!(of("/a.slice/vllm.service".into()), Manager::Systemd("vllm.service".into()));
        assert_eq!(of("/".into()), Manager::Plain);
    }
}
