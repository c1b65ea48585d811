//! Stops servers that are not being measured, and can never leave them stopped: a small process
//! does it, and continues them when told to or when the tool ends, however it ends.

use std::io::Write;
use std::process::ExitCode;

use super::kept::{Kept, Setup};

/// Stops and continues processes.
#[derive(Debug)]
pub struct Pauser(Kept);

impl Pauser {
    /// Starts the process that does it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start() -> anyhow::Result<Pauser> {
        // A session of its own: a Ctrl-C at the terminal must not take it away first.
        let setup = Setup { own_session: true, inherited: Vec::new() };
        let mut kept = Kept::start("the pauser", &["pauser".to_owned()], &setup)?;
        kept.go()?;
        Ok(Pauser(kept))
    }

    /// Stops exactly these processes; others that were stopped continue.
    ///
    /// # Errors
    /// One of them may not be signalled: all continue. Processes that have ended are skipped.
    pub fn pause_only(&mut self, pids: &[u32]) -> anyhow::Result<()> {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        self.0.tell(&pids.join(" "))?;
        self.0.expect("done")
    }
}

/// The process side: each line names the processes to stop.
pub(super) fn serve() -> anyhow::Result<ExitCode> {
    // SAFETY: plain integers. The parent's death signal is of no use here; the end of standard
    // input is, since it comes after everything that was written.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, 0);
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
    }
    let mut stopped: Vec<libc::pid_t> = Vec::new();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let answer = match line.as_str() {
            "go" => "ready".to_owned(),
            "stop" => break,
            pids => {
                let wanted = pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
                change(&mut stopped, wanted)
            }
        };
        if writeln!(std::io::stdout(), "{answer}").is_err() {
            break;
        }
    }
    stopped.iter().for_each(|&pid| drop(signal(pid, libc::SIGCONT)));
    Ok(ExitCode::SUCCESS)
}

fn change(stopped: &mut Vec<libc::pid_t>, wanted: Vec<libc::pid_t>) -> String {
    stopped.iter().filter(|pid| !wanted.contains(pid)).for_each(|&pid| {
        drop(signal(pid, libc::SIGCONT));
    });
    stopped.retain(|pid| wanted.contains(pid));
    for pid in wanted {
        match signal(pid, libc::SIGSTOP) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                stopped.drain(..).for_each(|pid| drop(signal(pid, libc::SIGCONT)));
                return format!("error: stop process {pid}: {error}");
            }
            _ if !stopped.contains(&pid) => stopped.push(pid),
            _ => {}
        }
    }
    "done".to_owned()
}

fn signal(pid: libc::pid_t, signal: libc::c_int) -> std::io::Result<()> {
    // SAFETY: plain integers. A group (negative) or every process (-1) is never meant.
    if pid > 0 && unsafe { libc::kill(pid, signal) } == 0 {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}
