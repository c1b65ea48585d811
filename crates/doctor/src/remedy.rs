//! What to type to give a server more cores, or cores of its own: each manager has its
//! own words. A change is proposed only where it changes something.

use saccade_host::{Cores, CpuSet};

use crate::case::Case;
use crate::container::Manager;
use crate::facts::{Facts, Neighbour, NeighbourKind};
use crate::finding::Change;
use crate::thresholds::{ACTIVE, NEIGHBOURS_WARN};
use crate::words::{count, plural};

fn change(what: impl Into<String>, how: impl Into<String>) -> Change {
    Change { what: what.into(), how: how.into() }
}

/// More cores than the server has, up to `cores`: by a higher quota or a wider set, whichever is
/// the limit.
pub fn more_cores(facts: &Facts, cores: f64) -> Vec<Change> {
    match facts.cores.as_ref() {
        Some(bounds) if bound_by_quota(bounds) => raise_quota(facts, cores),
        _ => widen_set(facts, cores),
    }
}

/// Whether the quota, and not the set of cores, limits the server.
pub fn bound_by_quota(cores: &Cores) -> bool {
    match (&cores.quota, &cores.set) {
        (Some((quota, _)), Some(set)) => quota.cores() < set.len() as f64,
        (quota, _) => quota.is_some(),
    }
}

/// How to raise the quota to `cores`; nothing if it is that high already.
pub fn raise_quota(facts: &Facts, cores: f64) -> Vec<Change> {
    let quota = facts.cores.as_ref().and_then(|bounds| bounds.quota.as_ref());
    if quota.is_some_and(|(quota, _)| quota.cores() >= cores) {
        return Vec::new();
    }
    let cores = cores.ceil();
    let at_once = |how: String| vec![change("at once, without restart", how)];
    match &facts.manager {
        Manager::Kubernetes => vec![change(
            "in the pod's container; whole numbers, equal, so that the static CPU manager gives \
             cores of its own",
            pod_resources(cores),
        )],
        Manager::Docker(id) => at_once(format!("docker update --cpus {cores} {}", short(id))),
        Manager::Podman(id) => at_once(format!("podman update --cpus {cores} {}", short(id))),
        Manager::Systemd(unit) => {
            at_once(format!("systemctl set-property {unit} CPUQuota={:.0}%", cores * 100.0))
        }
        Manager::Slurm(_) => {
            vec![change("in the job's script", format!("#SBATCH --cpus-per-task={cores}"))]
        }
        Manager::Plain => match quota.map(|(_, file)| file.as_str()) {
            Some(file) if file.ends_with("cpu.max") => {
                vec![change("as root", format!("echo '{:.0} 100000' > {file}", cores * 100_000.0))]
            }
            Some(file) => {
                let folder = file.trim_end_matches("cpu.cfs_quota_us");
                let period = format!("echo 100000 > {folder}cpu.cfs_period_us");
                let quota = format!("echo {:.0} > {file}", cores * 100_000.0);
                vec![change("as root", format!("{period} && {quota}"))]
            }
            None => Vec::new(),
        },
    }
}

fn pod_resources(cores: f64) -> String {
    format!("resources: {{requests: {{cpu: \"{cores}\"}}, limits: {{cpu: \"{cores}\"}}}}")
}

/// How to let the server run on `cores` cores: the machine's others, or those of a larger machine.
pub fn widen_set(facts: &Facts, cores: f64) -> Vec<Change> {
    let machine = Machine::of(facts);
    let list = machine.first(cores);
    let mut changes = Vec::new();
    if !list.is_within(&machine.own) {
        changes.push(place(facts, &list, cores));
    }
    let online = machine.online.len() as f64;
    if online < cores.ceil() {
        changes.push(change(
            format!("this machine has {}", plural(online, "core")),
            format!("a machine or instance with at least {}", plural(cores.ceil(), "core")),
        ));
    }
    changes
}

/// The change that moves the server onto a wider list of cores.
fn place(facts: &Facts, list: &CpuSet, cores: f64) -> Change {
    // A mask narrower than the cpuset was set by taskset, numactl or the program itself.
    let by_mask = facts.cores.as_ref().is_some_and(|bounds| {
        let (Some(mask), Some(set)) = (&bounds.affinity, &bounds.cpuset) else { return true };
        mask.len() < set.len()
    });
    if by_mask {
        return change(
            "at once, all threads (and remove taskset or numactl from the start)",
            taskset(list, &member_pids(facts)),
        );
    }
    match &facts.manager {
        Manager::Kubernetes => change("in the pod's container", pod_resources(cores.ceil())),
        Manager::Slurm(_) => {
            change("in the job's script", format!("#SBATCH --cpus-per-task={}", cores.ceil()))
        }
        Manager::Plain => change("in the server's cgroup", format!("cpuset.cpus: {list}")),
        _ => restrict(facts, list),
    }
}

/// The change that keeps the server on a list of cores.
fn restrict(facts: &Facts, list: &CpuSet) -> Change {
    let how = match &facts.manager {
        Manager::Docker(id) => format!("docker update --cpuset-cpus {list} {}", short(id)),
        Manager::Podman(id) => format!("podman update --cpuset-cpus {list} {}", short(id)),
        Manager::Systemd(unit) => format!("systemctl set-property {unit} AllowedCPUs={list}"),
        _ => taskset(list, &member_pids(facts)),
    };
    change("at once", how)
}

/// All threads of the server on all of its cores.
pub fn unpin(facts: &Facts) -> Vec<Change> {
    let own = Machine::of(facts).own;
    vec![change("at once, all threads", taskset(&own, &member_pids(facts)))]
}

/// Against waiting for cores: moves away others that take them; if the server's own threads do,
/// it needs more cores.
pub fn relieve(case: &Case, cores: f64) -> Vec<Change> {
    let facts = case.facts;
    let Some(set) = facts.cores.as_ref().and_then(|bounds| bounds.set.as_ref()) else {
        return Vec::new();
    };
    let others = facts.delta.others_cores(set).unwrap_or_default();
    if others >= NEIGHBOURS_WARN * set.len() as f64 {
        return fence(case, cores);
    }
    let wanted = cores.max(case.wanted_cores());
    if facts.usable().is_some_and(|usable| usable >= wanted) {
        return Vec::new();
    }
    more_cores(facts, wanted)
}

/// How to give the server `cores` cores that nothing else uses.
pub fn fence(case: &Case, cores: f64) -> Vec<Change> {
    let facts = case.facts;
    match &facts.manager {
        Manager::Kubernetes => {
            let how = "kubelet: --cpu-manager-policy=static, and requests = limits, whole numbers";
            return vec![change("cores of its own", how)];
        }
        Manager::Slurm(_) => return vec![change("cores of its own", "#SBATCH --exclusive")],
        _ => {}
    }
    let machine = Machine::of(facts);
    // A server that computes on cores uses all that it has.
    let all = if facts.gpu_count.count == 0 { machine.own.len() as f64 } else { 0.0 };
    let list = machine.first(cores.max(case.wanted_cores()).max(all));
    let rest = machine.online.without(&list);
    if rest.is_empty() {
        return facts.neighbours.iter().filter(|n| n.cores >= ACTIVE).map(away).collect();
    }
    let mut changes = Vec::new();
    if list != machine.own {
        changes.push(restrict(facts, &list));
    }
    let meets = |n: &&Neighbour| n.cores_allowed.as_ref().is_none_or(|s| !s.and(&list).is_empty());
    let pids: Vec<u32> = facts.neighbours.iter().filter(meets).map(|n| n.pid).collect();
    changes.push(match pids[..] {
        [] => change("and other work off these cores", format!("keep cores {list} free of it")),
        _ => change("the others on the other cores", taskset(&rest, &pids)),
    });
    changes
}

/// What to do with a neighbour where the machine has no other cores for it.
fn away(neighbour: &Neighbour) -> Change {
    let Neighbour { pid, name, cores, kind, .. } = neighbour;
    let elsewhere = |who: String| {
        let what = format!("it takes {} of these cores", count(*cores));
        change(what, format!("run {who} (pid {pid}) on another machine"))
    };
    match kind {
        NeighbourKind::LoadClient => elsewhere("the load client".to_owned()),
        NeighbourKind::Engine(engine) => elsewhere(format!("the other {} server", engine.name())),
        NeighbourKind::Other => {
            change(format!("let {name:?} use only idle time"), format!("chrt -ap --idle 0 {pid}"))
        }
    }
}

/// The cores of the machine and the ones that the server may use.
struct Machine {
    own: CpuSet,
    online: CpuSet,
}

impl Machine {
    fn of(facts: &Facts) -> Machine {
        let bounds = facts.cores.as_ref();
        let own = bounds.and_then(|bounds| bounds.set.clone()).unwrap_or_default();
        let online = bounds.and_then(|bounds| bounds.online.clone()).unwrap_or_default();
        Machine { online: own.or(&online), own }
    }

    /// This many cores, the server's own first; fewer where the machine has fewer.
    fn first(&self, cores: f64) -> CpuSet {
        let others = self.online.iter().filter(|&core| !self.own.contains(core));
        CpuSet::new(self.own.iter().chain(others).take(cores.ceil() as usize))
    }
}

fn taskset(list: &CpuSet, pids: &[u32]) -> String {
    match pids {
        [pid] => format!("taskset -acp {list} {pid}"),
        _ => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("for p in {}; do taskset -acp {list} $p; done", pids.join(" "))
        }
    }
}

fn member_pids(facts: &Facts) -> Vec<u32> {
    facts.members.iter().map(|member| member.process.pid).collect()
}

/// As runtimes abbreviate ids.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}
