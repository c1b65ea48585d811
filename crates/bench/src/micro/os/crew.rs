//! The processes of a benchmark, each with its part. They are kept as neighbours are: none outlives
//! this process or the crew.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use saccade_host::CpuSet;
use serde::{Deserialize, Serialize};

use crate::micro::role::Role;
use crate::neighbours::{Kept, Setup};

/// How often to look for finished children.
const POLL: Duration = Duration::from_millis(2);

/// What a child is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    /// Name in errors and in `top`, at most 15 bytes of it.
    pub name: String,
    /// Cores that it may use; none: those of the parent.
    pub cores: Option<CpuSet>,
    /// What it does.
    pub role: Role,
}

impl Part {
    /// The part that a parent wrote.
    ///
    /// # Errors
    /// If the text is no part.
    pub(crate) fn read(text: &str) -> anyhow::Result<Part> {
        serde_json::from_str(text).context("read the part of this process")
    }

    /// Takes the part's name and cores, then plays it.
    ///
    /// # Errors
    /// Of the role.
    pub(crate) fn play(self) -> anyhow::Result<()> {
        let name = std::ffi::CString::new(self.name.as_str())?;
        // SAFETY: PR_SET_NAME reads at most 16 bytes of a NUL-terminated string.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        if let Some(cores) = &self.cores {
            cores.bind(0).with_context(|| format!("bind to cores {cores}"))?;
        }
        self.role.play(&self.name)
    }
}

#[derive(Debug)]
struct Member {
    process: Kept,
    ended: bool,
}

/// Processes that are ended together.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    members: Vec<Member>,
}

impl Crew {
    /// Starts one process, and does not wait for it; `inherited` are descriptors that it takes over
    /// under their numbers.
    ///
    /// # Errors
    /// If the system refuses a process.
    pub(crate) fn start(&mut self, part: &Part, inherited: &[RawFd]) -> anyhow::Result<()> {
        let role = ["part".to_owned(), serde_json::to_string(part)?];
        let setup = Setup { own_session: false, inherited: inherited.to_vec() };
        let mut process = Kept::start(&part.name, &role, &setup)?;
        process.tell("go")?;
        self.members.push(Member { process, ended: false });
        Ok(())
    }

    /// Checks that all are well.
    ///
    /// # Errors
    /// Names the first that ended with an error, and what it said.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        for member in self.members.iter_mut().filter(|m| !m.ended) {
            member.ended = member.process.has_succeeded()?;
        }
        Ok(())
    }

    /// Waits until all have ended well.
    ///
    /// # Errors
    /// As [`Crew::check`]; or names the processes that have not ended within `limit`.
    pub(crate) fn finish(mut self, limit: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            self.check()?;
            let left: Vec<_> = self.members.iter().filter(|m| !m.ended).collect();
            if left.is_empty() {
                return Ok(());
            }
            if started.elapsed() > limit {
                let names: Vec<_> = left.iter().map(|m| m.process.what()).collect();
                bail!("waited {:.1} s: the end of {}", limit.as_secs_f64(), names.join(", "));
            }
            std::thread::sleep(POLL);
        }
    }
}
