//! Others on the same cores: processes, terminals, virtual machines.

use saccade_host::CpuSet;

use super::{count, percent};
use crate::case::Case;
use crate::finding::{Change, Finding, Severity};
use crate::remedy;
use crate::thresholds::{
    CORES_FULL, LLC_MISS_NOTE, NEIGHBOURS_NOTE, NEIGHBOURS_WARN, STEAL_TROUBLE, STEAL_WARN,
    WAIT_SHARE_TROUBLE,
};

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
    let title = if full {
        format!(
            "Others use {} of its {} cores, and there is none left.",
            count(others),
            count(size)
        )
    } else {
        format!(
            "Others use {} of its {} cores: cores are free, but caches and memory are shared.",
            count(others),
            count(size)
        )
    };
    let mut finding = Finding::new(id, severity, title)
        .with("cores busy", percent(busy), "/proc/stat")
        .with("of that, others", count(others), "/proc/stat less the server's own time");
    for neighbour in &case.facts.neighbours {
        let what = format!("pid {} {:?}", neighbour.pid, neighbour.name);
        let from = format!("/proc/{}/stat (on any core)", neighbour.pid);
        finding = finding.with(what, format!("{} cores", count(neighbour.cores)), from);
    }
    let pids: Vec<String> = case.facts.neighbours.iter().map(|n| n.pid.to_string()).collect();
    let mut changes = remedy::own_cores(case.facts, case.need().comfortable);
    if full && !pids.is_empty() {
        changes.push(Change {
            what: "until then, make them yield".to_owned(),
            how: format!("for p in {}; do chrt -ap --idle 0 $p; done", pids.join(" ")),
        });
    }
    Some(finding.changes(changes))
}

/// Cores are shared out between terminals before tasks: nice values do not reach across.
fn autogroup(case: &Case) -> Option<Finding> {
    let on = case.facts.autogroup == Some(true) && case.facts.in_root_cgroup;
    on.then(|| {
        let title = "Cores are shared out between login sessions, not tasks: one busy thread of \
                     another session counts as much as all of the server's.";
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
