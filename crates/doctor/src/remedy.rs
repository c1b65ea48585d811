//! What to type to give a server more cores: each manager has its own words.

use saccade_host::CpuSet;

use crate::container::Manager;
use crate::facts::Facts;
use crate::finding::Change;

/// How to raise the quota to `cores`.
pub fn raise_quota(facts: &Facts, cores: f64) -> Vec<Change> {
    let cores = cores.ceil();
    let change = |what: &str, how: String| vec![Change { what: what.to_owned(), how }];
    match &facts.manager {
        Manager::Kubernetes => change(
            "in the pod's container; whole numbers, equal, so that the static CPU manager gives \
             cores of its own",
            format!("resources: {{requests: {{cpu: \"{cores}\"}}, limits: {{cpu: \"{cores}\"}}}}"),
        ),
        Manager::Docker(id) => change(
            "at once, without restart",
            format!("docker update --cpus {cores} {}", short(id)),
        ),
        Manager::Podman(id) => change(
            "at once, without restart",
            format!("podman update --cpus {cores} {}", short(id)),
        ),
        Manager::Systemd(unit) => change(
            "at once, without restart",
            format!("systemctl set-property {unit} CPUQuota={:.0}%", cores * 100.0),
        ),
        Manager::Slurm(_) => {
            change("in the job's script", format!("#SBATCH --cpus-per-task={cores}"))
        }
        Manager::Plain => match quota_file(facts) {
            Some(file) if file.ends_with("cpu.max") => {
                change("as root", format!("echo '{:.0} 100000' > {file}", cores * 100_000.0))
            }
            Some(file) => {
                let folder = file.trim_end_matches("cpu.cfs_quota_us");
                let period = format!("echo 100000 > {folder}cpu.cfs_period_us");
                change("as root", format!("{period} && echo {:.0} > {file}", cores * 100_000.0))
            }
            None => Vec::new(),
        },
    }
}

/// How to let the server run on `cores` cores.
pub fn widen_set(facts: &Facts, cores: f64) -> Vec<Change> {
    let list = core_list(facts, cores);
    let cores = cores.ceil();
    let change = |what: &str, how: String| vec![Change { what: what.to_owned(), how }];
    // A mask narrower than the cpuset was set by taskset, numactl or the program itself.
    let by_mask = facts.cores.as_ref().is_some_and(|bounds| {
        let (Some(mask), Some(set)) = (&bounds.affinity, &bounds.cpuset) else { return true };
        mask.len() < set.len()
    });
    if by_mask {
        return change(
            "at once, all threads (and remove taskset or numactl from the start)",
            format!("for p in {}; do taskset -acp {list} $p; done", pids(facts)),
        );
    }
    match &facts.manager {
        Manager::Kubernetes => raise_quota(facts, cores),
        Manager::Docker(id) => {
            change("at once", format!("docker update --cpuset-cpus {list} {}", short(id)))
        }
        Manager::Podman(id) => {
            change("at once", format!("podman update --cpuset-cpus {list} {}", short(id)))
        }
        Manager::Systemd(unit) => {
            change("at once", format!("systemctl set-property {unit} AllowedCPUs={list}"))
        }
        Manager::Slurm(_) => {
            change("in the job's script", format!("#SBATCH --cpus-per-task={cores}"))
        }
        Manager::Plain => change("in the server's cgroup", format!("cpuset.cpus: {list}")),
    }
}

/// How to give the server cores that nobody else uses.
pub fn own_cores(facts: &Facts, cores: f64) -> Vec<Change> {
    let list = core_list(facts, cores);
    let how = match &facts.manager {
        Manager::Kubernetes => {
            "kubelet: --cpu-manager-policy=static, and requests = limits, whole numbers".to_owned()
        }
        Manager::Slurm(_) => "#SBATCH --exclusive".to_owned(),
        Manager::Systemd(unit) => format!(
            "systemctl set-property {unit} AllowedCPUs={list}  # and other slices elsewhere"
        ),
        _ => format!(
            "for p in {}; do taskset -acp {list} $p; done  # and everything else off these cores",
            pids(facts)
        ),
    };
    vec![Change { what: "cores that nobody else uses".to_owned(), how }]
}

/// So many cores of this machine, those first that the server has already. Fewer where the
/// machine has fewer.
fn core_list(facts: &Facts, cores: f64) -> String {
    let bounds = facts.cores.as_ref();
    let own = bounds.and_then(|bounds| bounds.set.clone()).unwrap_or_default();
    let online = bounds.and_then(|bounds| bounds.online.clone()).unwrap_or_default();
    let others = online.iter().filter(|&core| !own.contains(core));
    CpuSet::new(own.iter().chain(others).take(cores.ceil() as usize)).to_string()
}

fn quota_file(facts: &Facts) -> Option<&str> {
    facts.cores.as_ref()?.quota.as_ref().map(|(_, file)| file.as_str())
}

fn pids(facts: &Facts) -> String {
    let pids = facts.members.iter().map(|member| member.process.pid.to_string());
    pids.collect::<Vec<_>>().join(" ")
}

/// As runtimes abbreviate ids.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
