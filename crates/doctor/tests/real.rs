//! The same cases with real processes on this machine: stand-ins that do what engines do wrong.
//!
//! A stand-in is this test binary, started again under the title of an engine's process: see
//! `stand_in`. Quotas need a cgroup that may be made; where this user may not, the test says so,
//! and the same case on a scripted machine (tests/scripted.rs) covers it.

#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use saccade_doctor::clock::MachineClock;
use saccade_doctor::examine;
use saccade_doctor::facts::Watch;
use saccade_doctor::finding::Severity;
use saccade_doctor::reference::Prices;
use saccade_doctor::report::Report;
use saccade_doctor::target::Target;
use saccade_host::cgroup::Version;
use saccade_host::{Cgroups, CpuSet, Root, Task};

/// What a stand-in does; words separated by blanks.
const SCRIPT: &str = "SACCADE_DOCTOR_STAND_IN";
/// Other tests and other users keep this machine busy: these may be found of any server on it.
const OF_THE_MACHINE: [&str; 7] = [
    "run_queue_wait",
    "pressure",
    "preempted",
    "neighbours",
    "shared_caches",
    "stolen",
    "autogroup",
];

/// Not a test on its own: the body of the stand-ins.
/// `burn:N:NAME` N threads that compute; `sleep:N:NAME` that wake up now and then;
/// `child:TITLE` another stand-in below, that sleeps.
#[test]
fn stand_in() {
    let Ok(script) = std::env::var(SCRIPT) else { return };
    // The parent says when: by then it has put us where we belong.
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    input.read_line(&mut line).expect("the parent speaks");
    let mut children = Vec::new();
    for order in script.split(' ').filter(|order| !order.is_empty()) {
        let (verb, rest) = order.split_once(':').expect("verb:rest");
        match (verb, rest.split_once(':')) {
            ("child", None) => children.push(StandIn::start(rest, "sleep:1:sleeper", None)),
            ("child", Some(_)) => children.push(StandIn::start(rest, "", None)),
            (_, Some((count, name))) => {
                for _ in 0..count.parse::<usize>().expect("a number") {
                    let burns = verb == "burn";
                    let builder = std::thread::Builder::new().name(name.to_owned());
                    builder.spawn(move || work(burns)).expect("threads can be made");
                }
            }
            _ => panic!("{order}"),
        }
    }
    for child in &mut children {
        child.go();
    }
    println!("\nready");
    // Until the parent ends, however it ends.
    let _ = input.read_to_string(&mut line);
    drop(children);
    std::process::exit(0);
}

fn work(burns: bool) {
    let mut number = 0u64;
    loop {
        if burns {
            number = std::hint::black_box(number.wrapping_mul(3) + 1);
        } else {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A stand-in that runs.
struct StandIn {
    child: Child,
    input: Option<ChildStdin>,
}

impl StandIn {
    /// Starts one, which waits for [`StandIn::go`].
    fn start(title: &str, script: &str, cores: Option<&CpuSet>) -> StandIn {
        let mut command = Command::new(std::env::current_exe().expect("this binary has a name"));
        command.arg0(title).args(["stand_in", "--exact", "--nocapture"]);
        command.env(SCRIPT, script).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(cores) = cores.cloned() {
            // SAFETY: between fork and exec only sched_setaffinity is called.
            unsafe { command.pre_exec(move || pin(&cores)) };
        }
        let mut child = command.spawn().expect("this binary starts");
        let input = child.stdin.take();
        StandIn { child, input }
    }

    /// Lets it begin, and waits until it has.
    fn go(&mut self) {
        let input = self.input.as_mut().expect("piped");
        writeln!(input, "go").expect("it listens");
        let output = self.child.stdout.take().expect("piped");
        let ready = BufReader::new(output).lines().map_while(Result::ok).any(|l| l == "ready");
        assert!(ready, "the stand-in ended early");
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn look(&self, seconds: f64) -> Report {
        look(&Target::Pid(self.pid()), seconds)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // Its children end with it, as their input ends.
        drop(self.input.take());
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pin(cores: &CpuSet) -> std::io::Result<()> {
    // SAFETY: an all-zero set is valid; cores are below CPU_SETSIZE; the call reads the set.
    let failed = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for core in cores.iter().filter(|&core| core < libc::CPU_SETSIZE as u32) {
            libc::CPU_SET(core as usize, &mut set);
        }
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) != 0
    };
    if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

fn look(target: &Target, seconds: f64) -> Report {
    let watch = Watch { time: Duration::from_secs_f64(seconds), gpus: None };
    let prices = Prices::load(None, None, None).expect("the built-in prices");
    examine(&Root::default(), target, watch, &prices, &mut MachineClock)
        .unwrap_or_else(|error| panic!("{error:#}"))
}

fn severity(report: &Report, id: &str) -> Option<Severity> {
    let mut all = report.servers.iter().flat_map(|server| &server.findings);
    all.find(|finding| finding.id == id).map(|finding| finding.severity)
}

/// Findings that this machine's other work does not explain.
fn own_findings(report: &Report) -> Vec<&'static str> {
    let all = report.servers.iter().flat_map(|server| &server.findings);
    let alarms = all.filter(|finding| finding.severity > Severity::Note);
    alarms.map(|finding| finding.id).filter(|id| !OF_THE_MACHINE.contains(id)).collect()
}

/// Cores that this process may use.
fn own_cores() -> CpuSet {
    let tasks = Task::read_all(&Root::default(), std::process::id()).expect("own threads");
    tasks[0].affinity.clone().expect("this kernel tells affinities")
}

/// A cgroup of its own with a CPU quota.
struct Group {
    dir: PathBuf,
    parent: PathBuf,
}

impl Group {
    /// `None`, and says so, where this user may make none.
    fn with_quota(name: &str, quota_us: u64) -> Option<Group> {
        let own = Cgroups::of(&Root::default(), std::process::id()).ok()?.cpu?;
        let parent = PathBuf::from(&own.dir);
        let dir = parent.join(format!("saccade-doctor-{name}-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&dir) {
            eprintln!("{}: {error}; the scripted case covers this one", dir.display());
            return None;
        }
        let group = Group { dir, parent };
        let limited = match own.version {
            Version::V1 => fs::write(group.dir.join("cpu.cfs_period_us"), "100000")
                .and_then(|()| fs::write(group.dir.join("cpu.cfs_quota_us"), quota_us.to_string())),
            Version::V2 => fs::write(group.dir.join("cpu.max"), format!("{quota_us} 100000")),
        };
        match limited {
            Ok(()) => Some(group),
            Err(error) => {
                eprintln!("{}: {error}; the scripted case covers this one", group.dir.display());
                None
            }
        }
    }

    fn take(&self, process: &StandIn) {
        fs::write(self.dir.join("cgroup.procs"), process.pid().to_string()).expect("it may move");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Processes that are still inside go back; a cgroup with processes cannot be removed.
        for pid in fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(self.parent.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(&self.dir);
    }
}

#[test]
fn a_healthy_server_gives_no_alarm() {
    let mut server = StandIn::start("VLLM::APIServer", "child:VLLM::EngineCore sleep:4:pool", None);
    server.go();
    let report = server.look(1.0);
    // Two processes need two cores: where there is one, the doctor says so.
    if own_cores().len() >= 2 {
        assert_eq!(own_findings(&report), [""; 0], "{:#?}", report.servers[0].findings);
    }
    let found = &report.servers[0];
    assert_eq!(found.processes.len(), 2, "{:?}", found.processes);
    assert_eq!(found.processes[1].role, "engine core");
    assert!(found.measured.cores_used.is_some_and(|cores| cores < 0.5), "{:?}", found.measured);
}

#[test]
fn a_quota_below_need() {
    let Some(group) = Group::with_quota("need", 150_000) else { return };
    let script = "child:VLLM::EngineCore child:VLLM::Worker_TP0 child:VLLM::Worker_TP1";
    let mut server = StandIn::start("VLLM::APIServer", script, None);
    group.take(&server);
    server.go();
    let report = server.look(0.5);
    if own_cores().len() >= 2 {
        assert_eq!(severity(&report, "quota_below_need"), Some(Severity::Trouble), "{report:#?}");
        let finding = &report.servers[0].findings[0];
        assert!(finding.evidence.iter().any(|e| e.from.starts_with(group.dir.to_str().unwrap())));
    }
    drop(server);
}

#[test]
fn throttled() {
    // A tenth of a core, for one thread that wants a whole one.
    let Some(group) = Group::with_quota("throttled", 10_000) else { return };
    let mut server = StandIn::start("llama-server", "burn:1:compute", None);
    group.take(&server);
    server.go();
    let report = server.look(1.5);
    assert_eq!(severity(&report, "throttled"), Some(Severity::Trouble), "{report:#?}");
    assert!(report.servers[0].measured.cores_used.is_some_and(|cores| cores < 0.5));
    drop(server);
}

#[test]
fn pinned_to_one_core() {
    let one = CpuSet::new(own_cores().iter().take(1));
    let mut server = StandIn::start("VLLM::APIServer", "child:VLLM::EngineCore", Some(&one));
    server.go();
    let report = server.look(0.3);
    let online = saccade_host::machine::online_cpus(&Root::default()).map_or(1, |set| set.len());
    if online > 1 {
        let found = severity(&report, "pinned_to_one_core");
        assert_eq!(found, Some(Severity::Trouble), "{report:#?}");
    }
}

#[test]
fn oversubscribed_tokenizer_threads() {
    let two = CpuSet::new(own_cores().iter().take(2));
    let mut server = StandIn::start("VLLM::APIServer", "burn:8:rayon-worker", Some(&two));
    server.go();
    let report = server.look(1.0);
    let found = severity(&report, "pool_oversubscribed");
    assert_eq!(found, Some(Severity::Trouble), "eight threads on two cores wait: {report:#?}");
}

/// By port, with what it says of itself.
#[test]
fn a_server_is_found_by_its_port() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let mut head = [0; 1024];
            let _ = stream.read(&mut head);
            let body =
                "vllm:num_requests_running{m=\"x\"} 2\nvllm:num_requests_waiting{m=\"x\"} 1\n";
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    let report = look(&Target::Url(url.clone()), 0.2);
    assert_eq!(report.servers[0].pid, std::process::id());
    let requests = report.servers[0].measured.requests.as_ref().expect("it was asked");
    assert_eq!((requests.running, requests.waiting), (2.0, 1.0));
    assert!(requests.source.starts_with(&url));
}
