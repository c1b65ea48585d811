//! Too few cores: by quota, by affinity, for the number of GPUs; and quotas that are used up.

use std::collections::BTreeMap;

use saccade_host::{Cores, TaskDelta, Throttling};

use crate::case::{Case, Need};
use crate::engine;
use crate::finding::{Finding, Severity};
use crate::remedy::{self, bound_by_quota};
use crate::thresholds::{ACTIVE, CORES_PER_GPU_WARN, THROTTLED_TROUBLE, THROTTLED_WARN};
use crate::words::{count, percent, plural};

/// Threads that are named as evidence.
const MAX_SHOWN: usize = 4;

pub fn findings(case: &Case) -> Vec<Finding> {
    let below = below_need(case);
    let few = few_per_gpu(case).filter(|_| below.is_none());
    let stacked = stacked(case).filter(|_| below.is_none());
    below.into_iter().chain(few).chain(stacked).chain(throttled(case)).collect()
}

/// Processes of a step that cannot run at the same time.
fn below_need(case: &Case) -> Option<Finding> {
    let cores = case.facts.cores.as_ref()?;
    let usable = cores.usable?;
    let need = case.need();
    let limit = if bound_by_quota(cores) {
        (usable < need.minimum).then(|| below_quota(case, cores, &need))?
    } else if is_pinned(cores) {
        pinned(case, cores, &need)
    } else {
        (usable < need.minimum).then(|| below_set(case, cores, &need))?
    };
    let mut finding = limit.with("cores needed at least", count(need.minimum), need.why.clone());
    if case.facts.ancestors_hidden {
        finding = finding.with("limits above this container", "hidden", "/proc/self/ns/cgroup");
    }
    finding.cost = case.cost((need.comfortable - usable).ceil());
    Some(finding)
}

/// All threads on one core, of a machine that has more.
fn is_pinned(cores: &Cores) -> bool {
    let one = cores.set.as_ref().is_some_and(|set| set.len() == 1);
    one && cores.online.as_ref().is_none_or(|online| online.len() > 1)
}

fn below_quota(case: &Case, cores: &Cores, need: &Need) -> Finding {
    let usable = cores.usable.unwrap_or_default();
    let title = format!(
        "The CPU quota is {}, but {} take part in each step: some of them always wait for others.",
        plural(usable, "core"),
        plural(need.minimum, "process")
    );
    let mut finding = Finding::new("quota_below_need", Severity::Trouble, title);
    if let Some((quota, file)) = &cores.quota {
        let value = format!("{} us of each {} us", quota.quota_us, quota.period_us);
        finding = finding.with("quota", value, file.clone());
    }
    finding.changes(remedy::raise_quota(case.facts, need.comfortable))
}

fn pinned(case: &Case, cores: &Cores, need: &Need) -> Finding {
    let facts = case.facts;
    let active = facts.delta.tasks.iter().filter(|t| facts.wanted(&t.used) >= ACTIVE).count();
    let rivals = facts.path_processes().max(active);
    let severity = if rivals > 1 { Severity::Trouble } else { Severity::Warning };
    let core = cores.set.as_ref().map(ToString::to_string).unwrap_or_default();
    let online = cores.online.as_ref().map_or(0, saccade_host::CpuSet::len);
    let title = format!("All of its threads share core {core}, of {online}.");
    let mask = cores.affinity.as_ref().map(ToString::to_string).unwrap_or_default();
    Finding::new("pinned_to_one_core", severity, title)
        .with("allowed cores", mask, format!("/proc/{}/task/*/status", facts.pid))
        .with("cores of the machine", online.to_string(), "/sys/devices/system/cpu/online")
        .with("active threads", active.to_string(), "schedstat")
        .changes(remedy::widen_set(facts, need.comfortable.max(rivals as f64).max(2.0)))
}

/// Several busy threads, each pinned to the same core, although the server has others.
fn stacked(case: &Case) -> Option<Finding> {
    let facts = case.facts;
    let mut by_core: BTreeMap<u32, Vec<&TaskDelta>> = BTreeMap::new();
    for task in facts.delta.tasks.iter().filter(|t| facts.wanted(&t.used) >= ACTIVE) {
        let mask = task.affinity.as_ref().filter(|mask| mask.len() == 1);
        if let Some(core) = mask.and_then(|mask| mask.iter().next()) {
            by_core.entry(core).or_default().push(task);
        }
    }
    let wanted = |tasks: &[&TaskDelta]| tasks.iter().map(|t| facts.wanted(&t.used)).sum::<f64>();
    let (core, tasks) = by_core
        .into_iter()
        .filter(|(_, tasks)| tasks.len() > 1 && wanted(tasks) > 1.0)
        .max_by(|(_, a), (_, b)| wanted(a).total_cmp(&wanted(b)))?;
    let title = format!(
        "{} busy threads are pinned to core {core}, which they want {} times over.",
        tasks.len(),
        count(wanted(&tasks))
    );
    let mut finding = Finding::new("threads_share_core", Severity::Warning, title);
    for task in tasks.iter().take(MAX_SHOWN) {
        let from = format!("/proc/{}/task/{}/status", task.pid, task.tid);
        finding = finding.with(format!("{:?} may run on", task.name), core.to_string(), from);
    }
    Some(finding.changes(remedy::unpin(facts)))
}

fn below_set(case: &Case, cores: &Cores, need: &Need) -> Finding {
    let title = format!(
        "It may run on {}, but {} take part in each step: some of them always wait for others.",
        plural(cores.usable.unwrap_or_default(), "core"),
        plural(need.minimum, "process")
    );
    let set = cores.set.as_ref().map(ToString::to_string).unwrap_or_default();
    Finding::new("cores_below_need", Severity::Trouble, title)
        .with("allowed cores", set, format!("/proc/{}/task/*/status", case.facts.pid))
        .changes(remedy::widen_set(case.facts, need.comfortable))
}

fn few_per_gpu(case: &Case) -> Option<Finding> {
    let usable = case.facts.usable()?;
    let gpus = case.facts.gpu_count.count;
    if gpus == 0 || usable / gpus as f64 >= CORES_PER_GPU_WARN {
        return None;
    }
    let wanted = CORES_PER_GPU_WARN * gpus as f64;
    let title = format!(
        "{} for each GPU: below {CORES_PER_GPU_WARN:.0}, long prompts slow the GPUs down.",
        plural(usable / gpus as f64, "core")
    );
    let mut finding = Finding::new("few_cores_per_gpu", Severity::Warning, title)
        .with("cores", count(usable), "affinity, cpuset and quota")
        .with("GPUs", gpus.to_string(), case.facts.gpu_count.how)
        .changes(remedy::more_cores(case.facts, wanted));
    finding.cost = case.cost((wanted - usable).ceil());
    Some(finding)
}

/// A quota that was used up while we watched.
fn throttled(case: &Case) -> Option<Finding> {
    let facts = case.facts;
    let grown = |dir: &str| facts.delta.throttling.get(dir).copied();
    let share = |t: &Throttling| t.nr_throttled as f64 / t.nr_periods.max(1) as f64;
    let levels = facts.levels.iter().filter(|level| level.quota.is_some());
    let (level, during) = levels
        .filter_map(|level| Some((level, grown(&level.dir)?)))
        .max_by(|(_, a), (_, b)| share(a).total_cmp(&share(b)))?;
    let lifetime = level.throttling.unwrap_or_default();
    let severity = match share(&during) {
        s if s >= THROTTLED_TROUBLE => Severity::Trouble,
        s if s >= THROTTLED_WARN => Severity::Warning,
        _ if share(&lifetime) >= THROTTLED_WARN => Severity::Note,
        _ => return None,
    };
    let title = if severity == Severity::Note {
        format!(
            "Not throttled just now, but in {} of all periods since its cgroup was made.",
            percent(share(&lifetime))
        )
    } else {
        format!(
            "Its quota was used up in {} of the periods; then all of its threads stopped.",
            percent(share(&during))
        )
    };
    let file = format!("{}/cpu.stat", level.dir);
    let stopped_ms = during.throttled_ns as f64 / 1e6 / facts.delta.seconds;
    let wanted = case.wanted_cores();
    // Less than the quota on average, and more at times: a quota that is raised must exceed it.
    let quota = level.quota.map_or(0.0, |quota| quota.cores());
    let enough = wanted.max(case.need().comfortable).max(quota + 1.0);
    let mut finding = Finding::new("throttled", severity, title)
        .with(
            "throttled periods",
            format!("{} of {}", during.nr_throttled, during.nr_periods),
            &file,
        )
        .with("stopped", format!("{stopped_ms:.0} ms of each second, summed over cores"), &file)
        .with("cores wanted", count(wanted), "schedstat: running and waiting")
        .changes(remedy::raise_quota(facts, enough))
        .changes(engine::thread_bounds(facts.engine, "not above the quota"));
    finding.cost = case.cost((enough - quota).ceil());
    Some(finding)
}
