//! The report: what JSON carries, and the verdict in words.

use saccade_host::{Cores, Throttling};
use serde::Serialize;

use crate::case::Case;
use crate::counters::Counted;
use crate::engine::Engine;
use crate::facts::{Facts, Member};
use crate::finding::{Finding, Severity};
use crate::reference;
use crate::rules;
use crate::server_metrics::Requests;
use crate::words::plural;

/// Form of the JSON. Fields may be added under the same number; none changes its meaning.
pub const SCHEMA: &str = "saccade.doctor/1";

/// How a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing found that costs latency.
    Healthy,
    /// Nothing found, but what decides could not be read: no all-clear.
    Unknown,
    /// Something will, under load.
    Warnings,
    /// Something does.
    Trouble,
}

/// All servers that were looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The worst of them.
    pub verdict: Verdict,
    /// One entry for each server.
    pub servers: Vec<ServerReport>,
    /// Servers that could not be looked at, and why.
    pub failed: Vec<String>,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerReport {
    /// Its topmost process.
    pub pid: u32,
    /// What it is.
    pub engine: Engine,
    /// How it was started.
    pub command: String,
    /// How it is.
    pub verdict: Verdict,
    /// The same in plain words.
    pub summary: String,
    /// Cores that it may use, and what bounds them.
    pub cores: Option<Cores>,
    /// Cores for each GPU.
    pub cores_per_gpu: Option<f64>,
    /// GPUs that it drives.
    pub gpus: usize,
    /// How that is known.
    pub gpus_known_by: &'static str,
    /// Its processes.
    pub processes: Vec<ProcessReport>,
    /// What was measured while we watched.
    pub measured: Measured,
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// What could not be read: absent above, not zero.
    pub not_read: Vec<String>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessReport {
    /// Its number.
    pub pid: u32,
    /// Its part.
    pub role: &'static str,
    /// Its title or command, cut.
    pub name: String,
    /// Threads.
    pub threads: Option<u32>,
    /// Cores that it used.
    pub cores_used: Option<f64>,
    /// Cores that it waited for.
    pub cores_waited_for: Option<f64>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// How long it was watched.
    pub seconds: f64,
    /// Cores that it used.
    pub cores_used: Option<f64>,
    /// Of the time in which it wanted a core, the share in which it had none.
    pub wait_share: Option<f64>,
    /// Milliseconds waited each time.
    pub wait_ms_per_slice: Option<f64>,
    /// Per second.
    pub voluntary_switches_per_s: Option<f64>,
    /// Per second.
    pub involuntary_switches_per_s: Option<f64>,
    /// Per second.
    pub migrations_per_s: Option<f64>,
    /// At the level that was throttled most; `None`: no quota.
    pub throttling: Option<Throttling>,
    /// Share of time, of the machine.
    pub cpu_pressure: Option<f64>,
    /// Share of time, in its cgroup; `None`: not counted, or it has none of its own.
    pub cgroup_cpu_pressure: Option<f64>,
    /// Cores that others used, out of the ones that it may use.
    pub others_cores: Option<f64>,
    /// Performance counters.
    pub counters: Option<Counted>,
    /// What it says of itself.
    pub requests: Option<Requests>,
}

impl Report {
    /// From the servers that were judged, and the ones that could not be.
    pub fn new(servers: Vec<ServerReport>, failed: Vec<String>) -> Report {
        let verdict = servers.iter().map(|s| s.verdict).max().unwrap_or(Verdict::Healthy);
        Report { schema: SCHEMA, verdict, servers, failed }
    }
}

impl ServerReport {
    /// Judges a case.
    ///
    /// # Errors
    /// The table of curves in this build is malformed.
    pub fn of(case: &Case) -> anyhow::Result<ServerReport> {
        let facts = case.facts;
        let mut findings = rules::judge(case);
        for finding in findings.iter_mut().filter(|f| f.severity > Severity::Note) {
            finding.expected_losses = reference::curves(finding.id, facts.gpu_count.count)?;
        }
        let verdict = match findings.iter().map(|finding| finding.severity).max() {
            None | Some(Severity::Note) if blind(facts) => Verdict::Unknown,
            None | Some(Severity::Note) => Verdict::Healthy,
            Some(Severity::Warning) => Verdict::Warnings,
            Some(Severity::Trouble) => Verdict::Trouble,
        };
        let gpus = facts.gpu_count.count;
        Ok(ServerReport {
            pid: facts.pid,
            engine: facts.engine,
            command: facts.members.first().map(|m| m.process.command()).unwrap_or_default(),
            verdict,
            summary: summary(facts, verdict, &findings),
            cores: facts.cores.clone(),
            cores_per_gpu: facts.usable().filter(|_| gpus > 0).map(|cores| cores / gpus as f64),
            gpus,
            gpus_known_by: facts.gpu_count.how,
            processes: facts.members.iter().map(|member| process(facts, member)).collect(),
            measured: measured(facts),
            findings,
            not_read: facts.not_read.clone(),
        })
    }
}

/// Whether limits or waiting could not be read.
fn blind(facts: &Facts) -> bool {
    facts.usable().is_none() || facts.delta.total.wait_s.is_none()
}

/// The verdict in plain words.
fn summary(facts: &Facts, verdict: Verdict, findings: &[Finding]) -> String {
    let cores = match facts.usable() {
        Some(cores) => plural(cores, "core"),
        None => "an unknown number of cores".to_owned(),
    };
    let gpus = match facts.gpu_count.count {
        0 => String::new(),
        1 => " and drives one GPU".to_owned(),
        n => format!(" and drives {n} GPUs"),
    };
    let who = format!("{} (pid {}) may use {cores}{gpus}.", facts.engine.name(), facts.pid);
    let said = match (verdict, findings.first()) {
        (Verdict::Healthy, _) => "It had the cores that it wanted: the host does not slow it down.",
        (Verdict::Unknown, _) => {
            "Nothing wrong was found, but its limits or its waiting could not be read."
        }
        (_, Some(worst)) => &worst.title,
        (_, None) => "",
    };
    let load = match facts.is_idle() {
        Some(true) => " It had no request meanwhile: run this again under load.",
        None if facts.delta.total.cpu_s().is_some_and(|s| s < 0.05 * facts.delta.seconds) => {
            " It was nearly idle meanwhile: run this again under load."
        }
        _ => "",
    };
    format!("{who} {said}{load}")
}

fn process(facts: &Facts, member: &Member) -> ProcessReport {
    const MAX_NAME: usize = 60;
    let pid = member.process.pid;
    let mut used = saccade_host::Use::default();
    for task in facts.delta.tasks.iter().filter(|task| task.pid == pid) {
        used.add(&task.used);
    }
    let per_second = |s: Option<f64>| s.map(|s| s / facts.delta.seconds);
    ProcessReport {
        pid,
        role: member.role.name(),
        name: printable(&member.process.command()).chars().take(MAX_NAME).collect(),
        threads: member.process.threads,
        cores_used: per_second(used.cpu_s()),
        cores_waited_for: per_second(used.wait_s),
    }
}

fn measured(facts: &Facts) -> Measured {
    let delta = &facts.delta;
    let rate = |n: Option<u64>| n.map(|n| n as f64 / delta.seconds);
    let set = facts.cores.as_ref().and_then(|cores| cores.set.as_ref());
    let limited = facts.levels.iter().filter(|level| level.quota.is_some());
    let throttling = limited.filter_map(|level| delta.throttling.get(&level.dir).copied());
    Measured {
        seconds: delta.seconds,
        cores_used: delta.total.cpu_s().map(|s| s / delta.seconds),
        wait_share: delta.total.wait_share(),
        wait_ms_per_slice: delta.total.wait_ms_per_slice(),
        voluntary_switches_per_s: rate(delta.total.voluntary),
        involuntary_switches_per_s: rate(delta.total.involuntary),
        migrations_per_s: rate(delta.total.migrations),
        throttling: throttling.max_by_key(|t| t.nr_throttled),
        cpu_pressure: delta.cpu_pressure,
        cgroup_cpu_pressure: delta.cgroup_cpu_pressure.filter(|_| !facts.in_root_cgroup),
        others_cores: set.and_then(|set| delta.others_cores(set)),
        counters: facts.counters.clone(),
        requests: facts.requests.clone(),
    }
}

/// The observed processes choose their names: no control character reaches a terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}
