//! Pools with more threads than cores, and threads that spin.

use std::collections::BTreeMap;

use saccade_host::TaskDelta;

use crate::case::Case;
use crate::engine::{Bound, Engine, Pool, Role, pool_of};
use crate::finding::{Finding, Severity};
use crate::thresholds::{
    ACTIVE, IDLE_POOL_RATIO, SPIN_RUN, SPIN_VOLUNTARY, THROTTLED_WARN, WAIT_SHARE_WARN,
};
use crate::words::{count, percent, plural};

pub fn findings(case: &Case) -> Vec<Finding> {
    oversubscribed(case).into_iter().chain(spinning(case)).collect()
}

/// Threads of one pool of one process.
struct Crowd<'a> {
    pool: Pool,
    pid: u32,
    threads: Vec<&'a TaskDelta>,
    active: usize,
}

fn crowds<'a>(case: &Case<'a>) -> Vec<Crowd<'a>> {
    let facts = case.facts;
    let mut by_pool: BTreeMap<(u32, Pool), Vec<&TaskDelta>> = BTreeMap::new();
    for task in &facts.delta.tasks {
        let Some(member) = facts.member(task.pid) else { continue };
        if let Some(pool) = pool_of(&task.name, &member.process.name) {
            by_pool.entry((task.pid, pool)).or_default().push(task);
        }
    }
    let crowd = |((pid, pool), threads): ((u32, Pool), Vec<&'a TaskDelta>)| {
        let active = threads.iter().filter(|t| facts.wanted(&t.used) >= ACTIVE).count();
        Crowd { pool, pid, threads, active }
    };
    by_pool.into_iter().map(crowd).collect()
}

/// The pool that exceeds the cores most.
fn oversubscribed(case: &Case) -> Option<Finding> {
    let usable = case.facts.usable()?;
    let crowds = crowds(case);
    let busiest =
        crowds.iter().filter(|c| c.active as f64 > usable.ceil()).max_by_key(|c| c.active);
    if let Some(crowd) = busiest {
        return Some(active_crowd(case, crowd, usable));
    }
    let sleeps = |c: &&Crowd| {
        let sized = matches!(c.pool, Pool::Tokenizer | Pool::Rayon | Pool::OpenMp);
        sized && c.threads.len() as f64 > IDLE_POOL_RATIO * usable
    };
    let largest = crowds.iter().filter(sleeps).max_by_key(|c| c.threads.len())?;
    Some(sleeping_crowd(case, largest, usable))
}

fn active_crowd(case: &Case, crowd: &Crowd, usable: f64) -> Finding {
    let waits = case.wait_share().is_some_and(|share| share >= WAIT_SHARE_WARN);
    let throttled = case.facts.delta.throttling.values().any(|t| {
        t.nr_throttled as f64 >= THROTTLED_WARN * t.nr_periods as f64 && t.nr_throttled > 0
    });
    let severity = if waits || throttled { Severity::Trouble } else { Severity::Warning };
    let title = format!(
        "{} {} threads work at the same time on {}.",
        crowd.active,
        crowd.pool.name(),
        plural(usable, "core")
    );
    describe(case, crowd, Finding::new("pool_oversubscribed", severity, title), usable)
}

/// Sized by the machine while a quota holds: quiet now, throttled under load.
fn sleeping_crowd(case: &Case, crowd: &Crowd, usable: f64) -> Finding {
    let by_quota = case.facts.cores.as_ref().is_some_and(|c| {
        c.quota.is_some() && c.set.as_ref().is_none_or(|set| set.len() as f64 > usable)
    });
    let severity = if by_quota { Severity::Warning } else { Severity::Note };
    let title = format!(
        "{} {} threads wait for work that will have only {}.",
        crowd.threads.len(),
        crowd.pool.name(),
        plural(usable, "core")
    );
    describe(case, crowd, Finding::new("pool_oversubscribed", severity, title), usable)
}

fn describe(case: &Case, crowd: &Crowd, finding: Finding, usable: f64) -> Finding {
    let from = format!("/proc/{}/task", crowd.pid);
    let mut finding = finding
        .with("threads of the pool", crowd.threads.len().to_string(), &from)
        .with("of them active", crowd.active.to_string(), format!("{from}/*/schedstat"));
    let Some(bound) = case.facts.engine.bound(crowd.pool) else { return finding };
    let set = current(case, crowd.pid, bound);
    if let Some(known) = &set {
        let file = if bound.is_flag() { "cmdline" } else { "environ" };
        let value = known.as_deref().unwrap_or("not set");
        finding = finding.with(bound.name(), value, format!("/proc/{}/{file}", crowd.pid));
    }
    // The engine's own processes need their cores too.
    let spare = (usable.floor() - case.need().minimum + 1.0).max(1.0);
    let already = set.flatten().and_then(|value| value.parse::<f64>().ok());
    if crowd.threads.len() as f64 <= spare || already.is_some_and(|threads| threads <= spare) {
        return finding;
    }
    finding.changes([bound.at(spare)])
}

/// What bounds a pool now: the value, or that there is none. `None`: not readable.
fn current(case: &Case, pid: u32, bound: Bound) -> Option<Option<String>> {
    if !bound.is_flag() {
        let environment = case.facts.environments.get(&pid)?;
        return Some(environment.get(bound.name()).map(str::to_owned));
    }
    let words = case.facts.member(pid)?.process.cmdline.as_ref()?;
    let value = words.iter().enumerate().find_map(|(at, word)| {
        let rest = word.strip_prefix(bound.name())?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value.to_owned()),
            None if rest.is_empty() => words.get(at + 1).cloned(),
            None => None,
        }
    });
    Some(value)
}

/// Threads that hold a core and wait for nothing.
fn spinning(case: &Case) -> Option<Finding> {
    let facts = case.facts;
    let seconds = facts.delta.seconds;
    let drives_gpus = facts.gpu_count.count > 0;
    let spins = |task: &&TaskDelta| {
        let run = task.used.cpu_s().unwrap_or_default() / seconds;
        let rests = task.used.voluntary.map(|n| n as f64 / seconds);
        let role = facts.member(task.pid).map(|member| member.role);
        // Where CPUs compute, a busy thread is just busy, unless there is nothing to compute.
        let should_sleep = facts.is_idle() == Some(true)
            || (drives_gpus && matches!(role, Some(Role::Core | Role::Worker)));
        should_sleep && run >= SPIN_RUN && rests.is_some_and(|rate| rate < SPIN_VOLUNTARY)
    };
    let spinners: Vec<&TaskDelta> = facts.delta.tasks.iter().filter(spins).collect();
    let first = spinners.first()?;
    let usable = facts.usable()?;
    let spare = usable - spinners.len() as f64;
    // A core for each spinner and one for the rest is what such engines are built for.
    let severity = if spare < 1.0 { Severity::Warning } else { Severity::Note };
    let title = format!(
        "Spinning threads hold {} of {}{}.",
        spinners.len(),
        plural(usable, "core"),
        if facts.is_idle() == Some(true) { " although no request is running" } else { "" }
    );
    let run = first.used.cpu_s().unwrap_or_default() / seconds;
    let from = format!("/proc/{}/task/{}", first.pid, first.tid);
    let mut finding = Finding::new("spinning", severity, title)
        .with(format!("{:?} on a core", first.name), percent(run), format!("{from}/schedstat"))
        .with(
            "its voluntary switches",
            first.used.voluntary.unwrap_or_default().to_string(),
            format!("{from}/status"),
        );
    if let Some(requests) = &facts.requests {
        finding = finding.with("requests running", count(requests.running), &requests.source);
    }
    let sleep = match facts.engine {
        Engine::Vllm => Some("VLLM_SLEEP_WHEN_IDLE=1"),
        Engine::Sglang => Some("--sleep-on-idle"),
        _ => None,
    };
    if let Some(how) = sleep {
        finding = finding.change("sleep while idle, then restart", how);
    }
    let needed = spinners.len() as f64 + case.need().minimum;
    if usable < needed {
        finding = finding.changes(crate::remedy::more_cores(facts, needed));
    }
    Some(finding)
}
