//! The parent side: a process of our own binary that ends when this one does.

use std::io::{self, Write};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::lines::{Line, Lines};

/// How the tool's own binary is asked for a role.
const SELF_COMMAND: [&str; 2] = ["bench", "neighbour"];
/// Still the right file after a new build has replaced it.
const OWN_PROGRAM: &str = "/proc/self/exe";
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
/// A hog touches gigabytes of buffers before it is ready, perhaps under a full load.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// A killed process group is gone at once; a server that is asked to end has 10 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Between the end of its output and its own end.
const ENDING_TIMEOUT: Duration = Duration::from_secs(1);
/// Its last line begins with this when it ends with an error.
const ERROR: &str = "error: ";

/// Names a binary that has `bench neighbour`, for programs that lack it: call it once, before the
/// first neighbour starts.
pub fn use_program(program: impl Into<PathBuf>) {
    PROGRAM.get_or_init(|| program.into());
}

/// Settings besides the role's own arguments.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    /// A session of its own; otherwise a process group of its own in our session.
    pub own_session: bool,
    /// File descriptors that the process inherits, under their numbers.
    pub inherited: Vec<RawFd>,
}

/// A kept process; its whole tree ends when this is dropped, or when this process ends.
#[derive(Debug)]
pub(crate) struct Kept {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines,
    what: String,
}

impl Kept {
    /// Starts the process; it does nothing before [`Kept::go`].
    ///
    /// Call it on a thread that lives as long as the process must: the kernel's death signal is
    /// tied to the starting thread (the end of standard input is not).
    pub fn start(what: &str, role: &[String], setup: &Setup) -> anyhow::Result<Kept> {
        let mut command = Command::new(PROGRAM.get().map_or(Path::new(OWN_PROGRAM), |p| p));
        command
            .arg0("saccade")
            .args(SELF_COMMAND)
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        prepare(&mut command, setup);
        let mut child = command.spawn().with_context(|| format!("start {what}"))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the output of a child")?;
        Ok(Kept { child, input, lines: Lines::of(output), what: what.to_owned() })
    }

    /// Lets it begin, and waits until it has.
    ///
    /// # Errors
    /// It cannot begin, in its own words; or it does not answer.
    pub fn go(&mut self) -> anyhow::Result<()> {
        self.tell("go")?;
        self.expect("ready")
    }

    /// Writes a line to it.
    pub fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("its input is closed")?;
        writeln!(input, "{line}").with_context(|| format!("{}: it has ended", self.what))
    }

    /// Waits for a line from it.
    pub fn expect(&mut self, wanted: &str) -> anyhow::Result<()> {
        match self.lines.next(READY_TIMEOUT)? {
            Line::Whole(line) if line == wanted => Ok(()),
            Line::Whole(line) => bail!("{}: {}", self.what, line.trim_start_matches(ERROR)),
            Line::Late => bail!("{}: not {wanted} within {} s", self.what, READY_TIMEOUT.as_secs()),
            Line::End => Err(self.closed(wanted)),
        }
    }

    /// Its output is closed: most likely it is ending, and its status says how.
    fn closed(&mut self, wanted: &str) -> anyhow::Error {
        let patience = Instant::now() + ENDING_TIMEOUT;
        while Instant::now() < patience {
            match self.status() {
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Ok(Some(status)) => return self.ended(status),
                Err(error) => return error,
            }
        }
        anyhow::anyhow!("{}: closed its output before it was {wanted}", self.what)
    }

    /// An error if it has ended on its own, in its own words where it left some.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.status()? {
            None => Ok(()),
            Some(status) => Err(self.ended(status)),
        }
    }

    /// Whether it has ended as it should: on its own, with success.
    ///
    /// # Errors
    /// It has ended otherwise; in its own words where it left some.
    pub fn has_succeeded(&mut self) -> anyhow::Result<bool> {
        match self.status()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(self.ended(status)),
        }
    }

    fn status(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().context("ask for the state of a child")
    }

    /// How it ended.
    fn ended(&mut self, status: ExitStatus) -> anyhow::Error {
        while let Ok(Line::Whole(line)) = self.lines.next(Duration::ZERO) {
            if let Some(words) = line.strip_prefix(ERROR) {
                return anyhow::anyhow!("{}: {words}", self.what);
            }
        }
        anyhow::anyhow!("{} has ended ({status})", self.what)
    }

    /// What it is called in errors.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Its process id; also that of its process group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end what it runs, gracefully, and waits.
    pub fn stop(mut self) -> anyhow::Result<()> {
        // Both fail only when it has ended already.
        let _ = self.tell("stop");
        self.wait(STOP_TIMEOUT).map(drop)
    }

    /// Kills it and everything that it runs, and waits.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.input = None;
        self.wait(STOP_TIMEOUT).map(drop)
    }

    fn wait(&mut self, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().context("wait for a child")? {
                return Ok(Some(status));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        bail!("{} does not end", self.what)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.input = None;
        if matches!(self.wait(STOP_TIMEOUT), Ok(Some(_))) {
            return;
        }
        // SAFETY: plain integers; the group was made for this child, which has not been reaped.
        unsafe { libc::kill(-(self.child.id() as libc::pid_t), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

fn prepare(command: &mut Command, setup: &Setup) {
    let (own_session, inherited) = (setup.own_session, setup.inherited.clone());
    // SAFETY: only async-signal-safe calls on plain integers; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            let grouped = if own_session { libc::setsid() } else { libc::setpgid(0, 0) };
            if grouped < 0 || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) < 0 {
                return Err(io::Error::last_os_error());
            }
            // Opened with close-on-exec, so that no other child gets it.
            match inherited.iter().any(|&fd| libc::fcntl(fd, libc::F_SETFD, 0) < 0) {
                true => Err(io::Error::last_os_error()),
                false => Ok(()),
            }
        });
    }
}
