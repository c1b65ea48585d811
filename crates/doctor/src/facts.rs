//! What was read and observed of one server. No judgement here.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Context, Result};
use saccade_host::cgroup::CpuLevel;
use saccade_host::gpu::{self, Driven, Gpu, Source};
use saccade_host::numa::{self, Node, Residence};
use saccade_host::{
    Cgroups, Cores, CpuSet, Delta, Environment, HostError, LockedMemory, Process, Root, Snapshot,
    Task, machine, process,
};

use crate::clock::Clock;
use crate::container::Manager;
use crate::counters::{Counted, Counting};
use crate::engine::{Engine, Role, is_load_client, recognise};
use crate::server_metrics::{self, Requests};
use crate::target::Server;

/// Neighbours that are named.
const MAX_NEIGHBOURS: usize = 3;
/// Cores that a process must use to be named.
const NEIGHBOUR_MIN_CORES: f64 = 0.01;
/// Generations over which a process is looked up as part of another server.
const MAX_GENERATIONS: usize = 16;
/// Processes whose memory is looked up: reading takes locks that they need.
const MAX_RESIDENCES: usize = 4;

/// A process of the server.
#[derive(Debug, Clone)]
pub struct Member {
    /// The process.
    pub process: Process,
    /// Its part.
    pub role: Role,
}

/// How many GPUs the server drives, and how that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuCount {
    /// The number.
    pub count: usize,
    /// In words, for the reader to judge.
    pub how: &'static str,
}

/// CPU time of a process that is not of the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbour {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Cores that it used.
    pub cores: f64,
    /// Cores that its threads may use; `None`: not readable.
    pub cores_allowed: Option<CpuSet>,
    /// What it does.
    pub kind: NeighbourKind,
}

/// What a process that is not of the server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeighbourKind {
    /// It belongs to another server.
    Engine(Engine),
    /// It sends load to a server, or watches one.
    LoadClient,
    /// Anything else.
    Other,
}

/// What was read and observed of one server.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Its topmost process.
    pub pid: u32,
    /// What it is.
    pub engine: Engine,
    /// Its processes, the topmost first.
    pub members: Vec<Member>,
    /// Cores that it may use. `None`: a limit could not be read.
    pub cores: Option<Cores>,
    /// Its cgroup and those above.
    pub levels: Vec<CpuLevel>,
    /// Whether its cgroup is that of the machine: nothing sets it apart.
    pub in_root_cgroup: bool,
    /// Limits above may exist that this process cannot see.
    pub ancestors_hidden: bool,
    /// Who sets its limits.
    pub manager: Manager,
    /// GPUs of the machine.
    pub gpus: Vec<Gpu>,
    /// The ones that it drives.
    pub driven: Option<Driven>,
    /// Their number.
    pub gpu_count: GpuCount,
    /// Settings by process.
    pub environments: BTreeMap<u32, Environment>,
    /// Of the topmost process, and the device descriptors for which it matters.
    pub locked: Option<LockedMemory>,
    /// Whether one of its processes has opened an RDMA device.
    pub uses_rdma: bool,
    /// Memory nodes.
    pub nodes: Vec<Node>,
    /// Where the memory of its processes lies; empty on machines with one node.
    pub residence: Vec<(u32, Residence)>,
    /// Whether autogroups are on.
    pub autogroup: Option<bool>,
    /// What happened while we watched.
    pub delta: Delta,
    /// Other processes that used cores meanwhile and may use those of the server, busiest first.
    pub neighbours: Vec<Neighbour>,
    /// Performance counters.
    pub counters: Option<Counted>,
    /// What the server says of itself, the busier of two answers.
    pub requests: Option<Requests>,
    /// What could not be read.
    pub not_read: Vec<String>,
}

/// How to look.
#[derive(Debug, Clone, Copy)]
pub struct Watch {
    /// For how long.
    pub time: Duration,
    /// GPUs, as the user says.
    pub gpus: Option<usize>,
}

/// Reads and watches one server.
///
/// # Errors
/// Its topmost process cannot be read, or ended while we watched.
pub fn observe(root: &Root, server: &Server, watch: Watch, clock: &mut dyn Clock) -> Result<Facts> {
    let pid = server.pid;
    let gone = || format!("process {pid} cannot be watched");
    let mut all_before = process::all(root)?;
    if root.is_own() {
        // Started from the server's own shell, we are no part of the server.
        all_before.retain(|process| process.pid != std::process::id() || process.pid == pid);
    }
    let tree = process::family(Process::read(root, pid)?, all_before.clone());
    let pids: Vec<u32> = tree.iter().map(|process| process.pid).collect();
    let mut notes = Notes::default();

    let asked = server.url.as_deref().and_then(|url| notes.keep_text(server_metrics::ask(url)));
    let counting = root.is_own().then(|| Counting::start(root, &pids));
    let before = Snapshot::take_at(root, &pids, clock.now_ns()).with_context(gone)?;
    clock.wait(watch.time);
    let after = Snapshot::take_at(root, &pids, clock.now_ns()).with_context(gone)?;
    let counters = counting.map(Counting::finish);
    let asked_again = asked.is_some().then(|| server.url.as_deref().map(server_metrics::ask));
    let requests = busier(asked, asked_again.flatten().and_then(Result::ok));

    let delta = after.since(&before);
    notes.texts.extend(after.problems.iter().cloned());
    if delta.total.wait_s.is_none() {
        notes.texts.push(format!("/proc/{pid}/task/*/schedstat: tells nothing of waiting"));
    }
    let all_after = process::all(root)?;
    let members = members(tree, &after);
    let groups = notes.keep(Cgroups::of(root, pid));
    let tasks: Vec<Task> = after.tasks.clone();
    let cores = notes.keep(Cores::of(root, pid, &tasks));
    let own_set = cores.as_ref().and_then(|cores| cores.set.as_ref());
    let busy = busy_others(&all_before, &all_after, &pids, delta.seconds);
    let neighbours = neighbours(root, busy, &all_after, own_set);
    let levels = groups.as_ref().and_then(|groups| notes.keep(groups.cpu_levels(root)));
    let nodes = numa::nodes(root).unwrap_or_default();
    let driven = notes.keep(gpu::driven(root, &pids));
    let environments = environments(root, &members, &mut notes);
    let gpu_count = count_gpus(watch.gpus, driven.as_ref(), &members, &environments);
    Ok(Facts {
        pid,
        engine: engine_of(&members),
        residence: residences(root, &members, &nodes),
        cores,
        levels: levels.unwrap_or_default(),
        in_root_cgroup: groups
            .as_ref()
            .and_then(|groups| groups.cpu.as_ref())
            .is_some_and(|place| place.dir == place.mount),
        ancestors_hidden: groups.as_ref().and_then(|g| g.ancestors_hidden).unwrap_or(false),
        manager: groups.as_ref().map_or(Manager::Plain, Manager::of),
        gpus: gpu::gpus(root),
        driven,
        gpu_count,
        environments,
        locked: notes.keep(LockedMemory::of(root, pid)),
        uses_rdma: uses_rdma(root, &pids),
        nodes,
        autogroup: machine::autogroup_enabled(root),
        delta,
        neighbours,
        counters,
        requests,
        not_read: notes.texts,
        members,
    })
}

impl Facts {
    /// Cores that the server may use.
    pub fn usable(&self) -> Option<f64> {
        self.cores.as_ref()?.usable
    }

    /// Processes through which tokens pass.
    pub fn path_processes(&self) -> usize {
        self.members.iter().filter(|member| member.role.is_on_path()).count()
    }

    /// Processes with a part.
    pub fn with_role(&self, role: Role) -> usize {
        self.members.iter().filter(|member| member.role == role).count()
    }

    /// Share of the time in which a thread of the server wanted a core: running and waiting.
    pub fn wanted(&self, used: &saccade_host::Use) -> f64 {
        if self.delta.seconds <= 0.0 {
            return 0.0;
        }
        let wanted = used.cpu_s().unwrap_or(0.0) + used.wait_s.unwrap_or(0.0);
        wanted / self.delta.seconds
    }

    /// Whether the server said that it has nothing to do. `None`: it was not asked.
    pub fn is_idle(&self) -> Option<bool> {
        self.requests.as_ref().map(|r| r.running + r.waiting == 0.0)
    }

    /// The process of a thread.
    pub fn member(&self, pid: u32) -> Option<&Member> {
        self.members.iter().find(|member| member.process.pid == pid)
    }
}

#[derive(Default)]
struct Notes {
    texts: Vec<String>,
}

impl Notes {
    fn keep<T>(&mut self, read: Result<T, HostError>) -> Option<T> {
        self.keep_text(read.map_err(|error| error.to_string()))
    }

    fn keep_text<T>(&mut self, read: Result<T, String>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(text) => {
                if !self.texts.contains(&text) {
                    self.texts.push(text);
                }
                None
            }
        }
    }
}

fn busier(first: Option<Requests>, second: Option<Requests>) -> Option<Requests> {
    match (first, second) {
        (Some(a), Some(b)) if b.running + b.waiting > a.running + a.waiting => Some(b),
        (a, b) => a.or(b),
    }
}

/// The processes that were there until the end, with their parts.
fn members(tree: Vec<Process>, after: &Snapshot) -> Vec<Member> {
    let lives = |pid: u32| after.processes.iter().any(|process| process.pid == pid);
    let mut members: Vec<Member> = tree
        .into_iter()
        .filter(|process| lives(process.pid))
        .map(|process| {
            let role = recognise(&process).map_or(Role::Helper, |(_, role)| role);
            Member { process, role }
        })
        .collect();
    // A process that the user named does the work, whatever it is called.
    if let Some(first) = members.first_mut().filter(|first| recognise(&first.process).is_none()) {
        first.role = Role::Server;
    }
    members
}

fn engine_of(members: &[Member]) -> Engine {
    let known = members.iter().find_map(|member| recognise(&member.process));
    known.map_or(Engine::Unknown, |(engine, _)| engine)
}

/// Other processes and the cores that they used, busiest first.
fn busy_others<'a>(
    before: &[Process],
    after: &'a [Process],
    own: &[u32],
    seconds: f64,
) -> Vec<(&'a Process, f64)> {
    let cpu = |p: &Process| p.user_ns.saturating_add(p.system_ns);
    let then: HashMap<_, u64> = before.iter().map(|p| ((p.pid, p.start_ticks), cpu(p))).collect();
    let used = |p: &Process| {
        let since = then.get(&(p.pid, p.start_ticks)).copied().unwrap_or(0);
        cpu(p).saturating_sub(since) as f64 / 1e9 / seconds
    };
    let others = after.iter().filter(|p| !own.contains(&p.pid) && seconds > 0.0);
    let mut busy: Vec<(&Process, f64)> =
        others.map(|p| (p, used(p))).filter(|(_, cores)| *cores >= NEIGHBOUR_MIN_CORES).collect();
    busy.sort_by(|a, b| b.1.total_cmp(&a.1));
    busy
}

/// The busy processes that may run on the server's cores.
fn neighbours(
    root: &Root,
    busy: Vec<(&Process, f64)>,
    all: &[Process],
    own_set: Option<&CpuSet>,
) -> Vec<Neighbour> {
    let found = busy.into_iter().filter_map(|(process, cores)| {
        let cores_allowed = allowed(root, process.pid);
        let meets = cores_allowed.as_ref().zip(own_set).is_none_or(|(a, b)| !a.and(b).is_empty());
        meets.then(|| Neighbour {
            pid: process.pid,
            name: process.name.clone(),
            cores,
            cores_allowed,
            kind: kind_of(process, all),
        })
    });
    found.take(MAX_NEIGHBOURS).collect()
}

/// Cores that any of its threads may use.
fn allowed(root: &Root, pid: u32) -> Option<CpuSet> {
    let tasks = Task::read_all(root, pid).ok()?;
    tasks.into_iter().filter_map(|task| task.affinity).reduce(|all, some| all.or(&some))
}

/// By its own command line; part of a server also by those of its ancestors.
fn kind_of(process: &Process, all: &[Process]) -> NeighbourKind {
    if is_load_client(process) {
        return NeighbourKind::LoadClient;
    }
    let mut at = Some(process);
    for _ in 0..MAX_GENERATIONS {
        let Some(process) = at else { break };
        if let Some((engine, _)) = recognise(process) {
            return NeighbourKind::Engine(engine);
        }
        at = all.iter().find(|parent| parent.pid == process.ppid);
    }
    NeighbourKind::Other
}

fn environments(root: &Root, members: &[Member], notes: &mut Notes) -> BTreeMap<u32, Environment> {
    let on_path = members.iter().filter(|member| member.role.is_on_path());
    on_path
        .filter_map(|member| {
            let pid = member.process.pid;
            Some((pid, notes.keep(Environment::of(root, pid))?))
        })
        .collect()
}

fn count_gpus(
    given: Option<usize>,
    driven: Option<&Driven>,
    members: &[Member],
    environments: &BTreeMap<u32, Environment>,
) -> GpuCount {
    if let Some(count) = given {
        return GpuCount { count, how: "--gpus" };
    }
    let Some(driven) = driven else {
        return GpuCount { count: 0, how: "unknown: descriptors are not readable, see --gpus" };
    };
    let open = driven.minors.len();
    if driven.source == Source::Nvml {
        return GpuCount { count: open, how: "processes that the driver lists on each GPU" };
    }
    let workers = members.iter().filter(|member| member.role == Role::Worker).count();
    if (1..=open).contains(&workers) {
        return GpuCount { count: workers, how: "workers, of which each drives one GPU" };
    }
    let visible = environments.values().find_map(|e| e.get("CUDA_VISIBLE_DEVICES"));
    match visible.map(|list| list.split(',').filter(|d| !d.trim().is_empty()).count()) {
        Some(visible) if visible < open => GpuCount { count: visible, how: "CUDA_VISIBLE_DEVICES" },
        _ if open == 0 => GpuCount { count: 0, how: "no open device file" },
        _ => GpuCount { count: open, how: "open device files: at most" },
    }
}

fn residences(root: &Root, members: &[Member], nodes: &[Node]) -> Vec<(u32, Residence)> {
    if nodes.len() < 2 {
        return Vec::new();
    }
    let on_path = members.iter().filter(|member| member.role.is_on_path());
    on_path
        .take(MAX_RESIDENCES)
        .filter_map(|m| Some((m.process.pid, numa::residence(root, m.process.pid).ok()?)))
        .collect()
}

fn uses_rdma(root: &Root, pids: &[u32]) -> bool {
    pids.iter().any(|pid| {
        let dir = format!("proc/{pid}/fd");
        let names = root.names(&dir).unwrap_or_default();
        names.iter().any(|name| {
            root.link(format!("{dir}/{name}")).is_ok_and(|l| l.starts_with("/dev/infiniband"))
        })
    })
}
