//! Child processes of a benchmark. Each is this same program, told by one environment variable
//! which part to play; it dies with the thread that started it, and is ended when the crew is
//! dropped.

use std::io::{self, Read};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::cores;
use crate::micro::role::Role;

/// The variable that makes this program one of a crew.
pub(crate) const VARIABLE: &str = "SACCADE_MICRO_PART";

/// How often a finished child is looked for.
const POLL: Duration = Duration::from_millis(2);
/// Most of a child's last words that are kept.
const WORDS_BYTES: u64 = 4096;

/// What a child is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Name in errors and in `top`, at most 15 bytes of it.
    pub name: String,
    /// Cores that it may use; empty: those of the parent.
    pub cores: Vec<usize>,
    /// What it does.
    pub role: Role,
}

impl Part {
    /// The part that the parent gave this process, if it is one of a crew.
    ///
    /// # Errors
    /// If the variable does not hold a part.
    pub(crate) fn of_this_process() -> anyhow::Result<Option<Part>> {
        match std::env::var(VARIABLE) {
            Ok(text) => Ok(Some(serde_json::from_str(&text).context(VARIABLE)?)),
            Err(_) => Ok(None),
        }
    }

    /// Takes the part's name and cores, then plays it.
    ///
    /// # Errors
    /// Of the role.
    pub(crate) fn play(self) -> anyhow::Result<()> {
        let name = std::ffi::CString::new(self.name.as_str())?;
        // SAFETY: PR_SET_NAME reads at most 16 bytes of a NUL-terminated string.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        if !self.cores.is_empty() {
            cores::restrict_to(&self.cores).with_context(|| format!("cores {:?}", self.cores))?;
        }
        self.role.play(&self.name)
    }
}

#[derive(Debug)]
struct Member {
    name: String,
    child: Child,
    ended: bool,
}

/// Processes that are ended together.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    members: Vec<Member>,
}

impl Crew {
    /// Starts one process; `inherited` are descriptors that it takes over under their numbers.
    ///
    /// # Errors
    /// If the system refuses a process.
    pub(crate) fn start(&mut self, part: &Part, inherited: &[RawFd]) -> anyhow::Result<()> {
        let inherited = inherited.to_vec();
        let parent = std::process::id();
        // The running program, also when its file was replaced since it started.
        let mut command = Command::new("/proc/self/exe");
        command
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, serde_json::to_string(part)?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are
        // allowed: it makes system calls and allocates nothing.
        unsafe { command.pre_exec(move || prepare_child(parent, &inherited)) };
        let child = command.spawn().with_context(|| format!("start {}", part.name))?;
        self.members.push(Member { name: part.name.clone(), child, ended: false });
        Ok(())
    }

    /// Looks whether all are well.
    ///
    /// # Errors
    /// Names the first that ended with an error, and what it said.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        for member in self.members.iter_mut().filter(|m| !m.ended) {
            if let Some(status) = member.child.try_wait()? {
                member.ended = true;
                if !status.success() {
                    let words = last_words(&mut member.child);
                    bail!("{} ended ({}){words}", member.name, reason(status));
                }
            }
        }
        Ok(())
    }

    /// Waits until all have ended well.
    ///
    /// # Errors
    /// As [`Crew::check`]; or names those that have not ended within `limit`.
    pub(crate) fn finish(mut self, limit: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            self.check()?;
            let left: Vec<_> = self.members.iter().filter(|m| !m.ended).collect();
            if left.is_empty() {
                return Ok(());
            }
            if started.elapsed() > limit {
                let names: Vec<_> = left.iter().map(|m| m.name.as_str()).collect();
                bail!("waited {:.1} s: the end of {}", limit.as_secs_f64(), names.join(", "));
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in self.members.iter_mut().filter(|m| !m.ended) {
            // It may have ended by itself meanwhile; then there is nothing to do.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

/// In the child, before the program is loaded.
fn prepare_child(parent: u32, inherited: &[RawFd]) -> io::Result<()> {
    // SAFETY: system calls on plain numbers; the signal set is local.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The parent may have ended before the line above.
        if libc::getppid() as u32 != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        for &fd in inherited {
            if libc::fcntl(fd, libc::F_SETFD, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // The parent holds signals back while named files exist; its children need not.
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
    Ok(())
}

fn reason(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(signal) => format!("by signal {signal}"),
        None => format!("exit code {}", status.code().unwrap_or(-1)),
    }
}

/// What an ended child wrote to its standard error.
fn last_words(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(pipe) = child.stderr.take() {
        // Whatever can be read is better than nothing.
        let _ = pipe.take(WORDS_BYTES).read_to_string(&mut text);
    }
    if text.trim().is_empty() { String::new() } else { format!(": {}", text.trim()) }
}
