//! `saccade kv`: looks into a prefix store and tends it.
//!
//! What `saccade serve --prefix-store URL` stores is listed, verified and evicted here, without a
//! server; and a running server is warmed with prompts, whose KV it then stores. Nothing here
//! believes a store: a value is parsed with bounds, and compared with its key.

mod args;
mod evict;
mod list;
mod sample;
mod store;
mod text;
mod verify;
mod warm;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

pub use args::Command;

/// Found something wrong, or did not do all that was asked.
const EXIT_WRONG: u8 = 1;
/// As shells have it for SIGINT.
const EXIT_INTERRUPTED: u8 = 130;
/// For operations that were left at the end; a disk that hangs is not waited for.
const END_WITHIN: Duration = Duration::from_millis(500);

/// Runs a command to its end, or until Ctrl-C.
///
/// # Errors
/// A flag is wrong, or the store or the server does not answer.
pub fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = runtime.block_on(async {
        match command {
            Command::List(args) => list::run(args).await,
            Command::Verify(args) => verify::run(args).await,
            Command::Evict(args) => evict::run(args).await,
            Command::Warm(args) => warm::run(args).await,
        }
    });
    runtime.shutdown_timeout(END_WITHIN);
    code
}

/// What `work` gives; none if SIGINT or SIGTERM came first.
async fn unless_interrupted<T>(work: impl Future<Output = T>) -> std::io::Result<Option<T>> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        done = work => Ok(Some(done)),
        _ = interrupt.recv() => Ok(None),
        _ = terminate.recv() => Ok(None),
    }
}

/// For a command that was left early.
fn interrupted() -> ExitCode {
    eprintln!("saccade kv: interrupted");
    ExitCode::from(EXIT_INTERRUPTED)
}

/// Writes a text to the standard output. Its reader may have seen enough and gone.
fn print(text: &str) -> std::io::Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
