//! Others on the same cores: processes, terminals, virtual machines.

use saccade_host::CpuSet;

use crate::case::Case;
use crate::facts::{Neighbour, NeighbourKind};
use crate::finding::{Finding, Severity};
use crate::remedy;
use crate::thresholds::{
    CORES_FULL, LLC_MISS_NOTE, NEIGHBOURS_NOTE, NEIGHBOURS_WARN, STEAL_TROUBLE, STEAL_WARN,
    WAIT_SHARE_TROUBLE,
};
use crate::words::{count, percent, plural};

pub fn findings(case: &Case) -> Vec<Finding> {
    let Some(set) = case.facts.cores.as_ref().and_then(|cores| cores.set.as_ref()) else {
        return Vec::new();
    };
    let others = on_its_cores(case, set);
    let autogroup = others.as_ref().filter(|f| f.id == "neighbours").and(autogroup(case));
    let caches = caches(case).filter(|_| others.as_ref().is_none_or(|f| f.id != "shared_caches"));
    others.into_iter().chain(autogroup).chain(caches).chain(stolen(case, set)).collect()
}

fn on_its_cores(case: &Case, set: &CpuSet) -> Option<Finding> {
    let delta = &case.facts.delta;
    let others = delta.others_cores(set)?;
    let size = set.len() as f64;
    let busy = set.iter().filter_map(|c| delta.cpus.get(&c)).map(|c| c.busy).sum::<f64>() / size;
    let full = busy >= CORES_FULL && others >= NEIGHBOURS_WARN * size;
    if !full && others < NEIGHBOURS_NOTE * size {
        return None;
    }
    let suffers = case.wait_share().is_some_and(|share| share >= WAIT_SHARE_TROUBLE);
    let (id, severity) = match (full, suffers) {
        (true, true) => ("neighbours", Severity::Trouble),
        (true, false) => ("neighbours", Severity::Warning),
        (false, _) => ("shared_caches", Severity::Note),
    };
    let used = format!("Others use {} of its {}", count(others), plural(size, "core"));
    let title = if full {
        format!("{used}, and none is left.")
    } else {
        format!("{used}: cores are free, but caches and memory are shared.")
    };
    let mut finding = Finding::new(id, severity, title)
        .with("cores busy", percent(busy), "/proc/stat")
        .with("of that, others", count(others), "/proc/stat less the server's own time");
    for neighbour in &case.facts.neighbours {
        let from = format!("/proc/{}/stat{}", neighbour.pid, allowed(neighbour));
        finding = finding.with(named(neighbour), plural(neighbour.cores, "core"), from);
    }
    Some(finding.changes(remedy::fence(case, case.need().comfortable)))
}

/// `pid 900 "pbzip2"`
fn named(neighbour: &Neighbour) -> String {
    let name = format!("pid {} {:?}", neighbour.pid, neighbour.name);
    match neighbour.kind {
        NeighbourKind::Engine(engine) => format!("{name} ({} server)", engine.name()),
        NeighbourKind::LoadClient => format!("{name} (load client)"),
        NeighbourKind::Other => name,
    }
}

fn allowed(neighbour: &Neighbour) -> String {
    let cores = neighbour.cores_allowed.as_ref();
    cores.map(|cores| format!(" (may run on cores {cores})")).unwrap_or_default()
}

/// Cores are shared out between terminals before tasks: nice values do not reach across.
fn autogroup(case: &Case) -> Option<Finding> {
    let on = case.facts.autogroup == Some(true) && case.facts.in_root_cgroup;
    on.then(|| {
        let title = "The kernel divides cores among login sessions, not threads: one busy thread \
                     of another session counts as much as all of the server's.";
        Finding::new("autogroup", Severity::Warning, title)
            .with("enabled", "1", "/proc/sys/kernel/sched_autogroup_enabled")
            .change("at once", "sysctl kernel.sched_autogroup_enabled=0")
            .change("or start it as a service", "systemd-run --unit=llm -p CPUWeight=10000 ...")
    })
}

fn caches(case: &Case) -> Option<Finding> {
    let counted = case.facts.counters.as_ref()?;
    let share = counted.llc_miss_share.filter(|&share| share >= LLC_MISS_NOTE)?;
    let title = format!("{} of its loads miss the last-level cache.", percent(share));
    let mut finding = Finding::new("shared_caches", Severity::Note, title).with(
        "LLC misses",
        percent(share),
        "perf_event_open",
    );
    if let Some(ipc) = counted.instructions_per_cycle {
        finding = finding.with("instructions per cycle", format!("{ipc:.2}"), "perf_event_open");
    }
    Some(finding)
}

fn stolen(case: &Case, set: &CpuSet) -> Option<Finding> {
    let steal = case.facts.delta.steal(set).filter(|&steal| steal >= STEAL_WARN)?;
    let severity = if steal >= STEAL_TROUBLE { Severity::Trouble } else { Severity::Warning };
    let title = format!(
        "The hypervisor took {} of the time of one of its cores for other machines.",
        percent(steal)
    );
    Some(
        Finding::new("stolen", severity, title)
            .with("steal, worst core", percent(steal), "/proc/stat")
            .change("ask for", "an instance with dedicated cores (no burstable or shared type)"),
    )
}
