//! The process side: what the tool's own binary does when the tool starts it again as a hidden
//! `bench neighbour`. Nothing that it starts outlives it: when its parent ends, in whatever way,
//! its standard input ends, and it kills all its descendants and itself. A server is asked first,
//! and has some seconds.
//!
//! Lines on standard input: `go` (once placed), later `stop`. Lines on standard output: `ready`,
//! or `error: …` and the end.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use saccade_host::CpuSet;

use super::board::Board;
use super::spec::{Kind, Placement};
use super::{commands, descendants, hogs, pauser};
use crate::micro::Part;

/// Flags of the hidden `bench neighbour`, which the tool starts itself.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    role: Role,
}

/// What the process is for.
#[derive(Debug, clap::Subcommand)]
enum Role {
    /// Take what a server needs
    Hog {
        /// What to take
        kind: Kind,
        /// Threads, jobs or copies
        #[arg(long)]
        threads: usize,
        /// Inherited file descriptor of the board
        #[arg(long)]
        board: RawFd,
        /// Cores and nice value are applied here; quota and session by the parent
        #[arg(long)]
        placement: Placement,
    },
    /// Hold a server that is to end with the tool
    Server {
        /// Command line, run by `sh -c`
        command: String,
        /// File for its output
        #[arg(long)]
        log_file: PathBuf,
        /// Cores it may use
        #[arg(long, value_parser = CpuSet::from_flag)]
        cores: Option<CpuSet>,
    },
    /// Play a part of a micro benchmark, to its end
    Part {
        /// The part, as JSON
        part: String,
    },
    /// Stop processes, and let them go on when told to or when the tool ends
    Pauser,
}

/// Runs a role until the parent ends it.
///
/// # Errors
/// A role that cannot be set up; it has been written to standard output as well.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Role::Pauser = args.role {
        return pauser::serve();
    }
    let signals = EndSignals::block()?;
    let mut parent = BufReader::new(std::io::stdin()).lines();
    match parent.next() {
        Some(Ok(line)) if line == "go" => {}
        _ => bail!("bench neighbour is started by the other commands of bench, not by hand"),
    }
    // SAFETY: prctl with a plain integer; orphans of our children become ours, so that
    // `descendants` finds them.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    if let Err(error) = set_up(&args.role) {
        fail(error);
    }
    say("ready");
    let holds_server = matches!(args.role, Role::Server { .. });
    let end_all = move || {
        if holds_server {
            commands::end_gracefully();
        }
        end()
    };
    std::thread::spawn(move || {
        // `stop`, or the end of the parent.
        drop(parent.next());
        end_all()
    });
    let wait_for_the_end = move || {
        signals.wait();
        end_all()
    };
    if let Role::Part { part } = &args.role {
        std::thread::spawn(wait_for_the_end);
        Part::read(part).and_then(Part::play).unwrap_or_else(fail);
        return Ok(ExitCode::SUCCESS);
    }
    wait_for_the_end()
}

/// Starts what the role asks for.
fn set_up(role: &Role) -> anyhow::Result<()> {
    match role {
        Role::Hog { kind, threads, board, placement } => {
            let board = Arc::new(Board::inherit(*board, *threads).context("open the board")?);
            place(placement)?;
            match kind {
                Kind::Pbzip2 => commands::pbzip2(&board, fail)?,
                Kind::Compile => commands::compile(&board, fail)?,
                Kind::Command(line) => commands::command(line, &board, fail)?,
                _ => hogs::start(kind, &board, fail)?,
            }
            Ok(())
        }
        Role::Server { command, log_file, cores } => {
            let cores = cores.as_ref();
            cores.map_or(Ok(()), |c| c.bind(0)).context("bind the server to its cores")?;
            commands::server(command, log_file, fail)
        }
        Role::Part { .. } | Role::Pauser => Ok(()),
    }
}

fn place(placement: &Placement) -> anyhow::Result<()> {
    if let Some(cores) = &placement.cores {
        cores.bind(0).with_context(|| format!("bind to cores {cores}"))?;
    }
    if let Some(nice) = placement.nice {
        // SAFETY: plain integers; 0 is this process.
        if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } != 0 {
            let error = std::io::Error::last_os_error();
            bail!("nice {nice}: {error} (below the present value it needs CAP_SYS_NICE)");
        }
    }
    Ok(())
}

/// A hog, a command or a server that fails ends this process: a silent one would pass for a
/// harmless one.
fn fail(error: anyhow::Error) {
    say(&format!("error: {error:#}").replace('\n', " "));
    end();
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A parent that is gone reads nothing; its end is noticed on standard input.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Kills all descendants, the process group and this process.
fn end() -> ! {
    descendants::kill_all();
    // SAFETY: plain integers; 0 names this process's own group, which its parent made for it.
    unsafe {
        libc::kill(0, libc::SIGKILL);
        libc::_exit(0)
    }
}

/// The signals that end this process, taken by one waiting thread instead of a handler.
struct EndSignals(libc::sigset_t);

impl EndSignals {
    /// Blocks them in this thread and those it starts.
    fn block() -> anyhow::Result<EndSignals> {
        // SAFETY: sigemptyset initialises the set before it is used.
        let (code, set) = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            (libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()), set)
        };
        if code != 0 {
            bail!("block signals: {}", std::io::Error::from_raw_os_error(code));
        }
        Ok(EndSignals(set))
    }

    fn wait(&self) {
        let mut signal = 0;
        // SAFETY: an initialised set and a place for the answer.
        unsafe { libc::sigwait(&self.0, &mut signal) };
    }
}
