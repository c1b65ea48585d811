//! One plane as a child process: how it is started, where it runs, how it ends.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;

use anyhow::Context;
use saccade_frontend::Listening;
use saccade_host::CpuSet;
use tokio::process::{Child, Command};

use crate::cli::{SchedulerPlace, ServeArgs};
use crate::supervised::{SUPERVISOR_VARIABLE, die_with};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaneKind {
    Device,
    Frontend,
    Fetch,
}

/// How a plane ended on its own.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// It said that a restart would not help.
    Config(i32),
    /// It crashed, was killed, or ended for no reason.
    Died(String),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Config(code) => write!(f, "exit code {code}"),
            Exit::Died(how) => f.write_str(how),
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Exit {
        match (status.code(), status.signal()) {
            (Some(code), _) if code == i32::from(crate::EXIT_CONFIG) => Exit::Config(code),
            (Some(code), _) => Exit::Died(format!("exit code {code}")),
            (None, Some(signal)) => Exit::Died(format!("signal {signal}")),
            (None, None) => Exit::Died("unknown status".into()),
        }
    }
}

/// A plane, running or not.
pub(super) struct Plane {
    kind: PlaneKind,
    index: u32,
    cores: Option<CpuSet>,
    nice: i32,
    environment: Vec<(&'static str, String)>,
    /// The socket that it inherits.
    listening: Option<Arc<Listening>>,
    child: Option<Child>,
}

impl Plane {
    pub fn device(args: &ServeArgs, model_folder: &Path, ring: &Path) -> Plane {
        let placement = &args.placement;
        Plane {
            kind: PlaneKind::Device,
            index: 0,
            cores: match args.sim.scheduler {
                SchedulerPlace::Device => placement.device_cores.clone(),
                SchedulerPlace::Host => placement.frontend_cores.clone(),
            },
            nice: placement.device_nice,
            environment: environment(model_folder, ring),
            listening: None,
            child: None,
        }
    }

    /// `fetch_ring`: where the device plane puts the ring that it shares with this one.
    pub fn fetch(args: &ServeArgs, model_folder: &Path, ring: &Path, fetch_ring: &Path) -> Plane {
        Plane {
            kind: PlaneKind::Fetch,
            index: 0,
            cores: args.fetch.fetch_cores.clone(),
            nice: 0,
            environment: environment(model_folder, ring),
            listening: None,
            child: None,
        }
        .told(fetch_ring)
    }

    /// The same plane, which knows of that ring.
    pub fn told(mut self, fetch_ring: &Path) -> Plane {
        self.environment.push(("SACCADE_FETCH_RING", fetch_ring.display().to_string()));
        self
    }

    /// `listening`: where it accepts connections, beside the others.
    pub fn frontend(
        args: &ServeArgs,
        model_folder: &Path,
        ring: &Path,
        index: u32,
        listening: &Arc<Listening>,
    ) -> Plane {
        let mut environment = environment(model_folder, ring);
        let descriptor = listening.as_fd().as_raw_fd();
        environment.push(("SACCADE_LISTEN_FD", descriptor.to_string()));
        environment.push(("SACCADE_FRONTEND_INDEX", index.to_string()));
        Plane {
            kind: PlaneKind::Frontend,
            index,
            cores: args.placement.frontend_cores.clone(),
            nice: 0,
            environment,
            listening: Some(listening.clone()),
            child: None,
        }
    }

    pub fn kind(&self) -> PlaneKind {
        self.kind
    }

    /// Which of its kind it is, from 0.
    pub fn index(&self) -> u32 {
        self.index
    }

    pub fn name(&self) -> String {
        match self.kind {
            PlaneKind::Device => "device plane".into(),
            PlaneKind::Frontend => format!("frontend plane {}", self.index),
            PlaneKind::Fetch => "fetch plane".into(),
        }
    }

    /// Name, process, cores and priority, in a line.
    pub fn describe(&self) -> String {
        let pid = self.pid().map_or("-".into(), |p| p.to_string());
        let cores = match (&self.cores, CpuSet::of_task(0)) {
            (Some(cores), _) => cores.to_string(),
            (None, Ok(all)) => format!("{all} (not fenced)"),
            (None, Err(_)) => "unknown".into(),
        };
        format!("{:<16} pid {pid:<8} cores {cores:<18} nice {}", self.name(), self.nice)
    }

    /// Starts the same binary with the same flags, and what the supervisor adds in the environment.
    pub fn spawn(&mut self) -> anyhow::Result<()> {
        let subcommand = match self.kind {
            PlaneKind::Device => "device",
            PlaneKind::Frontend => "frontend",
            PlaneKind::Fetch => "fetch",
        };
        let mut command = Command::new(std::env::current_exe().context("find the own binary")?);
        command.arg(subcommand).args(flags_after_subcommand());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(std::process::Stdio::null());
        let (cores, nice) = (self.cores.clone(), self.nice);
        let inherited = self.listening.as_ref().map(|listening| listening.as_fd().as_raw_fd());
        let supervisor = std::process::id();
        command.env(SUPERVISOR_VARIABLE, supervisor.to_string());
        // SAFETY: between fork and exec only async-signal-safe calls are made (prctl, getppid,
        // setpgid, fcntl, sched_setaffinity, setpriority) and nothing is allocated unless one of
        // them fails.
        unsafe {
            command.pre_exec(move || {
                die_with(supervisor)?;
                inherited.map_or(Ok(()), keep_open)?;
                place(cores.as_ref(), nice)
            });
        }
        let child = command.spawn().with_context(|| format!("start the {}", self.name()))?;
        self.child = Some(child);
        Ok(())
    }

    /// How the process ended, if it did since the last call.
    pub fn exited(&mut self) -> anyhow::Result<Option<Exit>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status = child.try_wait().with_context(|| format!("wait for the {}", self.name()))?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status.map(Exit::from))
    }

    /// Of its process, if that runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Asks the process to end.
    pub fn terminate(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Ends the process, even one that is stopped; [`Self::exited`] will say so.
    pub fn end_at_once(&self) {
        self.signal(libc::SIGKILL);
    }

    fn signal(&self, signal: i32) {
        if let Some(pid) = self.pid() {
            // SAFETY: a signal to our own child, whose pid is not reused before it is waited for.
            unsafe { libc::kill(pid as libc::pid_t, signal) };
        }
    }

    /// Waits until the process has ended.
    pub async fn wait(&mut self) {
        if let Some(child) = &mut self.child {
            // An error means that there is nothing to wait for.
            child.wait().await.ok();
            self.child = None;
        }
    }

    /// Ends the process at once.
    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.ok();
        }
    }
}

fn environment(model_folder: &Path, ring: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("SACCADE_MODEL_FOLDER", model_folder.display().to_string()),
        ("SACCADE_RING", ring.display().to_string()),
    ]
}

/// What the user typed after `serve`.
fn flags_after_subcommand() -> Vec<std::ffi::OsString> {
    let mut args = std::env::args_os().skip(1);
    let mut before: Vec<_> = args.by_ref().take_while(|arg| arg != "serve").collect();
    before.retain(|arg| arg != "serve");
    before.into_iter().chain(args).collect()
}

/// Runs in the child before exec: the descriptor, which all others lose then, stays.
fn keep_open(descriptor: RawFd) -> std::io::Result<()> {
    // SAFETY: changes a flag of a descriptor that the parent holds open.
    match unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Runs in the child before exec: it gets signals only from the supervisor (a terminal's Ctrl-C
/// goes to the whole group), and runs where it was told to.
fn place(cores: Option<&CpuSet>, nice: i32) -> std::io::Result<()> {
    // SAFETY: plain system calls on the calling process.
    unsafe {
        libc::setpgid(0, 0);
        if nice != 0 && libc::setpriority(libc::PRIO_PROCESS, 0, nice) != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    cores.map_or(Ok(()), |cores| cores.bind(0))
}
