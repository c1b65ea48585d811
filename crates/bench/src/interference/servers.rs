//! The servers under test: found running, or started and stopped by the tool.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use saccade_host::{CpuSet, Process, Root, process, sockets};
use saccade_load::{Api, Target, Workload};

use super::named::{self, Named};
use crate::neighbours::{Kept, Setup};
use crate::output;
use crate::tls_flags::TlsFlags;

/// Between two checks on a server that is starting.
const READY_POLL: Duration = Duration::from_millis(200);
/// Programs that run other programs' code: sharing one does not make two processes related.
const INTERPRETERS: [&str; 8] = ["python", "node", "sh", "bash", "dash", "java", "ruby", "perl"];

/// Which servers are measured, and how they are reached.
#[derive(Debug, Clone, clap::Args)]
pub struct ServerFlags {
    /// Server to measure, as name=URL. Repeat the flag for several
    #[arg(long = "server", value_name = "NAME=URL", required = true)]
    pub servers: Vec<Named<String>>,
    /// Command line that starts a server, run by `sh -c`; the server is stopped at the end
    #[arg(long, value_name = "NAME=COMMAND")]
    pub start: Vec<Named<String>>,
    /// First process of a server that runs already [default: found by its port]
    #[arg(long, value_name = "NAME=PID")]
    pub server_pid: Vec<Named<u32>>,
    /// Cores of a server that is started with --start
    #[arg(long, value_name = "NAME=CORES")]
    pub server_cores: Vec<Named<CpuSet>>,
    /// Longest wait until a started server answers
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub start_timeout: u64,
    /// Folder for the logs of started servers
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub log_dir: PathBuf,
    /// Model name in the requests to a server [default: the first that it lists]
    #[arg(long = "server-model", value_name = "NAME=MODEL")]
    pub models: Vec<Named<String>>,
    /// JSON object with more fields for each request to a server; null removes a field
    #[arg(long, value_name = "NAME=JSON")]
    pub extra_body: Vec<Named<ExtraBody>>,
    /// Use /v1/chat/completions instead of /v1/completions
    #[arg(long)]
    pub chat: bool,
    /// Bearer token for all servers
    #[arg(long, env = "OPENAI_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    #[command(flatten)]
    pub tls: TlsFlags,
}

/// Fields of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraBody(serde_json::Map<String, serde_json::Value>);

impl FromStr for ExtraBody {
    type Err = String;

    fn from_str(text: &str) -> Result<ExtraBody, String> {
        serde_json::from_str(text).map(ExtraBody).map_err(|e| format!("not a JSON object: {e}"))
    }
}

/// One server as the flags describe it.
#[derive(Debug, Clone)]
pub struct ServerSpec {
    /// How requests reach it.
    pub target: Target,
    /// How it is started; none: it runs already.
    pub start: Option<String>,
    /// Its first process, if told.
    pub pid: Option<u32>,
    /// Cores that it is started on.
    pub cores: Option<CpuSet>,
    /// Longest wait until it answers.
    pub start_timeout: Duration,
    /// Where its output goes when it is started.
    pub log: PathBuf,
}

impl ServerFlags {
    /// The servers in order.
    ///
    /// # Errors
    /// Two of one name, or a flag for a name that no `--server` has.
    pub fn specs(&self) -> anyhow::Result<Vec<ServerSpec>> {
        for (i, server) in self.servers.iter().enumerate() {
            let twice = self.servers[..i].iter().any(|other| other.name == server.name);
            ensure!(!twice, "--server {}: two servers have this name", server.name);
        }
        if !self.start.is_empty() {
            output::check_folder("--log-dir", &self.log_dir)?;
        }
        self.check_names("--start", self.start.iter().map(|n| &n.name))?;
        self.check_names("--server-pid", self.server_pid.iter().map(|n| &n.name))?;
        self.check_names("--server-cores", self.server_cores.iter().map(|n| &n.name))?;
        self.check_names("--server-model", self.models.iter().map(|n| &n.name))?;
        self.check_names("--extra-body", self.extra_body.iter().map(|n| &n.name))?;
        Ok(self.servers.iter().map(|server| self.spec(server)).collect())
    }

    fn check_names<'a>(
        &self,
        flag: &str,
        mut names: impl Iterator<Item = &'a String>,
    ) -> anyhow::Result<()> {
        let known = |name: &String| self.servers.iter().any(|server| server.name == *name);
        match names.find(|name| !known(name)) {
            Some(name) => bail!("{flag} {name}=…: no --server has this name"),
            None => Ok(()),
        }
    }

    fn spec(&self, server: &Named<String>) -> ServerSpec {
        let name = &server.name;
        let mut target = Target::new(server.value.clone());
        target.name.clone_from(name);
        target.api = if self.chat { Api::Chat } else { Api::Completions };
        target.api_key.clone_from(&self.api_key);
        target.tls = self.tls.tls();
        target.model = named::of(&self.models, name).cloned();
        if let Some(ExtraBody(fields)) = named::of(&self.extra_body, name) {
            target.extra_body.clone_from(fields);
        }
        ServerSpec {
            target,
            start: named::of(&self.start, name).cloned(),
            pid: named::of(&self.server_pid, name).copied(),
            cores: named::of(&self.server_cores, name).cloned(),
            start_timeout: Duration::from_secs(self.start_timeout),
            log: self.log_dir.join(format!("{name}.log")),
        }
    }
}

/// What a started server has written since its start: the file may hold earlier runs.
#[derive(Debug, Clone)]
struct Log {
    path: PathBuf,
    from_byte: u64,
}

impl Log {
    fn at_its_end(path: &Path) -> Log {
        let from_byte = std::fs::metadata(path).map_or(0, |file| file.len());
        Log { path: path.to_owned(), from_byte }
    }

    /// The last lines, one below the other, or a note that there are none.
    fn tail(&self) -> String {
        const MOST_BYTES: u64 = 4096;
        const MOST_LINES: usize = 10;
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = std::fs::File::open(&self.path)?;
            let end = file.metadata()?.len();
            file.seek(SeekFrom::Start(end.saturating_sub(MOST_BYTES).max(self.from_byte)))?;
            let mut bytes = Vec::new();
            file.take(MOST_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let path = self.path.display();
        let bytes = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        if lines.is_empty() {
            return format!("it wrote nothing to {path}");
        }
        let last = &lines[lines.len().saturating_sub(MOST_LINES)..];
        format!("the end of {path}:\n    {}", last.join("\n    "))
    }
}

/// A server that answers.
#[derive(Debug)]
pub struct Server {
    /// What it is.
    pub spec: ServerSpec,
    /// How it is asked: model and extensions are known.
    pub target: Target,
    kept: Option<(Kept, Log)>,
    root_pid: Option<u32>,
    /// Seconds from the start to the first answer, if it was started here.
    pub startup_s: Option<f64>,
}

impl Server {
    /// Starts it if the tool has to, and waits until it has answered a request.
    ///
    /// # Errors
    /// The command cannot be run or ends at once, or no answer comes in time.
    pub fn bring_up(
        spec: &ServerSpec,
        workload: &Workload,
        cores: Option<&CpuSet>,
    ) -> anyhow::Result<Server> {
        let name = &spec.target.name;
        let Some(command) = &spec.start else {
            let target = ask(&spec.target, workload).with_context(|| format!("server {name}"))?;
            let root_pid = spec.pid.or_else(|| find_by_port(&Root::default(), &target.base_url));
            let spec = spec.clone();
            return Ok(Server { spec, target, kept: None, root_pid, startup_s: None });
        };
        let from = Instant::now();
        let log = Log::at_its_end(&spec.log);
        let up = || -> anyhow::Result<(Kept, Target)> {
            let mut kept = start(name, command, &spec.log, cores.or(spec.cores.as_ref()))?;
            let target = wait_until_ready(&mut kept, spec, workload)?;
            Ok((kept, target))
        };
        let (kept, target) = up().map_err(|error| with_log(&error, &log))?;
        let root_pid = children(kept.pid()).first().copied();
        let startup_s = Some(from.elapsed().as_secs_f64());
        Ok(Server { spec: spec.clone(), target, kept: Some((kept, log)), root_pid, startup_s })
    }

    /// Its label.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.target.name
    }

    /// Its first process, if it is on this machine and known.
    #[must_use]
    pub fn root_pid(&self) -> Option<u32> {
        self.root_pid
    }

    /// Its processes now, the first one first; empty if it is not known.
    #[must_use]
    pub fn tree(&self) -> Vec<u32> {
        let Some(root) = self.root_pid else { return Vec::new() };
        let tree = process::tree(&Root::default(), root).unwrap_or_default();
        tree.into_iter().map(|process| process.pid).collect()
    }

    /// An error if the tool started it and it has ended.
    ///
    /// # Errors
    /// It has ended: how, and its last output.
    pub fn check(&mut self) -> anyhow::Result<()> {
        let Some((kept, log)) = &mut self.kept else { return Ok(()) };
        kept.check().map_err(|error| with_log(&error, log))
    }

    /// Binds all threads of all its processes to these cores. Threads that start later inherit
    /// them; pools that were sized by the number of cores at the start keep their size.
    ///
    /// # Errors
    /// Its processes are not known, or may not be bound.
    pub fn bind(&self, cores: &CpuSet) -> anyhow::Result<()> {
        let root = Root::default();
        let tree = self.tree();
        ensure!(!tree.is_empty(), "{}: give --server-pid, its processes are unknown", self.name());
        for pid in tree {
            for tid in root.numbers(format!("proc/{pid}/task")).unwrap_or_default() {
                bind_task(tid, cores)
                    .with_context(|| format!("bind {} to {cores}", self.name()))?;
            }
        }
        Ok(())
    }

    /// Stops it if the tool started it.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(self) -> anyhow::Result<()> {
        self.kept.map_or(Ok(()), |(kept, _)| kept.stop())
    }
}

/// An error of a server, with the server's last output.
fn with_log(error: &anyhow::Error, log: &Log) -> anyhow::Error {
    anyhow::anyhow!("{error:#}; {}", log.tail())
}

fn start(name: &str, command: &str, log: &Path, cores: Option<&CpuSet>) -> anyhow::Result<Kept> {
    let mut role = vec!["server".to_owned(), "--log-file".to_owned(), log.display().to_string()];
    role.extend(cores.map(|cores| format!("--cores={cores}")));
    role.extend(["--".to_owned(), command.to_owned()]);
    // In the tool's own session: with autogroups, its neighbours are in the same group.
    let mut kept = Kept::start(&format!("server {name}"), &role, &Setup::default())?;
    kept.go()?;
    Ok(kept)
}

fn wait_until_ready(
    kept: &mut Kept,
    spec: &ServerSpec,
    workload: &Workload,
) -> anyhow::Result<Target> {
    let deadline = Instant::now() + spec.start_timeout;
    loop {
        kept.check()?;
        match ask(&spec.target, workload) {
            Ok(target) => return Ok(target),
            Err(error) if Instant::now() >= deadline => {
                let seconds = spec.start_timeout.as_secs();
                let late = format!("server {}: not ready within {seconds} s", spec.target.name);
                return Err(error.context(late));
            }
            Err(_) => std::thread::sleep(READY_POLL),
        }
    }
}

fn ask(target: &Target, workload: &Workload) -> anyhow::Result<Target> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(target.resolve(workload))?)
}

fn bind_task(tid: u32, cores: &CpuSet) -> std::io::Result<()> {
    match cores.bind(tid as libc::pid_t) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        bound => bound,
    }
}

/// Direct children.
fn children(pid: u32) -> Vec<u32> {
    let all = process::all(&Root::default()).unwrap_or_default();
    all.into_iter().filter(|process| process.ppid == pid).map(|process| process.pid).collect()
}

/// The first process of the server that listens on the port of a local URL: the listener, or its
/// topmost ancestor that runs the same program (a supervisor with planes below it).
fn find_by_port(root: &Root, url: &str) -> Option<u32> {
    let (host, port) = host_and_port(url)?;
    if !matches!(host, "127.0.0.1" | "localhost" | "[::1]" | "0.0.0.0") {
        return None;
    }
    let mut first = *sockets::listeners(root, port).ok()?.first()?;
    while let Some(parent) = parent_of_same_program(root, first) {
        first = parent;
    }
    Some(first)
}

fn parent_of_same_program(root: &Root, pid: u32) -> Option<u32> {
    let parent = Process::read(root, pid).ok()?.ppid;
    let program = root.link(format!("proc/{pid}/exe")).ok()?;
    let name = program.file_name()?.to_str()?;
    if INTERPRETERS.iter().any(|interpreter| name.starts_with(interpreter)) {
        return None;
    }
    (root.link(format!("proc/{parent}/exe")).ok()? == program).then_some(parent)
}

/// Of `http://host:port/…`; the scheme's default port where none is given.
fn host_and_port(url: &str) -> Option<(&str, u16)> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let authority = rest.split(['/', '?']).next()?;
    let digits = |port: &str| port.chars().all(|c| c.is_ascii_digit());
    match authority.rsplit_once(':').filter(|(_, port)| digits(port)) {
        Some((host, port)) => Some((host, port.parse().ok()?)),
        None => Some((authority, if scheme == "https" { 443 } else { 80 })),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        servers: ServerFlags,
    }

    #[test]
    fn more_fields_are_those_of_one_server() {
        let words = ["", "--server", "a=http://x:1", "--server", "b=http://x:2", "--extra-body"];
        let parse = |value| Cli::try_parse_from(words.into_iter().chain([value]));
        let specs = parse(r#"b={"guided_regex": "x=y"}"#).unwrap().servers.specs().unwrap();
        assert!(specs[0].target.extra_body.is_empty());
        assert_eq!(specs[1].target.extra_body["guided_regex"], "x=y");
        assert!(parse("b=[1]").is_err());
        assert!(parse("c={}").unwrap().servers.specs().is_err());
    }

    #[test]
    fn ports_of_urls() {
        assert_eq!(host_and_port("http://localhost:8000/v1"), Some(("localhost", 8000)));
        assert_eq!(host_and_port("http://[::1]:9/"), Some(("[::1]", 9)));
        assert_eq!(host_and_port("https://api.example"), Some(("api.example", 443)));
        assert_eq!(host_and_port("127.0.0.1:8000"), Some(("127.0.0.1", 8000)));
    }

    #[test]
    fn the_tail_of_a_log_is_of_this_start() {
        let path = std::env::temp_dir().join(format!("saccade-log-{}", std::process::id()));
        std::fs::write(&path, "an earlier start\n").unwrap();
        let log = Log::at_its_end(&path);
        assert!(log.tail().starts_with("it wrote nothing"), "{}", log.tail());
        let lines: String = (0..500).map(|i| format!("line {i}\n")).collect();
        std::fs::write(&path, format!("an earlier start\n{lines}")).unwrap();
        let tail = log.tail();
        assert_eq!(tail.lines().count(), 11, "{tail}");
        assert!(tail.ends_with("line 499") && !tail.contains("earlier"), "{tail}");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_listener_of_this_process_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let found = find_by_port(&Root::default(), &url);
        // Cargo's own test runner is not the same program as the test.
        assert_eq!(found, Some(std::process::id()));
        assert_eq!(find_by_port(&Root::default(), "http://192.0.2.1:80"), None);
    }
}
