//! Waiting for cores: run queue, pressure, preemption.

use saccade_host::{TaskDelta, Use};

use crate::case::Case;
use crate::finding::{Finding, Severity};
use crate::remedy;
use crate::thresholds::{
    PREEMPTED_WARN, PRESSURE_TROUBLE, PRESSURE_WARN, WAIT_SHARE_TROUBLE, WAIT_SHARE_WARN,
};
use crate::words::percent;

pub fn findings(case: &Case) -> Vec<Finding> {
    run_queue(case).into_iter().chain(pressure(case)).chain(preempted(case)).collect()
}

/// How bad it is to wait for this share of the time.
fn waiting_severity(share: f64) -> Option<Severity> {
    match share {
        s if s >= WAIT_SHARE_TROUBLE => Some(Severity::Trouble),
        s if s >= WAIT_SHARE_WARN => Some(Severity::Warning),
        _ => None,
    }
}

/// Runnable, and not running.
fn run_queue(case: &Case) -> Option<Finding> {
    let share = case.wait_share()?;
    let severity = waiting_severity(share)?;
    let facts = case.facts;
    let title =
        format!("It waited for a core in {} of the time that it wanted one.", percent(share));
    let from = format!("/proc/{}/task/*/schedstat", facts.pid);
    let total = &facts.delta.total;
    let per_second = |s: Option<f64>| s.unwrap_or_default() / facts.delta.seconds;
    let mut finding = Finding::new("run_queue_wait", severity, title)
        .with("waited", format!("{:.2} s per second", per_second(total.wait_s)), &from)
        .with("ran", format!("{:.2} s per second", per_second(total.run_s)), &from);
    if let Some(ms) = total.wait_ms_per_slice() {
        finding = finding.with("waited each time", format!("{ms:.2} ms"), &from);
    }
    if let Some(worst) = worst_waiter(&facts.delta.tasks) {
        let waited = worst.used.wait_s.unwrap_or_default() / facts.delta.seconds;
        let value = format!("{:?}, {waited:.2} s per second", worst.name);
        let file = format!("/proc/{}/task/{}/schedstat", worst.pid, worst.tid);
        finding = finding.with("waited most", value, file);
    }
    Some(finding.changes(remedy::relieve(case, case.need().comfortable)))
}

fn worst_waiter(tasks: &[TaskDelta]) -> Option<&TaskDelta> {
    let waited = |task: &&TaskDelta| task.used.wait_s.unwrap_or_default();
    tasks.iter().max_by(|a, b| waited(a).total_cmp(&waited(b)))
}

/// A thread of the server's cgroup waited; or one of the machine, and the server did too.
fn pressure(case: &Case) -> Option<Finding> {
    let facts = case.facts;
    let own = facts.delta.cgroup_cpu_pressure.filter(|_| !facts.in_root_cgroup);
    let (share, of, from) = match own {
        Some(share) => (share, "in its cgroup", "cpu.pressure"),
        None => (facts.delta.cpu_pressure?, "on the machine", "/proc/pressure/cpu"),
    };
    let severity = match share {
        s if s >= PRESSURE_TROUBLE => Severity::Trouble,
        s if s >= PRESSURE_WARN => Severity::Warning,
        _ => return None,
    };
    // The threads that wait may be others': it is as bad as the server's own waiting.
    let suffers = case.wait_share().and_then(waiting_severity);
    let severity = match (own, suffers) {
        (Some(_), _) => severity,
        (None, Some(suffers)) => severity.min(suffers),
        (None, None) if severity == Severity::Trouble => Severity::Note,
        (None, None) => return None,
    };
    let title = format!("Some thread {of} waited for a core in {} of the time.", percent(share));
    let finding = Finding::new("pressure", severity, title).with(
        "some",
        percent(share),
        format!("{from} (growth of total)"),
    );
    Some(finding.changes(remedy::relieve(case, case.need().comfortable)))
}

/// Cores taken away from threads that were not done.
fn preempted(case: &Case) -> Option<Finding> {
    let total: &Use = &case.facts.delta.total;
    let (involuntary, run_s) = (total.involuntary?, total.run_s?);
    if run_s <= 0.0 || case.wait_share().is_none_or(|share| share < WAIT_SHARE_WARN) {
        return None;
    }
    let rate = involuntary as f64 / run_s;
    if rate < PREEMPTED_WARN {
        return None;
    }
    let title =
        format!("Its threads lost their core {rate:.0} times for each second that they ran.");
    let from = format!("/proc/{}/task/*/status", case.facts.pid);
    let mut finding = Finding::new("preempted", Severity::Warning, title)
        .with("involuntary switches", involuntary.to_string(), &from)
        .with("voluntary switches", shown(total.voluntary), &from);
    if let Some(migrations) = total.migrations {
        finding = finding.with("moves to another core", migrations.to_string(), "sched");
    }
    Some(finding.changes(remedy::relieve(case, case.need().comfortable)))
}

fn shown(number: Option<u64>) -> String {
    number.map_or_else(|| "not counted".to_owned(), |n| n.to_string())
}
